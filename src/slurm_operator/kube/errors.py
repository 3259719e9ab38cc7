"""What the API server, or the way to it, can answer instead of a result.

Every error names the verb, the kind and the object, and is fit to be shown to a person as it is.
"""

# ruff: noqa: N818 - these are the names that Kubernetes itself gives to its refusals

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from slurm_operator.errors import UserError
from slurm_operator.kube.model import Model
from slurm_operator.kube.resource import Resource, T

LONGEST_RETRY_SECONDS = 60.0
"""A server that asks for a longer pause is asked again after this time."""


class _Cause(Model):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(Model):
    retry_after_seconds: int = 0
    causes: tuple[_Cause, ...] | None = None


class Status(Model):
    """The `Status` object in which Kubernetes wraps refusals."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """What was being tried, in the words of RBAC."""

    verb: str
    resource: str
    kind: str
    name: str = ""
    namespace: str = ""
    subresource: str = ""

    @classmethod
    def on(
        cls, res: Resource[T], verb: str, namespace: str | None = None, name: str = "", subresource: str = ""
    ) -> "Call":
        return cls(verb, res.label, res.kind, name, namespace or "", subresource)

    def __str__(self) -> str:
        target = self.resource + (f"/{self.subresource}" if self.subresource else "")
        named = f" {self.name!r}" if self.name else ""
        where = f" in namespace {self.namespace!r}" if self.namespace else ""
        return f"{self.verb} {target}{named}{where}"


class ApiError(UserError):
    """A call to the API server that did not succeed."""

    def __init__(
        self,
        call: Call,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"cannot {call}: {message}", self.cure(call, message))
        self.call = call
        self.verb = call.verb
        self.kind = call.kind
        self.name = call.name
        self.namespace = call.namespace
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.fields = fields
        """The fields that the server names as the cause."""

    def cure(self, call: Call, message: str) -> str:
        """What a person can do about it, "" if the message says enough."""
        return ""


class NotFound(ApiError):
    def cure(self, call: Call, message: str) -> str:
        return "" if call.name else f"does this cluster serve {call.resource}? `kubectl api-resources` tells"


class AlreadyExists(ApiError): ...


class Conflict(ApiError): ...


class Gone(ApiError):
    """The resource version asked for is no longer kept."""


class Expired(Gone): ...


class Invalid(ApiError): ...


class Forbidden(ApiError):
    def cure(self, call: Call, message: str) -> str:
        if " cannot " not in message:
            # Not RBAC but admission: quota, a namespace that goes away. The message says it all.
            return ""
        target = call.resource + (f"/{call.subresource}" if call.subresource else "")
        scope = f"a Role in namespace {call.namespace!r}" if call.namespace else "a ClusterRole"
        return f"grant this account the verb {call.verb!r} on {target!r} with {scope}"


class Unauthorized(ApiError):
    def cure(self, call: Call, message: str) -> str:
        return "the server does not accept these credentials: renew the token or the client certificate"


class TooManyRequests(ApiError): ...


class ServerError(ApiError): ...


class Unreachable(ApiError):
    """No answer: the connection failed, broke, or the deadline passed."""

    def __init__(self, call: Call, message: str, hint: str = "") -> None:
        super().__init__(call, message)
        self.hint = hint


class NotLeading(ApiError):
    """Not sent: the lease of this process has run out, so that another process may lead."""


_BY_REASON: dict[str, type[ApiError]] = {"AlreadyExists": AlreadyExists, "Expired": Expired}
_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_decode_status = msgspec.json.Decoder(Status).decode


def from_response(call: Call, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    try:
        found = _decode_status(body)
    except msgspec.MsgspecError:
        # A proxy answers in its own words: the beginning of them is all there is to tell.
        found = Status(message=body[:200].decode(errors="replace").strip())
    return from_status(call, msgspec.structs.replace(found, code=status), headers.get("Retry-After", ""))


def from_status(call: Call, status: Status, retry_after: str = "") -> ApiError:
    kind = _BY_REASON.get(status.reason) or _BY_STATUS.get(status.code)
    if kind is None:
        kind = ServerError if status.code >= 500 else ApiError
    seconds = float(retry_after) if retry_after.isdecimal() else None
    if seconds is None and status.details and status.details.retry_after_seconds:
        seconds = float(status.details.retry_after_seconds)
    if seconds is not None:
        seconds = min(seconds, LONGEST_RETRY_SECONDS)
    message = status.message or status.reason or f"HTTP status {status.code}"
    causes = status.details.causes or () if status.details else ()
    fields = tuple(cause.field for cause in causes if cause.field)
    return kind(call, message, status=status.code, reason=status.reason, retry_after=seconds, fields=fields)

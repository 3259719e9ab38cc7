"""Refusals in the words and shape of the real API server (kind Status)."""

from __future__ import annotations

from typing import Any

from tests.fakes.apiserver.kinds import Kind

Json = dict[str, Any]

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Refusal(Exception):  # noqa: N818 - an answer of the server, not an error of the fake
    """A request answered with a Status of failure."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Json | None = None,
        retry_after: int | None = None,
        list_meta: Json | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = REASONS.get(code, "") if reason is None else reason
        self.message = message
        self.retry_after = retry_after
        self.details = details
        self.list_meta = list_meta or {}
        if retry_after is not None:
            self.details = (details or {}) | {"retryAfterSeconds": retry_after}

    @property
    def body(self) -> Json:
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_meta,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}


def _details(kind: Kind, name: str) -> Json:
    details = {"name": name, "kind": kind.plural}
    return details | {"group": kind.group} if kind.group else details


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(404, f'{kind.resource} "{name}" not found', details=_details(kind, name))


def unknown_resource() -> Refusal:
    return Refusal(404, "the server could not find the requested resource", details={})


class UnknownPath(Exception):  # noqa: N818 - an answer of the server, not an error of the fake
    """No such group is served: the one refusal that the real server gives in plain text."""


def already_exists(kind: Kind, name: str) -> Refusal:
    message = f'{kind.resource} "{name}" already exists'
    return Refusal(409, message, reason="AlreadyExists", details=_details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return Refusal(409, message, details=_details(kind, name))


def unmet_precondition(kind: Kind, name: str, what: str, wanted: str, found: str, happened: str) -> Refusal:
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    why = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})."
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why} The object might have been {happened}'
    return Refusal(409, message, details=_details(kind, name) | {"kind": kind.kind})


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def forbidden(kind: Kind, name: str, why: str, causes: list[Json] | None = None) -> Refusal:
    details = _details(kind, name) | ({"causes": causes} if causes else {})
    return Refusal(403, f'{kind.resource} "{name}" is forbidden: {why}', details=details)


def invalid(kind: Kind, name: str, field: str, why: str, cause: str = "FieldValueInvalid") -> Refusal:
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details: Json = {"kind": kind.kind, "causes": [{"reason": cause, "message": why, "field": field}]}
    details |= {key: value for key, value in (("name", name), ("group", kind.group)) if value}
    return Refusal(422, f'{qualified} "{name}" is invalid: {field}: {why}', details=details)


def invalid_options(options: str, field: str, why: str, cause: str = "FieldValueForbidden") -> Refusal:
    causes = [{"reason": cause, "message": why, "field": field}]
    details = {"group": "meta.k8s.io", "kind": options, "causes": causes}
    return Refusal(422, f'{options}.meta.k8s.io "" is invalid: {field}: {why}', details=details)


def bad_request(message: str) -> Refusal:
    return Refusal(400, message)


def too_old(asked: int, oldest: int) -> Refusal:
    return Refusal(410, f"too old resource version: {asked} ({oldest})")


def expired_continue(token: str) -> Refusal:
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
        "the results. Continuing with the provided token results in an inconsistent list - objects that were "
        "created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    return Refusal(410, message, list_meta={"continue": token})


def from_the_future(asked: int, current: int) -> Refusal:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return Refusal(504, message, details={"causes": [cause]}, retry_after=1)

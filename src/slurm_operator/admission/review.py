"""AdmissionReview, v1 and v1beta1: from bytes to a request, from a verdict to bytes, a clear answer to anything."""

import base64
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from slurm_operator.admission.defaults import Manifest, Operation
from slurm_operator.admission.problem import Problem, Warn
from slurm_operator.api.meta import Model
from slurm_operator.errors import UserError

log = logging.getLogger(__name__)

VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
WARNING_LIMIT: Final = 256
"""The API server cuts longer warnings off."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")


class GroupKind(Model):
    group: str = ""
    version: str = ""
    kind: str = ""


class Request(Model):
    """What somebody asks the API server to do."""

    uid: str
    kind: GroupKind = GroupKind()
    operation: str = ""
    name: str = ""
    namespace: str = ""
    dry_run: bool | None = None
    object: Manifest | None = None
    old_object: Manifest | None = None


class _Review(Model):
    api_version: str = ""
    kind: str = ""
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is answered. It is a refusal if there are problems."""

    problems: Sequence[Problem] = ()
    warnings: Sequence[Warn] = ()
    patch: Sequence[Operation] = ()
    code: int = 422
    """The HTTP status that the user's request fails with."""
    reason: str = "Invalid"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    media_type: str = "application/json"


Handler: TypeAlias = Callable[[Request], Awaitable[Verdict]]


class BadReview(Exception):  # noqa: N818 - the sender's mistake, not ours
    """What was sent is not a review that can be answered."""


def decode(body: bytes) -> tuple[str, Request]:
    """The version to answer in, and the request."""
    try:
        review = _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadReview(f"not an AdmissionReview: {error}") from None
    if review.kind != "AdmissionReview" or review.api_version not in VERSIONS:
        found = f"{review.kind or 'nothing'} of {review.api_version or 'no version'}"
        raise BadReview(f"expected an AdmissionReview of {' or '.join(VERSIONS)}, not {found}")
    if review.request is None or not review.request.uid:
        raise BadReview("the AdmissionReview has no request with a uid")
    return review.api_version, review.request


def encode(version: str, request: Request, verdict: Verdict) -> bytes:
    response: Manifest = {"uid": request.uid, "allowed": not verdict.problems}
    if verdict.problems:
        response["status"] = _status(request, verdict)
    if verdict.warnings:
        response["warnings"] = [_one_line(str(warning)) for warning in verdict.warnings]
    if verdict.patch and not verdict.problems:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(verdict.patch)).decode()
    return msgspec.json.encode({"apiVersion": version, "kind": "AdmissionReview", "response": response})


async def answer(body: bytes, handle: Handler) -> Answer:
    """Never raises: a mistake of the sender is a 400, one of ours a 500, which failurePolicy decides about."""
    try:
        version, request = decode(body)
    except BadReview as error:
        return Answer(400, f"{error}\n".encode(), "text/plain")
    try:
        verdict = await handle(request)
        return Answer(200, encode(version, request, verdict))
    except RecursionError:
        deep = Problem("spec", "is nested too deeply", "no field of this API has so many levels")
        return Answer(200, encode(version, request, Verdict([deep])))
    except UserError as error:
        log.warning("no verdict: %s", error, extra=_about(request))
        return Answer(500, f"{error}\n".encode(), "text/plain")
    except Exception:  # whatever it is, the next request must be answered too
        log.exception("no verdict", extra=_about(request))
        return Answer(500, b"slurm-operator could not judge this object; its log says why\n", "text/plain")


def _about(request: Request) -> dict[str, str]:
    return {"object": f"{request.kind.kind} {request.namespace}/{request.name}"}


def _status(request: Request, verdict: Verdict) -> dict[str, Any]:
    """In the form of the API server's own refusals, so that kubectl prints one line for each field."""
    lines = [str(problem) for problem in verdict.problems]
    causes = [
        {"reason": "FieldValueInvalid", "field": problem.path, "message": _explained(problem)}
        for problem in verdict.problems
    ]
    return {
        "status": "Failure",
        "code": verdict.code,
        "reason": verdict.reason,
        "message": lines[0] if len(lines) == 1 else "".join(f"\n* {line}" for line in lines),
        "details": {"group": request.kind.group, "kind": request.kind.kind, "name": request.name, "causes": causes},
    }


def _explained(problem: Problem) -> str:
    return f"{problem.message}: {problem.hint}" if problem.hint else problem.message


def _one_line(text: str) -> str:
    """Warnings travel in an HTTP header."""
    line = _CONTROL.sub(" ", text)
    return line if len(line) <= WARNING_LIMIT else line[: WARNING_LIMIT - 3] + "..."


_decode = msgspec.json.Decoder(_Review).decode

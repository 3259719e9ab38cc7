# ruff: noqa: N818 - the names say what happened
"""Every way in which a call to slurmrestd can fail, as a type, with one clear sentence each.

slurmrestd speaks in HTTP status, error number and text at once, and a 200 may carry an error:
`from_answer` is the one place that knows what they mean together.
"""

from collections.abc import Collection, Sequence

import msgspec


class ErrorEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry of the `errors` list of an answer."""

    error_number: int = 0
    error: str = ""
    description: str = ""


class SlurmError(Exception):
    """`str()` is a sentence for people; the attributes are for programs."""

    sentence = "slurmrestd refused {call}"
    outage = False
    """The cluster as a whole did not answer, so that the next call would most likely fail too."""

    def __init__(self, call: str, detail: str = "", *, status: int = 0, number: int = 0) -> None:
        super().__init__(call, detail)
        self.call = call
        self.detail = detail
        self.status = status
        self.number = number

    def __str__(self) -> str:
        what = self.sentence.format(call=self.call)
        return f"{what}: {self.detail}" if self.detail else what


class AuthFailed(SlurmError):
    sentence = "Slurm did not accept the operator's token for {call}; check that the JWT key is the cluster's"


class NotPermitted(SlurmError):
    sentence = "Slurm does not allow the operator's user {call}"


class NotFound(SlurmError):
    sentence = "Slurm knows no such object for {call}"


class Busy(SlurmError):
    sentence = "Slurm refused {call} because a job is using the node"


class HalfApplied(SlurmError):
    """The known nodes of a bulk request were changed, some names were unknown: read again before the next step."""

    sentence = "Slurm carried out {call} only for the nodes that it knows"


class InvalidRequest(SlurmError):
    sentence = "Slurm found a mistake in {call}"


class ServerFailed(SlurmError):
    sentence = "slurmrestd failed at {call}"
    outage = True


class ControllerDown(SlurmError):
    sentence = "slurmrestd cannot reach slurmctld for {call}"
    outage = True


class DatabaseDown(SlurmError):
    """Says nothing about slurmctld, which works without its accounting."""

    sentence = "slurmrestd cannot reach slurmdbd, or slurmdbd its database, for {call}"


class ControllerBusy(SlurmError):
    sentence = "slurmctld was too busy to answer {call}"
    outage = True


class DeadlineExceeded(SlurmError):
    sentence = "slurmrestd did not answer {call} in time"
    outage = True


class Unreachable(SlurmError):
    sentence = "slurmrestd cannot be reached for {call}"
    outage = True


class Garbage(SlurmError):
    sentence = "slurmrestd answered {call} with something that is not Slurm's"
    outage = True


class Unsupported(SlurmError):
    sentence = "this slurmrestd does not offer {call}"


class NotLeading(SlurmError):
    """Not sent: the lease of this process has run out, so that another process may lead."""

    sentence = "{call} was not sent because the lease ran out and another process may lead"


class CircuitOpen(SlurmError):
    """Not sent at all: the last calls failed and the next try is a moment away."""

    sentence = "{call} was not sent because slurmrestd keeps failing"

    def __init__(self, call: str, detail: str, retry_after: float) -> None:
        super().__init__(call, detail)
        self.retry_after = retry_after


NO_SUCH_NODE = 2018
NO_SUCH_JOB = 2017
NO_SUCH_RESERVATION = 2053
EMPTY_QUERY = 9000
NO_ERROR = 0
_AUTHENTICATION = 1007
_NOT_AN_OPERATOR = 2010
_NODES_BUSY = 2016
_DATABASE_CONNECTION = 7000
_CONNECTION = range(1800, 1900)
_TIMED_OUT = 5004
_PARSE = range(9200, 9300)


def from_answer(
    call: str, status: int, errors: Sequence[ErrorEntry], *, missing: Collection[int] = (), bulk: bool = False
) -> SlurmError:
    """What an answer with this status and these errors means; `missing` holds the numbers that mean "not there"."""
    first = errors[0] if errors else ErrorEntry()
    number = first.error_number
    kind = _kind(status, number, missing=missing, bulk=bulk)
    detail = " - ".join(text for text in (first.description, first.error) if text and text != "No error")
    return kind(call, detail or f"HTTP {status}", status=status, number=number)


def _kind(status: int, number: int, *, missing: Collection[int], bulk: bool) -> type[SlurmError]:
    if status in (401, 403, 511) or number == _AUTHENTICATION:
        return AuthFailed
    if number == _DATABASE_CONNECTION:
        return DatabaseDown
    if status == 504 or number == _TIMED_OUT:
        return ControllerBusy
    if status == 502 or number in _CONNECTION:
        return ControllerDown
    if number in missing and status < 500 and (number != NO_ERROR or status in (200, 404)):
        return HalfApplied if bulk else NotFound
    by_number = {_NOT_AN_OPERATOR: NotPermitted, _NODES_BUSY: Busy}
    if number in by_number:
        return by_number[number]
    if status >= 500 and number not in _PARSE:
        return ServerFailed
    return InvalidRequest

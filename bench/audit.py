"""Who asked the API server for what and when, from the server's own audit log: exact, and at no cost to anybody."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class _User(msgspec.Struct):
    username: str = ""


class _Reference(msgspec.Struct):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _Code(msgspec.Struct):
    code: int = 0


class Request(msgspec.Struct, rename="camel"):
    verb: str
    user: _User
    received: datetime = msgspec.field(name="requestReceivedTimestamp")
    done: datetime = msgspec.field(name="stageTimestamp")
    about: _Reference = msgspec.field(name="objectRef", default_factory=_Reference)
    status: _Code = msgspec.field(name="responseStatus", default_factory=_Code)
    stage: str = ""

    @property
    def worked(self) -> bool:
        return self.stage == "ResponseComplete" and self.status.code < 300

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES


class AuditLog:
    """Reads on where it stopped; heartbeats of nodes are skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._decode = msgspec.json.Decoder(Request).decode
        self._requests: list[Request] = []

    def mark(self) -> int:
        """A moment to count from."""
        self._read_on()
        return len(self._requests)

    def since(self, mark: int, *, user: str = "", verb: str = "", resource: str = "") -> list[Request]:
        """What ended since then; empty words mean any."""
        self._read_on()
        return [
            request
            for request in self._requests[mark:]
            if user in ("", request.user.username)
            and verb in ("", request.verb)
            and resource in ("", request.about.resource)
        ]

    def _read_on(self) -> None:
        self._requests.extend(request for request in map(self._decode, self._lines()) if _matters(request))

    def _lines(self) -> Iterator[bytes]:
        if self._path.stat().st_size < self._position:
            self._position = 0
        with self._path.open("rb") as log:
            log.seek(self._position)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                yield line


def _matters(request: Request) -> bool:
    return request.about.resource != "leases" and request.stage in ("ResponseComplete", "Panic")

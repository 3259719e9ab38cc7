"""Who asked the API server for what and when, from the server's own audit log: exact, and at no cost to anybody."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from slurm_local.audit import Request


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
            if user in ("", request.user.username) and verb in ("", request.verb) and resource in ("", request.resource)
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
    return request.resource != "leases" and request.stage in ("ResponseComplete", "Panic")

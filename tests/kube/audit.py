"""What a user asked of the server, from the server's own audit log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from slurm_local.audit import Request


@dataclass
class Audit:
    """The requests of one user since `mark` was last called."""

    log: Path
    user: str
    _seen: int = 0

    def mark(self) -> None:
        self._seen += len(self._whole_lines())

    def requests(self) -> list[Request]:
        """Each request once, whether it has ended or, like a watch, only begun."""
        found = (msgspec.json.decode(line, type=Request) for line in self._whole_lines().splitlines())
        return list({entry.audit_id: entry for entry in found if entry.user.username == self.user}.values())

    def _whole_lines(self) -> bytes:
        """Return what was logged since the mark, without a line that the server is still writing."""
        with self.log.open("rb") as log:
            log.seek(self._seen)
            text = log.read()
        return text[: text.rfind(b"\n") + 1]

    def writes(self) -> list[Request]:
        return [entry for entry in self.requests() if entry.is_write]

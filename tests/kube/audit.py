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
        self._seen = self.log.stat().st_size

    def requests(self) -> list[Request]:
        """Each request once, whether it has ended or, like a watch, only begun."""
        with self.log.open("rb") as log:
            log.seek(self._seen)
            lines = log.read().splitlines()
        found = (msgspec.json.decode(line, type=Request) for line in lines if line.endswith(b"}"))
        return list({entry.audit_id: entry for entry in found if entry.user.username == self.user}.values())

    def writes(self) -> list[Request]:
        return [entry for entry in self.requests() if entry.is_write]

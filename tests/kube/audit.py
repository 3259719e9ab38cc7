"""What a user asked of the server, from the server's own audit log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class _User(msgspec.Struct):
    # Whoever was refused at the door has no name.
    username: str = ""


class _Reference(msgspec.Struct):
    resource: str = ""
    name: str = ""
    namespace: str = ""
    subresource: str = ""


class _Code(msgspec.Struct):
    code: int = 0


class Request(msgspec.Struct, rename="camel"):
    audit_id: str = msgspec.field(name="auditID")
    verb: str
    user: _User
    request_uri: str = msgspec.field(name="requestURI")
    object_ref: _Reference = msgspec.field(default_factory=_Reference)
    response_status: _Code = msgspec.field(default_factory=_Code)
    stage: str = ""

    @property
    def resource(self) -> str:
        return self.object_ref.resource

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES


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

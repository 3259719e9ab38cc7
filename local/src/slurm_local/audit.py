"""One line of the API server's audit log: who asked for what, when, and how it went."""

from datetime import datetime

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
    received: datetime = msgspec.field(name="requestReceivedTimestamp")
    done: datetime = msgspec.field(name="stageTimestamp")
    object_ref: _Reference = msgspec.field(default_factory=_Reference)
    response_status: _Code = msgspec.field(default_factory=_Code)
    stage: str = ""

    @property
    def resource(self) -> str:
        return self.object_ref.resource

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES

    @property
    def worked(self) -> bool:
        return self.stage == "ResponseComplete" and self.response_status.code < 300

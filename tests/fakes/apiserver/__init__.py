"""An in-memory kube-apiserver for tests, as close to the real one as our code can tell.

`cluster` holds the rules and can be driven directly; `server` puts them on the wire with a request log and faults.
The suite in tests/contract runs against this and against the real server, so that the two stay alike.
"""

from tests.fakes.apiserver.cluster import Cluster, Writer
from tests.fakes.apiserver.faults import (
    CutStream,
    Delay,
    Disconnect,
    FailStream,
    Fault,
    Hang,
    Refuse,
    SilenceStream,
)
from tests.fakes.apiserver.kinds import Kind, custom
from tests.fakes.apiserver.server import FakeApiServer, Request
from tests.fakes.apiserver.status import Refusal

__all__ = [
    "Cluster",
    "CutStream",
    "Delay",
    "Disconnect",
    "FailStream",
    "FakeApiServer",
    "Fault",
    "Hang",
    "Kind",
    "Refusal",
    "Refuse",
    "Request",
    "SilenceStream",
    "Writer",
    "custom",
]

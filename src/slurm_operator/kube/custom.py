"""Our own kinds as resources of the API server."""

from typing import TypeVar

from slurm_operator.api import ACCOUNTING, CONTROLLER, LOGINSET, NODESET, RESTAPI, TOKEN, Kind
from slurm_operator.api import Object as CustomObject
from slurm_operator.api.names import GROUP, VERSION
from slurm_operator.kube.resource import Resource

K = TypeVar("K", bound=CustomObject)


def resource_of(kind: Kind[K]) -> Resource[K]:
    return Resource(GROUP, VERSION, kind.name, kind.plural, kind.type)


CONTROLLERS = resource_of(CONTROLLER)
ACCOUNTINGS = resource_of(ACCOUNTING)
NODESETS = resource_of(NODESET)
LOGINSETS = resource_of(LOGINSET)
RESTAPIS = resource_of(RESTAPI)
TOKENS = resource_of(TOKEN)

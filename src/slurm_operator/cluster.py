"""One Slurm cluster as a whole: whom to ask about it, and what all its NodeSets share. Keyed by Controller."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurm_operator.api import NodeSet, RestApi
from slurm_operator.desired import endpoints
from slurm_operator.desired.workers import workers_objects
from slurm_operator.kube.custom import CONTROLLERS, NODESETS, RESTAPIS
from slurm_operator.kube.indexes import BY_CONTROLLER, controller_key
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.actions import HasKube, Kube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import applied
from slurm_operator.runtime.execute import execute
from slurm_operator.runtime.plan import Plan, Result
from slurm_operator.runtime.reconcile import Refusals, lasting, refusal
from slurm_operator.runtime.references import LOADING, References
from slurm_operator.slurm.views import SlurmViews

Locate = Callable[[RestApi], str]
"""Where the operator reaches the slurmrestd of a RestApi."""


@dataclass(frozen=True, slots=True)
class Source:
    """Whom to ask about a cluster, and the key that signs the questions."""

    url: str
    key: bytes


@dataclass(frozen=True, slots=True)
class _World:
    kube: Kube


class ClusterReconciler:
    """`tell` hears what was refused, as a cluster has no object of its own to say it on."""

    def __init__(
        self,
        caches: Caches,
        references: References,
        views: SlurmViews,
        kube: Kube,
        locate: Locate,
        tell: Callable[[Key, Refusals], None],
    ) -> None:
        self._caches = caches
        self._references = references
        self._views = views
        self._world = _World(kube)
        self._locate = locate
        self._tell = tell

    async def __call__(self, key: Key) -> Result:
        loading = await self._watch_slurm(key)
        nodesets = self._caches.store(NODESETS).by_index(BY_CONTROLLER, controller_key(*key))
        plan = shared_objects(key, nodesets)
        outcome = await execute(plan.actions, self._world)
        self._tell(key, tuple(refusal(failure) for failure in outcome.failures if lasting(failure)))
        return outcome.result(after=LOADING if loading else None)

    async def _watch_slurm(self, key: Key) -> bool:
        """Follow the cluster through its slurmrestd; tells whether its key is still being read."""
        controller = self._caches.store(CONTROLLERS).get(*key)
        restapi = choose_restapi(self._caches.store(RESTAPIS).by_index(BY_CONTROLLER, controller_key(*key)))
        ref = controller.spec.jwt_key if controller is not None else None
        refs = self._references.read(("Cluster", key), key[0], secrets={ref.name} if ref is not None else ())
        if refs.loading:
            return True
        secret = refs.secret(ref.name).get(ref.key, b"") if ref is not None else b""
        if controller is None or restapi is None or not secret:
            await self._views.remove(key)
        else:
            self._views.set(key, self._locate(restapi), secret)
        return False


def choose_restapi(candidates: Iterable[RestApi]) -> RestApi | None:
    """The oldest that is not on its way out; among equals the first by name, so that it never flaps."""
    staying = [restapi for restapi in candidates if restapi.metadata.deletion_timestamp is None]
    return min(staying, key=lambda restapi: (restapi.metadata.creation_timestamp, restapi.metadata.name), default=None)


def shared_objects(key: Key, nodesets: Iterable[NodeSet]) -> Plan[HasKube]:
    """The Service and the budget of the workers; garbage collection takes them with the last NodeSet."""
    namespace, name = key
    living = [nodeset for nodeset in nodesets if nodeset.metadata.deletion_timestamp is None]
    return Plan(tuple(applied(workers_objects(name, namespace, living)) if living else ()))


def in_cluster(restapi: RestApi) -> str:
    """The Service of slurmrestd by name, as pods resolve it."""
    endpoint = endpoints.slurmrestd(restapi)
    return f"http://{endpoint.host}:{endpoint.port}"

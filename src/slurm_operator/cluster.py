"""One Slurm cluster as a whole: whom to ask about it, and what all its NodeSets share. Keyed by Controller."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from slurm_operator.api import RestApi, names
from slurm_operator.desired import endpoints
from slurm_operator.desired.workers import workers_objects
from slurm_operator.kube.custom import CONTROLLERS, NODESETS, RESTAPIS
from slurm_operator.kube.indexes import BY_CLUSTER, BY_CONTROLLER, controller_key
from slurm_operator.kube.kinds import POD_DISRUPTION_BUDGETS, PODS, SERVICES, Pod
from slurm_operator.kube.resource import Key, Resource
from slurm_operator.runtime.actions import HasKube, Kube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import Children, applied, delete
from slurm_operator.runtime.execute import execute
from slurm_operator.runtime.plan import Plan, Result, soonest
from slurm_operator.runtime.reconcile import Refusals, lasting, refusal
from slurm_operator.runtime.references import References
from slurm_operator.slurm.views import SlurmViews

UNREADABLE_SECONDS = 60.0
"""Between two looks while an unreadable object keeps the shared objects: changes of such objects wake no reconciler."""

SHARED_KINDS: tuple[Resource[Any], ...] = (SERVICES, POD_DISRUPTION_BUDGETS)
"""In the order of `workers_objects`."""

Locate = Callable[[RestApi], str]
"""Where the operator reaches the slurmrestd of a RestApi."""


@dataclass(frozen=True, slots=True)
class Source:
    """Whom to ask about a cluster, and the key that signs the questions."""

    url: str
    key: bytes


class Need(Enum):
    """Why the objects that the NodeSets of a cluster share must exist."""

    NODESETS = "a NodeSet of the cluster exists"
    WORKERS = "pods of workers are left"
    UNREADABLE = "an object of the namespace cannot be read and may be a NodeSet or a worker of the cluster"
    NONE = "neither NodeSets nor workers are left"


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
        again = await self._watch_slurm(key)
        plan = shared_objects(key, self._need(key), tuple(self._made(key)))
        outcome = await execute(plan.actions, self._world)
        self._tell(key, tuple(refusal(failure) for failure in outcome.failures if lasting(failure)))
        return outcome.result(after=soonest(again, plan.after))

    def _need(self, key: Key) -> Need:
        nodesets, pods = self._caches.store(NODESETS), self._caches.store(PODS)
        if nodesets.by_index(BY_CONTROLLER, controller_key(*key)):
            return Need.NODESETS
        if any(map(is_worker, pods.by_index(BY_CLUSTER, controller_key(*key)))):
            return Need.WORKERS
        unread = any(namespace == key[0] for namespace, _ in nodesets.unreadable) or any(
            (meta.namespace, meta.labels.get(names.LABEL_CLUSTER)) == key for meta in pods.unreadable.values()
        )
        return Need.UNREADABLE if unread else Need.NONE

    def _made(self, key: Key) -> Iterator[tuple[Resource[Any], Any]]:
        """The shared objects that exist and that this operator made."""
        for kind, manifest in zip(SHARED_KINDS, workers_objects(key[1], key[0]), strict=True):
            found = self._caches.store(kind).get(key[0], manifest["metadata"]["name"])
            if found is not None and self._world.kube.applier.made(manifest, found.metadata):
                yield kind, found

    async def _watch_slurm(self, key: Key) -> float | None:
        """Follow the cluster through its slurmrestd; return when to look again if its key is not read yet."""
        controller = self._caches.store(CONTROLLERS).get(*key)
        restapi = choose_restapi(self._caches.store(RESTAPIS).by_index(BY_CONTROLLER, controller_key(*key)))
        ref = controller.spec.jwt_key if controller is not None else None
        refs = self._references.read(("Cluster", key), key[0], secrets={ref.name} if ref is not None else ())
        if refs.loading:
            return refs.after
        secret = refs.secret(ref.name).get(ref.key, b"") if ref is not None else b""
        if controller is None or restapi is None or not secret:
            await self._views.remove(key)
        else:
            self._views.set(key, self._locate(restapi), secret)
        return None


def is_worker(pod: Pod) -> bool:
    return pod.metadata.labels.get(names.LABEL_APP) == names.APP_SLURMD


def choose_restapi(candidates: Iterable[RestApi]) -> RestApi | None:
    """The oldest that is not on its way out; among equals the first by name, so that it never flaps."""
    staying = [restapi for restapi in candidates if restapi.metadata.deletion_timestamp is None]
    return min(staying, key=lambda restapi: (restapi.metadata.creation_timestamp, restapi.metadata.name), default=None)


def shared_objects(key: Key, need: Need, made: Children) -> Plan[HasKube]:
    """The Service and the budget of the workers, which have no owner and are deleted here after the last worker."""
    namespace, name = key
    match need:
        case Need.NODESETS:
            return Plan(tuple(applied(workers_objects(name, namespace))))
        case Need.WORKERS:
            return Plan()
        case Need.UNREADABLE:
            return Plan(after=UNREADABLE_SECONDS if made else None)
        case Need.NONE:
            return Plan(tuple(delete(kind, found) for kind, found in made if not found.metadata.terminating))


def in_cluster(restapi: RestApi) -> str:
    """The Service of slurmrestd by name, as pods resolve it."""
    endpoint = endpoints.slurmrestd(restapi)
    return f"http://{endpoint.host}:{endpoint.port}"

"""What exists of the daemon behind one of our objects: its workload, its pods and every other child."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from slurm_operator.api.kind import Object
from slurm_operator.kube.indexes import BY_INSTANCE, instance_key
from slurm_operator.kube.kinds import NODES, PODS, Deployment, Pod, StatefulSet
from slurm_operator.kube.resource import Resource
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import Children, owned
from slurm_operator.runtime.trouble import Trouble, is_silent, trouble_of
from slurm_operator.runtime.uncreated import Refusals, uncreated, unheard

W = TypeVar("W", bound=StatefulSet | Deployment)


@dataclass(frozen=True, slots=True)
class Daemon(Generic[W]):
    workload: W | None = None
    pods: tuple[Pod, ...] = ()
    children: Children = ()
    lost: frozenset[str] = frozenset()
    """Nodes below the pods that do not answer."""
    missing_for: float | None = None
    """Seconds for which a StatefulSet has lacked pods."""
    refusal: str = ""
    """What its events say against these pods."""
    held: Trouble | None = None
    """What was last reported of them, as long as their events were not read."""

    @property
    def trouble(self) -> Trouble | None:
        return trouble_of(self._present, self.lost) or uncreated(self.workload, self.refusal) or self.held

    @property
    def _present(self) -> tuple[Pod, ...]:
        """The pods without those that failed and were replaced, which a Deployment leaves behind."""
        alive = tuple(pod for pod in self.pods if pod.status.phase != "Failed")
        counted = sum(not pod.metadata.terminating for pod in alive)
        replaced = isinstance(self.workload, Deployment) and counted >= self.workload.spec.replicas
        return alive if replaced else self.pods


def look(
    caches: Caches, owner: Object, app: str, resource: Resource[W], name: str, refused: Refusals | None = None
) -> Daemon[W]:
    """The daemon `app` of the owner, whose workload has this name; `refused` are pods that it may not create."""
    meta = owner.metadata
    nodes = caches.store(NODES)
    pods = tuple(caches.store(PODS).by_index(BY_INSTANCE, instance_key(meta.namespace, app, meta.name)))
    workload = caches.store(resource).get(meta.namespace, name)
    stateful = workload if isinstance(workload, StatefulSet) else None
    return Daemon(
        workload=workload,
        pods=pods,
        children=owned(caches, meta.uid),
        lost=frozenset(node for node in {pod.spec.node_name for pod in pods} if is_silent(nodes.get("", node))),
        missing_for=refused.missing_for(stateful) if refused is not None else None,
        refusal=refused.words(stateful) if refused is not None else "",
        held=unheard(owner, stateful, refused) if refused is not None else None,
    )

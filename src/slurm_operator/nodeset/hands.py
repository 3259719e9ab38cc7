"""How the actions of a NodeSet's plan reach Kubernetes and Slurm, and what is remembered between two passes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.nodeset.refusals import Refusals
from slurm_operator.nodeset.slurm_actions import KEPT_SECONDS, RemovalHands
from slurm_operator.nodeset.world import Failures
from slurm_operator.runtime.actions import Create, HasKube, Kube
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.controller import without_worker
from slurm_operator.runtime.plan import Action, Done
from slurm_operator.runtime.times import seconds_of
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.model import Node, NodeUpdate
from slurm_operator.slurm.view import SlurmView

DEPARTED_SECONDS = 900.0
"""Seconds for which the address of an ended pod is remembered; Slurm gives a silent node up sooner than that."""
STABLE_SECONDS = 600.0
"""Age after which a pod's end does not count as a repeated failure."""
FAILURE_SECONDS = 3600.0
"""Seconds after which a failure is forgotten: longer than the longest back-off and a stable life together."""


NodeSetAction = Action[RemovalHands]


@dataclass(frozen=True, slots=True)
class CreateWorker(Create):
    """Create a pod of a NodeSet, unless the NodeSet has been deleted since the pass began."""

    async def run(self, hands: HasKube) -> Done:
        meta = self.manifest["metadata"]
        nodeset = hands.kube.store(NODESETS).get(meta["namespace"], meta["ownerReferences"][0]["name"])
        if nodeset is not None and nodeset.metadata.deletion_timestamp is not None:
            return Done(wrote=False)
        return await Create.run(self, hands)


@dataclass(frozen=True, slots=True)
class Place:
    worker: str
    """Its name in Slurm."""
    address: str
    node: str


@dataclass(slots=True)
class Memory:
    """What neither Kubernetes nor Slurm keeps for us. Losing it at a restart costs a retry, never a job."""

    failures: dict[str, Failures] = field(default_factory=dict)
    failed_pods: set[str] = field(default_factory=set)
    """Uids of the failed pods that were counted and still exist."""
    kept: dict[str, float] = field(default_factory=dict)
    """Records that Slurm refused to delete, and until when they are left alone."""

    refusals: Refusals = field(default_factory=Refusals)
    refused: frozenset[str] = frozenset()
    """Pods that could not be created when they were last tried."""
    places: dict[str, Place] = field(default_factory=dict)
    """Uid of each pod of the NodeSet: where it was seen last."""
    departed: dict[str, float] = field(default_factory=dict)
    """Addresses of pods that ended on a Node whose kubelet answered, and until when they are remembered."""
    ended: dict[str, str] = field(default_factory=dict)
    """The same addresses: the name that the worker there had in Slurm."""
    no_slurmctld_since: float | None = None

    def note_places(self, pods: Iterable[Pod], answers: Callable[[str], bool], now: float) -> frozenset[str]:
        """Return the addresses of earlier pods whose end the kubelet of their Node confirmed."""
        here = {pod.metadata.uid: Place(slurm_name(pod), pod.status.pod_ip, pod.spec.node_name) for pod in pods}
        for uid in self.places.keys() - here.keys():
            place = self.places[uid]
            if place.address and answers(place.node):
                self.departed[place.address] = now + DEPARTED_SECONDS
                self.ended[place.address] = place.worker
        self.places = here
        present = {place.address for place in here.values()}
        self.departed = {ip: until for ip, until in self.departed.items() if until > now and ip not in present}
        self.ended = {address: self.ended[address] for address in self.departed}
        return frozenset(self.departed)

    def note_failures(self, pods: Collection[Pod], now: float) -> Mapping[str, Failures]:
        """Return how often the pods of each name failed. One that was deleted has not failed, however it ended."""
        for pod in pods:
            if pod.status.phase in ("Failed", "Succeeded") and not pod.metadata.terminating:
                self._count_failure(pod, now)
        self.failed_pods &= {pod.metadata.uid for pod in pods}
        self.failures = {name: found for name, found in self.failures.items() if now - found.last < FAILURE_SECONDS}
        return self.failures

    def _count_failure(self, pod: Pod, now: float) -> None:
        if pod.metadata.uid in self.failed_pods:
            return
        self.failed_pods.add(pod.metadata.uid)
        lived = now - seconds_of(pod.status.start_time, absent=now)
        before = self.failures.get(pod.metadata.name)
        count = 1 if before is None or lived > STABLE_SECONDS else before.count + 1
        self.failures[pod.metadata.name] = Failures(count, now)

    def kept_records(self, now: float) -> frozenset[str]:
        self.kept = {name: until for name, until in self.kept.items() if until > now}
        return frozenset(self.kept)


class PatientSlurm:
    """The Slurm of a cluster, for a pass that holds no worker of the queue while it waits for an answer."""

    def __init__(self, view: SlurmView) -> None:
        self._view = view

    async def look(self, names: Collection[str]) -> dict[str, Node]:
        with without_worker():
            return await self._view.look(names)

    async def update(self, names: Collection[str], update: NodeUpdate) -> None:
        with without_worker():
            await self._view.update(names, update)

    async def undrain(self, names: Collection[str]) -> None:
        with without_worker():
            await self._view.undrain(names)

    async def delete(self, names: Collection[str]) -> None:
        with without_worker():
            await self._view.delete(names)

    async def read_jobs(self, max_age: float, patience: float | None = None) -> JobList:
        with without_worker():
            return await self._view.read_jobs(max_age, patience)


@dataclass(frozen=True, slots=True)
class Hands:
    """For one NodeSet and one pass."""

    kube: Kube
    view: SlurmView | None
    memory: Memory
    clock: Clock
    key: Key

    @property
    def slurm(self) -> PatientSlurm:
        if self.view is None:
            raise SlurmError("no RestApi of this cluster is known")
        return PatientSlurm(self.view)

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def note_kept(self, names: Iterable[str], seconds: float = KEPT_SECONDS) -> None:
        until = self.clock.now() + seconds
        self.memory.kept.update(dict.fromkeys(names, until))

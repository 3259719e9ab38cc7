"""How the actions of a NodeSet's plan reach Kubernetes and Slurm, and what is remembered between two passes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.nodeset.slurm_actions import KEPT_SECONDS, RemovalHands
from slurm_operator.nodeset.world import Failures
from slurm_operator.runtime.actions import Kube
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.plan import Action
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.view import SlurmView

DEPARTED_SECONDS = 900.0
"""Seconds for which the address of an ended pod is remembered; Slurm gives a silent node up sooner than that."""
STABLE_SECONDS = 600.0
"""Age after which a pod's end does not count as a repeated failure."""


NodeSetAction = Action[RemovalHands]


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
    """Uids of the failed pods that were counted."""
    kept: dict[str, float] = field(default_factory=dict)
    """Records that Slurm refused to delete, and until when they are left alone."""

    refusals: tuple[str, ...] = ()
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

    def count_failure(self, pod_name: str, uid: str, lived: float, now: float) -> None:
        if uid in self.failed_pods:
            return
        self.failed_pods.add(uid)
        before = self.failures.get(pod_name)
        count = 1 if before is None or lived > STABLE_SECONDS else before.count + 1
        self.failures[pod_name] = Failures(count, now)

    def kept_records(self, now: float) -> frozenset[str]:
        self.kept = {name: until for name, until in self.kept.items() if until > now}
        return frozenset(self.kept)


@dataclass(frozen=True, slots=True)
class Hands:
    """For one NodeSet and one pass."""

    kube: Kube
    view: SlurmView | None
    memory: Memory
    clock: Clock
    key: Key

    @property
    def slurm(self) -> SlurmView:
        if self.view is None:
            raise SlurmError("no RestApi of this cluster is known")
        return self.view

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def note_kept(self, names: Iterable[str], seconds: float = KEPT_SECONDS) -> None:
        until = self.clock.now() + seconds
        self.memory.kept.update(dict.fromkeys(names, until))

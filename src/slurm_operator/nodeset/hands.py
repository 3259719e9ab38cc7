"""How the actions of a NodeSet's plan reach Kubernetes and Slurm, and what is remembered between two passes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.slurm_actions import RemovalHands
from slurm_operator.nodeset.world import Failures
from slurm_operator.runtime.actions import Kube
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.plan import Action
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.view import SlurmView

KEPT_SECONDS = 60.0
"""So long a record that Slurm would not delete is left alone."""
STABLE_SECONDS = 600.0
"""A pod that lived so long starts with a clean slate."""


NodeSetAction = Action[RemovalHands]


@dataclass(slots=True)
class Memory:
    """What neither Kubernetes nor Slurm keeps for us. Losing it at a restart costs a retry, never a job."""

    failures: dict[str, Failures] = field(default_factory=dict)
    failed_pods: set[str] = field(default_factory=set)
    """Uids of the failed pods that were counted."""
    kept: dict[str, float] = field(default_factory=dict)
    """Records that Slurm refused to delete, and until when they are left alone."""

    refusals: tuple[str, ...] = ()

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

    def note_kept(self, names: Iterable[str]) -> None:
        until = self.clock.now() + KEPT_SECONDS
        self.memory.kept.update(dict.fromkeys(names, until))

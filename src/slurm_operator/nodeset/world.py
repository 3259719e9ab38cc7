"""Everything that a decision about one NodeSet may look at: one frozen value, gathered by `observe`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from slurm_operator.api import names
from slurm_operator.api.controller import Controller
from slurm_operator.api.nodeset import NodeSet
from slurm_operator.desired.worker import WorkerFacts
from slurm_operator.kube.kinds import ControllerRevision, Node, Pod
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.nodeset.order import is_ready, ready_since
from slurm_operator.runtime.times import seconds_of
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.jobs import JobEnds
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.reasons import is_ours
from slurm_operator.slurm.states import (
    DrainOwner,
    drain_owner,
    is_busy,
    is_down,
    is_drain,
    is_drained,
    is_responding,
)

FRESH_SECONDS = 60.0
"""A read that began longer ago says nothing about what a worker does now."""
REGISTRATION_SECONDS = 5.0
"""A started slurmd has registered by then; a read that began earlier may have missed it."""


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no cluster to ask any more: its Controller or its RestApi was deleted."""

    why: str


Slurm = Known | Unknown | Gone


class Standing(Enum):
    """What is known of a worker's jobs, and so whether its pod may go."""

    NEVER_STARTED = "its slurmd never ran"
    UNREGISTERED = "Slurm has no record of it"
    DRAINED = "drained and free of jobs"
    BUSY = "running jobs"
    IN_SERVICE = "taking jobs"
    UNSURE = "nobody knows what runs on it"

    @property
    def may_go(self) -> bool:
        return self in (Standing.NEVER_STARTED, Standing.UNREGISTERED, Standing.DRAINED)


@dataclass(frozen=True, slots=True)
class Worker:
    """A pod, the Kubernetes Node it runs on, and the Slurm node it is."""

    pod: Pod
    name: str
    """Its name in Slurm."""
    node: Node | None
    record: SlurmNode | None
    """Its own record, not that of an earlier pod of the same name."""
    standing: Standing

    @property
    def pod_name(self) -> str:
        return self.pod.metadata.name

    @property
    def terminating(self) -> bool:
        return self.pod.metadata.terminating

    @property
    def finished(self) -> bool:
        return self.pod.status.phase in ("Failed", "Succeeded")

    @property
    def live(self) -> bool:
        return not self.terminating and not self.finished

    @property
    def state(self) -> tuple[str, ...]:
        return self.record.state if self.record is not None else ()

    @property
    def drain_owner(self) -> DrainOwner:
        return drain_owner(self.state, self.record.reason if self.record is not None else "")

    @property
    def claimed_by_others(self) -> bool:
        """Somebody else drained it or took it down, and may still mean it."""
        if self.record is None or not (is_drain(self.state) or is_down(self.state)):
            return False
        return not is_ours(self.record.reason)

    @property
    def revision(self) -> str:
        return self.pod.metadata.labels.get(names.LABEL_REVISION_HASH, "")


@dataclass(frozen=True, slots=True)
class Failures:
    """How often in a row the pod of one name failed, and when last."""

    count: int
    last: float


@dataclass(frozen=True)
class World:
    nodeset: NodeSet
    controller: Controller | None
    pods: tuple[Pod, ...]
    """Owned by this NodeSet."""
    orphans: tuple[Pod, ...] = ()
    """Owned by nobody, with the labels of this NodeSet."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    facts: WorkerFacts | None = None
    """What new pods are made from; None while something they need is missing."""
    lacking: Trouble | None = None
    """What that is."""
    revisions: tuple[ControllerRevision, ...] = ()
    slurm: Slurm = field(default_factory=lambda: Unknown(0.0, "not asked yet"))
    jobs: JobEnds | None = None
    """Which jobs run where and until when, if somebody asked."""
    failures: Mapping[str, Failures] = field(default_factory=dict)
    kept_records: frozenset[str] = frozenset()
    """Slurm nodes whose record Slurm refused to delete a moment ago."""
    refusals: tuple[str, ...] = ()
    """What could not be done in the last pass, and why."""
    propagated_conditions: tuple[str, ...] = ()
    now: float = 0.0

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(self._workers())

    @cached_property
    def by_pod(self) -> Mapping[str, Worker]:
        return {worker.pod_name: worker for worker in self.workers}

    def _workers(self) -> Iterator[Worker]:
        for pod in self.pods:
            name = slurm_name(pod)
            record, standing = self._judge(pod, name)
            yield Worker(pod, name, self.nodes.get(pod.spec.node_name), record, standing)

    def _judge(self, pod: Pod, name: str) -> tuple[SlurmNode | None, Standing]:
        """The worker's own record, and what it proves about jobs."""
        if not isinstance(self.slurm, Known):
            return None, Standing.NEVER_STARTED if pod.status.phase == "Pending" else Standing.UNSURE
        seen = self.slurm.seen(name)
        began = self.slurm.at + seen.began_at - self.slurm.began_at
        record = seen.node if seen.node is not None and belongs(seen.node, pod) else None
        if pod.status.phase == "Pending":
            return record, Standing.NEVER_STARTED
        if self.now - began > FRESH_SECONDS:
            return record, Standing.UNSURE
        if record is None:
            missed = began < last_start(pod) + REGISTRATION_SECONDS
            return None, Standing.UNSURE if missed else Standing.UNREGISTERED
        if is_busy(record.state):
            return record, Standing.BUSY
        if is_drained(record.state):
            return record, Standing.DRAINED if seen.confirmed else Standing.UNSURE
        return record, Standing.IN_SERVICE


def belongs(record: SlurmNode, pod: Pod) -> bool:
    """Whether the record is of this pod's slurmd and not of an earlier pod with the same name.

    Only a slurmd that started before this pod, at another address, proves it to be the predecessor's.
    """
    if record.address and record.address == pod.status.pod_ip:
        return True
    started = seconds_of(pod.status.start_time, absent=0.0)
    if not started:
        return False
    slurmd_started = record.slurmd_start_time.value or 0
    return slurmd_started == 0 or slurmd_started >= started - 1


def last_start(pod: Pod) -> float:
    """When the pod, or its slurmd after a restart of the container, last came up."""
    ready = ready_since(pod) if is_ready(pod) else 0.0
    started = seconds_of(pod.status.start_time, absent=0.0)
    return max(started, ready if ready != float("inf") else 0.0)


def has_returned(record: SlurmNode) -> bool:
    """Taken down by us when its pod went, and answering again."""
    return is_down(record.state) and is_ours(record.reason) and is_responding(record.state)

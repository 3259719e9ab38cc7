"""Everything that a decision about one NodeSet may look at: one frozen value, gathered by `observe`."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from slurm_operator.api import names
from slurm_operator.api.controller import Controller
from slurm_operator.api.nodeset import NodeSet
from slurm_operator.desired.worker import WorkerFacts
from slurm_operator.kube.kinds import ControllerRevision, Node, Pod
from slurm_operator.nodeset.evidence import belongs, has_finished, says_busy, slurmd_has_run, slurmd_started
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.nodeset.ownership import Ownership
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.hostlist import members
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.known import Known, Seen, Unknown, still_asking
from slurm_operator.slurm.model import Job
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.states import DrainOwner, claim_owner, drain_owner, is_busy, is_drained

FRESH_SECONDS = 60.0
"""A read that began longer ago says nothing about what a worker does now."""
REGISTRATION_SECONDS = 5.0
"""A started slurmd has registered by then; a read that began earlier may have missed it."""
REPORT_WAITING_SECONDS = 3600.0
"""Seconds for which jobs are waited for without a report, unless a flag or an annotation says otherwise."""


@dataclass(frozen=True, slots=True)
class Gone:
    """slurmctld itself is gone: its Controller is deleted and none of its pods is left."""

    why: str


Slurm = Known | Unknown | Gone


class Standing(Enum):
    """What is known of a worker's jobs, and so whether its pod may go."""

    NEVER_STARTED = "its slurmd never ran"
    UNREGISTERED = "Slurm has no record of it"
    UNLISTED = "drained, but the list of jobs has not been read since"
    DRAINED = "drained and free of jobs"
    BUSY = "running jobs"
    IN_SERVICE = "taking jobs"
    UNSURE = "it is not known what runs on it"

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
    terminating: bool
    finished: bool
    """Its containers have ended."""
    live: bool
    """Neither of the two; a field, since a pass asks for it twenty times."""
    node_is_unreadable: bool = False
    """Its Kubernetes Node exists and does not fit its type."""

    @property
    def pod_name(self) -> str:
        return self.pod.metadata.name

    @property
    def state(self) -> tuple[str, ...]:
        return self.record.state if self.record is not None else ()

    @property
    def drain_owner(self) -> DrainOwner:
        return drain_owner(self.state, self.record.reason if self.record is not None else "")

    @property
    def claimed_by_others(self) -> bool:
        """Whether an administrator, or a program of theirs, drained it or set it DOWN or FAIL."""
        if self.record is None:
            return False
        owner = claim_owner(self.state, self.record.reason, self.record.reason_set_by_user)
        return owner is DrainOwner.FOREIGN

    @property
    def node_is_unknown(self) -> bool:
        """Whether the Kubernetes Node that it was placed on is not known (any more)."""
        return bool(self.pod.spec.node_name) and self.node is None

    @property
    def node_is_gone(self) -> bool:
        """Whether Kubernetes has confirmed that its Node is gone: deleted, or marked as out of service."""
        if self.node is None:
            return self.node_is_unknown and not self.node_is_unreadable
        return any(taint.key == names.TAINT_OUT_OF_SERVICE for taint in self.node.spec.taints)

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
    """Controlled by this NodeSet, or taken from it by the garbage collector in a foreground deletion."""
    orphans: tuple[Pod, ...] = ()
    """Without a controller, with the labels of this NodeSet."""
    ownership: Ownership = field(default_factory=Ownership)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    """Names of the claims of this NodeSet's workers that exist."""
    facts: WorkerFacts | None = None
    """What new pods are made from; None while something they need is missing."""
    lacking: Trouble | None = None
    """What that is."""
    revisions: tuple[ControllerRevision, ...] = ()
    slurm: Slurm = field(default_factory=lambda: Unknown(0.0, "not asked yet"))
    has_restapi: bool = True
    """Slurm is asked at all."""
    jobs: JobList | None = None
    """Which jobs and reservations use which nodes, if that was read."""
    departed: frozenset[str] = frozenset()
    """Addresses of earlier pods of this NodeSet whose end Kubernetes confirmed."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """The same addresses: the name that the worker there had in Slurm."""
    neighbours: Mapping[str, str] = field(default_factory=dict)
    """Slurm names that live pods of other NodeSets of the cluster have or will have: name of that NodeSet."""
    unreadable: tuple[str, ...] = ()
    """Pods of this NodeSet that exist and cannot be read."""
    unreadable_nodes: frozenset[str] = frozenset()
    """Kubernetes Nodes that exist and cannot be read."""
    failures: Mapping[str, Failures] = field(default_factory=dict)
    kept_records: frozenset[str] = frozenset()
    """Slurm nodes whose record Slurm refused to delete a moment ago."""
    refusals: tuple[str, ...] = ()
    """What cannot be done, and why."""
    refused: frozenset[str] = frozenset()
    """Pods that could not be created when they were last tried."""
    propagated_conditions: tuple[str, ...] = ()
    report_waiting_after: float = REPORT_WAITING_SECONDS
    """Seconds after which jobs that are waited for are reported, unless an annotation says otherwise."""
    job_facts: Mapping[int, Job] = field(default_factory=dict)
    """Details of jobs that are to be reported, as far as they were read."""
    partition_is_closed: bool = False
    """slurmctld refuses new jobs for the partition, although the spec does not ask for that."""
    now: float = 0.0

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(self._workers())

    @cached_property
    def living(self) -> frozenset[str]:
        """Slurm names of the workers that run on, also of those that no NodeSet controls at the moment."""
        orphans = (pod for pod in self.orphans if not pod.metadata.terminating and not has_finished(pod))
        return frozenset((*(w.name for w in self.workers if w.live), *map(slurm_name, orphans)))

    @cached_property
    def recorded(self) -> Mapping[str, Collection[str]]:
        """Slurm nodes that the status names, by cause: read once, since a decision asks for them many times."""
        found: dict[str, set[str]] = {}
        for drain in self.nodeset.status.drains:
            found.setdefault(drain.cause, set()).update(members(drain.nodes))
        return found

    @cached_property
    def by_pod(self) -> Mapping[str, Worker]:
        return {worker.pod_name: worker for worker in self.workers}

    def _workers(self) -> Iterator[Worker]:
        for pod in self.pods:
            name = slurm_name(pod)
            record, standing = self._judge(pod, name)
            node = self.nodes.get(pod.spec.node_name)
            terminating, finished = pod.metadata.terminating, has_finished(pod)
            yield Worker(
                pod,
                name,
                node,
                record,
                standing,
                terminating,
                finished,
                live=not terminating and not finished,
                node_is_unreadable=pod.spec.node_name in self.unreadable_nodes,
            )

    def _judge(self, pod: Pod, name: str) -> tuple[SlurmNode | None, Standing]:
        """Return the worker's own record, and what is known of its jobs. The record outranks the pod's phase."""
        never_started = not slurmd_has_run(pod) and not says_busy(pod)
        if not isinstance(self.slurm, Known):
            return None, Standing.NEVER_STARTED if never_started else Standing.UNSURE
        seen = self.slurm.seen(name)
        record = seen.node if seen.node is not None and belongs(seen.node, pod) else None
        if record is None and self._is_in_use(seen.node, name):
            return None, Standing.UNSURE
        if record is None and never_started:
            return None, Standing.NEVER_STARTED
        if self.now - self.slurm.wall(seen.began_at) > FRESH_SECONDS:
            return record, Standing.UNSURE
        if record is None:
            unregistered = self._is_unregistered(pod, seen, self.slurm.wall(seen.began_at))
            return None, Standing.UNREGISTERED if unregistered else Standing.UNSURE
        if is_busy(record.state):
            return record, Standing.BUSY
        if not is_drained(record.state):
            return record, Standing.IN_SERVICE
        if not seen.confirmed:
            return record, Standing.UNSURE
        return record, self._judge_drained(name, seen)

    def _is_in_use(self, record: SlurmNode | None, name: str) -> bool:
        """Return whether jobs are on a node of this name, whosever slurmd that is: our view of the pod may be old."""
        held = self.fresh_jobs is not None and name in self.fresh_jobs.holding
        return record is not None and (is_busy(record.state) or held)

    def _judge_drained(self, name: str, seen: Seen) -> Standing:
        """No job starts on a drained node, so a list of jobs that began later shows all jobs on it."""
        if self.jobs is None or seen.drained_since is None or self.jobs.began_at < seen.drained_since:
            return Standing.UNLISTED
        return Standing.BUSY if name in self.jobs.holding else Standing.DRAINED

    def _is_unregistered(self, pod: Pod, seen: Seen, began: float) -> bool:
        """A confirmed read after the start of slurmd knows no record, and nothing else says that jobs run there.

        The removal itself looks once more, so that two reads have to agree.
        """
        too_early = began < slurmd_started(pod) + REGISTRATION_SECONDS
        return seen.confirmed and not too_early and not says_busy(pod) and not self.registered_at(pod)

    def registered_at(self, pod: Pod) -> str:
        """Return the record at the pod's address, under whatever name, unless it is drained and free of jobs.

        Such a record may be of an earlier pod whose address was used again; if it is of this pod, nothing is lost.
        """
        records = self._by_address.get(pod.status.pod_ip, ())
        return next((record.name for record in records if not self._is_free(record)), "")

    def _is_free(self, record: SlurmNode) -> bool:
        if not isinstance(self.slurm, Known) or not is_drained(record.state):
            return False
        seen = self.slurm.seen(record.name)
        return seen.confirmed and self._judge_drained(record.name, seen) is Standing.DRAINED

    @cached_property
    def _by_address(self) -> Mapping[str, list[SlurmNode]]:
        found: dict[str, list[SlurmNode]] = {}
        for record in self.slurm.nodes.values() if isinstance(self.slurm, Known) else ():
            if record.address:
                found.setdefault(record.address, []).append(record)
        return found

    @cached_property
    def fresh_jobs(self) -> JobList | None:
        """The list of jobs and reservations, unless it was read too long ago to delete anything by it."""
        if self.jobs is None or not isinstance(self.slurm, Known):
            return None
        return self.jobs if self.now - self.slurm.wall(self.jobs.began_at) <= FRESH_SECONDS else None


def users_of(world: World, name: str) -> tuple[str, ...]:
    """Return the jobs and reservations that keep the record of a node; none while they are not known."""
    return world.fresh_jobs.users_of(name) if world.fresh_jobs is not None else ()


def asking(world: World) -> float:
    """Seconds for which a new process may still say what the last one said of Slurm."""
    return still_asking(world.slurm, world.now) if isinstance(world.slurm, Unknown) else 0.0

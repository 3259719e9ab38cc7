"""A small Kubernetes and a small Slurm in memory, with the truth about jobs, to try NodeSet's decisions on.

Time stands still between steps. What the operator sees of Slurm is what its last read brought, with its own writes
laid over it, exactly as the real view does it; what really happens is in `Truth`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slurm_operator.api import NodeSet, names
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.desired.worker import WorkerFacts
from slurm_operator.kube.kinds import PODS, ControllerRevision, Node, NodeSpec, Pod, PodSpec, PodStatus
from slurm_operator.kube.model import Condition, ObjectMeta, OwnerReference
from slurm_operator.nodeset.ownership import Ownership
from slurm_operator.nodeset.slurm_actions import (
    Drain,
    Forget,
    RemoveDrained,
    RemoveUnregistered,
    Resume,
    SlurmAction,
    Undrain,
)
from slurm_operator.nodeset.world import Slurm, World
from slurm_operator.runtime.actions import ApplyStatus, Create, Delete, Patch
from slurm_operator.runtime.children import delete
from slurm_operator.runtime.plan import InOrder, Plan
from slurm_operator.runtime.times import rfc3339
from slurm_operator.slurm.hostlist import members
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.overlay import Overlay
from slurm_operator.slurm.states import NOT_RESPONDING_REASON, DrainOwner, claim_owner, is_drain, is_drained
from tests.simulation.slurm_truth import Truth
from tests.unit.nodeset.make import BUDGET, BUDGET_UID, NODESET_UID, NOW, controller, nodeset

Decide = Callable[[World], Plan[Any]]
CONTROLLED = (OwnerReference(kind="NodeSet", name="gpu", uid=NODESET_UID, controller=True), BUDGET)
STEP = 10.0
"""Seconds that pass between two passes: longer than a slurmd takes to register."""


class JobLostError(AssertionError):
    """The worst that can happen."""


class ForeignDrainError(AssertionError):
    """A drain of somebody else was changed."""


@dataclass
class Simulation:
    decide: Decide
    nodeset: NodeSet = field(default_factory=lambda: nodeset(0))
    now: float = NOW
    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    slurm: dict[str, Truth] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    """Nodes that a pending job, a job elsewhere or a reservation names."""
    revisions: dict[str, ControllerRevision] = field(default_factory=dict)
    unowned: set[str] = field(default_factory=set)
    """Nodes whose workers were gone, or going, when what was known of them was lost."""
    ended: dict[str, str] = field(default_factory=dict)
    """What the process remembers of pods that are gone: the name of the worker at each address."""
    reachable: bool = True
    serial: int = 0
    writes: int = 0

    def __post_init__(self) -> None:
        self.nodes = {
            f"k{number}": Node(metadata=ObjectMeta(name=f"k{number}"), spec=NodeSpec()) for number in range(8)
        }
        self._read: dict[str, SlurmNode] = {}
        self._read_at = self.now
        self._drained: dict[str, float] = {}
        self._overlay = Overlay()
        self._restarted = False
        self._turn = 0

    # What the operator sees

    def view(self) -> Slurm:
        if not self.reachable or self._restarted:
            return Unknown(self.now, "slurmrestd has not answered yet")
        shown = self._overlay.over(self._read)
        return Known(shown, self._read_at, self._read_at, 1, 1, {}, self._overlay.pending, self._drained)

    def jobs(self) -> JobList | None:
        """The list of jobs as a pass reads it before it decides."""
        if not self.reachable:
            return None
        holding = {name: (1,) for name, truth in self.slurm.items() if truth.jobs}
        return JobList(self.now, holding=holding, naming=dict.fromkeys(self.named, (2,)))

    def read(self) -> None:
        """A read of all nodes, which begins and ends now."""
        if self.reachable:
            self._read = {name: truth.shown(name) for name, truth in self.slurm.items()}
            self._read_at = self.now
            drained = [name for name, node in self._read.items() if is_drain(node.state)]
            self._drained = {name: self._drained.get(name, self.now) for name in drained}
            self._restarted = False
            self._turn += 1
            self._overlay.settle(self._turn)

    def world(self) -> World:
        current = controller()
        return World(
            nodeset=self.nodeset,
            controller=current,
            pods=tuple(pod for pod in self.pods.values() if pod.metadata.controller is not None),
            orphans=tuple(pod for pod in self.pods.values() if pod.metadata.controller is None),
            nodes=self.nodes,
            revisions=tuple(self.revisions.values()),
            facts=WorkerFacts(controller=current),
            slurm=self.view(),
            jobs=self.jobs(),
            ownership=Ownership(BUDGET_UID),
            departed=frozenset(self.ended),
            ended=dict(self.ended),
            now=self.now,
        )

    # What happens by itself

    def tick(self) -> None:
        """Pods start and register, terminating ones end, and slurmctld gives up nodes that do not answer."""
        self.now += STEP
        for truth in self.slurm.values():
            if not truth.responding and not truth.down:
                truth.down, truth.jobs, truth.suspended = True, 0, 0
                truth.reason = f"{truth.reason} : {NOT_RESPONDING_REASON}" if truth.reason else NOT_RESPONDING_REASON
        for name, pod in list(self.pods.items()):
            if pod.metadata.terminating:
                self._end(name)
            elif pod.status.phase == "Pending":
                self._start(name)

    def _start(self, name: str) -> None:
        pod = self.pods[name]
        self.serial += 1
        address = f"10.0.{self.serial // 250}.{self.serial % 250}"
        taken = {other.spec.node_name for other in self.pods.values()}
        free = [node for node in self.nodes if node not in taken and not self.nodes[node].spec.unschedulable]
        if not free:
            return
        ready = Condition(type="Ready", status="True", last_transition_time=rfc3339(self.now))
        status = PodStatus(phase="Running", pod_ip=address, start_time=rfc3339(self.now), conditions=(ready,))
        self.pods[name] = _changed(pod, spec=PodSpec(node_name=free[0], hostname=name), status=status)
        self.unowned.discard(name)
        known = self.slurm.get(name)
        if known is None:
            self.slurm[name] = Truth(address, self.now)
        else:  # an existing record stays drained, and DOWN by a command; its jobs died with the earlier pod
            known.address, known.started, known.jobs, known.suspended = address, self.now, 0, 0
            known.responding = True
            if known.down and known.reason == NOT_RESPONDING_REASON:  # ReturnToService=1
                known.down, known.reason = False, known.reason if known.drain else ""

    def _end(self, name: str) -> None:
        """What the preStop hook does, then the daemon is gone: a claim that is not ours stays as it is."""
        pod = self.pods.pop(name)
        if pod.status.pod_ip:
            self.ended[pod.status.pod_ip] = name
        truth = self.slurm.get(name)
        if truth is None or pod.status.phase == "Failed":
            return
        truth.responding = False
        claimed = (truth.drain or truth.down) and not truth.reason.startswith(names.REASON_PREFIX)
        if not claimed:
            truth.down, truth.reason = True, f"{names.REASON_PREFIX}worker pod is going away"

    def fail_pod(self, rng: random.Random) -> None:
        """The kubelet ends a pod without its preStop hook; the jobs on it are lost with it."""
        running = sorted(name for name in self.pods if self._alive(name))
        if not running:
            return
        name = rng.choice(running)
        pod = self.pods[name]
        self.pods[name] = _changed(pod, status=msgspec.structs.replace(pod.status, phase="Failed", conditions=()))
        truth = self.slurm.get(name)
        if truth is not None and truth.address == pod.status.pod_ip:
            truth.responding, truth.jobs, truth.suspended = False, 0, 0

    def start_job(self, rng: random.Random) -> None:
        usable = [
            name for name, truth in self.slurm.items() if not truth.drain and not truth.down and self._alive(name)
        ]
        if usable:
            self.slurm[rng.choice(sorted(usable))].jobs += 1

    def end_job(self, rng: random.Random) -> None:
        busy = sorted(name for name, truth in self.slurm.items() if truth.jobs)
        if busy:
            truth = self.slurm[rng.choice(busy)]
            truth.jobs -= 1
            truth.suspended = min(truth.suspended, truth.jobs)

    def suspend_jobs(self, rng: random.Random) -> None:
        busy = sorted(name for name, truth in self.slurm.items() if truth.jobs)
        if busy:
            truth = self.slurm[rng.choice(busy)]
            truth.suspended = truth.jobs

    def resume_jobs(self) -> None:
        for truth in self.slurm.values():
            truth.suspended = 0

    def name_node(self, rng: random.Random) -> None:
        """A job is submitted with this node's name, or a reservation is made."""
        if self.slurm:
            self.named.add(rng.choice(sorted(self.slurm)))

    def _alive(self, name: str) -> bool:
        pod = self.pods.get(name)
        return pod is not None and pod.status.phase == "Running" and not pod.metadata.terminating

    # One pass of the operator

    def reconcile(self, crash_after: int | None = None, rng: random.Random | None = None) -> int:
        """Decides and carries out, or dies after so many writes; returns the number of actions planned.

        Actions of one urgency run at the same time, so they are done in any order.
        """
        plan = self.decide(self.world())
        units = list(plan.actions)
        if rng is not None:
            rng.shuffle(units)
        units.sort(key=lambda unit: unit.urgency)
        actions = [part for unit in units for part in (unit.actions if isinstance(unit, InOrder) else (unit,))]
        for count, action in enumerate(actions):
            if crash_after is not None and count >= crash_after:
                self._overlay.forget()
                self._restarted = True  # a new process knows nothing of Slurm before its first read
                self._lose_memory()
                break
            self._carry_out(action)
        return len(actions)

    def _lose_memory(self) -> None:
        written = {name for drain in self.nodeset.status.drains for name in members(drain.nodes)}
        self.unowned |= (self.slurm.keys() & self.ended.values()) - written
        self.ended.clear()

    def _carry_out(self, action: Any) -> None:
        self.writes += 1
        match action:
            case SlurmAction():
                if self.reachable:
                    self._tell_slurm(action)
            case Create():
                self._create(action.manifest)
            case Delete():
                self._delete(action)
            case RemoveDrained():
                truth = self.slurm.get(action.node)
                if self.reachable and truth is not None and is_drained(truth.shown(action.node).state):
                    self._delete(delete(PODS, action.pod))
            case RemoveUnregistered():
                found = self.slurm.get(action.node)
                mine = found is not None and found.address == action.pod.status.pod_ip
                if self.reachable and not mine:
                    self._delete(delete(PODS, action.pod))
            case ApplyStatus():
                status = msgspec.convert(action.manifest["status"], NodeSetStatus)
                self.nodeset = msgspec.structs.replace(self.nodeset, status=status)
            case Patch():
                self._patch(action)
            case _:
                pass  # an event: nothing changes

    def _tell_slurm(self, action: SlurmAction) -> None:
        for name in action.nodes:
            truth = self.slurm.get(name)
            if truth is None:
                continue
            seen = self._read.get(name)
            # What an administrator did since the last read cannot be known; what the read showed must be respected.
            foreign = seen is not None and is_drain(seen.state) and _is_claimed(seen)
            if foreign and truth.drain and not (isinstance(action, Drain) and not action.reason):
                raise ForeignDrainError(f"{action} touches {name}: {truth.reason!r}")
            match action:
                case Drain():
                    truth.drain, truth.reason = True, action.reason or truth.reason
                    self._overlay.wrote([name], NodeUpdate(state=("DRAIN",), reason=truth.reason), self._turn)
                case Undrain():
                    truth.drain, truth.reason = False, ""
                    self._overlay.wrote([name], NodeUpdate(state=("UNDRAIN",), reason=""), self._turn)
                case Resume():
                    truth.down, truth.drain, truth.reason = False, False, ""
                    self._overlay.wrote([name], NodeUpdate(state=("RESUME",), reason=""), self._turn)
                case Forget() if truth.jobs <= truth.suspended:
                    if truth.jobs or name in self.named:
                        raise JobLostError(f"{action} ends a suspended job, or one that names {name}")
                    del self.slurm[name]
                    self._overlay.wrote([name], None, self._turn)

    def _create(self, manifest: dict[str, Any]) -> None:
        meta = manifest["metadata"]
        if manifest["kind"] == "ControllerRevision":
            self.revisions[meta["name"]] = msgspec.convert(manifest, ControllerRevision)
            return
        if meta["name"] in self.pods:
            return  # AlreadyExists
        self.serial += 1
        self.pods[meta["name"]] = Pod(
            metadata=ObjectMeta(
                name=meta["name"],
                namespace="slurm",
                uid=f"uid-{self.serial}",
                labels=meta["labels"],
                creation_timestamp=rfc3339(self.now),
                owner_references=CONTROLLED,
            ),
            status=PodStatus(phase="Pending"),
        )

    def _delete(self, action: Delete) -> None:
        if action.resource.kind != "Pod":
            self.revisions.pop(action.name, None)
            return
        pod = self.pods.get(action.name)
        if pod is None or pod.metadata.uid != action.uid:
            return
        truth = self.slurm.get(action.name)
        if truth is not None and truth.jobs and truth.address == pod.status.pod_ip:
            raise JobLostError(f"{action} ends {truth.jobs} jobs")
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=rfc3339(self.now))
        self.pods[action.name] = _changed(pod, metadata=meta)

    def _patch(self, action: Patch) -> None:
        if action.resource.kind == "Pod":
            self._own(action.name, CONTROLLED)  # adopted
            return
        if action.resource.kind == "NodeSet":
            assert isinstance(action.patch, dict)
            finalizers = tuple(action.patch["metadata"]["finalizers"])
            meta = msgspec.structs.replace(self.nodeset.metadata, finalizers=finalizers)
            self.nodeset = msgspec.structs.replace(self.nodeset, metadata=meta)

    def _own(self, name: str, owners: tuple[OwnerReference, ...]) -> None:
        pod = self.pods.get(name)
        if pod is not None:
            self.pods[name] = _changed(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=owners))

    # What people do

    def scale(self, replicas: int) -> None:
        self._respec(replicas=replicas)

    def recreate(self) -> None:
        """Delete the NodeSet with `--cascade=orphan` while Slurm does not answer, and create it again."""
        live = {name for name, pod in self.pods.items() if not pod.metadata.terminating}
        if live <= self.slurm.keys():  # a worker without a record is reported, and stays so
            for name in live:
                self._own(name, (BUDGET,))
            self._lose_memory()
            self.unowned |= self.slurm.keys() - live
            self.nodeset = msgspec.structs.replace(self.nodeset, status=NodeSetStatus())

    def update_template(self, image: str) -> None:
        self._respec(slurmd={"image": image})

    def _respec(self, **change: Any) -> None:
        self.nodeset = msgspec.structs.replace(self.nodeset, spec=msgspec.structs.replace(self.nodeset.spec, **change))

    def cordon(self, node: str, on: bool) -> None:
        self.nodes[node] = msgspec.structs.replace(self.nodes[node], spec=NodeSpec(unschedulable=on))

    def admin_drains(self, name: str, reason: str) -> None:
        if name in self.slurm:
            self.slurm[name].drain, self.slurm[name].reason = True, reason

    def admin_undrains(self, name: str) -> None:
        truth = self.slurm.get(name)
        if truth is not None and truth.drain and not truth.reason.startswith(names.REASON_PREFIX):
            truth.drain, truth.down, truth.reason = False, False, ""  # scontrol update State=RESUME

    # What must hold

    def in_service(self) -> int:
        return sum(
            self._alive(name) and not is_drain(truth.shown(name).state) and not truth.down
            for name, truth in self.slurm.items()
        )


def _is_claimed(seen: SlurmNode) -> bool:
    return claim_owner(seen.state, seen.reason, seen.reason_set_by_user) is DrainOwner.FOREIGN


def _changed(pod: Pod, **change: Any) -> Pod:
    return msgspec.structs.replace(pod, **change)

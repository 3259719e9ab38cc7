"""Short ways to make what the tests need: each names only what matters to it."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from slurm_operator.api import Controller, NodeSet, names
from slurm_operator.api.kind import UserMeta
from slurm_operator.api.nodeset import NodeSetSpec, NodeSetStatus
from slurm_operator.desired.revision import revision_data, revision_hash
from slurm_operator.desired.worker import WorkerFacts
from slurm_operator.kube.kinds import Node, NodeSpec, Pod, PodSpec, PodStatus, Taint
from slurm_operator.kube.model import Condition, ObjectMeta, OwnerReference
from slurm_operator.nodeset.ownership import Ownership
from slurm_operator.nodeset.world import Slurm, World
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.model import Number
from slurm_operator.slurm.states import is_drain

NOW = 1_800_000_000.0
NODESET_UID = "uid-nodeset"
BUDGET_UID = "uid-budget"
BUDGET = OwnerReference(
    api_version="policy/v1", kind="PodDisruptionBudget", name=names.workers_budget("slurm"), uid=BUDGET_UID
)
"""The second owner of every worker."""


def at(seconds: float) -> str:
    """RFC 3339 of a moment relative to NOW."""
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat().replace("+00:00", "Z")


def pod(
    name: str = "gpu-0",
    *,
    node: str = "k8s-1",
    phase: str = "Running",
    ready: bool | None = True,
    ready_at: float | None = -3600,
    created: float | None = -7200,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    owner: OwnerReference | None = None,
    deleting: bool = False,
    ip: str = "10.0.0.1",
    revision: str = "rev-1",
    nodeset: str = "gpu",
) -> Pod:
    conditions: tuple[Condition, ...] = ()
    if ready is not None:
        since = None if ready_at is None else at(ready_at)
        conditions = (Condition(type="Ready", status="True" if ready else "False", last_transition_time=since),)
    standard = {
        names.LABEL_APP: names.APP_SLURMD,
        names.LABEL_INSTANCE: nodeset,
        names.LABEL_POD_HOSTNAME: name,
        names.LABEL_POD_NAME: name,
        names.LABEL_SCALING_MODE: "StatefulSet",
        names.LABEL_REVISION_HASH: revision,
    }
    owners = (owner or OwnerReference(kind="NodeSet", name=nodeset, uid=NODESET_UID, controller=True), BUDGET)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="slurm",
            uid=f"uid-{name}",
            resource_version="1",
            creation_timestamp="" if created is None else at(created),
            deletion_timestamp=at(0) if deleting else None,
            labels={**standard, **(labels or {})},
            annotations=dict(annotations or {}),
            owner_references=owners,
        ),
        spec=PodSpec(node_name=node, hostname=name),
        status=PodStatus(phase=phase, conditions=conditions, pod_ip=ip, start_time=at(created or 0)),
    )


def node(
    name: str = "k8s-1",
    *,
    cordoned: bool = False,
    taints: tuple[Taint, ...] = (),
    labels: Mapping[str, str] | None = None,
) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels=dict(labels or {})),
        spec=NodeSpec(unschedulable=cordoned, taints=taints),
    )


def nodeset(
    replicas: int = 1, *, deleting: bool = False, status: NodeSetStatus | None = None, held: bool = True, **spec: Any
) -> NodeSet:
    """A NodeSet `slurm/gpu` that the operator has already taken in hand."""
    given = {"slurmd": {"image": "slurmd"}, "logfile": {"image": "log"}, "controllerRef": {"name": "slurm"}, **spec}
    return NodeSet(
        metadata=UserMeta(
            name="gpu",
            namespace="slurm",
            uid=NODESET_UID,
            generation=1,
            finalizers=(names.FINALIZER_WORKERS,) if held else (),
            deletion_timestamp=at(-60) if deleting else None,
        ),
        spec=msgspec.convert({"replicas": replicas, **given}, NodeSetSpec),
        status=status or NodeSetStatus(),
    )


def controller() -> Controller:
    return Controller(metadata=UserMeta(name="slurm", namespace="slurm", uid="uid-slurm"))


def revision(of: NodeSet) -> str:
    return revision_hash(revision_data(of))


def record(
    name: str = "gpu-0",
    *state: str,
    reason: str = "",
    ip: str = "10.0.0.1",
    started: float = -3600,
    partitions: tuple[str, ...] = (),
) -> SlurmNode:
    """A Slurm node record, by default of a slurmd that started an hour ago."""
    words = state or ("IDLE", "DYNAMIC_NORM")
    start = Number(set=True, number=int(NOW + started))
    return SlurmNode(name=name, state=words, reason=reason, address=ip, slurmd_start_time=start, partitions=partitions)


def known(*records: SlurmNode, age: float = 1.0, pending: Iterable[str] = ()) -> Known:
    """What slurmrestd said `age` seconds ago; what is drained has been for a while."""
    nodes = {found.name: found for found in records}
    drained = {found.name: 900.0 for found in records if is_drain(found.state)}
    return Known(nodes, 1000.0 - age, NOW - age, 1, 1, {}, frozenset(pending), drained)


def job_list(**fields: Any) -> JobList:
    """Jobs and reservations as read a second ago."""
    return JobList(999.0, **fields)


def world(of: NodeSet, *pods: Pod, slurm: Slurm | None = None, **more: Any) -> World:
    """Everything in order but for what is said."""
    current = controller()
    return World(
        nodeset=of,
        controller=current,
        pods=pods,
        nodes={found: node(found) for found in {pod.spec.node_name for pod in pods} if found},
        facts=WorkerFacts(controller=current),
        slurm=slurm if slurm is not None else known(),
        now=NOW,
        **{"jobs": job_list(), "ownership": Ownership(BUDGET_UID), **more},
    )

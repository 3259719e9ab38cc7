"""What a worker pod says of its Slurm node: one condition per state, and a label while it must not be evicted.

This is per-pod work with a key of its own: jobs start and end many times a second and concern one pod each.
"""

from dataclasses import dataclass
from typing import Any

from slurm_operator.api import names
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.resource import Manifest
from slurm_operator.nodeset.drains import REMOVAL
from slurm_operator.nodeset.evidence import belongs, says_busy
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.runtime.times import rfc3339, seconds_of
from slurm_operator.slurm.hostlist import members
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.states import is_busy, known_conditions, pod_conditions

OURS = known_conditions()
WHILE_GROWING = 1.0
"""Seconds after which a new worker's first word is thought of again, while many others are still to be made."""
LINGERING = 10.0
"""A worker without jobs that is to be removed is gone sooner than that."""


@dataclass(frozen=True, slots=True)
class PodWrites:
    """Both None: nothing to write."""

    conditions: Manifest | None = None
    """To be applied to the status, with our own field manager: other programs' conditions stay theirs."""
    protect: bool | None = None
    """What the protection label must become."""
    about_jobs: bool = False
    """Jobs run on the node, or did when the pod was last written."""


NOTHING = PodWrites()


def decide(pod: Pod, slurm: Known | Unknown, *, protection: bool, now: float) -> PodWrites:
    """While Slurm is unknown, what the pod says stays: a stale protection is better than none."""
    if isinstance(slurm, Unknown) or pod.metadata.terminating:
        return NOTHING
    found = slurm.nodes.get(slurm_name(pod))
    record = found if found is not None and belongs(found, pod) else None
    if record is None and says_busy(pod):
        return NOTHING  # its record vanished under its jobs: a slurmctld that lost its state proves nothing
    busy = record is not None and is_busy(record.state)
    protect = protection and busy
    is_protected = pod.metadata.labels.get(names.LABEL_POD_PROTECT) == names.TRUE
    return PodWrites(
        conditions=_conditions(pod, record, now),
        protect=protect if protect != is_protected else None,
        about_jobs=busy or says_busy(pod),
    )


def can_wait(pod: Pod, writes: PodWrites, status: NodeSetStatus, *, growing: bool, now: float) -> float:
    """Seconds for which the API server has better things to do than to hear of this pod; 0: tell it now.

    What is about jobs never waits.
    """
    if writes.conditions is None or writes.about_jobs:
        return 0.0
    if growing and not any(condition.type in OURS for condition in pod.status.conditions):
        return WHILE_GROWING
    since = [
        seconds_of(drain.since, absent=0.0)
        for drain in status.drains
        if drain.cause in REMOVAL and slurm_name(pod) in members(drain.nodes)
    ]
    return max(0.0, max(since, default=0.0) + LINGERING - now)


def _conditions(pod: Pod, record: SlurmNode | None, now: float) -> Manifest | None:
    wanted = dict.fromkeys(pod_conditions(record.state), record.reason) if record is not None else {}
    present = {c.type: c for c in pod.status.conditions if c.type in OURS}
    if wanted == {kind: condition.message for kind, condition in present.items() if condition.is_true} and all(
        condition.is_true for condition in present.values()
    ):
        return None
    stated: list[dict[str, Any]] = []
    for kind, message in wanted.items():
        before = present.get(kind)
        since = before.last_transition_time if before is not None and before.is_true else None
        stated.append({"type": kind, "status": "True", "message": message, "lastTransitionTime": since or rfc3339(now)})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
        "status": {"conditions": stated},
    }

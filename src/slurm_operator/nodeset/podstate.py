"""What a worker pod says of its Slurm node: one condition per state, and a label while it must not be evicted.

This is per-pod work with a key of its own: jobs start and end many times a second and concern one pod each.
"""

from dataclasses import dataclass
from typing import Any

from slurm_operator.api import names
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.resource import Manifest
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.nodeset.world import belongs
from slurm_operator.runtime.times import rfc3339
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.states import is_busy, known_conditions, pod_conditions

OURS = known_conditions()


@dataclass(frozen=True, slots=True)
class PodWrites:
    """Both None: nothing to write."""

    conditions: Manifest | None = None
    """To be applied to the status, with our own field manager: other programs' conditions stay theirs."""
    protect: bool | None = None
    """What the protection label must become."""


NOTHING = PodWrites()


def decide(pod: Pod, slurm: Known | Unknown, *, protection: bool, now: float) -> PodWrites:
    """While Slurm is unknown, what the pod says stays: a stale protection is better than none."""
    if isinstance(slurm, Unknown) or pod.metadata.terminating:
        return NOTHING
    found = slurm.nodes.get(slurm_name(pod))
    record = found if found is not None and belongs(found, pod) else None
    protect = protection and record is not None and is_busy(record.state)
    is_protected = pod.metadata.labels.get(names.LABEL_POD_PROTECT) == names.TRUE
    return PodWrites(
        conditions=_conditions(pod, record, now),
        protect=protect if protect != is_protected else None,
    )


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

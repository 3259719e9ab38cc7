"""Who goes first when workers have to go: scale-in and rolling updates choose from the front of this order."""

import math
import re
from typing import TypeAlias

from slurm_operator.api import names
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.model import find_condition
from slurm_operator.nodeset.identity import ordinal_of
from slurm_operator.runtime.times import seconds_of

VictimKey: TypeAlias = tuple[bool, int, bool, int, float, bool, int, float, float, str]

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_INT32 = 2**31
_PHASES = {"Unknown": 1, "Running": 2}


def victim_key(pod: Pod, *, cordoned: bool, job_end: float | None) -> VictimKey:
    """Sorts the most expendable pod first: the first difference of these decides."""
    ready = is_ready(pod)
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase, 0),
        ready,
        deletion_cost(pod),
        job_end or 0.0,
        not cordoned,
        -ordinal_of(pod),
        -ready_since(pod) if ready else 0.0,
        -seconds_of(pod.metadata.creation_timestamp, absent=math.inf),
        pod.metadata.name,
    )


def is_ready(pod: Pod) -> bool:
    condition = find_condition(pod.status.conditions, "Ready")
    return condition is not None and condition.is_true


def is_healthy(pod: Pod) -> bool:
    """Runs, is ready, and is not on its way out."""
    return pod.status.phase == "Running" and is_ready(pod) and not pod.metadata.terminating


def ready_since(pod: Pod) -> float:
    """When the pod became ready; a missing time counts as just now."""
    condition = find_condition(pod.status.conditions, "Ready")
    return seconds_of(condition.last_transition_time if condition else None, absent=math.inf)


def is_available(pod: Pod, min_ready_seconds: int, now: float) -> bool:
    """Ready, and for long enough."""
    return is_ready(pod) and (min_ready_seconds <= 0 or ready_since(pod) + min_ready_seconds <= now)


def deletion_cost(pod: Pod) -> int:
    """What users say a pod is worth; nonsense counts as nothing said."""
    text = pod.metadata.annotations.get(names.ANNOTATION_POD_DELETION_COST, "")
    cost = int(text) if _INTEGER.fullmatch(text) else 0
    return cost if -_INT32 <= cost < _INT32 else 0


def pod_deadline(pod: Pod) -> float | None:
    """The end of the last job as noted on the pod; absent and malformed are the same."""
    found = seconds_of(pod.metadata.annotations.get(names.ANNOTATION_POD_DEADLINE), absent=math.nan)
    return None if math.isnan(found) else found

"""What a worker pod proves about its slurmd: whether it ever ran, since when, and whether jobs were seen on it."""

from slurm_operator.api import names
from slurm_operator.kube.kinds import ContainerStatus, Pod
from slurm_operator.nodeset.order import is_ready, ready_since
from slurm_operator.runtime.times import seconds_of
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.reasons import is_ours
from slurm_operator.slurm.states import BUSY, is_down, is_responding, pod_conditions

_SAYS_BUSY = frozenset(kind for word in BUSY for kind in pod_conditions((word,)))


def slurmd_has_run(pod: Pod) -> bool:
    """Return whether slurmd may have registered. The phase alone does not tell: a sidecar keeps it at Pending."""
    slurmd = _slurmd(pod)
    if slurmd is None:
        return pod.status.phase != "Pending"
    never = slurmd.state.running is None and slurmd.state.terminated is None and slurmd.last_state.terminated is None
    return not never or slurmd.ready or slurmd.restart_count > 0


def has_finished(pod: Pod) -> bool:
    """Return whether the containers of a pod have ended for good."""
    return pod.status.phase in ("Failed", "Succeeded")


def slurmd_is_ready(pod: Pod) -> bool:
    slurmd = _slurmd(pod)
    return slurmd is not None and slurmd.ready


def slurmd_started(pod: Pod) -> float:
    """Return the second at which slurmd's container last started; later evidence counts where it is missing."""
    ready = ready_since(pod) if is_ready(pod) else 0.0
    pod_started = seconds_of(pod.status.start_time, absent=0.0)
    container_started = seconds_of(pod.status.slurmd_started_at, absent=0.0)
    return max(pod_started, container_started, ready if ready != float("inf") else 0.0)


def says_busy(pod: Pod) -> bool:
    """Return whether the pod was last marked as running jobs, by its conditions or its protection label."""
    if pod.metadata.labels.get(names.LABEL_POD_PROTECT) == names.TRUE:
        return True
    return any(condition.type in _SAYS_BUSY and condition.is_true for condition in pod.status.conditions)


def belongs(record: SlurmNode, pod: Pod) -> bool:
    """Return whether the record is of this pod's slurmd and not of an earlier pod with the same name.

    Only a slurmd that started before this pod, at another address, proves it to be the predecessor's.
    """
    if record.address and record.address == pod.status.pod_ip:
        return True
    started = seconds_of(pod.status.start_time, absent=0.0)
    if not started:
        return False
    slurmd_started_at = record.slurmd_start_time.value or 0
    return slurmd_started_at == 0 or slurmd_started_at >= started - 1


def has_returned(record: SlurmNode) -> bool:
    """Return whether a node that we took down when its pod went answers again."""
    return is_down(record.state) and is_ours(record.reason) and is_responding(record.state)


def _slurmd(pod: Pod) -> ContainerStatus | None:
    return next((found for found in pod.status.container_statuses if found.name == names.APP_SLURMD), None)

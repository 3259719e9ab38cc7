"""Why a pod does not run, in words that name the object and the cure."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from slurm_operator.api import names
from slurm_operator.kube.kinds import ContainerStatus, Node, Pod
from slurm_operator.kube.model import find_condition

_CURES = {
    "ErrImagePull": "check the image's name, and imagePullSecrets if the registry wants a login",
    "ImagePullBackOff": "check the image's name, and imagePullSecrets if the registry wants a login",
    "ErrImageNeverPull": "load the image onto the node, or change imagePullPolicy",
    "InvalidImageName": "correct the image's name",
    "CreateContainerConfigError": "create the Secret or ConfigMap, or the key in it, that the message names",
    "CreateContainerError": "see the message; the container's spec is not accepted by the node",
    "RunContainerError": "see the message; the container's command or mounts are not accepted by the node",
}
CRASHES = "CrashLoopBackOff"
_CRASH_CURES = {"slurmd": "check extraConf and the partition's config, "}
_SEE_LOG = "see `kubectl logs --previous` of the container"
_PATIENCE_RESTARTS = 2
"""A daemon may fail once or twice while what it needs comes up."""
_LONGEST_WORDS = 300
_WHEN = re.compile(r"^\S*\[?\d{4}-\d\d-\d\dT\S+\s*")
_FIT = "change resources, nodeSelector, affinity or tolerations, or add a node that fits"


@dataclass(frozen=True, slots=True)
class Trouble:
    reason: str
    message: str


def no_controller(namespace: str, name: str) -> Trouble:
    """A controllerRef that leads nowhere."""
    told = f"Controller {namespace}/{name} does not exist: create it, or correct controllerRef"
    return Trouble(names.EVENT_CONTROLLER_REF_FAILED, told)


def trouble_of(pods: Iterable[Pod], lost: Collection[str] = ()) -> Trouble | None:
    """The trouble that most pods have in common, with one of them as the example. `lost` nodes do not answer."""
    found: dict[str, list[Trouble]] = {}
    for pod in pods:
        # A pod on its way out is nobody's trouble, unless nobody is there to end it.
        trouble = node_trouble(pod, lost) or (None if pod.metadata.terminating else pod_trouble(pod))
        if trouble is not None:
            found.setdefault(trouble.reason, []).append(trouble)
    if not found:
        return None
    worst = max(found.values(), key=len)
    others = f" (and {len(worst) - 1} more like it)" if len(worst) > 1 else ""
    return Trouble(worst[0].reason, worst[0].message + others)


def is_silent(node: Node | None) -> bool:
    """Its kubelet does not answer; a node that was removed has no pods for long."""
    ready = find_condition(node.status.conditions, "Ready") if node is not None else None
    return ready is not None and ready.status == "Unknown"


def node_trouble(pod: Pod, lost: Collection[str] = ()) -> Trouble | None:
    """A pod whose node does not answer may still run: two of its kind could spoil each other's files."""
    ready = find_condition(pod.status.conditions, "Ready")
    unknown = (ready is not None and ready.status == "Unknown") or pod.status.reason == "NodeLost"
    if not unknown and pod.spec.node_name not in lost:
        return None
    cure = "bring it back, or delete the Node once the machine is certainly off"
    node = pod.spec.node_name
    return Trouble("NodeLost", f"{_called(pod)} cannot be reached: its node {node} does not answer; {cure}")


def pod_trouble(pod: Pod) -> Trouble | None:
    """What keeps one pod from running; None while it simply takes its time."""
    name = _called(pod)
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable":
        return Trouble("Unschedulable", f"{name} fits no node: {scheduled.message}; {_fit(pod, scheduled.message)}")
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if trouble := _container_trouble(name, status):
            return trouble
    if pod.status.phase == "Failed":
        return Trouble(pod.status.reason or "PodFailed", f"{name} failed: {pod.status.message or 'see its events'}")
    return None


def _fit(pod: Pod, told: str) -> str:
    """Name what makes a pod fit; workers keep apart from each other unless the NodeSet says otherwise."""
    apart = "anti-affinity" in told and pod.metadata.labels.get(names.LABEL_APP) == names.APP_SLURMD
    return f"{_FIT}; oversubscribeNode: true lets workers share a node" if apart else _FIT


def _called(pod: Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"


def _container_trouble(pod: str, status: ContainerStatus) -> Trouble | None:
    last = status.last_state.terminated
    # For a moment of each round it runs, or has just ended: that is no better.
    if last is not None and last.exit_code and status.restart_count >= _PATIENCE_RESTARTS and not status.ready:
        said = last_words(last.message)
        told = f"container {status.name} ends again and again with exit code {last.exit_code}{said and ': '}{said}"
        return Trouble(CRASHES, f"{pod}, {told}; {_CRASH_CURES.get(status.name, '')}{_SEE_LOG}")
    waiting = status.state.waiting
    if waiting is None or waiting.reason not in _CURES:
        return None
    told = f": {waiting.message}" if waiting.message else ""
    return Trouble(waiting.reason, f"{pod}, container {status.name}{told}; {_CURES[waiting.reason]}")


def last_words(log: str) -> str:
    """The line in the end of a log that most likely says why the daemon ended, and the error that led to it."""
    lines = [_WHEN.sub("", line).strip()[:_LONGEST_WORDS] for line in log.splitlines() if line.strip()]
    fatal = max((at for at, line in enumerate(lines) if "fatal" in line.lower()), default=None)
    before = [line for line in lines[:fatal] if "error" in line.lower()][-1:]
    if fatal is not None:
        return "; ".join([*before, lines[fatal]])
    return "".join(before or lines[-1:])

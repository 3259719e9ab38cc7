"""Which pod is which: ordinals, names, and whose pod it is."""

import re
from collections.abc import Iterable, Iterator
from itertools import count, islice

from slurm_operator.api import NodeSet, names
from slurm_operator.desired.worker import Slot, node_slot
from slurm_operator.kube.kinds import Node, Pod

_ORDINAL = re.compile(r"(?P<parent>.*)-(?P<ordinal>[0-9]+)")
_INT32 = 2**31


def split_ordinal(pod_name: str) -> tuple[str, int]:
    """`gpu-a-12` is worker 12 of `gpu-a`; a name without an ordinal has none and no parent."""
    match = _ORDINAL.fullmatch(pod_name)
    number = int(match["ordinal"]) if match else _INT32
    return (match["parent"], number) if match and number < _INT32 else ("", -1)


def ordinal_of(pod: Pod) -> int:
    """Ordinal of a worker in StatefulSet mode; in DaemonSet mode even an all-digit suffix is none."""
    if pod.metadata.labels.get(names.LABEL_SCALING_MODE) == "DaemonSet":
        return -1
    return split_ordinal(pod.metadata.name)[1]


def free_ordinals(taken: Iterable[int], wanted: int) -> Iterator[int]:
    """The lowest ordinals that nobody has: gaps are filled first."""
    used = set(taken)
    return islice((number for number in count() if number not in used), wanted)


def daemon_slot(nodeset: NodeSet, node: Node) -> Slot:
    """The place of a Kubernetes Node in DaemonSet mode."""
    return node_slot(nodeset, node.metadata.name, node.metadata.annotations.get(names.ANNOTATION_HOSTNAME_OVERRIDE, ""))


def slurm_name(pod: Pod) -> str:
    """Return the name under which slurmd registers: its host's name, which for hostNetwork is the Node's."""
    if pod.spec.host_network and pod.spec.node_name:
        return pod.spec.node_name.partition(".")[0]
    return pod.metadata.labels.get(names.LABEL_POD_HOSTNAME) or pod.spec.hostname or pod.metadata.name


def may_adopt(pod: Pod, nodeset: str, scaling_mode: str) -> bool:
    """Whether we could have made this orphan with our labels; a sibling's pod (`gpu-a-0` for `gpu`) is not ours."""
    if pod.metadata.controller is not None or pod.metadata.terminating:
        return False
    labels = pod.metadata.labels
    if labels.get(names.LABEL_APP) != names.APP_SLURMD or labels.get(names.LABEL_INSTANCE) != nodeset:
        return False
    if scaling_mode == "StatefulSet":
        parent, number = split_ordinal(pod.metadata.name)
        return parent == nodeset and number >= 0
    return pod.metadata.name.startswith(f"{nodeset}-")

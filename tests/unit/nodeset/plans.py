"""What a plan would do, in a word each."""

from typing import Any

from slurm_operator.api.nodeset import Drain as Recorded
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import Pod
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.slurm_actions import Release, RemoveUnregistered
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import ApplyStatus, Create, Delete, Patch, RecordEvent
from slurm_operator.runtime.plan import InOrder
from slurm_operator.slurm.model import Node as SlurmNode
from tests.unit.nodeset.make import at, pod, record

DRAINED = ("IDLE", "DRAIN", "DYNAMIC_NORM")
BUSY = ("MIXED", "DYNAMIC_NORM")
OURS = "slurm-operator: NodeSet slurm/gpu is scaled in"


def flat(plan: Any) -> list[Any]:
    return [part for action in plan.actions for part in (action.actions if isinstance(action, InOrder) else (action,))]


def planned(of: World, kind: type) -> list[Any]:
    return [action for action in flat(decide(of)) if isinstance(action, kind)]


def created(of: World) -> list[str]:
    return [a.manifest["metadata"]["name"] for a in planned(of, Create) if a.resource.kind == "Pod"]


def deleted(of: World) -> list[str]:
    """Pods that go: at once, or after a second read that agrees."""
    at_once = [a.name for a in planned(of, Delete) if a.resource.kind == "Pod"]
    return [*at_once, *(a.pod.metadata.name for a in planned(of, RemoveUnregistered))]


def nodes_of(of: World, kind: type) -> list[str]:
    return sorted(name for action in planned(of, kind) for name in action.nodes)


def events(of: World) -> list[str]:
    return [action.reason for action in planned(of, RecordEvent)]


def condition(of: World, kind: str) -> dict[str, Any]:
    (status,) = [a.manifest["status"] for a in planned(of, ApplyStatus)][:1]
    found: dict[str, Any] = next(c for c in status["conditions"] if c["type"] == kind)
    return found


def released(of: World) -> bool:
    """Return whether the NodeSet is let go of, at once or after a last look."""
    patches = [*planned(of, Patch), *(action.nodeset for action in planned(of, Release))]
    return any(patch.resource.kind == "NodeSet" for patch in patches)


def pods(*ordinals: int, rev: str, **more: Any) -> tuple[Pod, ...]:
    return tuple(pod(f"gpu-{n}", node=f"k8s-{n}", ip=f"10.0.0.{n}", revision=rev, **more) for n in ordinals)


def records(*ordinals: int, state: tuple[str, ...] = ("IDLE",), **more: Any) -> tuple[SlurmNode, ...]:
    return tuple(record(f"gpu-{n}", *state, ip=f"10.0.0.{n}", **more) for n in ordinals)


def told(nodes: str, cause: str = "scale-in") -> NodeSetStatus:
    """The status of a NodeSet that has written down that these go."""
    return NodeSetStatus(drains=(Recorded(cause=cause, nodes=nodes, since=at(-60)),))

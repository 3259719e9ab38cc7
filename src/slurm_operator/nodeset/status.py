"""What a NodeSet reports: counts, and conditions that say what is waited for and why."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from slurm_operator.api import names
from slurm_operator.api.ignored import Ignored, ignored_fields
from slurm_operator.api.nodeset import Drain, NodeSetStatus
from slurm_operator.nodeset.choose import Choice
from slurm_operator.nodeset.order import is_available, is_ready
from slurm_operator.nodeset.overdue import waiting_for_jobs
from slurm_operator.nodeset.readiness import Tally, degraded, progressing, reachable, ready
from slurm_operator.nodeset.waiting import in_order, listed
from slurm_operator.nodeset.world import Worker, World
from slurm_operator.runtime.conditions import Verdict, fields_ignored, stated
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.states import is_busy, is_down, is_drain


def status_of(world: World, choice: Choice, revision: str, drains: Sequence[Drain]) -> dict[str, Any]:
    """Return the whole status as it should read now."""
    counts = _counts(world, choice, revision)
    verdicts = verdicts_of(world, choice, tally_of(world, choice, counts, revision))
    return {
        **counts,
        **_slurm_counts(world),
        "observedGeneration": world.nodeset.metadata.generation,
        "nodeSetHash": revision,
        "selector": names.selector_text(names.APP_SLURMD, world.nodeset.metadata.name),
        "conditions": stated(verdicts, world.nodeset.status.conditions, world.nodeset.metadata.generation, world.now),
        "drains": msgspec.to_builtins(list(drains)),
    }


def same(status: Mapping[str, Any], reported: NodeSetStatus) -> bool:
    """Return whether the object says so already."""
    return msgspec.convert(status, NodeSetStatus) == reported


def _counts(world: World, choice: Choice, revision: str) -> dict[str, int]:
    workers = world.workers
    minimum = world.nodeset.spec.min_ready_seconds
    available = sum(worker.live and is_available(worker.pod, minimum, world.now) for worker in workers)
    return {
        "desired": choice.desired,
        "replicas": sum(bool(worker.pod.status.phase) for worker in workers),
        "updatedReplicas": sum(worker.live and worker.revision == revision for worker in workers),
        "readyReplicas": sum(worker.live and is_ready(worker.pod) for worker in workers),
        "availableReplicas": available,
        "unavailableReplicas": max(0, choice.desired - available),
    }


def _slurm_counts(world: World) -> dict[str, int]:
    """Count each Slurm node once; while Slurm is unknown the last counts stay, and SlurmReachable says so."""
    if not isinstance(world.slurm, Known):
        was = world.nodeset.status
        return {
            "slurmIdle": was.slurm_idle,
            "slurmAllocated": was.slurm_allocated,
            "slurmDown": was.slurm_down,
            "slurmDrain": was.slurm_drain,
        }
    found = Counter(_counted_as(worker.state) for worker in world.workers)
    return {key: found[key] for key in ("slurmIdle", "slurmAllocated", "slurmDown", "slurmDrain")}


def _counted_as(state: Collection[str]) -> str:
    """Return the one count that a node is part of: what keeps jobs away comes before what runs there."""
    if is_down(state):
        return "slurmDown"
    if is_drain(state):
        return "slurmDrain"
    if is_busy(state):
        return "slurmAllocated"
    return "slurmIdle" if "IDLE" in state else ""


def tally_of(world: World, choice: Choice, counts: Mapping[str, int], revision: str) -> Tally:
    old = in_order(worker for worker in world.workers if worker.live and worker.revision != revision)
    return Tally(have=counts["availableReplicas"], want=choice.desired, old=tuple(worker.name for worker in old))


def verdicts_of(world: World, choice: Choice, tally: Tally) -> list[Verdict]:
    return [
        ready(world, choice, tally),
        progressing(world, choice, tally),
        degraded(world, choice),
        reachable(world),
        *waiting_for_jobs(world, choice),
        *fields_ignored([*ignored_fields(world.nodeset), *_ignored_features(world)]),
    ]


def _ignored_features(world: World) -> list[Ignored]:
    """Return the features that are written at Kubernetes Nodes of our workers and do not reach Slurm."""
    nodes = {worker.node.metadata.name for worker in world.workers if worker.node is not None and _has_features(worker)}
    if not nodes:
        return []
    path = f"annotation {names.ANNOTATION_FEATURES} of Node {listed(sorted(nodes))}"
    return [Ignored(path, "is not implemented: name features in extraConf, as in Features=a100")]


def _has_features(worker: Worker) -> bool:
    return worker.node is not None and bool(worker.node.metadata.annotations.get(names.ANNOTATION_FEATURES))

"""What a NodeSet reports: counts, and conditions that say what is waited for and why."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain, NodeSetStatus
from slurm_operator.nodeset.choose import Choice
from slurm_operator.nodeset.drains import Wish
from slurm_operator.nodeset.order import is_available, is_ready
from slurm_operator.nodeset.world import Gone, Standing, Worker, World
from slurm_operator.runtime.conditions import Verdict, stated
from slurm_operator.runtime.trouble import is_silent, trouble_of
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.states import is_drain

FIRST_ANSWER = 10.0
"""Seconds in which slurmrestd should have answered for the first time."""
REJECTED = "SlurmRejectsNode"
_NAMED = 3
"""So many workers are named in a message before the rest is only counted."""


def status_of(
    world: World, choice: Choice, wanted: Mapping[str, Wish], revision: str, drains: Sequence[Drain]
) -> dict[str, Any]:
    """The whole status as it should read now."""
    counts = _counts(world, choice, revision)
    verdicts = verdicts_of(world, choice, wanted, counts)
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
    """Whether the object says so already."""
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
    if not isinstance(world.slurm, Known):
        was = world.nodeset.status
        return {
            "slurmIdle": was.slurm_idle,
            "slurmAllocated": was.slurm_allocated,
            "slurmDown": was.slurm_down,
            "slurmDrain": was.slurm_drain,
        }
    states = [worker.state for worker in world.workers]
    return {
        "slurmIdle": sum("IDLE" in state for state in states),
        "slurmAllocated": sum("ALLOCATED" in state or "MIXED" in state for state in states),
        "slurmDown": sum("DOWN" in state for state in states),
        "slurmDrain": sum(is_drain(state) for state in states),
    }


def verdicts_of(world: World, choice: Choice, wanted: Mapping[str, Wish], counts: Mapping[str, int]) -> list[Verdict]:
    awaited = awaited_by(world, choice)
    return [
        _ready(world, choice, counts),
        _progressing(choice, awaited, counts),
        degraded(world),
        _reachable(world),
    ]


def _ready(world: World, choice: Choice, counts: Mapping[str, int]) -> Verdict:
    have, want = counts["availableReplicas"], choice.desired
    settled = have >= want and counts["updatedReplicas"] >= want and not choice.condemned and not choice.create
    if not settled:
        return Verdict.of(
            names.CONDITION_READY, False, "WorkersMissing", f"{min(have, want)} of {want} workers are ready"
        )
    absent = [worker.name for worker in world.workers if worker.live and worker.record is None]
    if isinstance(world.slurm, Known) and absent:
        return Verdict.of(
            names.CONDITION_READY, False, "NotRegistered", f"waiting for {listed(absent)} to register with Slurm"
        )
    if rejected := rejected_by_slurm(world):
        named = listed([worker.name for worker in rejected])
        return Verdict.of(names.CONDITION_READY, False, REJECTED, f"Slurm rejects {named}: see Degraded")
    if outside := _outside_partition(world):
        return Verdict.of(
            names.CONDITION_READY,
            False,
            "PartitionMissing",
            f"waiting for slurmctld to put {listed(outside)} into partition {world.nodeset.slurm_name}; "
            f"Controller {world.nodeset.spec.controller_ref.name} says how far the configuration has come",
        )
    return Verdict.of(names.CONDITION_READY, True, "AllWorkersReady", f"{want} of {want} workers are ready")


def _outside_partition(world: World) -> list[str]:
    """Registered workers that the running slurmctld has not in the NodeSet's partition: no job finds them there."""
    partition = world.nodeset.spec.partition
    if partition is None or not partition.enabled or world.controller is None or world.controller.spec.external:
        return []
    name = world.nodeset.slurm_name
    return [w.name for w in world.workers if w.live and w.record is not None and name not in w.record.partitions]


def _progressing(choice: Choice, awaited: Sequence[str], counts: Mapping[str, int]) -> Verdict:
    have, want = counts["availableReplicas"], choice.desired
    if not awaited and not choice.create and have >= want:
        return Verdict.of(names.CONDITION_PROGRESSING, False, "Settled", f"{want} workers, as asked for")
    waits = f"; waiting for {listed(awaited, '; ')}" if awaited else ""
    return Verdict.of(names.CONDITION_PROGRESSING, True, "Working", f"{have} of {want} workers are ready{waits}")


def awaited_by(world: World, choice: Choice) -> list[str]:
    """What keeps each worker that should go from going."""
    return [_wait_for(world, worker) for worker in choice.going(world)] + [
        f"the old pod {name} to end" for name in choice.blocked
    ]


def _wait_for(world: World, worker: Worker) -> str:
    match worker.standing:
        case Standing.BUSY:
            jobs = world.jobs.jobs.get(worker.name, ()) if world.jobs is not None else ()
            which = f" {', '.join(map(str, jobs[:_NAMED]))}" if jobs else "s"
            return f"job{which} on {worker.name} to end{_until(world, worker)}"
        case Standing.UNSURE:
            why = world.slurm.why if isinstance(world.slurm, Unknown | Gone) else "its state was read too long ago"
            return f"Slurm to say what runs on {worker.name} ({why})"
        case Standing.IN_SERVICE:
            return f"{worker.name} to be drained"
        case _:
            return f"{worker.name} to be removed"


def _until(world: World, worker: Worker) -> str:
    end = world.jobs.latest.get(worker.name) if world.jobs is not None else None
    if end is None:
        return ""
    if end == float("inf"):
        return ", without a time limit"
    return f", by {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M} UTC at the latest"


def degraded(world: World) -> Verdict:
    silent = {worker.pod.spec.node_name for worker in world.workers if is_silent(worker.node)}
    trouble = world.lacking or trouble_of((worker.pod for worker in world.workers), silent)
    if trouble is not None:
        return Verdict.of(names.CONDITION_DEGRADED, True, trouble.reason, trouble.message)
    if world.refusals:
        rest = f" (and {len(world.refusals) - 1} more)" if len(world.refusals) > 1 else ""
        return Verdict.of(names.CONDITION_DEGRADED, True, "Refused", world.refusals[0] + rest)
    if rejected := rejected_by_slurm(world):
        said = rejected[0].record.reason if rejected[0].record else ""
        named = listed([worker.name for worker in rejected])
        cure = "check extraConf and the resource limits"
        return Verdict.of(names.CONDITION_DEGRADED, True, REJECTED, f"Slurm rejects {named}: {said}; {cure}")
    return Verdict.of(names.CONDITION_DEGRADED, False, "Healthy", "")


def rejected_by_slurm(world: World) -> list[Worker]:
    """Workers that registered as something else than Slurm has on record: they get no job."""
    return [worker for worker in world.workers if worker.live and {"INVALID_REG", "INVALID"} & set(worker.state)]


def _reachable(world: World) -> Verdict:
    before = world.nodeset.status.condition(names.CONDITION_SLURM_REACHABLE)
    if before is not None and still_asking(world) > 0:
        return Verdict(before.type, before.status, before.reason, before.message)
    match world.slurm:
        case Known():
            return Verdict.of(names.CONDITION_SLURM_REACHABLE, True, "Answers", "")
        case Unknown(since=_, why=why):
            return Verdict.of(names.CONDITION_SLURM_REACHABLE, False, "NoAnswer", why)
        case Gone(why=why):
            return Verdict.of(names.CONDITION_SLURM_REACHABLE, False, "ClusterGone", why)


def still_asking(world: World) -> float:
    """Seconds for which a new process may still say what the last one said of Slurm: it has only just asked."""
    if not isinstance(world.slurm, Unknown) or world.slurm.error is not None:
        return 0.0
    return max(0.0, world.slurm.since + FIRST_ANSWER - world.now)


def listed(items: Sequence[str], separator: str = ", ") -> str:
    rest = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return separator.join(items[:_NAMED]) + rest

"""What a NodeSet reports: counts, and conditions that say what is waited for and why."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain, NodeSetStatus
from slurm_operator.nodeset.choose import Choice, awaits_records
from slurm_operator.nodeset.drains import Wish, left_behind, unnoticed, unseen_records
from slurm_operator.nodeset.evidence import says_busy
from slurm_operator.nodeset.order import is_available, is_ready
from slurm_operator.nodeset.ownership import awaits_budget
from slurm_operator.nodeset.unregistered import not_registered
from slurm_operator.nodeset.world import Gone, Standing, Worker, World, asking, users_of
from slurm_operator.runtime.conditions import Verdict, stated
from slurm_operator.runtime.trouble import is_silent, trouble_of
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.states import REJECTED as STATES_REJECTED
from slurm_operator.slurm.states import is_drain

REJECTED = "SlurmRejectsNode"
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""Later ends cannot be shown as a date; a time limit of 8,000 years is none."""
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
        _progressing(world, choice, awaited, counts),
        degraded(world, choice),
        _reachable(world),
    ]


def _ready(world: World, choice: Choice, counts: Mapping[str, int]) -> Verdict:
    have, want = counts["availableReplicas"], choice.desired
    complete = have >= want and counts["updatedReplicas"] >= want
    settled = complete and not (choice.condemned or choice.create or choice.held)
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


def _progressing(world: World, choice: Choice, awaited: Sequence[str], counts: Mapping[str, int]) -> Verdict:
    have, want = counts["availableReplicas"], choice.desired
    if not awaited and not choice.create and have >= want:
        return Verdict.of(names.CONDITION_PROGRESSING, False, "Settled", f"{want} workers, as asked for")
    ready = f"{have} of {want} workers are ready"
    before = world.nodeset.status.condition(names.CONDITION_PROGRESSING)
    if before is not None and asking(world) > 0 and before.message.startswith(f"{ready}; "):
        return Verdict(before.type, before.status, before.reason, before.message)
    waits = f"; waiting for {listed(awaited, '; ')}" if awaited else ""
    return Verdict.of(names.CONDITION_PROGRESSING, True, "Working", f"{ready}{waits}")


def awaited_by(world: World, choice: Choice) -> list[str]:
    """What keeps each worker that should go from going, and the others from coming."""
    namespace, budget = world.nodeset.metadata.namespace, names.workers_budget(world.nodeset.spec.controller_ref.name)
    unkept = choice.create and awaits_budget(world.nodeset, world.ownership, world.now)
    return [
        *([f"PodDisruptionBudget {namespace}/{budget} to be created"] if unkept else []),
        *(["Slurm to say which names are in use"] if choice.create and awaits_records(world) else []),
        *(_wait_for(world, worker) for worker in choice.going(world)),
        *(f"the old pod {name} to end" for name in choice.blocked),
        *(f"the Slurm name {held.name} to be free: {held.where} has it" for held in choice.held.values()),
        *(f"{listed(users)} to end, which name {name}" for name, users in choice.waiting.items()),
        *_kept_records(world),
    ]


def _kept_records(world: World) -> Iterator[str]:
    """Say which records of workers that are gone stay, and why."""
    if world.nodeset.metadata.deletion_timestamp is not None and (unseen := unseen_records(world)):
        why = world.slurm.why if isinstance(world.slurm, Unknown) else ""
        yield f"Slurm to say whether it still has {listed(sorted(unseen))} ({why})"
    if world.nodeset.metadata.deletion_timestamp is not None and (ended := unnoticed(world)):
        yield f"Slurm to notice that {listed(sorted(ended))} ended"
    for name in sorted(left_behind(world)):
        if users := users_of(world, name):
            yield f"{listed(users)} to end, which name {name}: its record stays drained until then"


def _wait_for(world: World, worker: Worker) -> str:
    match worker.standing:
        case Standing.BUSY:
            jobs = world.jobs.holding.get(worker.name, ()) if world.jobs is not None else ()
            which = f" {', '.join(map(str, jobs[:_NAMED]))}" if jobs else "s"
            return f"job{which} on {worker.name} to end{_until(world, worker)}"
        case Standing.UNSURE:
            return f"Slurm to say what runs on {worker.name} ({_why_unsure(world, worker)})"
        case Standing.UNLISTED:
            return f"the list of jobs, to see that none is on {worker.name}"
        case Standing.IN_SERVICE:
            return f"{worker.name} to be drained"
        case _:
            return f"{worker.name} to be removed"


def _why_unsure(world: World, worker: Worker) -> str:
    if isinstance(world.slurm, Unknown | Gone):
        return world.slurm.why
    if worker.record is None and says_busy(worker.pod):
        cure = "restore slurmctld's state, or delete the pod if its jobs may end"
        return f"jobs were running on it, and Slurm has no record of it any more: {cure}"
    if worker.record is not None:
        return "its state was read too long ago"
    if other := world.registered_at(worker.pod):
        return f"Slurm has no such node, but node {other} at the same address {worker.pod.status.pod_ip}"
    return "its state was not read yet"


def _until(world: World, worker: Worker) -> str:
    end = world.jobs.latest.get(worker.name) if world.jobs is not None else None
    if end is None:
        return ""
    if end >= _END_OF_TIME:
        return ", without a time limit"
    return f", by {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M} UTC at the latest"


def degraded(world: World, choice: Choice) -> Verdict:
    silent = {worker.pod.spec.node_name for worker in world.workers if is_silent(worker.node)}
    trouble = world.lacking or trouble_of((worker.pod for worker in world.workers), silent)
    if trouble is not None:
        return Verdict.of(names.CONDITION_DEGRADED, True, trouble.reason, trouble.message)
    if world.unreadable:
        named, cure = listed(world.unreadable), "see the operator's log for the field, and correct or delete it"
        message = f"Pod {named} cannot be read, so nothing is created, deleted or undrained: {cure}"
        return Verdict.of(names.CONDITION_DEGRADED, True, "UnreadablePod", message)
    if taken := twins(choice):
        return Verdict.of(names.CONDITION_DEGRADED, True, "NameTaken", taken)
    if world.refusals:
        rest = f" (and {len(world.refusals) - 1} more)" if len(world.refusals) > 1 else ""
        return Verdict.of(names.CONDITION_DEGRADED, True, "Refused", world.refusals[0] + rest)
    if rejected := rejected_by_slurm(world):
        said = rejected[0].record.reason if rejected[0].record else ""
        named = listed([worker.name for worker in rejected])
        cure = "check extraConf and the resource limits"
        return Verdict.of(names.CONDITION_DEGRADED, True, REJECTED, f"Slurm rejects {named}: {said}; {cure}")
    if absent := not_registered(world, choice):
        return Verdict.of(names.CONDITION_DEGRADED, True, absent.reason, absent.message)
    return Verdict.of(names.CONDITION_DEGRADED, False, "Healthy", "")


def twins(choice: Choice) -> str:
    """Say which workers cannot be created because another worker has their name in Slurm."""
    taken = [held for held in choice.held.values() if held.is_worker]
    if not taken:
        return ""
    cure = "give the NodeSets different template.spec.hostname, or the Nodes different hostname-override annotations"
    named = listed([held.name for held in taken])
    return f"a worker {named} cannot be created: {taken[0].where} has that name in Slurm; {cure}"


def rejected_by_slurm(world: World) -> list[Worker]:
    """Workers that registered as something else than Slurm has on record: they get no job."""
    return [worker for worker in world.workers if worker.live and STATES_REJECTED & {*worker.state}]


def _reachable(world: World) -> Verdict:
    before = world.nodeset.status.condition(names.CONDITION_SLURM_REACHABLE)
    if before is not None and asking(world) > 0:
        return Verdict(before.type, before.status, before.reason, before.message)
    match world.slurm:
        case Known():
            return Verdict.of(names.CONDITION_SLURM_REACHABLE, True, "Answers", "")
        case Unknown(since=_, why=why):
            return Verdict.of(names.CONDITION_SLURM_REACHABLE, False, "NoAnswer", why)
        case Gone(why=why):
            return Verdict.of(names.CONDITION_SLURM_REACHABLE, False, "ClusterGone", why)


def listed(items: Sequence[str], separator: str = ", ") -> str:
    rest = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return separator.join(items[:_NAMED]) + rest

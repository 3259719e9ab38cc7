"""The conditions Ready, Progressing, Degraded and SlurmReachable of a NodeSet.

What depends on Slurm is reported as Unknown while Slurm does not answer. A new process repeats what the last one
reported until Slurm has had time to answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from slurm_operator.api import names
from slurm_operator.nodeset.choose import Choice
from slurm_operator.nodeset.overdue import counts_as_degraded, waiting_for_jobs
from slurm_operator.nodeset.unregistered import not_registered
from slurm_operator.nodeset.waiting import awaited_by, in_order, listed, replaces
from slurm_operator.nodeset.world import Gone, Worker, World, asking
from slurm_operator.runtime.conditions import Verdict
from slurm_operator.runtime.trouble import is_silent, trouble_of
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.states import REJECTED as STATES_REJECTED
from slurm_operator.slurm.states import is_down, is_drain

REJECTED = "SlurmRejectsNode"
SLURM_UNKNOWN = "SlurmUnknown"
NOT_REGISTERED, DOWN = "NotRegistered", "WorkersDown"
PARTITION_MISSING, PARTITION_CLOSED = "PartitionMissing", "PartitionClosed"
SETTLED, WORKING, BLOCKED, HEALTHY = "Settled", "Working", "Blocked", "Healthy"

_BY_SLURM = frozenset(
    {SLURM_UNKNOWN, REJECTED, NOT_REGISTERED, PARTITION_MISSING, PARTITION_CLOSED, DOWN, SETTLED, BLOCKED}
)
"""Reasons that an answer of Slurm decided on, or the lack of one."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Workers as Kubernetes shows them."""

    have: int
    """Available ones."""
    want: int
    old: tuple[str, ...]
    """Names in Slurm of those of an earlier revision."""

    def __str__(self) -> str:
        return f"{min(self.have, self.want)} of {self.want} workers are ready"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why workers whose pods are ready take no jobs, or not those that they should."""

    reason: str
    message: str
    awaited: str
    moves: bool
    """It ends without an administrator, if all is well."""


# --- Ready --------------------------------------------------------------------------------------------------------


def ready(world: World, choice: Choice, tally: Tally) -> Verdict:
    if missing := _missing(world, choice, tally):
        return Verdict.of(names.CONDITION_READY, False, *missing)
    if repeated := _repeated(world, names.CONDITION_READY, str(tally)):
        return repeated
    if why := _unanswered(world):
        message = f"{tally} in Kubernetes, but it is not known whether Slurm gives them jobs: {why}"
        return Verdict(names.CONDITION_READY, "Unknown", SLURM_UNKNOWN, message)
    if found := next(_shortfalls(world), None):
        return Verdict.of(names.CONDITION_READY, False, found.reason, found.message)
    drained = sum(worker.live and is_drain(worker.state) for worker in world.workers)
    message = f"{tally}{f', {drained} of them drained in Slurm' if drained else ''}{_left_alone(world, tally)}"
    return Verdict.of(names.CONDITION_READY, True, "AllWorkersReady", message)


def _missing(world: World, choice: Choice, tally: Tally) -> tuple[str, str] | None:
    """Return the reason and the message for what Kubernetes alone shows not to be as the spec asks for."""
    if world.nodeset.metadata.deletion_timestamp is not None:
        return "Deleting", f"the NodeSet is being deleted; {len(world.workers)} of its workers are left"
    if tally.have < tally.want:
        return "WorkersMissing", str(tally)
    if coming := [slot.name for slot in choice.create] + [*choice.held]:
        return "WorkersMissing", f"{tally}; {listed(coming)} to be created"
    if tally.old and replaces(world):
        return "UpdateIncomplete", f"{tally}; {_earlier(tally)}: to be replaced"
    if choice.flaw is not None:
        return choice.flaw.reason, f"{tally}; no worker can be made from the template: see Degraded"
    if choice.condemned:
        leaving = listed([worker.name for worker in in_order(choice.going(world))])
        return "WorkersLeaving", f"{tally}; {leaving} to be removed"
    return None


def _earlier(tally: Tally) -> str:
    return f"{listed(tally.old)} {'has' if len(tally.old) == 1 else 'have'} an earlier revision"


def _left_alone(world: World, tally: Tally) -> str:
    """Say which workers are outdated under a strategy that does not replace them by itself, and until when."""
    if not tally.old:
        return ""
    strategy = world.nodeset.spec.update_strategy
    if strategy.type == "OnDelete":
        return f"; {_earlier(tally)} until their pods are deleted (updateStrategy OnDelete)"
    start = strategy.scheduled_update.start_time
    window = f"the maintenance window that begins at {start}" if start else "a maintenance window"
    note = "updateStrategy ScheduledUpdate, which this version does not carry out: see FieldsIgnored"
    return f"; {_earlier(tally)} until {window} ({note})"


# --- Progressing --------------------------------------------------------------------------------------------------


def progressing(world: World, choice: Choice, tally: Tally) -> Verdict:
    """The message is empty if nothing is waited for."""
    awaited = awaited_by(world, choice)
    missing = _missing(world, choice, tally) is not None
    deleted = world.nodeset.metadata.deletion_timestamp is not None
    kind, told = names.CONDITION_PROGRESSING, f"{len(world.workers)} workers are left" if deleted else str(tally)
    if repeated := _repeated(world, kind, f"{told}; ", complete=not missing and not awaited):
        return repeated
    if missing or awaited:
        found = [*awaited, *(each.awaited for each in _shortfalls(world)), *_outdated(world, choice, tally)]
        waits = f"; waiting for {listed(found, '; ')}" if found else ""
        return Verdict.of(kind, True, WORKING, f"{told}{waits}")
    if why := _unanswered(world):
        return Verdict(kind, "Unknown", SLURM_UNKNOWN, f"{told}; waiting for Slurm to answer: {why}")
    lacking = list(_shortfalls(world))
    if not lacking:
        return Verdict.of(kind, False, SETTLED, "")
    moves = any(each.moves for each in lacking)
    message = f"{told}; waiting for {'; '.join(each.awaited for each in lacking)}"
    return Verdict.of(kind, moves, WORKING if moves else BLOCKED, message)


def _outdated(world: World, choice: Choice, tally: Tally) -> Iterator[str]:
    """Say which outdated workers an update has still to replace, beyond those that are on their way out."""
    going = {worker.name for worker in choice.going(world)} | {*choice.waiting}
    later = [name for name in tally.old if name not in going]
    if later and replaces(world) and world.nodeset.metadata.deletion_timestamp is None:
        yield f"{listed(later)} to be replaced, which {'has' if len(later) == 1 else 'have'} an earlier revision"


# --- Degraded -----------------------------------------------------------------------------------------------------


def degraded(world: World, choice: Choice) -> Verdict:
    kind = names.CONDITION_DEGRADED
    silent = {worker.pod.spec.node_name for worker in world.workers if is_silent(worker.node)}
    trouble = world.lacking or choice.flaw or trouble_of((worker.pod for worker in world.workers), silent)
    if trouble is not None:
        return Verdict.of(kind, True, trouble.reason, trouble.message)
    if world.unreadable:
        named, cure = listed(world.unreadable), "see the operator's log for the field, and correct or delete it"
        message = f"Pod {named} cannot be read, so nothing is created, deleted or undrained: {cure}"
        return Verdict.of(kind, True, "UnreadablePod", message)
    if taken := twins(choice):
        return Verdict.of(kind, True, "NameTaken", taken)
    if world.refusals:
        rest = f" (and {len(world.refusals) - 1} more)" if len(world.refusals) > 1 else ""
        return Verdict.of(kind, True, "Refused", world.refusals[0] + rest)
    if counts_as_degraded(world) and (waiting := waiting_for_jobs(world, choice)):
        return Verdict.of(kind, True, names.CONDITION_WAITING_FOR_JOBS, waiting[0].message)
    return _degraded_in_slurm(world, choice)


def _degraded_in_slurm(world: World, choice: Choice) -> Verdict:
    """A rejection stays reported while Slurm does not answer: nothing shows that it has ended."""
    kind = names.CONDITION_DEGRADED
    before = world.nodeset.status.condition(kind)
    if before is not None and asking(world) > 0:
        return Verdict(kind, before.status, before.reason, before.message)
    if why := _unanswered(world):
        if before is not None and before.is_true and before.reason == REJECTED:
            return Verdict(kind, "True", before.reason, before.message)
        return Verdict(kind, "Unknown", SLURM_UNKNOWN, f"it is not known whether Slurm rejects workers: {why}")
    if rejected := rejected_by_slurm(world):
        said = rejected[0].record.reason if rejected[0].record else ""
        named = listed([worker.name for worker in rejected])
        cure = "check extraConf and the resource limits"
        return Verdict.of(kind, True, REJECTED, f"Slurm rejects {named}: {said}; {cure}")
    if absent := not_registered(world, choice):
        return Verdict.of(kind, True, absent.reason, absent.message)
    return Verdict.of(kind, False, HEALTHY, "")


def twins(choice: Choice) -> str:
    """Say which workers cannot be created because another worker has their name in Slurm."""
    taken = [held for held in choice.held.values() if held.is_worker]
    if not taken:
        return ""
    cure = "give the NodeSets different template.spec.hostname, or the Nodes different hostname-override annotations"
    named = listed([held.name for held in taken])
    return f"a worker {named} cannot be created: {taken[0].where} has that name in Slurm; {cure}"


# --- Slurm --------------------------------------------------------------------------------------------------------


def reachable(world: World) -> Verdict:
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


def _unanswered(world: World) -> str:
    """Return why it is not known what Slurm makes of the workers; empty if it is known, or there are no workers."""
    if isinstance(world.slurm, Known) or not any(worker.live for worker in world.workers):
        return ""
    return world.slurm.why


def _repeated(world: World, kind: str, told: str, *, complete: bool = True) -> Verdict | None:
    """Return what the last process reported, while Slurm may still answer and Kubernetes shows the same as then."""
    before = world.nodeset.status.condition(kind)
    if before is None or asking(world) <= 0:
        return None
    by_slurm = complete and before.reason in _BY_SLURM
    if by_slurm or before.message.startswith(told):
        return Verdict(before.type, before.status, before.reason, before.message)
    return None


def _shortfalls(world: World) -> Iterator[Shortfall]:
    if not isinstance(world.slurm, Known) or world.nodeset.metadata.deletion_timestamp is not None:
        return
    live = [worker for worker in world.workers if worker.live]
    if absent := listed([worker.name for worker in in_order(w for w in live if w.record is None)]):
        awaited = f"{absent} to register with Slurm"
        yield Shortfall(NOT_REGISTERED, f"waiting for {awaited}", awaited, moves=True)
    if rejected := listed([worker.name for worker in rejected_by_slurm(world)]):
        awaited = f"Slurm to accept {rejected}: see Degraded"
        yield Shortfall(REJECTED, f"Slurm rejects {rejected}: see Degraded", awaited, moves=False)
    if down := listed([_with_reason(worker) for worker in in_order(w for w in live if is_down(w.state))]):
        cure = "see `scontrol show node`; a worker returns by itself if its slurmd answers, else by `State=RESUME`"
        yield Shortfall(DOWN, f"in Slurm these workers are DOWN: {down}; {cure}", f"{down} to leave DOWN", moves=False)
    if outside := listed(_outside_partition(world)):
        awaited = f"slurmctld to put {outside} into partition {world.nodeset.slurm_name}"
        cure = f"Controller {world.nodeset.spec.controller_ref.name} says how far the configuration has come"
        yield Shortfall(PARTITION_MISSING, f"waiting for {awaited}; {cure}", awaited, moves=True)
    if world.partition_is_closed:
        awaited = f"slurmctld to open partition {world.nodeset.slurm_name} again"
        cure = f"Controller {world.nodeset.spec.controller_ref.name} says how far the configuration has come"
        yield Shortfall(PARTITION_CLOSED, f"waiting for {awaited}; {cure}", awaited, moves=True)


def _with_reason(worker: Worker) -> str:
    reason = worker.record.reason if worker.record is not None else ""
    return f"{worker.name} ({reason})" if reason else worker.name


def rejected_by_slurm(world: World) -> list[Worker]:
    """Return workers that registered as something else than Slurm has on record: they get no job."""
    return in_order(worker for worker in world.workers if worker.live and STATES_REJECTED & {*worker.state})


def _outside_partition(world: World) -> list[str]:
    """Return registered workers that the running slurmctld has not in the NodeSet's partition."""
    partition = world.nodeset.spec.partition
    if partition is None or not partition.enabled or world.controller is None or world.controller.spec.external:
        return []
    name = world.nodeset.slurm_name
    found = (w for w in world.workers if w.live and w.record is not None and name not in w.record.partitions)
    return [worker.name for worker in in_order(found)]

"""Which workers are to be drained and why, and what Slurm must be told for it.

Our drains carry our reason; a drain or a reason of an administrator is never changed and never becomes ours.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain as RecordedDrain
from slurm_operator.kube.kinds import Node, Pod
from slurm_operator.nodeset.choose import Cause, Choice, recorded, wants_cordon
from slurm_operator.nodeset.evidence import has_returned, slurmd_has_run
from slurm_operator.nodeset.order import is_ready
from slurm_operator.nodeset.slurm_actions import Drain, Resume, Undrain
from slurm_operator.nodeset.world import FRESH_SECONDS, Gone, Worker, World, asking
from slurm_operator.runtime.times import seconds_of
from slurm_operator.slurm.hostlist import compress, members
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.reasons import our_reason
from slurm_operator.slurm.states import DrainOwner, claim_owner, is_busy, is_down, is_drain, is_responding

REMOVAL = (Cause.DELETE, Cause.MODE, Cause.SCALE_IN, Cause.UPDATE)
"""Causes after which the pod goes."""
ENDING_SECONDS = 30.0
"""Seconds for which a pod is waited for after the end of its grace period."""


@dataclass(frozen=True, slots=True)
class Wish:
    cause: Cause
    reason: str
    goes: bool = False
    """The pod goes, whatever else asks for the drain."""


def wishes(world: World, choice: Choice) -> dict[str, Wish]:
    """Per Slurm node that must take no new jobs: why."""
    found: dict[str, Wish] = {}
    for worker in world.workers:
        if worker.live and (wish := _wish(world, worker, choice)):
            found[worker.name] = replace(wish, goes=worker.pod_name in choice.condemned)
    return found


def _wish(world: World, worker: Worker, choice: Choice) -> Wish | None:
    nodeset = "/".join(world.nodeset.key)
    if worker.node is not None and worker.node.spec.unschedulable:
        return Wish(Cause.NODE_CORDON, our_reason(cordon_reason(worker.node, world.propagated_conditions)))
    if wants_cordon(worker):
        return Wish(Cause.POD_CORDON, our_reason("the pod is cordoned by its annotation"))
    match choice.condemned.get(worker.pod_name):
        case Cause.DELETE:
            return Wish(Cause.DELETE, our_reason(f"NodeSet {nodeset} is being deleted"))
        case Cause.MODE:
            return Wish(Cause.MODE, our_reason(f"NodeSet {nodeset} changed its scaling mode"))
        case Cause.SCALE_IN:
            return Wish(Cause.SCALE_IN, our_reason(f"NodeSet {nodeset} is scaled in"))
        case Cause.UPDATE:
            return Wish(Cause.UPDATE, our_reason(f"NodeSet {nodeset} is being updated"))
        case _:
            return None


def cordon_reason(node: Node, propagated: Iterable[str]) -> str:
    """What the administrator wrote, else what the Node's conditions say, else that it is cordoned."""
    written = node.metadata.annotations.get(names.ANNOTATION_NODE_CORDON_REASON)
    if written:
        return written
    by_type = {condition.type: condition for condition in node.status.conditions if condition.is_true}
    said = [f"({by_type[kind].reason}: {by_type[kind].message})" for kind in propagated if kind in by_type]
    return "; ".join(said) or f"Kubernetes node {node.metadata.name} is cordoned"


def drain_actions(world: World, wanted: Mapping[str, Wish]) -> list[Drain]:
    """One request per reason. Draining is always safe, so an old view is good enough."""
    if not isinstance(world.slurm, Known):
        return []
    by_reason: dict[str, list[str]] = defaultdict(list)
    for worker in world.workers:
        wish = wanted.get(worker.name)
        if wish is None or worker.record is None or worker.terminating:
            continue
        if worker.claimed_by_others:
            if wish.goes and not is_drain(worker.state):
                by_reason[""].append(worker.name)  # DOWN or FAIL by an administrator: drained, the reason stays
        elif not is_drain(worker.state) or worker.record.reason != wish.reason:
            by_reason[wish.reason].append(worker.name)
    return [Drain(tuple(nodes), reason) for reason, nodes in by_reason.items()]


def undrain_actions(world: World, wanted: Mapping[str, Wish]) -> list[Undrain | Resume]:
    """Lift our own drains that nothing asks for any more; only by a fresh view, never on a guess.

    A worker whose Kubernetes Node is not known keeps its drain: the Node may have been cordoned, and is gone. A node
    that is DOWN as well is resumed when it answers again: an undrain would take our reason from it and leave it DOWN.
    """
    if not isinstance(world.slurm, Known) or world.now - world.slurm.at > FRESH_SECONDS or world.unreadable:
        return []
    idle = [w for w in world.workers if w.live and w.name not in wanted and not w.node_is_unknown]
    undrain = tuple(w.name for w in idle if w.drain_owner is DrainOwner.OURS and not is_down(w.state))
    resume = tuple(
        worker.name
        for worker in idle
        if worker.record is not None and has_returned(worker.record) and is_ready(worker.pod)
    )
    return [*([Undrain(undrain)] if undrain else []), *([Resume(resume)] if resume else [])]


def left_behind(world: World) -> set[str]:
    """Return workers that are gone or going and whose records Slurm still has, or may have.

    A name that another NodeSet gave to a worker of its own is no longer ours. A worker that failed, whose pod was
    deleted to be created again, and that was scaled in before that, is known by its address only.
    """
    last = world.slurm.nodes if isinstance(world.slurm, Known) else {}
    failed = {name for address, name in world.ended.items() if name in last and last[name].address == address}
    return _with_records(world, recorded(world, *REMOVAL) | failed)


def ending(world: World, choice: Choice) -> set[str]:
    """Return workers that failed or were deleted by others, that are not wanted again, and that Slurm may know.

    They are written down as well before their pods go, or their records would stay for ever.
    """
    wanted = {*choice.blocked}
    ended = {w.name for w in world.workers if not w.live and w.pod_name not in wanted}
    return _with_records(world, ended) if not isinstance(world.slurm, Gone) else set()


def without_records(world: World) -> tuple[str, ...]:
    """Return workers that are gone or going and that the last read shows no record of."""
    if not isinstance(world.slurm, Known):
        return ()
    gone = recorded(world, *REMOVAL) - world.living - world.neighbours.keys()
    return tuple(sorted(gone - world.slurm.nodes.keys()))


def _with_records(world: World, workers: set[str]) -> set[str]:
    gone = workers - world.living - world.neighbours.keys()
    return gone & world.slurm.nodes.keys() if isinstance(world.slurm, Known) else gone


def unwritten(world: World, choice: Choice) -> set[str]:
    """Return workers that end, before it is written down that their records must go."""
    return ending(world, choice) - recorded(world, *REMOVAL)


def unnoticed(world: World) -> set[str]:
    """Return workers that have ended and whose records still show them in service, so that Slurm keeps the records.

    slurmctld notices it, within `SlurmdTimeout` at the latest.
    """
    if not isinstance(world.slurm, Known):
        return set()
    here = {worker.name for worker in world.workers}
    found = (world.slurm.nodes[name] for name in left_behind(world))
    ended = (record for record in found if record.name in here or record.address in world.departed)
    return {record.name for record in ended if _is_in_service(record)}


def _is_in_service(record: SlurmNode) -> bool:
    owner = claim_owner(record.state, record.reason)
    unclaimed = owner is DrainOwner.NOBODY and not is_down(record.state) and is_responding(record.state)
    return unclaimed or (is_busy(record.state) and owner is not DrainOwner.FOREIGN)


def unended(world: World) -> list[Worker]:
    """Return workers whose pods still end: until then, a registration that is under way may make their records again.

    A pod that has not ended in time is not waited for: its Node may be gone.
    """
    if not isinstance(world.slurm, Known):
        return []
    ending = (worker for worker in world.workers if worker.terminating and not worker.finished)
    return [w for w in ending if slurmd_has_run(w.pod) and world.now < _latest_end(w.pod)]


def _latest_end(pod: Pod) -> float:
    """Return the second at which a pod that is being deleted should have ended; the timestamp includes its grace."""
    return seconds_of(pod.metadata.deletion_timestamp, absent=0.0) + ENDING_SECONDS


def unseen_records(world: World) -> set[str]:
    """Return workers that we took away and whose records Slurm may still have, while it does not answer.

    A Slurm that has never answered counts as one that has none: it must not hold a NodeSet for ever.
    """
    if not isinstance(world.slurm, Unknown):
        return set()
    if world.slurm.last is not None:
        return left_behind(world) & world.slurm.last.nodes.keys()
    return left_behind(world) if asking(world) > 0 else set()


def causes(world: World, choice: Choice, wanted: Mapping[str, Wish]) -> dict[Cause, set[str]]:
    """Everything that asks for a worker to be drained, also where another cause gives the reason."""
    found: dict[Cause, set[str]] = defaultdict(set)
    for name, wish in wanted.items():
        found[wish.cause].add(name)
    for worker in choice.going(world):
        found[choice.condemned[worker.pod_name]].add(worker.name)
    if ended := ending(world, choice):
        found[Cause.SCALE_IN] |= ended
    return found


def written_down(world: World, choice: Choice, wanted: Mapping[str, Wish], now: str) -> list[RecordedDrain]:
    """Return the causes as the status carries them; each worker keeps the time at which its removal or drain began."""
    by_cause = causes(world, choice, wanted)
    # A worker that is not seen in Slurm may have lost its record to us: that must not be forgotten. So may one whose
    # record was last seen before a write of ours. Until its pod is gone, a registration that is under way may make the
    # record again.
    wanted_again = {*choice.blocked}
    kept = (w for w in world.workers if w.live or w.pod_name not in wanted_again)
    unconfirmed = world.slurm.pending if isinstance(world.slurm, Known) else ()
    unseen = {w.name for w in kept if w.record is None or w.name in unconfirmed}
    for cause in REMOVAL:
        if lost := recorded(world, cause) & unseen:
            by_cause[cause] |= lost
    if gone := left_behind(world):
        by_cause[Cause.SCALE_IN] |= gone
    written = [(drain, members(drain.nodes)) for drain in world.nodeset.status.drains]
    since = {(drain.cause, name): drain.since for drain, nodes in written for name in nodes}
    removed = {name: drain.since for drain, nodes in written if drain.cause in REMOVAL for name in nodes}
    together: dict[tuple[Cause, str], set[str]] = defaultdict(set)
    for cause, nodes in by_cause.items():
        for name in nodes:
            before = since.get((cause, name)) or (removed.get(name) if cause in REMOVAL else None)
            together[cause, before or now].add(name)
    return [
        RecordedDrain(cause=cause, nodes=compress(nodes), since=began)
        for (cause, began), nodes in sorted(together.items())
    ]


def unrecorded(world: World, choice: Choice, wanted: Mapping[str, Wish]) -> bool:
    """Whether a cause has to be written down before Slurm may be told, or a pod be taken."""
    return any(not nodes <= recorded(world, cause) for cause, nodes in causes(world, choice, wanted).items())

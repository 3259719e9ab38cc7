"""Which workers are to be drained and why, and what Slurm must be told for it.

Our drains carry our reason; a drain or a reason of an administrator is never changed and never becomes ours.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain as RecordedDrain
from slurm_operator.kube.kinds import Node
from slurm_operator.nodeset.choose import Cause, Choice, recorded, wants_cordon
from slurm_operator.nodeset.evidence import has_returned
from slurm_operator.nodeset.order import is_ready
from slurm_operator.nodeset.slurm_actions import Drain, Resume, Undrain
from slurm_operator.nodeset.world import FRESH_SECONDS, Worker, World, asking
from slurm_operator.slurm.hostlist import compress, members
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.reasons import our_reason
from slurm_operator.slurm.states import DrainOwner, is_down, is_drain

REMOVAL = (Cause.DELETE, Cause.MODE, Cause.SCALE_IN, Cause.UPDATE)
"""Causes after which the pod goes."""


@dataclass(frozen=True, slots=True)
class Wish:
    cause: Cause
    reason: str


def wishes(world: World, choice: Choice) -> dict[str, Wish]:
    """Per Slurm node that must take no new jobs: why."""
    found: dict[str, Wish] = {}
    for worker in world.workers:
        if worker.live and (wish := _wish(world, worker, choice)):
            found[worker.name] = wish
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
            if wish.cause in REMOVAL and not is_drain(worker.state):
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
    """Return workers that we took away and whose records Slurm still has, or may have.

    A name that another NodeSet gave to a worker of its own is no longer ours.
    """
    gone = recorded(world, *REMOVAL) - {worker.name for worker in world.workers if worker.live} - {*world.neighbours}
    return gone & world.slurm.nodes.keys() if isinstance(world.slurm, Known) else gone


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
    return found


def written_down(world: World, choice: Choice, wanted: Mapping[str, Wish], now: str) -> list[RecordedDrain]:
    """Return the causes as the status carries them; each worker keeps the time at which its removal or drain began."""
    by_cause = causes(world, choice, wanted)
    # A worker that is not seen in Slurm may have lost its record to us: that must not be forgotten.
    unseen = {worker.name for worker in world.workers if worker.live and worker.record is None}
    for cause in REMOVAL:
        if kept := recorded(world, cause) & unseen:
            by_cause[cause] |= kept
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

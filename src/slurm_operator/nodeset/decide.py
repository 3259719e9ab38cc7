"""What to do next about one NodeSet: a pure function that reads top to bottom.

It never deletes a pod that may run a job, never changes a drain of an administrator, never takes more workers away than
the update strategy allows, and plans nothing when everything is as it should be.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from slurm_operator.api import names
from slurm_operator.desired.metadata import owner
from slurm_operator.desired.revision import controller_revision, revision_data, revision_hash
from slurm_operator.desired.worker import ssh_config, worker_claims, worker_pod
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.kinds import CONFIG_MAPS, CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS
from slurm_operator.kube.resource import Manifest
from slurm_operator.nodeset.choose import Cause, Choice, awaits_records, choose, is_fresh, recorded
from slurm_operator.nodeset.claims import make_lost_claims
from slurm_operator.nodeset.drains import (
    REMOVAL,
    Wish,
    drain_actions,
    left_behind,
    undrain_actions,
    unended,
    unnoticed,
    unrecorded,
    unseen_records,
    unwritten,
    wishes,
    without_records,
    written_down,
)
from slurm_operator.nodeset.evidence import says_busy
from slurm_operator.nodeset.hands import CreateWorker, NodeSetAction
from slurm_operator.nodeset.order import is_ready, ready_since
from slurm_operator.nodeset.overdue import waiting_for_jobs
from slurm_operator.nodeset.ownership import Fate, adopt, awaits_budget, drop_second_owner, keep_second_owner
from slurm_operator.nodeset.partition import CLOSED_SECONDS
from slurm_operator.nodeset.readiness import degraded
from slurm_operator.nodeset.slurm_actions import Forget, Release, RemoveDrained, RemoveUnregistered
from slurm_operator.nodeset.status import same, status_of
from slurm_operator.nodeset.unregistered import unregistered
from slurm_operator.nodeset.world import Gone, Standing, Worker, World, asking, users_of
from slurm_operator.runtime.actions import Apply, ApplyStatus, Create, RecordEvent
from slurm_operator.runtime.children import delete, patch
from slurm_operator.runtime.conditions import flipped
from slurm_operator.runtime.plan import InOrder, Plan, Urgency, soonest
from slurm_operator.runtime.times import rfc3339, seconds_of
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.states import DrainOwner, claim_owner, is_busy, is_down, is_responding

RETRY_FIRST, RETRY_LONGEST = 1.0, 300.0
"""Between two pods of one name that failed, doubling."""
WAITING_SECONDS = 5.0
"""Fallback polling interval while something is waited for; changes normally trigger a pass."""
NAMED_SECONDS = 30.0
"""Polling interval while a record is named or was refused, a worker is not registered, or a view is old."""
UNCLEAR_RETRY_SECONDS = 1.0
"""Polling interval while the watches do not agree on how the NodeSet is deleted."""
ORPHAN_SECONDS = 300.0
"""How long a NodeSet that is deleted with `--cascade=orphan` waits for Slurm, to lift its drains."""


def decide(world: World) -> Plan[Any]:
    """The whole plan for one NodeSet."""
    if world.ownership.fate is Fate.LEFT:
        waits = world.unreadable or keeps_drains(world)
        return Plan(tuple(leave(world)), after=WAITING_SECONDS if waits else None)
    if world.ownership.fate is Fate.UNCLEAR:
        return Plan(after=UNCLEAR_RETRY_SECONDS)
    revision = revision_hash(revision_data(world.nodeset))
    choice = choose(world, revision)
    if is_deleted(world) and may_let_go(world, choice):
        return Plan(tuple(take_rest(world)) or tuple(release(world, without_records(world))))
    wanted = wishes(world, choice)
    status = report(world, choice, wanted, revision)
    return Plan(
        (
            *hold(world),
            *keep_revisions(world, revision),
            *claim(world),
            *drain(world, choice, wanted, status),
            *undrain_actions(world, wanted),
            *forget(world, choice),
            *remove(world, choice),
            *replace_lost(world),
            *replace_finished(world, choice),
            *(make_lost_claims(world, choice.condemned) if choice.flaw is None else ()),
            *create(world, choice, revision),
            *tell(world, choice, wanted, revision),
            *say(world, choice, wanted, status),
        ),
        after=look_again(world, choice),
    )


def hold(world: World) -> Iterator[NodeSetAction]:
    """The finalizer: a deleted NodeSet waits until its workers are free of jobs."""
    meta = world.nodeset.metadata
    if meta.deletion_timestamp is None and names.FINALIZER_WORKERS not in meta.finalizers:
        finalizers = [*meta.finalizers, names.FINALIZER_WORKERS]
        yield patch(NODESETS, world.nodeset, {"metadata": {"finalizers": finalizers}})


def may_let_go(world: World, choice: Choice) -> bool:
    """Return whether the finalizer can be removed: slurmctld is gone, or no worker and no record of one is left."""
    if world.unreadable:
        return False
    if isinstance(world.slurm, Gone):
        return True
    if choice.condemned or unseen_records(world) or unwritten(world, choice) or unnoticed(world) or unended(world):
        return False
    return not any(
        name not in world.kept_records or world.fresh_jobs is None or users_of(world, name)
        for name in stale_records(world, choice)
    )


def is_deleted(world: World) -> bool:
    return world.nodeset.metadata.deletion_timestamp is not None


def take_rest(world: World) -> Iterator[NodeSetAction]:
    """Delete the pods that are left: garbage collection does not, as they have a second owner."""
    return (delete(PODS, worker.pod) for worker in world.workers if not worker.terminating)


def leave(world: World) -> Iterator[NodeSetAction]:
    """Let the workers run on without their NodeSet: lift our drains, take the second owner off, then release it."""
    wanted = wishes(world, Choice(0, (), (), {}))
    undone = (*undrain_actions(world, wanted), *drop_second_owner(world.nodeset, world.pods))
    yield from undone
    if not undone and not world.unreadable and not keeps_drains(world):
        yield from release(world)


def keeps_drains(world: World) -> bool:
    """Return whether Slurm does not answer, so that drains of ours cannot be lifted; it is waited for some minutes."""
    deleted = seconds_of(world.nodeset.metadata.deletion_timestamp, absent=world.now)
    recent = world.now - deleted < ORPHAN_SECONDS
    return recent and isinstance(world.slurm, Unknown) and bool(world.nodeset.status.drains)


def release(world: World, looked_at: tuple[str, ...] = ()) -> Iterator[NodeSetAction]:
    """Garbage collection takes what still belongs to the NodeSet, after a last look at these Slurm nodes."""
    finalizers = [name for name in world.nodeset.metadata.finalizers if name != names.FINALIZER_WORKERS]
    if len(finalizers) < len(world.nodeset.metadata.finalizers):
        change = patch(NODESETS, world.nodeset, {"metadata": {"finalizers": finalizers}})
        yield Release(change, looked_at) if looked_at else change


def keep_revisions(world: World, revision: str) -> Iterator[NodeSetAction]:
    """Every template that was ever in force has a revision; the newest has the highest number."""
    if is_deleted(world):
        return  # a foreground deletion waits until the last revision is gone
    loose = world.ownership.loose_revisions
    for known in loose:
        yield patch(CONTROLLER_REVISIONS, known, {"metadata": {"ownerReferences": [owner(world.nodeset)]}})
    newest = max((known.revision for known in (*world.revisions, *loose)), default=0)
    current = next((known for known in (*world.revisions, *loose) if _hash(known.metadata.labels) == revision), None)
    if current is None:
        yield Create(CONTROLLER_REVISIONS, controller_revision(world.nodeset, newest + 1))
    elif current.revision < newest:
        yield patch(CONTROLLER_REVISIONS, current, {"revision": newest + 1})
    in_use = {worker.revision for worker in world.workers} | {revision}
    unused = sorted(
        (known for known in world.revisions if _hash(known.metadata.labels) not in in_use),
        key=lambda known: known.revision,
    )
    for known in unused[: max(0, len(unused) - world.nodeset.spec.revision_history_limit)]:
        yield delete(CONTROLLER_REVISIONS, known)


def claim(world: World) -> Iterator[NodeSetAction]:
    """Adopt pods that we could have made and that nobody owns; let go of pods that lost our labels."""
    nodeset = world.nodeset
    yield from adopt(nodeset, world.orphans, world.ownership.budget_uid)
    yield from keep_second_owner(nodeset, world.pods, world.ownership.budget_uid)
    for worker in world.workers:
        labels = worker.pod.metadata.labels
        if not worker.terminating and labels.get(names.LABEL_INSTANCE) != nodeset.metadata.name:
            yield patch(PODS, worker.pod, {"metadata": {"ownerReferences": None}})
    yield from mark_external(world)


def mark_external(world: World) -> Iterator[NodeSetAction]:
    """Note on each worker whether its slurmctld runs elsewhere: once the Controller is deleted only the pod tells."""
    if world.controller is None:
        return
    wanted = names.TRUE if world.controller.spec.external else None
    for worker in world.workers:
        noted = worker.pod.metadata.annotations.get(names.ANNOTATION_EXTERNAL)
        if not worker.terminating and noted != wanted:
            yield patch(PODS, worker.pod, {"metadata": {"annotations": {names.ANNOTATION_EXTERNAL: wanted}}})


def drain(world: World, choice: Choice, wanted: Mapping[str, Wish], status: Manifest) -> Iterator[NodeSetAction]:
    """Causes are written down first: Slurm is told, and pods are taken, only for what stands in our own status."""
    actions = drain_actions(world, wanted)
    if unrecorded(world, choice, wanted):
        yield InOrder((ApplyStatus(NODESETS, status, urgency=Urgency.SAFETY), *actions))
    else:
        yield from actions


def forget(world: World, choice: Choice) -> Iterator[NodeSetAction]:
    """Delete the records of workers before their pods: Slurm makes the last check, and a successor registers anew.

    A record that a job or a reservation names stays, and so does one whose pod still says that jobs run there.
    """
    if world.fresh_jobs is None or world.unreadable:
        return
    drained = [
        worker.name
        for worker in choice.going(world)
        if worker.standing is Standing.DRAINED and worker.drain_owner is DrainOwner.OURS and not says_busy(worker.pod)
    ]
    written = recorded(world, *REMOVAL)  # else a worker that is wanted again would not be known to lack its record
    drained = [name for name in drained if name in written]
    stale = stale_records(world, choice)
    nodes = tuple(name for name in (*drained, *stale) if name not in world.kept_records and not users_of(world, name))
    if nodes:
        yield Forget(nodes)


def stale_records(world: World, choice: Choice) -> Iterator[str]:
    """Return records of workers that are gone: scaled in, or about to be replaced by a pod that registers anew."""
    if not isinstance(world.slurm, Known):
        return
    ours = left_behind(world)
    for name in sorted({slot.hostname for slot in choice.create} - world.living | ours):
        record = world.slurm.nodes.get(name)
        if record is None:
            continue
        known = name in ours or record.address in world.departed or is_given_up(world, record)
        if is_stale(record, ours=known):
            yield name


def is_given_up(world: World, record: SlurmNode) -> bool:
    """Return whether the slurmctld of our own cluster took a node down because it does not answer.

    A successor would inherit that, and stay DOWN with `ReturnToService=0`. An external slurmctld may have nodes of the
    same name that are not ours.
    """
    if world.controller is None or world.controller.spec.external:
        return False
    unclaimed = claim_owner(record.state, record.reason, record.reason_set_by_user) is DrainOwner.NOBODY
    return unclaimed and is_down(record.state) and not is_responding(record.state)


def is_stale(record: SlurmNode, *, ours: bool) -> bool:
    """Return whether a record's slurmd is gone, no job is on it, and no administrator has a claim on it.

    A record that is not known to be of an earlier pod of ours counts only with a reason of ours.
    """
    owner = claim_owner(record.state, record.reason)
    if is_busy(record.state) or owner is DrainOwner.FOREIGN:
        return False
    return owner is DrainOwner.OURS or (ours and (is_down(record.state) or not is_responding(record.state)))


def remove(world: World, choice: Choice) -> Iterator[NodeSetAction]:
    """Delete pods that must go and may go, once it is written down that they go."""
    written = recorded(world, *REMOVAL)
    for worker in choice.going(world):
        if worker.name not in written or world.unreadable:
            continue
        if worker.standing is Standing.DRAINED:
            if keeps_record(world, worker, choice):
                yield RemoveDrained(worker.pod, worker.name)  # else its record goes first
        elif worker.standing is Standing.UNREGISTERED:
            yield RemoveUnregistered(worker.pod, worker.name)
        elif worker.standing.may_go:
            # Its slurmd never ran as far as we know, so it must be the pod as we know it.
            yield delete(PODS, worker.pod, unchanged=True)


def keeps_record(world: World, worker: Worker, choice: Choice) -> bool:
    """Return whether a drained worker goes without its record: it is claimed, or named, or could not be deleted."""
    if worker.drain_owner is DrainOwner.FOREIGN or worker.name in world.kept_records:
        return True
    waits = choice.condemned[worker.pod_name] is Cause.UPDATE and not is_down(worker.state)
    return bool(users_of(world, worker.name)) and not waits


def replace_lost(world: World) -> Iterator[NodeSetAction]:
    """Delete pods on Nodes that Kubernetes has confirmed to be gone, once Slurm has given up their jobs."""
    for worker in world.workers:
        if not worker.live or not worker.node_is_gone or world.unreadable:
            continue
        given_up = worker.record is not None and is_down(worker.state) and worker.standing is not Standing.BUSY
        held = world.fresh_jobs is None or worker.name in world.fresh_jobs.holding
        if given_up and not held and worker.standing is not Standing.UNSURE:
            yield delete(PODS, worker.pod)


def replace_finished(world: World, choice: Choice) -> Iterator[NodeSetAction]:
    """Delete pods whose containers have ended: they run nothing, and their names are needed."""
    kept = unwritten(world, choice)
    for worker in world.workers:
        if worker.finished and not worker.terminating and worker.name not in kept:
            yield delete(PODS, worker.pod)


def create(world: World, choice: Choice, revision: str) -> Iterator[NodeSetAction]:
    """New pods, all at once; one that keeps failing waits longer each time.

    Pods that were refused come last: the first of a lane decide whether the others are tried. A NodeSet without our
    finalizer may be gone before its first pods exist, which would stay then.
    """
    if world.facts is None or world.unreadable or choice.flaw is not None:
        return
    if is_deleted(world) or names.FINALIZER_WORKERS not in world.nodeset.metadata.finalizers:
        return
    if config := ssh_config(world.nodeset):
        yield Apply(CONFIG_MAPS, config)
    waits = awaits_budget(world.nodeset, world.ownership, world.now) or awaits_records(world)
    due = [slot for slot in choice.create if not waits and retry_in(world, slot.name) <= 0]
    due.sort(key=lambda slot: slot.name in world.refused)
    for slot in due:
        claims = [Apply(PERSISTENT_VOLUME_CLAIMS, claim) for claim in worker_claims(world.nodeset, slot)]
        pod = CreateWorker(PODS, worker_pod(world.nodeset, choice.template, slot, revision, world.ownership.budget_uid))
        told = told_of(world, choice, slot.name, revision)
        yield InOrder((*claims, pod, *told), lane=pod.lane) if claims or told else pod


def told_of(world: World, choice: Choice, name: str, revision: str) -> tuple[RecordEvent, ...]:
    """An event for a worker that takes the place of another one; scaling up is told as a whole."""
    if choice.desired > world.nodeset.status.desired:
        return ()
    note = f"created worker {name}, revision {revision}"
    return (RecordEvent(NODESETS, world.nodeset, names.EVENT_SUCCESSFUL_CREATE, note),)


def retry_in(world: World, pod_name: str) -> float:
    """Seconds until the pod of that name may be made again."""
    failed = world.failures.get(pod_name)
    if failed is None:
        return 0.0
    return failed.last + min(RETRY_LONGEST, RETRY_FIRST * 2.0 ** min(failed.count - 1, 32)) - world.now


def report(world: World, choice: Choice, wanted: Mapping[str, Wish], revision: str) -> Manifest:
    drains = written_down(world, choice, wanted, rfc3339(world.now))
    return {
        "apiVersion": names.API_VERSION,
        "kind": "NodeSet",
        "metadata": {key: getattr(world.nodeset.metadata, key) for key in ("name", "namespace", "uid")},
        "status": status_of(world, choice, revision, drains),
    }


def say(world: World, choice: Choice, wanted: Mapping[str, Wish], status: Manifest) -> Iterator[NodeSetAction]:
    """The status, if it would change and was not written at the beginning of the pass."""
    if not unrecorded(world, choice, wanted) and not same(status["status"], world.nodeset.status):
        yield ApplyStatus(NODESETS, status)


def tell(world: World, choice: Choice, wanted: Mapping[str, Wish], revision: str) -> Iterator[NodeSetAction]:
    """Events on transitions only: the status still says what was before."""
    nodeset, before = world.nodeset, world.nodeset.status
    for verdict in flipped([degraded(world, choice)], before.conditions):
        if verdict.status == "True":
            yield RecordEvent(NODESETS, nodeset, verdict.reason, verdict.message, "Warning")
    for verdict in flipped(waiting_for_jobs(world, choice), before.conditions):
        yield RecordEvent(NODESETS, nodeset, names.EVENT_WAITING_FOR_JOBS, verdict.message, "Warning")
    if choice.create and choice.desired > before.desired:
        note = f"from {before.desired} to {choice.desired} workers"
        yield RecordEvent(NODESETS, nodeset, names.EVENT_SCALING_UP, note)
    if choice.desired < before.desired:
        note = f"from {before.desired} to {choice.desired} workers; each is drained before it goes"
        yield RecordEvent(NODESETS, nodeset, names.EVENT_SCALING_DOWN, note)
    if before.node_set_hash and before.node_set_hash != revision:
        yield RecordEvent(NODESETS, nodeset, names.EVENT_ROLLING_UPDATE, f"to revision {revision}")
    known = recorded(world, Cause.NODE_CORDON)
    for name, wish in wanted.items():
        if wish.cause is Cause.NODE_CORDON and name not in known:
            yield RecordEvent(NODESETS, nodeset, names.EVENT_NODE_CORDON, f"draining {name}: {wish.reason}")


def look_again(world: World, choice: Choice) -> float | None:
    """When to look again even if nobody calls: back-offs, minReadySeconds, and whatever is waited for."""
    waits = [retry_in(world, slot.name) for slot in choice.create]
    minimum = world.nodeset.spec.min_ready_seconds
    ripening = [
        ready_since(worker.pod) + minimum - world.now
        for worker in world.workers
        if minimum > 0 and worker.live and is_ready(worker.pod)
    ]
    lost = any(worker.live and worker.node_is_gone for worker in world.workers)
    unread = world.facts is None and world.controller is not None
    ends = is_deleted(world) and bool(unended(world))
    return soonest(
        *(max(wait, 0.1) for wait in waits if wait > 0),
        *(wait + 0.1 for wait in ripening if 0 < wait < float("inf")),
        WAITING_SECONDS
        if choice.condemned or choice.blocked or choice.held or lost or world.unreadable or unread or ends
        else None,
        NAMED_SECONDS if choice.waiting or left_behind(world) or unregistered(world) or world.refusals else None,
        WAITING_SECONDS if choice.create and awaits_budget(world.nodeset, world.ownership, world.now) else None,
        NAMED_SECONDS if isinstance(world.slurm, Known) and not is_fresh(world) else None,
        CLOSED_SECONDS if world.partition_is_closed else None,
        asking(world) or None,
    )


def _hash(labels: Mapping[str, str]) -> str:
    return labels.get(names.LABEL_REVISION_HASH, "")

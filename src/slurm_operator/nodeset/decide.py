"""What to do next about one NodeSet: a pure function that reads top to bottom.

It never deletes a pod that may run a job, never touches a drain of somebody else, never takes more workers away than
the update strategy allows, and has nothing to say when everything is as it should be.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from slurm_operator.api import names
from slurm_operator.desired.metadata import owner
from slurm_operator.desired.revision import controller_revision, revision_data, revision_hash
from slurm_operator.desired.worker import ssh_config, worker_claims, worker_pod, worker_template
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.kinds import CONFIG_MAPS, CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS
from slurm_operator.kube.resource import Manifest
from slurm_operator.nodeset.choose import Cause, Choice, choose, recorded
from slurm_operator.nodeset.drains import (
    REMOVAL,
    Wish,
    drain_actions,
    left_behind,
    undrain_actions,
    unrecorded,
    wishes,
    written_down,
)
from slurm_operator.nodeset.hands import NodeSetAction
from slurm_operator.nodeset.identity import may_adopt
from slurm_operator.nodeset.order import is_ready, ready_since
from slurm_operator.nodeset.slurm_actions import Forget, RemoveDrained
from slurm_operator.nodeset.status import degraded, same, status_of, still_asking
from slurm_operator.nodeset.world import Gone, Standing, World
from slurm_operator.runtime.actions import Apply, ApplyStatus, Create, RecordEvent
from slurm_operator.runtime.children import delete, patch
from slurm_operator.runtime.conditions import flipped
from slurm_operator.runtime.plan import InOrder, Plan, Urgency, soonest
from slurm_operator.runtime.times import rfc3339
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.states import DrainOwner, drain_owner, is_busy, is_down, is_responding

RETRY_FIRST, RETRY_LONGEST = 1.0, 300.0
"""Between two pods of one name that failed, doubling."""
WHILE_WAITING = 5.0
"""A safety net: what is waited for normally wakes us itself."""


def decide(world: World) -> Plan[Any]:
    """The whole plan for one NodeSet."""
    revision = revision_hash(revision_data(world.nodeset))
    choice = choose(world, revision)
    if world.nodeset.metadata.deletion_timestamp is not None and may_let_go(world, choice):
        return Plan(tuple(release(world)))
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
            *replace_finished(world),
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
    """Nobody is left to ask about jobs, or there is no worker left to lose one."""
    if isinstance(world.slurm, Gone):
        return True
    return not choice.condemned and not any(stale_records(world, choice))


def release(world: World) -> Iterator[NodeSetAction]:
    """Garbage collection takes what still belongs to the NodeSet."""
    finalizers = [name for name in world.nodeset.metadata.finalizers if name != names.FINALIZER_WORKERS]
    if len(finalizers) < len(world.nodeset.metadata.finalizers):
        yield patch(NODESETS, world.nodeset, {"metadata": {"finalizers": finalizers}})


def keep_revisions(world: World, revision: str) -> Iterator[NodeSetAction]:
    """Every template that was ever in force has a revision; the newest has the highest number."""
    newest = max((known.revision for known in world.revisions), default=0)
    current = next((known for known in world.revisions if _hash(known.metadata.labels) == revision), None)
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
    for pod in world.orphans:
        if may_adopt(pod, nodeset.metadata.name, nodeset.spec.scaling_mode):
            yield patch(PODS, pod, {"metadata": {"ownerReferences": [owner(nodeset)]}})
    for worker in world.workers:
        labels = worker.pod.metadata.labels
        if not worker.terminating and labels.get(names.LABEL_INSTANCE) != nodeset.metadata.name:
            yield patch(PODS, worker.pod, {"metadata": {"ownerReferences": None}})


def drain(world: World, choice: Choice, wanted: Mapping[str, Wish], status: Manifest) -> Iterator[NodeSetAction]:
    """Causes are written down first: Slurm is told, and pods are taken, only for what stands in our own status."""
    actions = drain_actions(world, wanted)
    if unrecorded(world, choice, wanted):
        yield InOrder((ApplyStatus(NODESETS, status, urgency=Urgency.SAFETY), *actions))
    else:
        yield from actions


def forget(world: World, choice: Choice) -> Iterator[NodeSetAction]:
    """Node records go before their pods: Slurm refuses while a job is there, and a successor registers anew."""
    drained = [
        worker.name
        for worker in choice.going(world)
        if worker.standing is Standing.DRAINED and worker.drain_owner is DrainOwner.OURS
    ]
    nodes = tuple(name for name in (*drained, *stale_records(world, choice)) if name not in world.kept_records)
    if nodes:
        yield Forget(nodes)


def stale_records(world: World, choice: Choice) -> Iterator[str]:
    """Records of workers that are gone: scaled in, or about to be replaced by a pod that registers anew."""
    if not isinstance(world.slurm, Known):
        return
    successors = {slot.hostname for slot in choice.create}
    for name in sorted(successors | left_behind(world)):
        record = world.slurm.nodes.get(name)
        if record is not None and name not in world.kept_records and is_stale(record):
            yield name


def is_stale(record: SlurmNode) -> bool:
    """Its slurmd is gone and no job, and no word of an administrator, is left on it."""
    owner = drain_owner(record.state, record.reason)
    if is_busy(record.state) or owner is DrainOwner.FOREIGN:
        return False
    return owner is DrainOwner.OURS or is_down(record.state) or not is_responding(record.state)


def remove(world: World, choice: Choice) -> Iterator[NodeSetAction]:
    """Pods that must go and may go, once it is written down that they go."""
    written = recorded(world, *REMOVAL)
    for worker in choice.going(world):
        if worker.name not in written:
            continue
        if worker.standing is Standing.DRAINED:
            if worker.drain_owner is DrainOwner.FOREIGN or worker.name in world.kept_records:
                yield RemoveDrained(worker.pod, worker.name)  # else its record goes first
        elif worker.standing.may_go:
            yield delete(PODS, worker.pod)


def replace_finished(world: World) -> Iterator[NodeSetAction]:
    """A pod whose containers have ended runs nothing; its name is needed for the next."""
    for worker in world.workers:
        if worker.finished and not worker.terminating:
            yield delete(PODS, worker.pod)


def create(world: World, choice: Choice, revision: str) -> Iterator[NodeSetAction]:
    """New pods, all at once; one that keeps failing waits longer each time."""
    if world.facts is None:
        return
    if config := ssh_config(world.nodeset):
        yield Apply(CONFIG_MAPS, config)
    due = [slot for slot in choice.create if retry_in(world, slot.name) <= 0]
    template = worker_template(world.nodeset, world.facts) if due else {}
    for slot in due:
        claims = [Apply(PERSISTENT_VOLUME_CLAIMS, claim) for claim in worker_claims(world.nodeset, slot)]
        pod = Create(PODS, worker_pod(world.nodeset, template, slot, revision))
        yield InOrder((*claims, pod), lane=pod.lane) if claims else pod


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
        "metadata": {"name": world.nodeset.metadata.name, "namespace": world.nodeset.metadata.namespace},
        "status": status_of(world, choice, wanted, revision, drains),
    }


def say(world: World, choice: Choice, wanted: Mapping[str, Wish], status: Manifest) -> Iterator[NodeSetAction]:
    """The status, if it would change and was not written at the beginning of the pass."""
    if not unrecorded(world, choice, wanted) and not same(status["status"], world.nodeset.status):
        yield ApplyStatus(NODESETS, status)


def tell(world: World, choice: Choice, wanted: Mapping[str, Wish], revision: str) -> Iterator[NodeSetAction]:
    """Events on transitions only: the status still says what was before."""
    nodeset, before = world.nodeset, world.nodeset.status
    for verdict in flipped([degraded(world)], before.conditions):
        if verdict.status == "True":
            yield RecordEvent(NODESETS, nodeset, verdict.reason, verdict.message, "Warning")
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
    return soonest(
        *(max(wait, 0.1) for wait in waits if wait > 0),
        *(wait + 0.1 for wait in ripening if 0 < wait < float("inf")),
        WHILE_WAITING if choice.condemned or choice.blocked else None,
        still_asking(world) or None,
    )


def _hash(labels: Mapping[str, str]) -> str:
    return labels.get(names.LABEL_REVISION_HASH, "")

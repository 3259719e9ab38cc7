"""Who owns the workers of a NodeSet, and what becomes of them when it is deleted.

A worker pod has two owners: its NodeSet, which controls it, and the budget of the cluster, which nothing owns. The
garbage collector deletes an object only if none of its owners stays. In a foreground deletion of the NodeSet it
therefore takes the NodeSet off the pods and leaves the pods to us.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from slurm_operator.api import NodeSet, names
from slurm_operator.desired.worker import worker_owners
from slurm_operator.desired.workers import BUDGET_KIND
from slurm_operator.kube.kinds import PODS, ControllerRevision, Pod, PodDisruptionBudget
from slurm_operator.kube.model import OwnerReference
from slurm_operator.kube.resource import Manifest
from slurm_operator.nodeset.identity import may_adopt
from slurm_operator.runtime.actions import Patch
from slurm_operator.runtime.children import patch
from slurm_operator.runtime.times import seconds_of

BUDGET_SECONDS = 10.0
"""Seconds for which the workers of a new NodeSet wait for the budget; another object may have its name."""
UNCLEAR_SECONDS = 60.0
"""Seconds after a deletion for which the watches of pods, revisions and NodeSets may disagree."""


class Fate(Enum):
    """What becomes of the workers."""

    KEPT = "the NodeSet is not being deleted"
    TAKEN = "they are drained, waited for and deleted"
    LEFT = "the NodeSet is deleted with --cascade=orphan: they run on"
    UNCLEAR = "the watches do not agree yet on how the NodeSet is deleted"


@dataclass(frozen=True, slots=True)
class Ownership:
    budget_uid: str = ""
    """Empty while the budget of the cluster does not exist."""
    fate: Fate = Fate.KEPT
    loose_revisions: tuple[ControllerRevision, ...] = ()
    """Revisions with the labels of the NodeSet that no object controls."""


def ownership_of(
    nodeset: NodeSet,
    released: bool,
    revisions: Sequence[ControllerRevision],
    budget: PodDisruptionBudget | None,
    now: float,
) -> Ownership:
    """Judge from the NodeSet, from the revisions with its labels, and from whether the cascade has released pods."""
    loose = tuple(revision for revision in revisions if revision.metadata.controller is None)
    usable = budget if budget is not None and not budget.metadata.terminating else None
    fate = _fate(nodeset, released, len(revisions) > len(loose), bool(loose), now)
    return Ownership(usable.metadata.uid if usable is not None else "", fate, loose)


def _fate(nodeset: NodeSet, released: bool, controlled: bool, loose: bool, now: float) -> Fate:
    """The finalizers of a cascade vanish when the garbage collector is done; then the revisions tell which one it was.

    A foreground deletion takes them all, `--cascade=orphan` leaves them without a controller. A living NodeSet adopts
    what has none, so that none is left from an earlier NodeSet.
    """
    meta = nodeset.metadata
    if meta.deletion_timestamp is None:
        return Fate.KEPT
    if names.FINALIZER_ORPHAN in meta.finalizers:
        return Fate.LEFT
    if names.FINALIZER_FOREGROUND in meta.finalizers:
        return Fate.TAKEN
    if loose:
        return Fate.LEFT
    recent = now - seconds_of(meta.deletion_timestamp, absent=now) < UNCLEAR_SECONDS
    return Fate.UNCLEAR if released and controlled and recent else Fate.TAKEN


def awaits_budget(nodeset: NodeSet, ownership: Ownership, now: float) -> bool:
    """Return whether new workers wait for the budget, so that they need not be changed a moment later."""
    return not ownership.budget_uid and now - seconds_of(nodeset.metadata.creation_timestamp, absent=0) < BUDGET_SECONDS


def is_released(pod: Pod, nodeset: NodeSet) -> bool:
    """Whether a pod with the labels of this NodeSet has lost its controller and is kept by the budget alone."""
    if nodeset.metadata.deletion_timestamp is None or pod.metadata.controller is not None:
        return False
    return any(_budget_references(pod, nodeset))


def adopt(nodeset: NodeSet, orphans: Iterable[Pod], budget_uid: str) -> Iterator[Patch]:
    """Become the controller of pods that we could have made; a NodeSet that is being deleted adopts nothing."""
    if nodeset.metadata.deletion_timestamp is not None:
        return
    for pod in orphans:
        if may_adopt(pod, nodeset.metadata.name, nodeset.spec.scaling_mode):
            yield _owned(pod, worker_owners(nodeset, budget_uid), _stale(pod, nodeset, budget_uid))


def keep_second_owner(nodeset: NodeSet, pods: Iterable[Pod], budget_uid: str) -> Iterator[Patch]:
    """Give the budget as second owner to the pods that lack it, or that name one that is gone."""
    if not budget_uid:
        return
    (_, budget) = worker_owners(nodeset, budget_uid)
    for pod in pods:
        if pod.metadata.terminating or pod.metadata.labels.get(names.LABEL_INSTANCE) != nodeset.metadata.name:
            continue
        if all(ref.uid != budget_uid for ref in pod.metadata.owner_references):
            yield _owned(pod, [budget], _stale(pod, nodeset, budget_uid))


def drop_second_owner(nodeset: NodeSet, pods: Iterable[Pod]) -> Iterator[Patch]:
    """Take the budget off pods that live on without a NodeSet: they must not be deleted with it."""
    for pod in pods:
        if references := [ref.uid for ref in _budget_references(pod, nodeset)]:
            yield _owned(pod, [], references)


def _budget_references(pod: Pod, nodeset: NodeSet) -> Iterator[OwnerReference]:
    name = names.workers_budget(nodeset.spec.controller_ref.name)
    return (ref for ref in pod.metadata.owner_references if ref.kind == BUDGET_KIND and ref.name == name)


def _stale(pod: Pod, nodeset: NodeSet, budget_uid: str) -> list[str]:
    return [ref.uid for ref in _budget_references(pod, nodeset) if budget_uid and ref.uid != budget_uid]


def _owned(pod: Pod, added: list[Manifest], removed: list[str]) -> Patch:
    """Change single owners: the garbage collector changes others at the same time."""
    references = [*added, *({"$patch": "delete", "uid": uid} for uid in removed)]
    return patch(PODS, pod, {"metadata": {"ownerReferences": references}}, kind="strategic")

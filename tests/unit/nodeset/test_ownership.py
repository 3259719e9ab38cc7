"""Two owners of each worker, and what each kind of deletion of a NodeSet does to them."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api import NodeSet, names
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import ControllerRevision, Pod, PodDisruptionBudget
from slurm_operator.kube.model import ChildMeta, ObjectMeta, OwnerReference
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.ownership import UNCLEAR_SECONDS, Fate, Ownership, is_released, ownership_of
from slurm_operator.nodeset.slurm_actions import Drain, Undrain
from slurm_operator.runtime.actions import Apply, Create, Patch
from tests.unit.nodeset.make import (
    BUDGET,
    BUDGET_UID,
    NODESET_UID,
    NOW,
    at,
    known,
    node,
    nodeset,
    pod,
    record,
    revision,
    world,
)
from tests.unit.nodeset.plans import BUSY, OURS, created, deleted, nodes_of, planned, pods, told

CONTROLLER = OwnerReference(kind="NodeSet", name="gpu", uid=NODESET_UID, controller=True)
SSH: dict[str, Any] = {"ssh": {"enabled": True, "sssdConfRef": {"name": "a", "key": "b"}}}


def owned(*owners: OwnerReference, name: str = "gpu-0", **more: Any) -> Pod:
    """A worker with exactly these owners."""
    found = pod(name, **more)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, owner_references=owners))


def going(*finalizers: str, since: float = -1.0, replicas: int = 1, **spec: Any) -> NodeSet:
    """A NodeSet that is being deleted, held by our finalizer and these."""
    found = nodeset(replicas, deleting=True, **spec)
    held = (names.FINALIZER_WORKERS, *finalizers)
    meta = msgspec.structs.replace(found.metadata, finalizers=held, deletion_timestamp=at(since))
    return msgspec.structs.replace(found, metadata=meta)


def owner_patches(of: Any) -> dict[str, list[dict[str, Any]]]:
    patches = [action for action in planned(of, Patch) if action.resource.kind == "Pod"]
    assert all(action.kind == "strategic" for action in patches)
    return {action.name: action.patch["metadata"]["ownerReferences"] for action in patches}


def finalizers(of: Any) -> list[list[str]]:
    patches = [action for action in planned(of, Patch) if action.resource.kind == "NodeSet"]
    return [action.patch["metadata"]["finalizers"] for action in patches]


# The second owner


def test_the_workers_of_a_new_nodeset_wait_for_the_budget_for_a_moment() -> None:
    new = nodeset(1)
    new = msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, creation_timestamp=at(-1)))
    assert created(world(new, ownership=Ownership())) == []
    assert created(world(new)) == ["gpu-0"]
    plan = str(planned(world(new, ownership=Ownership()), object)[-1].describe())
    assert "waiting for PodDisruptionBudget slurm/slurm-workers-pdb-slurm to be created" in plan


def test_a_budget_that_cannot_be_made_keeps_no_worker_back() -> None:
    (made,) = [a for a in planned(world(nodeset(1), ownership=Ownership()), Create) if a.resource.kind == "Pod"]
    assert [ref["kind"] for ref in made.manifest["metadata"]["ownerReferences"]] == ["NodeSet"]


def test_workers_that_lack_the_second_owner_get_it() -> None:
    wanted = nodeset(2)
    rev = revision(wanted)
    has, lacks = owned(CONTROLLER, BUDGET, revision=rev), owned(CONTROLLER, name="gpu-1", ip="10.0.0.2", revision=rev)
    (added,) = owner_patches(world(wanted, has, lacks))["gpu-1"]
    assert (added["kind"], added["uid"]) == ("PodDisruptionBudget", BUDGET_UID)
    assert not {"controller", "blockOwnerDeletion"} & added.keys()
    assert owner_patches(world(wanted, has)) == {}


def test_a_budget_that_was_made_again_replaces_the_old_one() -> None:
    old = OwnerReference(kind="PodDisruptionBudget", name=BUDGET.name, uid="uid-old")
    added, removed = owner_patches(world(nodeset(1), owned(CONTROLLER, old)))["gpu-0"]
    assert added["uid"] == BUDGET_UID
    assert removed == {"$patch": "delete", "uid": "uid-old"}
    assert owner_patches(world(nodeset(1), owned(CONTROLLER, old), ownership=Ownership())) == {}


def test_an_adopted_pod_gets_both_owners_and_keeps_others() -> None:
    other = OwnerReference(kind="Backup", name="b", uid="uid-other")
    of = world(nodeset(1), orphans=(owned(other),))
    assert [ref["uid"] for ref in owner_patches(of)["gpu-0"]] == [NODESET_UID, BUDGET_UID]
    alone = world(nodeset(1), orphans=(owned(),), ownership=Ownership())
    assert [ref["uid"] for ref in owner_patches(alone)["gpu-0"]] == [NODESET_UID]


def test_a_pod_on_its_way_out_and_one_that_lost_our_labels_get_no_owner() -> None:
    ends = owned(CONTROLLER, deleting=True)
    moved = owned(CONTROLLER, name="gpu-1", labels={names.LABEL_INSTANCE: "other"})
    patches = [action for action in planned(world(nodeset(2), ends, moved), Patch) if action.resource.kind == "Pod"]
    assert [(action.name, action.patch["metadata"]["ownerReferences"]) for action in patches] == [("gpu-1", None)]


# Judging a deletion


def budget(**meta: Any) -> PodDisruptionBudget:
    return PodDisruptionBudget(metadata=ChildMeta(uid=BUDGET_UID, **meta))


def revision_object(*owners: OwnerReference) -> ControllerRevision:
    return ControllerRevision(metadata=ObjectMeta(name="gpu-1", owner_references=owners))


MINE, LOOSE = revision_object(CONTROLLER), revision_object()
FATES: list[tuple[NodeSet, bool, tuple[ControllerRevision, ...], Fate]] = [
    (nodeset(1), False, (MINE, LOOSE), Fate.KEPT),
    (going(), False, (MINE,), Fate.TAKEN),
    (going("foregroundDeletion"), False, (MINE,), Fate.TAKEN),
    (going("foregroundDeletion"), True, (MINE,), Fate.TAKEN),
    (going(), True, (), Fate.TAKEN),
    (going("orphan"), False, (MINE,), Fate.LEFT),
    (going("orphan"), True, (LOOSE,), Fate.LEFT),
    (going(), True, (LOOSE,), Fate.LEFT),
    (going(), False, (LOOSE,), Fate.LEFT),
    (going(), True, (MINE,), Fate.UNCLEAR),
    (going(since=-UNCLEAR_SECONDS - 1), True, (MINE,), Fate.TAKEN),
]


@pytest.mark.parametrize(("of", "released", "revisions", "fate"), FATES)
def test_how_a_deletion_is_judged(
    of: NodeSet, released: bool, revisions: tuple[ControllerRevision, ...], fate: Fate
) -> None:
    assert ownership_of(of, released, revisions, budget(), NOW).fate is fate


def test_only_a_budget_that_stays_counts() -> None:
    assert ownership_of(nodeset(1), False, (), budget(), NOW).budget_uid == BUDGET_UID
    assert ownership_of(nodeset(1), False, (), budget(deletion_timestamp=at(0)), NOW).budget_uid == ""
    assert ownership_of(nodeset(1), False, (), None, NOW).budget_uid == ""


def test_which_pods_a_cascade_has_released() -> None:
    assert is_released(owned(BUDGET), going("foregroundDeletion"))
    assert not is_released(owned(BUDGET), nodeset(1))
    assert not is_released(owned(CONTROLLER, BUDGET), going("foregroundDeletion"))
    assert not is_released(owned(), going("foregroundDeletion"))


# Foreground


def test_a_foreground_deletion_drains_and_waits_as_any_other() -> None:
    of = world(
        going("foregroundDeletion", replicas=2, **SSH),
        owned(CONTROLLER, BUDGET),
        owned(BUDGET, name="gpu-1", ip="10.0.0.2"),
        slurm=known(record("gpu-0"), record("gpu-1", *BUSY, ip="10.0.0.2")),
        ownership=Ownership(BUDGET_UID, Fate.TAKEN),
    )
    assert nodes_of(of, Drain) == ["gpu-0", "gpu-1"]
    assert deleted(of) == []
    assert finalizers(of) == []
    assert owner_patches(of) == {}


def test_a_nodeset_that_is_deleted_makes_and_adopts_nothing() -> None:
    """The garbage collector waits for revisions and ConfigMaps, and would wait for new ones again."""
    leaving, taken = going("foregroundDeletion", **SSH), Ownership(BUDGET_UID, Fate.TAKEN)
    adoptable = (owned(name="gpu-1", ip="10.0.0.2"),)
    waits = world(leaving, owned(BUDGET), orphans=adoptable, slurm=known(record("gpu-0", *BUSY)), ownership=taken)
    free = world(leaving, orphans=adoptable, ownership=taken)
    for of in (waits, free):
        assert planned(of, Create) == planned(of, Apply) == []
        assert owner_patches(of) == {}
    assert (finalizers(waits), finalizers(free)) == ([], [["foregroundDeletion"]])


# Orphan


def test_workers_that_are_left_are_not_touched_but_for_the_second_owner() -> None:
    of = world(
        going("orphan", replicas=2),
        owned(CONTROLLER, BUDGET),
        owned(BUDGET, name="gpu-1", ip="10.0.0.2"),
        slurm=known(record("gpu-0"), record("gpu-1", *BUSY, ip="10.0.0.2")),
        ownership=Ownership(BUDGET_UID, Fate.LEFT),
    )
    removed = [{"$patch": "delete", "uid": BUDGET_UID}]
    assert owner_patches(of) == {"gpu-0": removed, "gpu-1": removed}
    assert len(planned(of, object)) == 2


def test_the_finalizer_goes_once_no_worker_has_the_second_owner() -> None:
    of = world(going("orphan"), owned(CONTROLLER), ownership=Ownership(BUDGET_UID, Fate.LEFT))
    assert finalizers(of) == [["orphan"]]
    assert finalizers(replace(of, unreadable=("gpu-1",))) == []
    later = world(going(), orphans=(owned(),), ownership=Ownership(BUDGET_UID, Fate.TAKEN))
    assert [str(action) for action in decide(later).actions] == ["patch NodeSet slurm/gpu"]


def test_our_drains_do_not_outlive_the_nodeset_but_those_for_a_cordon_do() -> None:
    cordon = "slurm-operator: Kubernetes node k8s-1 is cordoned"
    left = going("orphan", replicas=2, status=told("gpu-[0-1]", "delete"))
    workers = (owned(CONTROLLER, name="gpu-0", node="k8s-0"), owned(CONTROLLER, name="gpu-1", ip="10.0.0.2"))
    drained = known(
        record("gpu-0", "IDLE", "DRAIN", reason=OURS), record("gpu-1", "IDLE", "DRAIN", reason=cordon, ip="10.0.0.2")
    )
    seen = world(left, *workers, slurm=drained, ownership=Ownership(BUDGET_UID, Fate.LEFT))
    of = replace(seen, nodes={"k8s-0": node("k8s-0"), "k8s-1": node("k8s-1", cordoned=True)})
    assert nodes_of(of, Undrain) == ["gpu-0"]
    assert finalizers(of) == []


def test_nothing_is_done_while_the_watches_disagree() -> None:
    plan = decide(world(going(), *pods(0, rev="r"), ownership=Ownership(BUDGET_UID, Fate.UNCLEAR)))
    assert plan.actions == ()
    assert plan.after is not None


def test_a_new_nodeset_adopts_the_revisions_that_were_left() -> None:
    wanted = nodeset(1, status=NodeSetStatus())
    labels = {names.LABEL_REVISION_HASH: revision(wanted)}
    loose = ControllerRevision(metadata=ObjectMeta(name="gpu-1", namespace="slurm", uid="r", labels=labels), revision=4)
    of = world(wanted, ownership=Ownership(BUDGET_UID, Fate.KEPT, (loose,)))
    (adopted,) = [action for action in planned(of, Patch) if action.resource.kind == "ControllerRevision"]
    assert adopted.patch["metadata"]["ownerReferences"][0]["uid"] == NODESET_UID
    assert [action for action in planned(of, Create) if action.resource.kind == "ControllerRevision"] == []


def test_the_first_revision_of_a_new_nodeset_is_newer_than_those_that_were_left() -> None:
    labels = {names.LABEL_REVISION_HASH: "earlier"}
    loose = ControllerRevision(metadata=ObjectMeta(name="gpu-1", namespace="slurm", uid="r", labels=labels), revision=4)
    of = world(nodeset(1), ownership=Ownership(BUDGET_UID, Fate.KEPT, (loose,)))
    (made,) = [action.manifest for action in planned(of, Create) if action.resource.kind == "ControllerRevision"]
    assert made["revision"] == 5

"""Records of workers: none is deleted before it is written down, none is left behind, none of a live worker goes."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api.nodeset import Drain as Recorded
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.drains import ENDING_SECONDS
from slurm_operator.nodeset.slurm_actions import Forget, Release
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import ApplyStatus, Patch
from slurm_operator.slurm.known import Unknown
from slurm_operator.slurm.reasons import our_reason
from tests.unit.nodeset.make import BUDGET, NOW, at, job_list, known, node, nodeset, pod, record, revision, world
from tests.unit.nodeset.plans import (
    DRAINED,
    OURS,
    condition,
    created,
    deleted,
    nodes_of,
    planned,
    pods,
    records,
    released,
    told,
)

GOING = "slurm-operator: worker pod is going away"
SILENT = Unknown(NOW - 60, "no answer")


def carried_out(of: World) -> World:
    """The world after the status of its plan was written."""
    (action,) = planned(of, ApplyStatus)
    status = msgspec.convert(action.manifest["status"], NodeSetStatus)
    return replace(of, nodeset=msgspec.structs.replace(of.nodeset, status=status))


# The status comes first


def test_no_record_is_deleted_before_it_is_written_down_that_its_worker_goes() -> None:
    """A worker that is drained already, for a cordoned Node, is scaled in."""
    cordoned = our_reason("Kubernetes node k8s-0 is cordoned")
    before = (Recorded(cause="node-cordon", nodes="gpu-0", since=at(-100)),)
    wanted = nodeset(0, status=NodeSetStatus(desired=1, drains=before))
    drained = known(*records(0, state=DRAINED, reason=cordoned))
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=drained)
    of = replace(of, nodes={"k8s-0": node("k8s-0", cordoned=True)})
    assert nodes_of(of, Forget) == []
    assert nodes_of(carried_out(of), Forget) == ["gpu-0"]


# Workers that end while they are not wanted


@pytest.mark.parametrize("ends", [{"phase": "Failed"}, {"deleting": True}], ids=["failed", "deleted"])
@pytest.mark.parametrize("slurm", [known(*records(0, 1)), Unknown(NOW, "no answer")], ids=["known", "unknown"])
def test_the_record_of_a_worker_that_ends_unwanted_is_remembered(ends: dict[str, Any], slurm: Any) -> None:
    wanted = nodeset(1)
    rev = revision(wanted)
    of = world(wanted, *pods(0, rev=rev), *pods(1, rev=rev, **ends), slurm=slurm)
    assert deleted(of) == []
    later = carried_out(of)
    assert [drain.nodes for drain in later.nodeset.status.drains] == ["gpu-1"]
    assert deleted(later) == (["gpu-1"] if "phase" in ends else [])
    down = known(*records(0), *records(1, state=("DOWN", "NOT_RESPONDING"), reason="Not responding"))
    gone = replace(later, pods=pods(0, rev=rev), slurm=down)
    assert nodes_of(gone, Forget) == ["gpu-1"]
    after = replace(gone, slurm=known(*records(0)))
    assert carried_out(after).nodeset.status.drains == ()


def test_a_worker_that_fails_while_its_nodeset_is_deleted_leaves_no_record() -> None:
    going = nodeset(1, deleting=True)
    failed = pods(0, rev=revision(going), phase="Failed")
    of = world(going, *failed, slurm=known(*records(0, state=("DOWN",), reason="Not responding")))
    assert not released(of)
    assert deleted(of) == []
    later = carried_out(of)
    assert nodes_of(later, Forget) == ["gpu-0"]
    assert deleted(later) == ["gpu-0"]
    assert not released(later)
    assert released(replace(later, pods=(), slurm=known()))


def test_a_deleted_nodeset_waits_until_slurm_notices_that_its_worker_ended() -> None:
    going = nodeset(1, deleting=True, status=told("gpu-0"))
    failed = pods(0, rev=revision(going), phase="Failed")
    of = world(going, *failed, slurm=known(*records(0)))
    assert (released(of), deleted(of), nodes_of(of, Forget)) == (False, ["gpu-0"], [])
    ended = replace(of, pods=(), departed=frozenset({"10.0.0.0"}))
    assert not released(ended)
    assert "waiting for Slurm to notice that gpu-0 ended" in condition(ended, "Progressing")["message"]
    assert decide(ended).after is not None
    noticed = replace(ended, slurm=known(*records(0, state=("IDLE", "NOT_RESPONDING"))))
    assert nodes_of(noticed, Forget) == ["gpu-0"]
    drained = replace(ended, slurm=known(*records(0, state=DRAINED, reason="bad disk")))
    for free in (drained, replace(ended, departed=frozenset()), replace(ended, slurm=known())):
        assert released(free)


def test_a_deleted_nodeset_waits_for_pods_that_end() -> None:
    """Found by history `anything 920241`: a registration that is under way makes a record again that nobody deletes."""
    going = nodeset(1, deleting=True, status=told("gpu-0", "delete"))
    ending = pods(0, rev=revision(going), deleting=True)
    of = world(going, *ending, slurm=known())
    assert not released(of)
    assert "waiting for gpu-0 to end" in condition(of, "Progressing")["message"]
    assert decide(of).after is not None
    late = replace(of, now=NOW + ENDING_SECONDS + 1, slurm=known(age=-ENDING_SECONDS))
    started = pods(0, rev=revision(going), deleting=True, phase="Pending")
    for free in (late, replace(of, pods=started), replace(of, pods=()), replace(of, slurm=SILENT)):
        assert released(free)


def test_a_deleted_nodeset_goes_after_a_last_look_at_workers_without_a_record() -> None:
    going = nodeset(1, deleting=True, status=told("gpu-[0-2]", "delete"))
    claimed = records(1, state=DRAINED, reason="bad disk")
    of = world(going, slurm=known(*claimed), neighbours={"gpu-2": "NodeSet other"})
    assert [action.nodes for action in planned(of, Release)] == [("gpu-0",)]
    silent = replace(of, slurm=SILENT)
    assert (released(silent), planned(silent, Release)) == (True, [])


def test_a_failed_worker_that_is_wanted_is_replaced_at_once() -> None:
    wanted = nodeset(1)
    of = world(wanted, *pods(0, rev=revision(wanted), phase="Failed"), slurm=known(*records(0)))
    assert deleted(of) == ["gpu-0"]
    assert carried_out(of).nodeset.status.drains == ()


# Records that a successor would inherit


@pytest.mark.parametrize(
    ("state", "reason", "external", "goes"),
    [
        (("DOWN", "NOT_RESPONDING"), "Not responding", False, ["gpu-0"]),
        (("DOWN", "NOT_RESPONDING"), "Not responding", True, []),
        (("DOWN",), "Not responding", False, []),
        (("DOWN", "DRAIN", "NOT_RESPONDING"), "Not responding", False, []),
        (("DOWN", "NOT_RESPONDING"), "bad disk", False, []),
    ],
    ids=["given up", "external", "answers again", "drained without a reason", "an administrator's"],
)
def test_a_successor_does_not_inherit_that_slurmctld_gave_up_its_predecessor(
    state: tuple[str, ...], reason: str, external: bool, goes: list[str]
) -> None:
    """Its Node is gone, so that no kubelet says whose record it is. With ReturnToService=0 it would stay DOWN."""
    left = known(record("gpu-0", *state, reason=reason, ip="10.9.9.9"))
    of = world(nodeset(1), slurm=left)
    assert of.controller is not None
    spec = msgspec.structs.replace(of.controller.spec, external=external)
    of = replace(of, controller=msgspec.structs.replace(of.controller, spec=spec))
    assert nodes_of(of, Forget) == goes
    assert created(of) == ["gpu-0"]
    busy = replace(of, jobs=job_list(naming={"gpu-0": (7,)}))
    assert nodes_of(busy, Forget) == []


# Workers that belong to no NodeSet for a moment


@pytest.mark.parametrize("status", [NodeSetStatus(), told("gpu-0")], ids=["new", "written down"])
@pytest.mark.parametrize(
    ("state", "reason"),
    [(("DOWN", "DYNAMIC_NORM"), GOING), (DRAINED, OURS), (("DOWN", "NOT_RESPONDING"), "Not responding")],
    ids=["down", "drained", "silent"],
)
def test_the_record_of_a_worker_that_is_adopted_stays(
    state: tuple[str, ...], reason: str, status: NodeSetStatus
) -> None:
    wanted = nodeset(1, status=status)
    loose = pod("gpu-0", revision=revision(wanted))
    loose = msgspec.structs.replace(loose, metadata=msgspec.structs.replace(loose.metadata, owner_references=(BUDGET,)))
    of = world(wanted, orphans=(loose,), slurm=known(record("gpu-0", *state, reason=reason)))
    assert nodes_of(of, Forget) == []
    assert created(of) == []
    assert "to end" not in condition(of, "Progressing")["message"]
    assert [action.name for action in planned(of, Patch) if action.resource.kind == "Pod"] == ["gpu-0"]

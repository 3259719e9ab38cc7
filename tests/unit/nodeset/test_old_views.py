"""What is seen may be old or of another worker: nothing is created, deleted or released by it that could cost a job."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import PodStatus
from slurm_operator.nodeset.decide import ORPHAN_SECONDS, decide
from slurm_operator.nodeset.ownership import Fate, Ownership
from slurm_operator.nodeset.slurm_actions import Drain, Forget, RemoveUnregistered, Resume, Undrain
from slurm_operator.nodeset.world import Standing, World
from slurm_operator.runtime.actions import Delete, Patch
from slurm_operator.slurm.known import Unknown
from tests.unit.nodeset.make import BUDGET_UID, NOW, at, job_list, known, node, nodeset, record, revision, world
from tests.unit.nodeset.plans import condition, created, deleted, nodes_of, planned, pods, records, told

LISTED: dict[str, Any] = {"holding": {"gpu-0": (7,)}}
UNKNOWN = Unknown(NOW - 5, "slurmrestd is away")


# Names


@pytest.mark.parametrize("cause", ["", "node-cordon", "pod-cordon", "scale-in", "update"])
def test_a_busy_record_keeps_its_name_although_it_stands_in_the_status(cause: str) -> None:
    """Its pod was force-deleted while its kubelet was away: slurmd may still run the job."""
    wanted = nodeset(1, status=told("gpu-0", cause) if cause else NodeSetStatus())
    slurm = known(record("gpu-0", "MIXED", "DRAIN", "DYNAMIC_NORM", reason="slurm-operator: x", ip="10.0.0.5"))
    assert created(world(wanted, slurm=slurm, jobs=job_list(**LISTED))) == []


def test_names_are_not_free_because_slurm_does_not_answer() -> None:
    seen = known(record("gpu-0", "ALLOCATED", ip="192.168.1.1"))
    assert created(world(nodeset(1), slurm=seen)) == []
    assert created(world(nodeset(1), slurm=replace(UNKNOWN, last=seen))) == []
    assert created(world(nodeset(1), slurm=UNKNOWN)) == ["gpu-0"]


def test_an_external_slurm_is_read_before_the_first_worker_is_created() -> None:
    of = world(nodeset(1), slurm=UNKNOWN)
    assert of.controller is not None
    spec = msgspec.structs.replace(of.controller.spec, external=True)
    external = replace(of, controller=msgspec.structs.replace(of.controller, spec=spec))
    assert created(external) == []
    assert "which names are in use" in condition(external, "Progressing")["message"]
    assert created(replace(external, has_restapi=False)) == ["gpu-0"]
    assert created(replace(external, slurm=known())) == ["gpu-0"]


# Pods


def test_an_old_view_of_a_pod_does_not_outweigh_a_busy_record() -> None:
    """The watch of pods lags: the pod has long been running, and has a job."""
    (pod,) = pods(0, rev="r")
    pending = msgspec.structs.replace(
        pod, status=PodStatus(phase="Pending"), spec=msgspec.structs.replace(pod.spec, node_name="")
    )
    slurm = known(record("gpu-0", "ALLOCATED", ip="10.0.0.9", started=-30))
    of = world(nodeset(0, status=told("gpu-0")), pending, slurm=slurm, jobs=job_list(**LISTED))
    assert (of.workers[0].standing, deleted(of)) == (Standing.UNSURE, [])


def test_a_record_at_another_address_with_an_earlier_start_is_not_ignored_while_it_is_busy() -> None:
    """Addresses are translated on the way to an external slurmctld, and the Node's clock was set back."""
    (pod,) = pods(0, rev="r")
    busy = record("gpu-0", "ALLOCATED", ip="192.168.7.7", started=-7230)
    of = world(nodeset(0, status=told("gpu-0")), pod, slurm=known(busy), jobs=job_list(**LISTED))
    assert (of.workers[0].standing, deleted(of)) == (Standing.UNSURE, [])
    assert not RemoveUnregistered(pod, "gpu-0").allows(busy)


def test_a_pod_that_never_started_is_deleted_only_as_it_was_seen() -> None:
    (pod,) = pods(0, rev="r")
    meta = msgspec.structs.replace(pod.metadata, resource_version="41")
    pending = msgspec.structs.replace(pod, metadata=meta, status=PodStatus(phase="Pending"))
    of = world(nodeset(0, status=told("gpu-0")), pending, slurm=known(), jobs=job_list())
    assert [action.resource_version for action in planned(of, Delete)] == ["41"]


@pytest.mark.parametrize(("external", "noted"), [(True, "true"), (False, None)])
def test_every_worker_says_whether_its_slurmctld_runs_elsewhere(external: bool, noted: str | None) -> None:
    """Also one that was made before, or by another operator: its Controller may be deleted later."""
    wanted = nodeset(1)
    (pod,) = pods(0, rev=revision(wanted))
    before = {} if external else {"nodeset.slinky.slurm.net/external-slurmctld": "true"}
    marked = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=before))
    of = world(wanted, marked, slurm=known(*records(0)))
    assert of.controller is not None
    spec = msgspec.structs.replace(of.controller.spec, external=external)
    of = replace(of, controller=msgspec.structs.replace(of.controller, spec=spec))
    (patch,) = [action.patch for action in planned(of, Patch) if action.resource.kind == "Pod"]
    assert patch["metadata"]["annotations"] == {"nodeset.slinky.slurm.net/external-slurmctld": noted}


# Records


@pytest.mark.parametrize(
    ("state", "reason"),
    [(("IDLE", "DRAIN"), "slurm-operator: cordoned"), (("IDLE", "NOT_RESPONDING"), ""), (("DOWN",), "Not responding")],
    ids=" ".join,
)
def test_the_record_of_another_nodesets_worker_is_not_deleted(state: tuple[str, ...], reason: str) -> None:
    """The name was ours, and belongs to a worker of another NodeSet by now."""
    slurm = known(*records(0), record("gpu-1", *state, reason=reason, ip="10.9.9.9", started=-10))
    wanted = nodeset(1, status=told("gpu-1"))
    of = world(wanted, *pods(0, rev=revision(nodeset(1))), slurm=slurm, jobs=job_list())
    assert nodes_of(of, Forget) == ["gpu-1"]
    assert nodes_of(replace(of, neighbours={"gpu-1": "Pod other-1 of NodeSet other"}), Forget) == []


# Administrators


@pytest.mark.parametrize(
    ("state", "reason", "by"),
    [
        (("DOWN",), "Not responding to IPMI, RMA 4711 - keep DOWN", "root"),
        (("IDLE", "DRAIN", "INVALID_REG"), "bad DIMM, do not use", "slurm"),
    ],
    ids=["begins like slurmctld", "written in the container of slurmctld"],
)
def test_words_of_an_administrator_are_not_taken_for_slurmctlds(state: tuple[str, ...], reason: str, by: str) -> None:
    claimed = msgspec.structs.replace(record("gpu-0", *state, reason=reason), reason_set_by_user=by)
    wanted = nodeset(1)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(claimed))
    cordoned = replace(of, nodes={"k8s-0": node("k8s-0", cordoned=True)})
    recorded = replace(cordoned, nodeset=nodeset(1, status=told("gpu-0", "node-cordon")))
    assert not [drain for drain in planned(recorded, Drain) if drain.reason]
    assert not planned(of, Undrain)
    assert not planned(of, Resume)


# Deletion with --cascade=orphan


def orphaned(since: float, **fields: Any) -> World:
    gone = nodeset(0, deleting=True, status=told("gpu-0"))
    meta = msgspec.structs.replace(gone.metadata, deletion_timestamp=at(-since))
    of = world(msgspec.structs.replace(gone, metadata=meta), ownership=Ownership(BUDGET_UID, Fate.LEFT))
    return replace(of, **fields)


def test_an_orphaned_nodeset_waits_for_slurm_to_lift_its_drains() -> None:
    assert decide(orphaned(10, slurm=UNKNOWN)).actions == ()
    assert decide(orphaned(10, slurm=UNKNOWN)).after is not None
    assert [str(action) for action in decide(orphaned(10, slurm=known())).actions] == ["patch NodeSet slurm/gpu"]
    late = orphaned(ORPHAN_SECONDS + 10, slurm=UNKNOWN)
    assert [str(action) for action in decide(late).actions] == ["patch NodeSet slurm/gpu"]

"""Which workers a rolling update and a change of the scaling mode may take: what Slurm sees counts."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_operator.api import NodeSet, names
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import Pod
from slurm_operator.nodeset.decide import NAMED_SECONDS, decide
from slurm_operator.nodeset.slurm_actions import Drain, Undrain
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import ApplyStatus
from slurm_operator.slurm.known import Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from tests.unit.nodeset.make import NOW, known, node, nodeset, pod, record, revision, world
from tests.unit.nodeset.plans import condition, deleted, nodes_of, planned, pods, records, told

MODE = "slurm-operator: NodeSet slurm/gpu changed its scaling mode"
BAD_RECORDS = {
    "rejected": record("gpu-3", "IDLE", "DRAIN", "INVALID_REG", reason="Low RealMemory", ip="10.0.0.3"),
    "down": record("gpu-3", "DOWN", reason="Not responding", ip="10.0.0.3"),
    "set down by an administrator": record("gpu-3", "DOWN", reason="bad fan", ip="10.0.0.3"),
    "unknown": record("gpu-3", "UNKNOWN", ip="10.0.0.3"),
    "not registered": None,
}


def updating(limit: int | str = 1, status: NodeSetStatus | None = None) -> NodeSet:
    return nodeset(4, status=status, updateStrategy={"rollingUpdate": {"maxUnavailable": limit}})


def written(of: World, cause: str) -> str:
    """Return the nodes that the status names for a cause once the plan is carried out."""
    drains = [found for action in planned(of, ApplyStatus) for found in action.manifest["status"]["drains"]]
    return next((found["nodes"] for found in drains if found["cause"] == cause), "")


@pytest.mark.parametrize("bad", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_new_worker_that_slurm_does_not_use_counts_as_away(bad: SlurmNode | None) -> None:
    """Its pod is Ready, but no job runs there: the workers that are left stay."""
    wanted = updating()
    seen = known(*records(0, 1, 2), *([bad] if bad else []))
    of = world(wanted, *pods(0, 1, 2, rev="old"), *pods(3, rev=revision(wanted)), slurm=seen)
    assert nodes_of(of, Drain) == deleted(of) == []


@pytest.mark.parametrize("bad", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_worker_of_an_earlier_revision_that_slurm_does_not_use_counts_as_away(bad: SlurmNode | None) -> None:
    """It is replaced itself, and it alone: otherwise each new template would cost one more healthy worker."""
    seen = known(*records(4, 5, 6), *([bad] if bad else []))
    of = world(updating(), *pods(4, 5, 6, rev="old"), *pods(3, rev="middle"), slurm=seen)
    assert written(of, "update") == "gpu-3"
    assert set(nodes_of(of, Drain)) <= {"gpu-3"}


@pytest.mark.parametrize("ill", [{"ready": False}, {"phase": "Pending", "ready": None, "ip": ""}], ids=str)
def test_an_unready_worker_of_an_earlier_revision_uses_the_budget(ill: dict[str, Any]) -> None:
    between = pod("gpu-3", revision="middle", **{"ip": "10.0.0.3", "node": "k8s-3", **ill})
    of = world(updating(), *pods(0, 1, 2, rev="old"), between, slurm=known(*records(0, 1, 2)))
    assert nodes_of(of, Drain) == []


def test_an_unready_worker_of_an_earlier_revision_uses_the_budget_while_slurm_shows_it_idle() -> None:
    unready = pods(3, rev="middle", ready=False)
    of = world(updating(), *pods(0, 1, 2, rev="old"), *unready, slurm=known(*records(0, 1, 2, 3)))
    assert nodes_of(of, Drain) == ["gpu-3"]


def test_workers_that_slurm_does_not_use_leave_the_rest_of_the_budget() -> None:
    """Two may be away and one is: one more goes."""
    wanted = updating(2)
    seen = known(*records(0, 1, 2), record("gpu-3", "DOWN", reason="Not responding", ip="10.0.0.3"))
    of = world(wanted, *pods(0, 1, 2, rev="old"), *pods(3, rev=revision(wanted)), slurm=seen)
    assert nodes_of(of, Drain) == ["gpu-2"]


def test_workers_that_slurm_lost_are_not_replaced_all_at_once() -> None:
    """They may be healthy, with a network between them and slurmctld that is not."""
    gone = records(0, 1, 2, 3, state=("DOWN", "NOT_RESPONDING"), reason="Not responding")
    of = world(updating(), *pods(0, 1, 2, 3, rev="old"), slurm=known(*gone))
    assert written(of, "update") == "gpu-3"
    wanted = updating()
    next_one = world(wanted, *pods(0, 1, 2, rev="old"), *pods(3, rev=revision(wanted)), slurm=known(*gone))
    assert written(next_one, "update") == ""


def test_an_update_goes_on_once_slurm_uses_the_new_worker() -> None:
    wanted = updating()
    of = world(wanted, *pods(0, 1, 2, rev="old"), *pods(3, rev=revision(wanted)), slurm=known(*records(0, 1, 2, 3)))
    assert nodes_of(of, Drain) == ["gpu-2"]


def test_a_node_drained_by_an_administrator_does_not_stop_an_update() -> None:
    """A drain is a decision, not a failure: it may last for weeks."""
    wanted = updating()
    seen = known(*records(0, 1, 2), record("gpu-3", "IDLE", "DRAIN", reason="bad fan", ip="10.0.0.3"))
    of = world(wanted, *pods(0, 1, 2, rev="old"), *pods(3, rev=revision(wanted)), slurm=seen)
    assert nodes_of(of, Drain) == ["gpu-2"]


def test_no_further_worker_is_chosen_while_slurm_does_not_answer() -> None:
    """One that is being drained for the update stays chosen."""
    silent = Unknown(NOW, "slurmrestd does not answer")
    of = world(updating(), *pods(0, 1, 2, 3, rev="old"), slurm=silent)
    assert written(of, "update") == ""
    begun = world(updating(status=told("gpu-1", "update")), *pods(0, 1, 2, 3, rev="old"), slurm=silent)
    assert written(begun, "update") == "gpu-1"


def test_an_old_view_of_slurm_chooses_no_further_worker() -> None:
    """A new one in which nothing has changed does not begin a pass, so it is looked for."""
    of = world(updating(), *pods(0, 1, 2, 3, rev="old"), slurm=known(*records(0, 1, 2, 3), age=90))
    assert nodes_of(of, Drain) == []
    assert decide(of).after == NAMED_SECONDS


def test_a_worker_whose_record_we_have_just_deleted_for_the_update_stays_chosen() -> None:
    """No read has confirmed the deletion yet: its pod stays, and no other worker takes its turn."""
    seen = known(*records(0, 1, 2), pending=["gpu-3"])
    of = world(updating(status=told("gpu-3", "update")), *pods(0, 1, 2, 3, rev="old"), slurm=seen)
    assert nodes_of(of, Drain) == deleted(of) == []
    assert "Slurm to say what runs on gpu-3" in condition(of, "Progressing")["message"]


# Change of the scaling mode


def daemon(number: int, rev: str, **more: Any) -> Pod:
    labels = {names.LABEL_SCALING_MODE: "DaemonSet", names.LABEL_POD_HOSTNAME: f"k8s-{number}"}
    return pod(f"gpu-k8s-{number}", revision=rev, labels=labels, **more)


def waiting(number: int, rev: str) -> Pod:
    """A successor that has no room beside the worker on its Node."""
    return daemon(number, rev, node="", phase="Pending", ready=False, ip="")


def running(number: int, rev: str) -> Pod:
    return daemon(number, rev, node=f"k8s-{number}", ip=f"10.0.1.{number}")


def changing(*found: Pod, slurm: tuple[SlurmNode, ...], **spec: Any) -> World:
    wanted = nodeset(4, scalingMode="DaemonSet", **spec)
    of = world(wanted, *found, slurm=known(*slurm))
    return replace(of, nodes={f"k8s-{number}": node(f"k8s-{number}") for number in range(4)})


REV = revision(nodeset(4, scalingMode="DaemonSet"))


@pytest.mark.parametrize(("limit", "away"), [("25%", 1), (1, 1), ("50%", 2), (3, 3), ("100%", 4)])
def test_a_change_of_the_scaling_mode_keeps_to_the_budget(limit: int | str, away: int) -> None:
    strategy = {"rollingUpdate": {"maxUnavailable": limit}}
    successors = [waiting(number, REV) for number in range(4)]
    of = changing(*pods(0, 1, 2, 3, rev=REV), *successors, slurm=records(0, 1, 2, 3), updateStrategy=strategy)
    assert len(nodes_of(of, Drain)) == away


def test_the_next_worker_of_the_old_mode_waits_for_the_successor_of_the_last() -> None:
    successors = (*(waiting(number, REV) for number in range(3)), running(3, REV))
    not_yet = changing(*pods(0, 1, 2, rev=REV), *successors, slurm=records(0, 1, 2))
    assert nodes_of(not_yet, Drain) == []
    registered = record("k8s-3", ip="10.0.1.3")
    of = changing(*pods(0, 1, 2, rev=REV), *successors, slurm=(*records(0, 1, 2), registered))
    assert nodes_of(of, Drain) == ["gpu-2"]


def test_a_worker_that_is_being_drained_for_the_change_is_not_exchanged_for_another() -> None:
    draining = record("gpu-0", "MIXED", "DRAIN", reason=MODE, ip="10.0.0.0")
    successors = [waiting(number, REV) for number in range(4)]
    of = changing(
        *pods(0, 1, 2, 3, rev=REV), *successors, slurm=(draining, *records(1, 2, 3)), status=told("gpu-0", "mode")
    )
    assert nodes_of(of, Drain) == nodes_of(of, Undrain) == []


def test_an_update_and_a_change_of_the_scaling_mode_share_one_budget() -> None:
    successors = [*(waiting(number, "old") for number in range(1, 4)), daemon(0, "old", node="k8s-0", ip="10.0.1.0")]
    found = (record("k8s-0", ip="10.0.1.0"), *records(1, 2, 3))
    of = changing(*pods(1, 2, 3, rev=REV), *successors, slurm=found)
    assert len(nodes_of(of, Drain)) == 1


def test_workers_of_the_old_mode_leave_one_by_one_when_no_node_fits() -> None:
    """The new mode wants no worker at all: the budget is at least one."""
    template = {"spec": {"nodeSelector": {"no": "such"}}}
    of = changing(*pods(0, 1, 2, 3, rev=REV), slurm=records(0, 1, 2, 3), template=template)
    assert len(nodes_of(of, Drain)) == 1

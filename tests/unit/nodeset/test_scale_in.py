"""How a worker leaves: drained first, never while anybody may still run on it."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain as Recorded
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.nodeset import world as module
from slurm_operator.nodeset.choose import choose
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.slurm_actions import Drain, Forget, RemoveDrained, Undrain
from slurm_operator.runtime.actions import Apply, ApplyStatus
from slurm_operator.runtime.plan import InOrder
from slurm_operator.slurm.known import Unknown
from tests.unit.nodeset.make import NOW, at, known, node, nodeset, pod, record, revision, world
from tests.unit.nodeset.plans import (
    BUSY,
    DRAINED,
    OURS,
    condition,
    created,
    deleted,
    nodes_of,
    planned,
    pods,
    records,
    told,
)

# Scale in


def test_an_idle_victim_is_drained_first_and_the_cause_is_written_down_before() -> None:
    """scenario 50"""
    wanted = nodeset(1)
    of = world(wanted, *pods(0, 1, 2, rev=revision(wanted)), slurm=known(*records(0, 1, 2)))
    assert nodes_of(of, Drain) == ["gpu-1", "gpu-2"]
    assert deleted(of) == []
    (ordered,) = [action for action in decide(of).actions if isinstance(action, InOrder)]
    first, *rest = ordered.actions
    assert isinstance(first, ApplyStatus)
    assert first.manifest["status"]["drains"][0]["nodes"] == "gpu-[1-2]"
    assert [drain.reason for drain in rest if isinstance(drain, Drain)] == [OURS]


def test_a_drained_victim_loses_its_record_and_then_its_pod() -> None:
    """scenario 50, scenario 150"""
    wanted = nodeset(1, status=told("gpu-1"))
    both = pods(0, 1, rev=revision(wanted))
    drained = world(wanted, *both, slurm=known(*records(0), *records(1, state=DRAINED, reason=OURS)))
    assert nodes_of(drained, Forget) == ["gpu-1"]
    assert deleted(drained) == []
    assert deleted(world(wanted, *both, slurm=known(*records(0)))) == ["gpu-1"]


def test_a_busy_victim_stays_until_its_job_has_ended() -> None:
    """scenario 51"""
    wanted = nodeset(0)
    for state in (BUSY, ("ALLOCATED",), ("IDLE", "COMPLETING"), ("MIXED", "DRAIN"), ("IDLE", "DRAIN", "COMPLETING")):
        of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0, state=state, reason=OURS)))
        assert deleted(of) == [], state
        assert nodes_of(of, Forget) == [], state


def test_a_cancelled_scale_in_is_undrained() -> None:
    """scenario 52"""
    wanted = nodeset(2)
    draining = records(1, state=("MIXED", "DRAIN"), reason=OURS)
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=known(*records(0), *draining))
    assert nodes_of(of, Undrain) == ["gpu-1"]


@pytest.mark.parametrize(
    "slurm", [Unknown(NOW, "timeout"), known(*records(0, 1, state=DRAINED, reason=OURS), age=3600)], ids=["no", "old"]
)
def test_on_unknown_or_old_news_nothing_is_taken_away(slurm: Any) -> None:
    """scenario 55"""
    wanted = nodeset(0)
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=slurm)
    assert deleted(of) == nodes_of(of, Forget) == nodes_of(of, Undrain) == []
    assert "Slurm to say what runs on" in condition(of, "Progressing")["message"]


def test_what_we_only_believe_to_be_drained_does_not_count() -> None:
    wanted = nodeset(0)
    slurm = known(*records(0, state=DRAINED, reason=OURS), pending=["gpu-0"])
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=slurm)
    assert deleted(of) == nodes_of(of, Forget) == []


def test_a_pod_that_never_started_goes_at_once() -> None:
    """scenario 57"""
    wanted = nodeset(0, status=told("gpu-0"))
    stuck = pod("gpu-0", phase="Pending", ready=None, ip="", revision=revision(wanted))
    assert deleted(world(wanted, stuck, slurm=Unknown(NOW, "down"))) == ["gpu-0"]


def test_no_pod_is_taken_before_it_is_written_down_that_it_goes() -> None:
    wanted = nodeset(0)
    stuck = pod("gpu-0", phase="Pending", ready=None, ip="", revision=revision(wanted))
    of = world(wanted, stuck, slurm=known())
    assert deleted(of) == []
    (written,) = planned(of, ApplyStatus)[:1]
    assert written.manifest["status"]["drains"][0]["nodes"] == "gpu-0"


def test_a_worker_wanted_back_after_its_record_was_deleted_is_replaced() -> None:
    """Its slurmd does not register again by itself."""
    wanted = nodeset(1, status=told("gpu-0"))
    assert deleted(world(wanted, *pods(0, rev=revision(wanted)), slurm=known())) == ["gpu-0"]


def test_a_pod_that_just_became_ready_may_have_registered_since_the_read() -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    fresh = pod("gpu-0", ready_at=-2, revision=revision(wanted))
    assert deleted(world(wanted, fresh, slurm=known(age=1))) == []
    assert deleted(world(wanted, pod("gpu-0", ready_at=-60, revision=revision(wanted)), slurm=known(age=1))) == [
        "gpu-0"
    ]


def test_the_record_of_an_earlier_pod_of_that_name_proves_nothing() -> None:
    wanted = nodeset(0)
    of = world(
        wanted,
        pod("gpu-0", created=-3, ready_at=-1, ip="10.0.0.9", revision=revision(wanted)),
        slurm=known(record("gpu-0", *DRAINED, reason=OURS, ip="10.0.0.1", started=-9000)),
    )
    assert deleted(of) == nodes_of(of, Forget) == []


def test_terminating_pods_are_not_counted_twice() -> None:
    """scenario 59: pod-0 is leaving already, so scaling from 3 to 2 takes nobody else"""
    wanted = nodeset(2)
    leaving = pod("gpu-0", deleting=True, revision=revision(wanted))
    of = world(wanted, leaving, *pods(1, 2, rev=revision(wanted)), slurm=known(*records(1, 2)))
    assert deleted(of) == nodes_of(of, Drain) == created(of) == []


def test_a_foreign_drain_is_neither_changed_nor_owned() -> None:
    """scenario 85"""
    wanted = nodeset(1, status=told("gpu-1"))
    foreign = records(1, state=DRAINED, reason="bad disk")
    both = pods(0, 1, rev=revision(wanted))
    leaving = world(wanted, *both, slurm=known(*records(0), *foreign))
    assert nodes_of(leaving, Drain) == nodes_of(leaving, Forget) == []
    assert [action.node for action in planned(leaving, RemoveDrained)] == ["gpu-1"]
    staying = world(nodeset(2), *both, slurm=known(*records(0), *foreign))
    assert nodes_of(staying, Undrain) == nodes_of(staying, Drain) == []


def test_a_node_that_somebody_took_down_is_drained_without_touching_the_reason() -> None:
    wanted = nodeset(0)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0, state=("DOWN",), reason="broken fan")))
    assert [(drain.nodes, drain.reason) for drain in planned(of, Drain)] == [(("gpu-0",), "")]


def test_a_record_that_slurm_will_not_delete_does_not_hold_the_pod() -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    slurm = known(*records(0, state=DRAINED, reason=OURS))
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=slurm, kept_records=frozenset({"gpu-0"}))
    assert [action.node for action in planned(of, RemoveDrained)] == ["gpu-0"]


@pytest.mark.parametrize(("age", "goes"), [(20, []), (90, ["gpu-0"])])
def test_a_worker_that_is_made_again_has_time_to_register(age: float, goes: list[str]) -> None:
    """Scaled in and out again: its slurmd has started, but has not registered within seconds."""
    wanted = nodeset(1, status=told("gpu-0"))
    of = world(wanted, pod("gpu-0", ready=False, created=-age, revision=revision(wanted)), slurm=known())
    assert deleted(of) == goes
    after = decide(of).after
    assert after is not None
    assert after <= 30


def test_causes_are_read_once_however_many_workers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker that began to leave at a time of its own is an entry of the status."""
    reads: list[str] = []

    def read(hostlist: str) -> frozenset[str]:
        reads.append(hostlist)
        return frozenset({hostlist})

    monkeypatch.setattr(module, "members", read)
    left = tuple(Recorded(cause="scale-in", nodes=f"n{number}", since=at(-number)) for number in range(40))
    wanted = nodeset(scalingMode="DaemonSet", status=NodeSetStatus(drains=left))
    of = replace(world(wanted), nodes={f"n{number}": node(f"n{number}") for number in range(40)})
    choose(of, revision(wanted))
    assert len(reads) == len(left)


@pytest.mark.parametrize(("replicas", "claims"), [(1, ["scratch-gpu-0"]), (0, [])])
def test_a_deleted_claim_is_not_made_again_for_a_pod_that_leaves(replicas: int, claims: list[str]) -> None:
    wanted = nodeset(replicas, volumeClaimTemplates=[{"metadata": {"name": "scratch"}, "spec": {}}])
    rev, index = revision(wanted), {names.LABEL_POD_INDEX: "0"}
    waits = pod("gpu-0", node="", phase="Pending", ready=None, ip="", revision=rev, labels=index)
    applied = [action.manifest["metadata"]["name"] for action in planned(world(wanted, waits), Apply)]
    assert applied == claims

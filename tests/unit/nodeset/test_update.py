"""Rolling updates: never more workers away than allowed."""

from typing import Any

import pytest

from slurm_operator.api.nodeset import Drain as Recorded
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.slurm_actions import Drain, Undrain
from tests.unit.nodeset.make import at, known, nodeset, pod, record, revision, world
from tests.unit.nodeset.plans import deleted, nodes_of, pods, records

# Rolling update


def updating(count: int = 4, **spec: Any) -> Any:
    return nodeset(count, **spec)


def test_no_more_healthy_workers_leave_than_allowed() -> None:
    """scenario 116, scenario 117: 50 % of 4 are 2"""
    wanted = updating(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}})
    of = world(wanted, *pods(0, 1, 2, 3, rev="old"), slurm=known(*records(0, 1, 2, 3)))
    assert nodes_of(of, Drain) == ["gpu-2", "gpu-3"]


@pytest.mark.parametrize(
    "newcomer",
    [{"ready": False}, {"phase": "Pending", "ready": None, "ip": ""}],
    ids=["not ready", "pending"],
)
def test_an_unavailable_new_worker_uses_the_budget(newcomer: dict[str, Any]) -> None:
    """scenario 117, scenario 118"""
    wanted = updating(updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    fresh = pod("gpu-3", revision=revision(wanted), **{"ip": "10.0.0.3", **newcomer})
    of = world(wanted, *pods(0, 1, 2, rev="old"), fresh, slurm=known(*records(0, 1, 2)))
    assert nodes_of(of, Drain) == deleted(of) == []


def test_a_missing_worker_uses_the_budget() -> None:
    """scenario 117"""
    wanted = updating(updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    leaving = pod("gpu-3", deleting=True, revision="old")
    of = world(wanted, *pods(0, 1, 2, rev="old"), leaving, slurm=known(*records(0, 1, 2)))
    assert nodes_of(of, Drain) == []


def test_unhealthy_old_workers_go_outside_of_the_budget() -> None:
    """scenario 117"""
    wanted = updating(updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    ill = pod("gpu-0", ready=False, ip="10.0.0.0", revision="old")
    fresh = pod("gpu-3", ready=False, ip="10.0.0.3", revision=revision(wanted))
    of = world(wanted, ill, *pods(1, 2, rev="old"), fresh, slurm=known(*records(0, 1, 2)))
    assert nodes_of(of, Drain) == ["gpu-0"]


def test_the_next_victim_waits_for_min_ready_seconds() -> None:
    """scenario 128"""
    wanted = updating(2, minReadySeconds=60, updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    fresh = pod("gpu-1", ready_at=-30, ip="10.0.0.1", revision=revision(wanted))
    of = world(wanted, *pods(0, rev="old"), fresh, slurm=known(*records(0, 1)))
    assert nodes_of(of, Drain) == []
    assert decide(of).after == pytest.approx(30.1)


def test_an_update_begun_is_finished_before_the_next_begins() -> None:
    drains = (Recorded(cause="update", nodes="gpu-0", since=at(-60)),)
    wanted = updating(2, status=NodeSetStatus(drains=drains), updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    reason = "slurm-operator: NodeSet slurm/gpu is being updated"
    busy = record("gpu-0", "MIXED", "DRAIN", reason=reason, ip="10.0.0.0")
    of = world(wanted, *pods(0, 1, rev="old"), slurm=known(busy, *records(1)))
    assert nodes_of(of, Drain) == nodes_of(of, Undrain) == []


def test_on_delete_replaces_nobody() -> None:
    """scenario 120"""
    wanted = updating(updateStrategy={"type": "OnDelete"})
    of = world(wanted, *pods(0, 1, 2, 3, rev="old"), slurm=known(*records(0, 1, 2, 3)))
    assert nodes_of(of, Drain) == deleted(of) == []


@pytest.mark.parametrize(
    ("change", "rolls"),
    [
        ({"partition": {"enabled": True, "config": "State=UP"}}, False),
        ({"updateStrategy": {"type": "OnDelete"}}, False),
        ({"extraConf": "Features=a"}, True),
        ({"slurmd": {"image": "other"}}, True),
        ({"logfile": {"image": "other"}}, True),
        ({"ordinalPadding": 2}, True),
        ({"oversubscribeNode": True}, True),
        ({"ssh": {"enabled": True, "sssdConfRef": {"name": "s", "key": "k"}}}, True),
    ],
)
def test_what_makes_a_new_revision(change: dict[str, Any], rolls: bool) -> None:
    """scenario 124"""
    assert (revision(nodeset(1, **change)) != revision(nodeset(3))) is rolls

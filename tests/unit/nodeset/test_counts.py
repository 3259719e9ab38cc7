"""The numbers that a NodeSet reports of its pods and of their Slurm nodes."""

from typing import Any

import pytest

from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import ApplyStatus
from tests.unit.nodeset.make import known, nodeset, pod, record, revision, world
from tests.unit.nodeset.plans import planned, pods, records


def status(of: World) -> dict[str, Any]:
    (first, *_) = planned(of, ApplyStatus)
    found: dict[str, Any] = first.manifest["status"]
    return found


@pytest.mark.parametrize(("ready_for", "available", "after"), [(0, 0, 30.1), (10, 0, 20.1), (31, 1, None)])
def test_a_ready_worker_is_available_later(ready_for: float, available: int, after: float | None) -> None:
    """scenarios 109 and 206: looked at again as soon as minReadySeconds have passed."""
    wanted = nodeset(1, minReadySeconds=30)
    fresh = pod("gpu-0", ready_at=-ready_for, ip="10.0.0.0", revision=revision(wanted))
    of = world(wanted, fresh, slurm=known(*records(0)))
    found = status(of)
    assert (found["replicas"], found["updatedReplicas"], found["readyReplicas"]) == (1, 1, 1)
    assert (found["availableReplicas"], found["unavailableReplicas"]) == (available, 1 - available)
    assert decide(of).after == (None if after is None else pytest.approx(after))


def test_old_and_unready_workers_are_told_apart() -> None:
    """scenario 109"""
    wanted = nodeset(3)
    rev = revision(wanted)
    ill = pod("gpu-2", ready=False, ip="10.0.0.2", revision=rev)
    of = world(wanted, *pods(0, rev=rev), *pods(1, rev="old"), ill, slurm=known(*records(0, 1, 2)))
    found = status(of)
    assert (found["replicas"], found["updatedReplicas"]) == (3, 2)
    assert (found["readyReplicas"], found["availableReplicas"]) == (2, 2)


def test_missing_workers_are_unavailable() -> None:
    """scenario 111"""
    wanted = nodeset(3)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0)))
    assert (status(of)["desired"], status(of)["unavailableReplicas"]) == (3, 2)


def test_allocated_counts_nodes_with_jobs_of_this_nodeset_alone() -> None:
    """scenario 110"""
    wanted = nodeset(3)
    states = {0: "ALLOCATED", 1: "MIXED", 2: "IDLE"}
    ours = [found for n, word in states.items() for found in records(n, state=(word,))]
    others = [record("cpu-0", "ALLOCATED", ip="10.1.0.0"), record("cpu-1", "IDLE", ip="10.1.0.1")]
    of = world(wanted, *pods(0, 1, 2, rev=revision(wanted)), slurm=known(*ours, *others))
    assert (status(of)["slurmAllocated"], status(of)["slurmIdle"]) == (2, 1)

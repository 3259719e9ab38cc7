"""When a node's jobs will have ended."""

import math
import time
from typing import Any

import pytest

from slurm_operator.slurm.jobs import JobList, JobListBuilder
from slurm_operator.slurm.model import Job, Number, Reservation

START = 1_800_000_000


def running(job_id: int = 1, nodes: str = "w-1", minutes: int | None = 10, **more: Any) -> Job:
    end = START + 60 * (minutes if minutes is not None else 365 * 24 * 60)
    fields = {
        "job_state": ("RUNNING",),
        "start_time": Number(set=True, number=START),
        "end_time": Number(set=True, number=end),
        "time_limit": Number(set=minutes is not None, infinite=minutes is None, number=minutes or 0),
        **more,
    }
    return Job(job_id=job_id, nodes=nodes, **fields)


def ends(*jobs: Job) -> JobList:
    builder = JobListBuilder(5.0)
    builder.add(jobs)
    return builder.build()


def test_latest_end_counts() -> None:
    """scenario 7, scenario 151"""
    assert ends(running(1, minutes=10), running(2, minutes=30), running(3, minutes=20)).latest == {"w-1": START + 1800}


def test_a_job_counts_on_each_of_its_nodes() -> None:
    """scenario 151"""
    assert ends(running(nodes="w-[1-2],v")).latest == dict.fromkeys(["w-1", "w-2", "v"], START + 600)


def test_unlimited_job_never_ends() -> None:
    """scenario 151: Slurm's end_time of a year is not meant"""
    assert ends(running(minutes=None), running(2)).latest == {"w-1": math.inf}


@pytest.mark.parametrize("state", [("COMPLETED",), ("PENDING",), ("CANCELLED", "COMPLETING"), ("FAILED",)])
def test_jobs_that_run_no_more_or_not_yet_do_not_count(state: tuple[str, ...]) -> None:
    """scenario 151"""
    assert ends(running(job_state=state)).latest == {}


@pytest.mark.parametrize("state", ["SUSPENDED", "CONFIGURING"])
def test_jobs_that_hold_their_nodes_count(state: str) -> None:
    assert ends(running(job_state=(state,))).latest == {"w-1": START + 600}


def test_a_bad_node_list_spoils_only_its_job() -> None:
    """scenario 152"""
    result = ends(running(1, nodes="w-[1"), running(2, nodes="w-2"))
    assert result.latest == {"w-2": START + 600}
    assert result.skipped == (1,)


def test_an_end_that_cannot_be_told_is_not_guessed() -> None:
    """scenario 152"""
    result = ends(running(1, end_time=Number(), time_limit=Number()), running(2, nodes="w-2"))
    assert result.latest == {"w-2": START + 600}
    assert result.untold == {"w-1"}


def test_limit_helps_where_the_end_is_missing() -> None:
    assert ends(running(end_time=Number())).latest == {"w-1": START + 600}


def test_unfinished_jobs_are_listed_by_every_node_they_use_or_name() -> None:
    result = ends(
        running(1, nodes="w-1", required_nodes="w-[1-2]"),
        running(2, nodes="", job_state=("PENDING",), excluded_nodes="w-3"),
        running(3, nodes="w-4", job_state=("SUSPENDED",)),
        running(4, nodes="w-5", job_state=("COMPLETED", "COMPLETING")),
        running(5, nodes="w-6", required_nodes="w-6", job_state=("COMPLETED",)),
    )
    assert result.holding == {"w-1": (1,), "w-4": (3,), "w-5": (4,)}
    assert result.naming == {"w-2": (1,), "w-3": (2,)}
    assert result.users_of("w-1") == result.users_of("w-2") == ("job 1",)
    assert result.waited_for_elsewhere("w-1") == ()
    assert result.waited_for_elsewhere("w-2") == ("job 1",)
    assert result.users_of("w-6") == ()


def test_each_partition_of_an_unfinished_job_is_in_use() -> None:
    result = ends(
        running(1, partition="a,b"),
        running(2, partition="b", job_state=("PENDING",), nodes=""),
        running(3, partition="c", job_state=("FAILED",)),
        running(4, partition="d", job_state=("NODE_FAIL", "REQUEUED")),
        running(5, partition="e", job_state=("A_STATE_OF_LATER_VERSIONS",)),
    )
    assert result.partitions == {"a": (1,), "b": (1, 2), "d": (4,), "e": (5,)}


def test_reservations_name_nodes() -> None:
    builder = JobListBuilder(0.0)
    result = builder.build([Reservation(name="exam", node_list="w-[1-2]"), Reservation(name="solo", node_list="w-1")])
    assert result.users_of("w-1") == ("reservation exam", "reservation solo")
    assert result.waited_for_elsewhere("w-2") == ("reservation exam",)
    assert result.users_of("w-3") == ()


def test_what_cannot_be_read_may_name_every_node() -> None:
    builder = JobListBuilder(0.0)
    builder.add([running(7, nodes="w-[1")])
    result = builder.build([Reservation(name="odd", node_list="w-[")])
    assert result.users_of("any") == ("job 7", "reservation odd")


def test_the_time_grows_with_the_number_of_jobs_and_not_with_its_square() -> None:
    """All jobs of a cluster wait in one partition and exclude the same node; the event loop stands still meanwhile."""
    many = [
        Job(job_id=number, job_state=("PENDING",), partition="gpu", excluded_nodes="w-1") for number in range(60_000)
    ]
    began = time.process_time()
    result = ends(*many)
    assert time.process_time() - began < 5.0
    assert len(result.partitions["gpu"]) == len(result.naming["w-1"]) == len(many)

"""When a node's jobs will have ended."""

import math
from typing import Any

import pytest

from slurm_operator.slurm.jobs import JobEnds, JobEndsBuilder
from slurm_operator.slurm.model import Job, Number

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


def ends(*jobs: Job) -> JobEnds:
    builder = JobEndsBuilder(5.0)
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

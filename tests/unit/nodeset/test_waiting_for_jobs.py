"""Jobs that keep workers from going for long are reported; nothing else changes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api import names
from slurm_operator.api.common import Condition
from slurm_operator.api.nodeset import Drain as Recorded
from slurm_operator.api.nodeset import NodeSet, NodeSetStatus
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import ApplyStatus, RecordEvent
from slurm_operator.slurm.errors import Unreachable
from slurm_operator.slurm.known import Unknown
from slurm_operator.slurm.model import Job, Number
from tests.unit.nodeset.make import NOW, at, job_list, known, nodeset, revision, world
from tests.unit.nodeset.plans import BUSY, DRAINED, OURS, condition, planned, pods, records

HOUR = 3600
DRAINING = (*BUSY, "DRAIN")


def job(number: int, **fields: Any) -> Job:
    times = {
        "start_time": Number(set=True, number=int(NOW - 7200)),
        "end_time": Number(set=True, number=int(NOW + 7200)),
    }
    return Job(job_id=number, **{"job_state": ("RUNNING",), "user_name": "alice", **times, **fields})


def noted(of: NodeSet, annotations: Mapping[str, str]) -> NodeSet:
    return msgspec.structs.replace(of, metadata=msgspec.structs.replace(of.metadata, annotations=dict(annotations)))


def leaving(waited: float, annotations: Mapping[str, str] | None = None, **more: Any) -> World:
    """A worker with job 7 that has been on its way out for so many seconds."""
    told = NodeSetStatus(drains=(Recorded(cause="scale-in", nodes="gpu-0", since=at(-waited)),))
    wanted = noted(nodeset(0, status=told), annotations or {})
    given = {"jobs": job_list(holding={"gpu-0": (7,)}), "job_facts": {7: job(7)}, **more}
    slurm = known(*records(0, state=DRAINING, reason=OURS))
    return world(wanted, *pods(0, rev=revision(wanted)), **{"slurm": slurm, **given})


def waiting(of: World) -> dict[str, Any] | None:
    (status,) = [action.manifest["status"] for action in planned(of, ApplyStatus)]
    return next((found for found in status["conditions"] if found["type"] == "WaitingForJobs"), None)


def taken_up(of: World) -> World:
    (status,) = [action.manifest["status"] for action in planned(of, ApplyStatus)]
    reported = msgspec.convert(status, NodeSetStatus)
    return replace(of, nodeset=msgspec.structs.replace(of.nodeset, status=reported))


def said(of: World) -> list[str]:
    return [action.note for action in planned(of, RecordEvent) if action.reason == "WaitingForJobs"]


def test_a_job_that_is_waited_for_longer_than_an_hour_is_named() -> None:
    told = waiting(leaving(HOUR + 1))
    assert told is not None
    assert told["status"] == "True"
    for part in (
        "job 7 of user alice on gpu-0",
        "since 2027-01-15 06:59 UTC",
        "started 2027-01-15 06:00 UTC",
        "ends by 2027-01-15 10:00 UTC",
        "`scancel 7`",
    ):
        assert part in told["message"]
    assert waiting(leaving(HOUR - 1)) is None


def test_nothing_but_the_report_changes() -> None:
    early, late = leaving(HOUR - 1), leaving(HOUR + 1)
    assert condition(late, "Degraded")["status"] == "False"

    def deeds(of: World) -> list[str]:
        return [str(action) for action in decide(of).actions if not isinstance(action, ApplyStatus | RecordEvent)]

    assert deeds(early) == deeds(late)


def test_an_event_marks_the_beginning_and_nothing_is_written_after_it() -> None:
    late = leaving(HOUR + 1)
    assert len(said(late)) == 1
    again = replace(taken_up(late), now=NOW + 30)
    assert said(again) == []
    assert not planned(again, ApplyStatus)


def test_it_ends_with_the_job() -> None:
    reported = taken_up(leaving(HOUR + 1))
    ended = replace(reported, slurm=known(*records(0, state=DRAINED, reason=OURS)), jobs=job_list(), job_facts={})
    assert waiting(ended) is None


@pytest.mark.parametrize(
    ("text", "waited", "is_told"), [("30m", 1801, True), ("2h", 7199, False), ("soon", 3601, True), ("-1m", 60, False)]
)
def test_an_annotation_says_after_how_long(text: str, waited: float, is_told: bool) -> None:
    """One that cannot be read counts as none."""
    found = waiting(leaving(waited, {names.ANNOTATION_REPORT_WAITING: text}))
    assert (found is not None) is is_told


def test_the_flag_of_the_operator_holds_where_no_annotation_says_otherwise() -> None:
    assert waiting(leaving(61, report_waiting_after=60.0)) is not None
    assert waiting(leaving(61, {names.ANNOTATION_REPORT_WAITING: "2m"}, report_waiting_after=60.0)) is None


def test_it_counts_as_degraded_if_an_annotation_asks_for_that() -> None:
    of = leaving(HOUR + 1, {names.ANNOTATION_WAITING_DEGRADES: "true"})
    told = condition(of, "Degraded")
    assert (told["status"], told["reason"]) == ("True", "WaitingForJobs")
    assert "scancel 7" in told["message"]
    assert condition(leaving(HOUR - 1, {names.ANNOTATION_WAITING_DEGRADES: "true"}), "Degraded")["status"] == "False"


@pytest.mark.parametrize(
    "slurm", [Unknown(NOW - 1, "not read yet"), Unknown(NOW - 99, "no answer", error=Unreachable("GET nodes/"))]
)
def test_it_stays_reported_while_slurm_does_not_answer(slurm: Unknown) -> None:
    reported = taken_up(leaving(HOUR + 1))
    before = reported.nodeset.status.condition("WaitingForJobs")
    lost = replace(reported, slurm=slurm, jobs=None, job_facts={})
    (status,) = [a.manifest["status"] for a in planned(lost, ApplyStatus)] or [msgspec.to_builtins(lost.nodeset.status)]
    found = next(c for c in status["conditions"] if c["type"] == "WaitingForJobs")
    assert msgspec.convert(found, Condition) == before
    assert said(lost) == []


def test_a_job_whose_details_cannot_be_read_is_named_nevertheless() -> None:
    told = waiting(leaving(HOUR + 1, job_facts={}))
    assert told is not None
    assert "job 7 on gpu-0" in told["message"]
    assert "`scancel 7`" in told["message"]


def test_a_user_whose_name_slurm_does_not_know_is_named_by_number() -> None:
    """Users may exist on login pods only."""
    told = waiting(leaving(HOUR + 1, job_facts={7: job(7, user_name="", user_id=2001)}))
    assert told is not None
    assert "job 7 of user 2001 on gpu-0" in told["message"]


def test_a_job_without_a_time_limit_says_so() -> None:
    told = waiting(leaving(HOUR + 1, job_facts={7: job(7, time_limit=Number(set=True, infinite=True))}))
    assert told is not None
    assert "no time limit" in told["message"]


def test_a_pending_job_that_keeps_a_record_is_named() -> None:
    told = NodeSetStatus(drains=(Recorded(cause="scale-in", nodes="gpu-0", since=at(-HOUR - 1)),))
    pending = job(9, job_state=("PENDING",), user_name="bob", start_time=Number())
    of = world(
        nodeset(0, status=told),
        slurm=known(*records(0, state=DRAINED, reason=OURS)),
        jobs=job_list(naming={"gpu-0": (9,)}),
        job_facts={9: pending},
    )
    found = waiting(of)
    assert found is not None
    assert "job 9 of user bob, which names gpu-0 (PENDING" in found["message"]


def test_an_update_reports_the_jobs_that_name_an_outdated_worker() -> None:
    progressing = Condition(type="Progressing", status="True", reason="Working", last_transition_time=at(-HOUR - 1))
    wanted = nodeset(1, status=NodeSetStatus(conditions=(progressing,)))
    jobs = job_list(naming={"gpu-0": (9,)})
    of = world(wanted, *pods(0, rev="earlier"), slurm=known(*records(0)), jobs=jobs, job_facts={9: job(9)})
    found = waiting(of)
    assert found is not None
    assert "job 9 of user alice, which names gpu-0" in found["message"]


def test_each_worker_has_its_own_time() -> None:
    """An update that takes hours waits for each worker only since that one is drained."""
    told = NodeSetStatus(drains=(Recorded(cause="scale-in", nodes="gpu-0", since=at(-HOUR - 1)),))
    wanted = nodeset(0, status=told)
    slurm = known(*records(0, 1, state=DRAINING, reason=OURS))
    jobs = job_list(holding={"gpu-0": (7,), "gpu-1": (8,)})
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=slurm, jobs=jobs)
    found = waiting(of)
    assert found is not None
    assert "job 7" in found["message"]
    assert "job 8" not in found["message"]
    reported = taken_up(of).nodeset.status.drains
    assert [(drain.cause, drain.nodes, drain.since) for drain in reported] == [
        ("scale-in", "gpu-0", at(-HOUR - 1)),
        ("scale-in", "gpu-1", at(0)),
    ]
    assert not planned(taken_up(of), ApplyStatus)


@pytest.mark.parametrize("number", [2**62, -(2**62)])
@pytest.mark.parametrize("field", ["start_time", "end_time"])
def test_a_time_that_is_no_date_does_not_stop_the_pass(field: str, number: int) -> None:
    found = waiting(leaving(HOUR + 1, job_facts={7: job(7, **{field: Number(set=True, number=number)})}))
    assert found is not None
    assert "job 7 of user alice on gpu-0" in found["message"]

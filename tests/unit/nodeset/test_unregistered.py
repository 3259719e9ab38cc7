"""Workers that run without a record in Slurm: what is reported, and when they are looked at again."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_operator.api import names
from slurm_operator.api.common import Condition
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import Pod
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.unregistered import GRACE_SECONDS
from slurm_operator.nodeset.world import FRESH_SECONDS, World
from slurm_operator.slurm.known import Unknown
from tests.unit.nodeset.make import NOW, at, known, nodeset, record, revision, world
from tests.unit.nodeset.plans import condition, deleted, events, pods, records, told

REASON = "SlurmNodeNotRegistered"
PROTECTED = {names.LABEL_POD_PROTECT: names.TRUE}


def not_ready(since: float) -> NodeSetStatus:
    """The status of a NodeSet that turned unready so many seconds ago."""
    return NodeSetStatus(
        conditions=(
            Condition(
                type="Ready", status="False", reason="NotRegistered", message="", last_transition_time=at(-since)
            ),
        )
    )


def absent(since: float = GRACE_SECONDS + 1, *workers: Pod, **more: Any) -> World:
    """Two running workers of which Slurm knows nothing, or these."""
    wanted = nodeset(len(workers) or 2, status=not_ready(since))
    rev = revision(wanted)
    return world(wanted, *(workers or pods(0, 1, rev=rev)), **{"slurm": known(), **more})


def test_a_worker_whose_record_is_gone_is_reported_with_cause_and_remedy() -> None:
    of = absent()
    degraded = condition(of, "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", REASON)
    assert "no record of worker gpu-[0-1]" in degraded["message"]
    assert "delete" in degraded["message"]
    assert events(of).count(REASON) == 1
    assert deleted(of) == []


def test_nothing_is_reported_or_written_again_once_it_was() -> None:
    before = Condition(
        type="Degraded", status="True", reason=REASON, message="", last_transition_time=at(-GRACE_SECONDS)
    )
    of = absent()
    status = NodeSetStatus(conditions=(*of.nodeset.status.conditions, before))
    later = replace(of, nodeset=nodeset(2, status=status))
    assert REASON not in events(later)
    assert decide(later).after is not None


def test_a_worker_without_a_record_is_not_ready_from_the_first_moment() -> None:
    wanted = nodeset(2)
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=known(*records(1)))
    ready = condition(of, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NotRegistered")
    assert "gpu-0 to register with Slurm" in ready["message"]
    assert condition(of, "Progressing")["status"] == "True"


@pytest.mark.parametrize("ago", [0.0, GRACE_SECONDS - 1])
def test_a_worker_has_a_while_to_register(ago: float) -> None:
    """Also one that has just lost its record: it may be restarting."""
    for of in (absent(ago), absent(9999, *pods(0, 1, rev="r", created=-ago, ready_at=-ago))):
        assert condition(of, "Degraded")["status"] == "False"
        after = decide(of).after
        assert after is not None
        assert after <= GRACE_SECONDS


def test_a_worker_that_slurmctld_forgot_while_jobs_ran_is_reported() -> None:
    """Deleting its pod would end these jobs."""
    of = absent(GRACE_SECONDS + 1, *pods(0, rev=revision(nodeset(1)), labels=PROTECTED))
    degraded = condition(of, "Degraded")
    assert degraded["reason"] == REASON
    assert "jobs were running" in degraded["message"]
    assert "restore slurmctld's state" in degraded["message"]
    assert decide(of).after is not None
    assert deleted(of) == []


def test_a_worker_that_registered_under_another_name_is_reported() -> None:
    of = absent(GRACE_SECONDS + 1, *pods(0, rev=revision(nodeset(1))), slurm=known(record("other", ip="10.0.0.0")))
    degraded = condition(of, "Degraded")
    assert degraded["reason"] == REASON
    assert "as node other" in degraded["message"]


def test_workers_that_are_registered_or_going_or_not_started_are_not_reported() -> None:
    wanted = nodeset(2, status=not_ready(9999))
    rev = revision(wanted)
    fine = world(wanted, *pods(0, 1, rev=rev), slurm=known(*records(0, 1)))
    leaving = NodeSetStatus(drains=told("gpu-[0-1]").drains, conditions=wanted.status.conditions)
    going = world(nodeset(0, status=leaving), *pods(0, 1, rev=rev), slurm=known())
    new = world(wanted, *pods(0, 1, rev=rev, phase="Pending", ready=None), slurm=known())
    for of in (fine, going, new):
        assert condition(of, "Degraded")["reason"] != REASON
    assert decide(fine).after is None


@pytest.mark.parametrize("slurm", [Unknown(NOW, "no answer"), known(age=FRESH_SECONDS + 1), known(pending=["gpu-0"])])
def test_nothing_is_said_of_records_that_are_not_known(slurm: Any) -> None:
    of = absent(GRACE_SECONDS + 1, *pods(0, rev=revision(nodeset(1))), slurm=slurm)
    assert condition(of, "Degraded")["reason"] != REASON


def test_a_new_process_keeps_the_report_until_slurm_has_answered() -> None:
    before = Condition(type="Degraded", status="True", reason=REASON, message="m", last_transition_time=at(-500))
    wanted = nodeset(1, status=NodeSetStatus(conditions=(before,)))
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=Unknown(NOW - 1, "not asked yet"))
    assert (condition(of, "Degraded")["reason"], condition(of, "Degraded")["message"]) == (REASON, "m")
    assert events(of) == []

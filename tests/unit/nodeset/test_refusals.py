"""Which failures become a report, and for how long."""

from dataclasses import replace

from slurm_operator.kube.errors import Call, Conflict, Forbidden
from slurm_operator.nodeset.decide import NAMED_SECONDS, decide
from slurm_operator.nodeset.refusals import Refusals
from slurm_operator.nodeset.slurm_actions import Drain, Forget
from slurm_operator.runtime.execute import Failure
from slurm_operator.slurm.errors import SlurmError
from tests.unit.nodeset.make import nodeset, world

CALL = Call("create", "pods", "Pod")
DRAIN, FORGET = Drain(("gpu-0",), "slurm-operator: scaled in"), Forget(("gpu-1",))
BUSY = Failure(FORGET, SlurmError("a job is using the node"))


def passing(action: object) -> Failure:
    return Failure(action, Conflict(CALL, "it changed"))


def noted(refusals: Refusals, *failures: Failure, actions: tuple[object, ...] = (), kept: tuple[str, ...] = ()) -> bool:
    """Return whether something is reported after a pass."""
    refusals.note((*actions, *(failure.action for failure in failures)), failures, kept)
    return bool(refusals.told)


def test_a_passing_cause_is_reported_when_it_fails_twice_in_a_row() -> None:
    refusals = Refusals()
    assert not noted(refusals, passing(DRAIN))
    assert noted(refusals, passing(DRAIN))
    assert not noted(refusals, actions=(DRAIN,))
    assert not noted(refusals, passing(DRAIN))


def test_a_cause_that_only_a_change_can_end_is_reported_at_once() -> None:
    refusals = Refusals()
    assert noted(refusals, Failure(DRAIN, Forbidden(CALL, "quota")))
    assert not noted(refusals)


def test_a_record_that_is_left_alone_stays_reported_until_it_is_tried_again() -> None:
    refusals = Refusals()
    for _ in range(3):
        noted(refusals, BUSY, kept=("gpu-1",))
        noted(refusals, kept=("gpu-1",))
    (told,) = refusals.told
    assert told.startswith("forget gpu-1: ")
    assert not noted(refusals, actions=(FORGET,), kept=("gpu-1",))


def test_a_record_that_needs_no_deletion_any_more_is_not_reported() -> None:
    refusals = Refusals()
    noted(refusals, BUSY, kept=("gpu-1",))
    assert noted(refusals, BUSY, kept=("gpu-1",))
    assert not noted(refusals)


def test_a_refusal_that_stands_is_looked_at_again() -> None:
    """An administrator deleted the record meanwhile: nothing else would end the report on a quiet cluster."""
    of = world(nodeset(0), refusals=("forget gpu-1: a job is using the node",), kept_records=frozenset({"gpu-1"}))
    assert decide(of).after == NAMED_SECONDS
    assert decide(replace(of, refusals=())).after is None

"""Conditions: since when they hold, which flips are worth an event, and what a rollout waits for."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_operator.api import RESTAPI
from slurm_operator.api.common import Condition
from slurm_operator.api.crd import schema
from slurm_operator.kube.kinds import Deployment, WorkloadSpec, WorkloadStatus
from slurm_operator.kube.model import ChildMeta
from slurm_operator.runtime.conditions import LONGEST_MESSAGE, Verdict, flipped, rollout_of, stated, summed_up
from slurm_operator.runtime.times import rfc3339, seconds_of
from slurm_operator.runtime.trouble import Trouble

NOW = 1_800_000_000.0
WRONG = Trouble("Wrong", "it is wrong")
ODD = Trouble("Odd", "it is odd")


def test_the_time_moves_only_when_the_status_flips() -> None:
    before = (Condition(type="Ready", status="True", reason="Ready", last_transition_time=rfc3339(NOW - 60)),)
    same = stated([Verdict("Ready", "True", "Other", "")], before, 2, NOW)
    other = stated([Verdict("Ready", "False", "Ready", "")], before, 2, NOW)
    first = stated([Verdict("Ready", "True", "Ready", "")], (), 2, NOW)
    assert same[0]["lastTransitionTime"] == rfc3339(NOW - 60)
    assert other[0]["lastTransitionTime"] == first[0]["lastTransitionTime"] == rfc3339(NOW)
    assert same[0]["observedGeneration"] == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("Evicted", "Evicted"),
        ("OutOfnvidia.com/gpu", "OutOfnvidia_com_gpu"),
        ("OutOfephemeral-storage", "OutOfephemeral_storage"),
        ("9Lives:", "Reason_9Lives_"),
        ("", "Unknown"),
    ],
)
def test_any_reason_becomes_one_that_the_api_accepts(given: str, told: str) -> None:
    """Reasons of the kubelet name resources; and told once, it is no news."""
    verdict = Verdict("Degraded", "True", given, "")
    (condition,) = stated([verdict], (), 1, NOW)
    assert condition["reason"] == told
    assert flipped([verdict], (Condition(type="Degraded", status="True", reason=told),)) == []


@given(st.text(max_size=2000))
@example("x" * 2000)
@example("9" * 2000)
def test_no_reason_breaks_the_pattern(given: str) -> None:
    (condition,) = stated([Verdict("Degraded", "True", given, "")], (), 1, NOW)
    pattern = schema(RESTAPI)["properties"]["status"]["properties"]["conditions"]["items"]["properties"]["reason"]
    assert re.fullmatch(pattern["pattern"], condition["reason"])
    assert pattern["minLength"] <= len(condition["reason"]) <= pattern["maxLength"]
    (again,) = stated([Verdict("Degraded", "True", condition["reason"], "")], (), 1, NOW)
    assert again["reason"] == condition["reason"]


def test_a_message_has_an_end() -> None:
    (condition,) = stated([Verdict("Ready", "True", "Ready", "x" * 99999)], (), 1, NOW)
    assert len(condition["message"]) == LONGEST_MESSAGE


def test_another_reason_is_news_and_another_message_is_not() -> None:
    before = (Condition(type="Degraded", status="True", reason="A", message="1"),)
    verdicts = [Verdict("Degraded", "True", reason, "2") for reason in ("A", "B")]
    assert flipped(verdicts, before) == [verdicts[1]]
    assert flipped(verdicts, ()) == verdicts


@pytest.mark.parametrize(
    ("about", "ready", "progressing", "degraded"),
    [
        ({"waiting": ""}, True, "Settled", "Healthy"),
        ({"waiting": "for it"}, False, "Working", "Healthy"),
        ({"waiting": "", "blocked": WRONG}, False, "Blocked", "Wrong"),
        ({"waiting": "for it", "blocked": WRONG, "refusals": (ODD,)}, False, "Blocked", "Wrong"),
        ({"waiting": "", "refusals": (ODD, WRONG)}, False, "Blocked", "Odd"),
        ({"waiting": "", "noticed": ODD}, True, "Settled", "Odd"),
        ({"waiting": "for it", "noticed": ODD}, False, "Blocked", "Odd"),
        ({"waiting": "", "refusals": (WRONG,), "noticed": ODD}, False, "Blocked", "Wrong"),
    ],
)
def test_how_it_is_summed_up(about: dict[str, object], ready: bool, progressing: str, degraded: str) -> None:
    """Ready is never true of what is not as asked; trouble beside a daemon that works leaves it ready."""
    verdicts = {verdict.type: verdict for verdict in summed_up(done="done", **about)}  # type: ignore[arg-type]  # a table
    assert verdicts["Ready"].status == ("True" if ready else "False")
    assert verdicts["Progressing"].reason == progressing
    assert verdicts["Progressing"].status == ("True" if progressing == "Working" else "False")
    assert verdicts["Degraded"].reason == degraded
    assert verdicts["Ready"].message == ("done" if ready else about["waiting"] or verdicts["Degraded"].message)
    assert verdicts["Progressing"].message == ("" if ready else verdicts["Ready"].message), "kubectl get shows this one"


def workload(generation: int = 1, observed: int = 1, updated: int = 2, ready: int = 2, replicas: int = 2) -> Deployment:
    return Deployment(
        metadata=ChildMeta(generation=generation),
        spec=WorkloadSpec(replicas=2),
        status=WorkloadStatus(
            observed_generation=observed, replicas=replicas, updated_replicas=updated, ready_replicas=ready
        ),
    )


@pytest.mark.parametrize(
    ("found", "enough", "waiting"),
    [
        (None, None, "to be created"),
        (workload(generation=2), None, "take up the change of it"),
        (workload(updated=0, ready=0, replicas=0), None, "to be created: 0 of 2 pods exist"),
        (workload(updated=1), None, "to be replaced: 1 of 2 done"),
        (workload(ready=1), None, "to be ready: 1 of 2 are"),
        (workload(ready=0), 1, "to be ready: 0 of 1 are"),
        (workload(ready=1), 1, ""),
        (workload(), None, ""),
    ],
)
def test_what_a_rollout_waits_for(found: Deployment | None, enough: int | None, waiting: str) -> None:
    told = rollout_of(found, "it", enough)
    assert told.endswith(waiting)
    assert bool(told) == bool(waiting)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2027-01-15T08:00:00Z", 1_800_000_000.0),
        ("2027-01-15T08:00:00.5Z", 1_800_000_000.5),
        ("2027-01-15T09:00:00+01:00", 1_800_000_000.0),
        ("2027-01-15T08:00:00", -1.0),
        ("soon", -1.0),
        ("", -1.0),
        (None, -1.0),
    ],
)
def test_times_as_kubernetes_writes_them(text: str | None, seconds: float) -> None:
    assert seconds_of(text, absent=-1.0) == seconds
    assert seconds_of(rfc3339(NOW), absent=0.0) == NOW

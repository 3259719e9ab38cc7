"""What a NodeSet says of itself, and that it is silent at rest."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api import names
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import ControllerRevision, NodeStatus
from slurm_operator.kube.model import Condition
from slurm_operator.nodeset.choose import Choice
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.readiness import Tally, progressing, ready
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import ApplyStatus, Create, RecordEvent
from slurm_operator.slurm.errors import Unreachable
from slurm_operator.slurm.known import Unknown
from tests.unit.nodeset.make import NOW, job_list, known, node, nodeset, record, revision, world
from tests.unit.nodeset.plans import (
    condition,
    created,
    events,
    planned,
    pods,
    records,
)

# Rest


def settled(count: int = 2, **spec: Any) -> World:
    wanted = nodeset(count, **spec)
    ordinals = range(count)
    of = world(wanted, *pods(*ordinals, rev=revision(wanted)), slurm=known(*records(*ordinals, partitions=("gpu",))))
    (status,) = [a.manifest["status"] for a in planned(of, ApplyStatus)]
    (made,) = [a.manifest for a in planned(of, Create) if a.resource.kind == "ControllerRevision"]
    reported = nodeset(count, **spec, status=msgspec.convert(status, NodeSetStatus))
    return replace(of, nodeset=reported, revisions=(msgspec.convert(made, ControllerRevision),))


def test_at_rest_there_is_nothing_to_do() -> None:
    """scenario 112"""
    of = settled()
    assert decide(of).actions == ()
    assert of.nodeset.status.condition("Ready").status == "True"  # type: ignore[union-attr] # it is there


@pytest.mark.parametrize("replicas", [1, 2], ids=["with a drain", "alone"])
def test_a_report_is_for_the_nodeset_that_was_seen(replicas: int) -> None:
    """One that was deleted and made again under the same name has neither the counts nor the drains of the first."""
    wanted = nodeset(replicas)
    seen = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=known(*records(0, 1)))
    (report,) = planned(seen, ApplyStatus)
    assert bool(report.manifest["status"]["drains"]) is (replicas == 1)
    assert report.manifest["metadata"]["uid"] == wanted.metadata.uid


def test_losing_slurm_changes_the_report_and_nothing_else() -> None:
    of = settled()
    lost = replace(of, slurm=Unknown(NOW, "slurmrestd does not answer", error=Unreachable("GET nodes/")))
    assert [type(action) for action in decide(lost).actions] == [ApplyStatus]
    assert condition(lost, "SlurmReachable")["message"] == "slurmrestd does not answer"
    assert condition(lost, "Ready")["status"] == "Unknown"


def test_a_new_process_repeats_what_the_last_one_said_until_slurm_has_had_time_to_answer() -> None:
    """The first pass after a restart writes nothing."""
    asking = replace(settled(), slurm=Unknown(NOW - 1, "not read yet"))
    assert decide(asking).actions == ()
    assert decide(asking).after == pytest.approx(9)
    assert condition(replace(asking, slurm=Unknown(NOW - 11, "not read yet")), "SlurmReachable")["status"] == "False"


def test_a_new_process_repeats_what_is_waited_for_until_slurm_has_had_time_to_answer() -> None:
    busy = known(*records(0, state=("MIXED", "DRAIN"), reason="slurm-operator: scaled in"))
    wanted = nodeset(0)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=busy, jobs=job_list(holding={"gpu-0": (7,)}))
    (status,) = [a.manifest["status"] for a in planned(of, ApplyStatus)]
    reported = msgspec.convert(status, NodeSetStatus)
    told = condition(of, "Progressing")["message"]
    assert "job 7 on gpu-0" in told
    restarted = replace(of, nodeset=nodeset(0, status=reported), slurm=Unknown(NOW - 1, "not read yet"), jobs=None)
    assert not planned(restarted, ApplyStatus)
    assert (
        "Slurm to say"
        in condition(replace(restarted, slurm=Unknown(NOW - 11, "not read yet")), "Progressing")["message"]
    )


@pytest.mark.parametrize(
    ("partition", "ready"), [(None, "True"), ({"enabled": False}, "True"), ({"enabled": True}, "False")]
)
def test_a_nodeset_is_ready_only_when_jobs_reach_its_partition(partition: dict[str, Any] | None, ready: str) -> None:
    """slurmctld takes up a new partition some seconds after the first worker has registered."""
    wanted = nodeset(1, partition=partition)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0)))
    assert condition(of, "Ready")["status"] == ready
    taken_up = replace(of, slurm=known(*records(0, partitions=("gpu",))))
    assert condition(taken_up, "Ready")["status"] == "True"


def test_the_partitions_of_a_cluster_that_somebody_else_configures_are_theirs() -> None:
    wanted = nodeset(1, partition={"enabled": True})
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0)))
    assert of.controller is not None
    elsewhere = msgspec.structs.replace(of.controller.spec, external=True)
    assert (
        condition(replace(of, controller=msgspec.structs.replace(of.controller, spec=elsewhere)), "Ready")["status"]
        == "True"
    )


def test_a_kubernetes_node_that_is_silent_is_named() -> None:
    wanted = nodeset(1)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0)))
    gone = msgspec.structs.replace(
        node("k8s-0"), status=NodeStatus(conditions=(Condition(type="Ready", status="Unknown"),))
    )
    told = condition(replace(of, nodes={"k8s-0": gone}), "Degraded")
    assert told["status"] == "True"
    assert "its node k8s-0 does not answer" in told["message"]


def test_a_worker_that_slurm_rejects_is_not_ready() -> None:
    wanted = nodeset(1)
    odd = record("gpu-0", "IDLE", "DRAIN", "INVALID_REG", reason="no such topology")
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(odd))
    assert (condition(of, "Ready")["status"], condition(of, "Ready")["reason"]) == ("False", "SlurmRejectsNode")
    assert "Slurm rejects gpu-0: no such topology; check extraConf" in condition(of, "Degraded")["message"]


def test_an_end_beyond_every_calendar_is_no_time_limit() -> None:
    """Any user may ask for a time limit of 4,000,000,000 minutes."""
    busy = known(*records(0, state=("MIXED", "DRAIN"), reason="slurm-operator: scaled in"))
    wanted = nodeset(0)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=busy, jobs=job_list(latest={"gpu-0": 3e11}))
    assert "without a time limit" in condition(of, "Progressing")["message"]


# What is not known is not said to be well


UNREACHED = Unknown(NOW - 100, "slurmrestd does not answer", error=Unreachable("GET nodes/"))
REJECTED = record("gpu-0", "IDLE", "INVALID_REG", reason="gres/gpu count reported lower than configured (0 < 8)")


def taken_up(of: World) -> World:
    """Return the world after its status was written."""
    (status,) = [a.manifest["status"] for a in planned(of, ApplyStatus)]
    reported = msgspec.structs.replace(of.nodeset, status=msgspec.convert(status, NodeSetStatus))
    return replace(of, nodeset=reported)


def states(of: World) -> dict[str, str]:
    return {kind: condition(of, kind)["status"] for kind in ("Ready", "Progressing", "Degraded", "SlurmReachable")}


def test_while_slurm_does_not_answer_nothing_that_depends_on_it_is_claimed() -> None:
    lost = replace(settled(), slurm=UNREACHED)
    assert states(lost) == {
        "Ready": "Unknown",
        "Progressing": "Unknown",
        "Degraded": "Unknown",
        "SlurmReachable": "False",
    }
    told = condition(lost, "Ready")
    assert told["reason"] == "SlurmUnknown"
    assert "2 of 2 workers are ready" in told["message"]
    assert "slurmrestd does not answer" in told["message"]
    assert decide(taken_up(lost)).actions == ()


def test_what_kubernetes_alone_shows_is_said_while_slurm_does_not_answer() -> None:
    wanted = nodeset(2)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=UNREACHED)
    assert (condition(of, "Ready")["status"], condition(of, "Ready")["reason"]) == ("False", "WorkersMissing")


def test_a_nodeset_without_workers_needs_no_answer_of_slurm() -> None:
    of = world(nodeset(0), slurm=UNREACHED)
    assert states(of) == {"Ready": "True", "Progressing": "False", "Degraded": "False", "SlurmReachable": "False"}


def test_a_rejected_worker_stays_reported_through_restart_and_outage() -> None:
    of = taken_up(replace(settled(1), slurm=known(REJECTED)))
    assert decide(of).actions == ()
    restarted = replace(of, slurm=Unknown(NOW - 1, "not read yet"))
    assert decide(restarted).actions == ()
    lost = replace(of, slurm=UNREACHED)
    assert (condition(lost, "Ready")["status"], condition(lost, "Degraded")["reason"]) == (
        "Unknown",
        "SlurmRejectsNode",
    )
    assert events(lost) == events(replace(taken_up(lost), slurm=known(REJECTED))) == []


def test_a_new_process_repeats_nothing_that_kubernetes_shows_to_be_over() -> None:
    wanted = nodeset(2)
    both = pods(0, 1, rev=revision(wanted))
    short = world(wanted, both[0], slurm=known(*records(0)))
    assert condition(short, "Ready")["reason"] == "WorkersMissing"
    complete = replace(taken_up(short), pods=both, slurm=Unknown(NOW - 1, "not read yet"))
    told = condition(complete, "Ready")
    assert (told["status"], told["reason"]) == ("Unknown", "SlurmUnknown")


@pytest.mark.parametrize("lost", [Unknown(NOW - 11, "not read yet"), UNREACHED])
def test_after_the_time_to_answer_a_new_process_says_that_it_does_not_know(lost: Unknown) -> None:
    assert states(replace(settled(), slurm=lost))["Ready"] == "Unknown"


def test_workers_that_are_down_in_slurm_are_not_ready() -> None:
    wanted = nodeset(2)
    down = records(0, 1, state=("DOWN", "DYNAMIC_NORM"), reason="Not responding")
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=known(*down))
    told = condition(of, "Ready")
    assert (told["status"], told["reason"]) == ("False", "WorkersDown")
    assert "gpu-0 (Not responding)" in told["message"]
    assert condition(of, "Progressing")["status"] == "False"
    assert "gpu-0" in condition(of, "Progressing")["message"]


def test_drained_workers_are_ready_and_counted() -> None:
    """An administrator drains on purpose; the message says how many."""
    wanted = nodeset(2)
    drained = (*records(0, state=("IDLE", "DRAIN"), reason="disk"), *records(1))
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=known(*drained))
    told = condition(of, "Ready")
    assert (told["status"], told["message"]) == ("True", "2 of 2 workers are ready, 1 of them drained in Slurm")


# Updates


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ({"type": "OnDelete"}, "until their pods are deleted"),
        (
            {"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": "2030-01-31T22:00:00Z"}},
            "until the maintenance window that begins at 2030-01-31T22:00:00Z",
        ),
    ],
)
def test_a_strategy_that_leaves_outdated_workers_alone_is_ready_and_names_them(
    strategy: dict[str, Any], words: str
) -> None:
    wanted = nodeset(4, updateStrategy=strategy)
    workers = (*pods(0, rev=revision(wanted)), *pods(1, 2, 3, rev="earlier"))
    of = world(wanted, *workers, slurm=known(*records(0, 1, 2, 3)), jobs=job_list(naming={"gpu-1": (7,)}))
    assert (condition(of, "Progressing")["status"], condition(of, "Progressing")["reason"]) == ("False", "Settled")
    told = condition(of, "Ready")
    assert told["status"] == "True"
    assert told["message"].startswith("4 of 4 workers are ready; gpu-1, gpu-2, gpu-3 ")
    assert words in told["message"]


def test_an_update_that_does_not_get_on_is_not_settled() -> None:
    """All pods are ready, no worker may go, and outdated workers are left."""
    wanted = nodeset(3)
    workers = (*pods(0, rev=revision(wanted)), *pods(1, 2, rev="earlier"))
    of = world(wanted, *workers, slurm=known(REJECTED, *records(1, 2)))
    stuck, tally = Choice(3, (), (), {}), Tally(have=3, want=3, old=("gpu-1", "gpu-2"))
    told = progressing(of, stuck, tally)
    assert (told.status, told.reason) == ("True", "Working")
    assert "Slurm to accept gpu-0" in told.message
    assert "gpu-1, gpu-2 to be replaced" in told.message
    verdict = ready(of, stuck, tally)
    assert (verdict.status, verdict.reason) == ("False", "UpdateIncomplete")
    assert "gpu-1, gpu-2 have an earlier revision" in verdict.message


def test_a_nodeset_that_is_being_deleted_says_how_many_workers_are_left() -> None:
    wanted = nodeset(2, deleting=True)
    busy = known(*records(0, 1, state=("MIXED",)))
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=busy, jobs=job_list(holding={"gpu-0": (7,)}))
    told = condition(of, "Ready")
    assert (told["reason"], told["message"]) == ("Deleting", "the NodeSet is being deleted; 2 of its workers are left")
    assert condition(of, "Progressing")["message"].startswith("2 workers are left; waiting for job 7 on gpu-0 to end")


# Whatever the state


STATES = st.sampled_from(
    [("IDLE",), ("MIXED",), ("IDLE", "DRAIN"), ("DOWN",), ("DOWN", "DRAIN"), ("IDLE", "INVALID_REG"), ("ALLOCATED",)]
)
STRATEGIES = st.sampled_from(["RollingUpdate", "OnDelete", "ScheduledUpdate"])


@given(
    states=st.lists(STATES, max_size=4),
    unregistered=st.booleans(),
    unanswered=st.booleans(),
    earlier=st.integers(0, 4),
    strategy=STRATEGIES,
    wanted=st.integers(0, 4),
)
def test_what_is_reported_agrees_with_what_is_seen_and_is_written_once(
    states: list[tuple[str, ...]], unregistered: bool, unanswered: bool, earlier: int, strategy: str, wanted: int
) -> None:
    of = nodeset(wanted, updateStrategy={"type": strategy})
    workers = tuple(pod for n in range(len(states)) for pod in pods(n, rev="earlier" if n < earlier else revision(of)))
    found = [record for n, state in enumerate(states) for record in records(n, state=state, reason="disk")]
    slurm = UNREACHED if unanswered else known(*found[unregistered:])
    seen = world(of, *workers, slurm=slurm)
    (status,) = [a.manifest["status"] for a in planned(seen, ApplyStatus)][:1]
    told = {condition["type"]: condition for condition in status["conditions"]}
    if told["Ready"]["status"] == "True":
        assert len(states) == wanted
        assert not (states and (unanswered or unregistered))
        assert not {"DOWN", "INVALID_REG"} & {word for state in states for word in state}
        assert strategy != "RollingUpdate" or earlier == 0 or not states
    if unanswered and states:
        assert told["Degraded"]["status"] == told["Ready"]["status"] == "Unknown" or told["Ready"]["status"] == "False"
    if told["Progressing"]["status"] == "False" and told["Ready"]["status"] == "True":
        assert told["Progressing"]["message"] == ""
    assert sum(status[f"slurm{state}"] for state in ("Idle", "Allocated", "Down", "Drain")) <= len(states)
    reported = msgspec.structs.replace(of, status=msgspec.convert(status, NodeSetStatus))
    assert not planned(replace(seen, nodeset=reported, pods=workers[::-1]), ApplyStatus)


# Counts


@pytest.mark.parametrize(
    ("state", "counted"),
    [
        (("IDLE",), "slurmIdle"),
        (("IDLE", "DRAIN"), "slurmDrain"),
        (("MIXED", "DRAIN"), "slurmDrain"),
        (("DOWN", "DRAIN"), "slurmDown"),
        (("ALLOCATED",), "slurmAllocated"),
        (("MIXED",), "slurmAllocated"),
        (("IDLE", "COMPLETING"), "slurmAllocated"),
        (("IDLE", "DRAIN", "UNDRAIN"), "slurmIdle"),
        (("FUTURE",), ""),
    ],
)
def test_each_slurm_node_is_counted_once(state: tuple[str, ...], counted: str) -> None:
    wanted = nodeset(1)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0, state=state, reason="disk")))
    (status,) = [a.manifest["status"] for a in planned(of, ApplyStatus)][:1]
    counts = {key: status[key] for key in ("slurmIdle", "slurmAllocated", "slurmDown", "slurmDrain")}
    assert {key for key, count in counts.items() if count} == ({counted} if counted else set())
    assert sum(counts.values()) <= 1


def test_a_worker_that_is_replaced_is_told_once_it_is_made() -> None:
    """Scaling up is told as a whole; a single worker that takes the place of another one is told by itself."""
    before = NodeSetStatus(desired=2)
    replaced = [
        (action.reason, action.note)
        for action in planned(
            world(nodeset(2, status=before), *pods(0, rev=revision(nodeset(2))), slurm=known(*records(0))), RecordEvent
        )
        if action.reason == names.EVENT_SUCCESSFUL_CREATE
    ]
    assert replaced == [(names.EVENT_SUCCESSFUL_CREATE, f"created worker gpu-1, revision {revision(nodeset(2))}")]
    grown = world(
        nodeset(2, status=NodeSetStatus(desired=1)), *pods(0, rev=revision(nodeset(2))), slurm=known(*records(0))
    )
    assert created(grown) == ["gpu-1"]
    assert names.EVENT_SUCCESSFUL_CREATE not in events(grown)

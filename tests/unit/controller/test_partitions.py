"""Partitions that no NodeSet asks for: when they may leave slurm.conf, and what is said until then."""

from dataclasses import replace
from typing import Any, cast

import pytest

from slurm_operator.controller import partitions
from slurm_operator.controller.decide import CLOSING_SECONDS, WAITING_SECONDS, decide
from slurm_operator.controller.delivery import Deliveries
from slurm_operator.controller.observe import Observer
from slurm_operator.controller.partitions import (
    UNPROVEN,
    ClosedPartitions,
    Evidence,
    LookAtPartitions,
    Retired,
    leaving,
    retired,
    told,
)
from slurm_operator.desired.config import ControllerFacts
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.references import References
from slurm_operator.runtime.uncreated import Refusals as RefusedPods
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.conf.writer import NodeGroup
from slurm_operator.slurm.jobs import JobList, JobListBuilder
from slurm_operator.slurm.model import Reservation
from slurm_operator.slurm.views import SlurmViews
from tests.fakes.clock import FakeClock
from tests.fakes.slurmrestd import FakeSlurm, FakeSlurmrestd, hang
from tests.unit.controller.make import actions, applied, degraded, deleted, pod, ready, status, verdict, with_status
from tests.unit.controller.test_decide import live, seen
from tests.unit.desired import examples

CLUSTER = ("slurm", "slurm")
SHUT = NodeGroup("small", "State=DRAIN")


def jobs(began_at: float, **named: tuple[int, ...]) -> JobList:
    return JobList(began_at=began_at, partitions=named)


@pytest.mark.parametrize(
    ("in_force", "wanted", "defined", "names"),
    [
        ([NodeGroup("a", "")], [], [], ["a"]),
        ([NodeGroup("a", "")], [NodeGroup("b", "")], [], ["a"]),
        ([NodeGroup("a", "")], [NodeGroup("a")], [], ["a"]),
        ([NodeGroup("a", "")], [NodeGroup("a", "MaxTime=1")], [], []),
        ([NodeGroup("a", "")], [NodeGroup("a")], ["a"], []),
        ([NodeGroup("a")], [], [], []),
        ([], [NodeGroup("a", "")], [], []),
    ],
    ids=["gone", "renamed", "disabled", "changed", "moved to extraConf", "never a partition", "new"],
)
def test_which_partitions_would_leave(
    in_force: list[NodeGroup], wanted: list[NodeGroup], defined: list[str], names: list[str]
) -> None:
    assert [group.name for group in leaving(in_force, wanted, defined)] == names


@pytest.mark.parametrize(
    ("group", "evidence", "kept"),
    [
        (NodeGroup("small", "State=UP"), Evidence(True, jobs(9.0), {}), SHUT),
        (NodeGroup("small", "State=UP"), Evidence(True, jobs(9.0), {"small": 1.0}), SHUT),
        (SHUT, Evidence(True, jobs(9.0), {}), SHUT),
        (SHUT, Evidence(True, None, {"small": 1.0}), SHUT),
        (SHUT, Evidence(False, jobs(9.0), {"small": 1.0}), SHUT),
        (SHUT, Evidence(True, jobs(0.5), {"small": 1.0}), SHUT),
        (SHUT, Evidence(True, jobs(9.0, small=(12,)), {"small": 1.0}), SHUT),
        (SHUT, Evidence(True, jobs(9.0), {"small": 1.0}, unreadable=("odd",)), SHUT),
        (
            NodeGroup("small", "State=UP"),
            Evidence(False, None, {}, unreadable=("odd",)),
            NodeGroup("small", "State=UP"),
        ),
        (SHUT, Evidence(True, jobs(9.0, other=(12,)), {"small": 1.0}), None),
        (SHUT, Evidence(True, jobs(1.0), {"small": 1.0}), None),
    ],
    ids=[
        "open",
        "closed by hand only",
        "not confirmed",
        "jobs unknown",
        "Slurm unknown",
        "jobs read before it was closed",
        "a job",
        "a NodeSet that cannot be read",
        "and it stays open",
        "no job",
        "no job at the second of the answer",
    ],
)
def test_a_partition_leaves_when_it_is_closed_and_no_job_names_it(
    group: NodeGroup, evidence: Evidence, kept: NodeGroup | None
) -> None:
    assert [one.group for one in retired([group], evidence)] == ([kept] if kept is not None else [])


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ((12,), "job 12 names it"),
        ((14, 12), "jobs 12 and 14 name it"),
        ((1, 2, 3), "jobs 1, 2 and 3 name it"),
        (tuple(range(1, 51)), "jobs 1, 2, 3 and 47 more name it"),
    ],
)
def test_a_few_jobs_are_named(ids: tuple[int, ...], text: str) -> None:
    (kept,) = retired([SHUT], Evidence(True, jobs(9.0, small=ids), {"small": 1.0}))
    assert text in kept.why


KEPT = Retired(SHUT, "because job 12 names it", ask=True, confirmed=True)


def looked_at(*kept: Retired, **fields: Any) -> Any:
    facts = ControllerFacts(retired=tuple(one.group for one in kept), claim_templates=None)
    return seen(None, live(), pod(), facts=facts, retired=kept, **fields)


def test_a_kept_partition_is_written_told_and_looked_at_again() -> None:
    plan = decide(looked_at(KEPT))
    assert (
        "PartitionName=small Nodes=small State=DRAIN" in applied(plan)["ConfigMap/slurm-config"]["data"]["slurm.conf"]
    )
    assert (ready(plan), degraded(plan)) == (True, "")
    assert verdict(plan, "Progressing") == (
        "True",
        "PartitionRetired",
        "partition small is kept because job 12 names it",
    )
    assert [action for action in actions(plan) if isinstance(action, LookAtPartitions)] == [
        LookAtPartitions(CLUSTER, ("small",))
    ]
    assert plan.after == WAITING_SECONDS


def test_a_kept_partition_is_told_once() -> None:
    first = looked_at(KEPT)
    again = replace(first, controller=with_status(first.controller, decide(first)))
    assert status(decide(again)) == {}


BUSY = "partition small is kept because job 12 names it; it leaves slurm.conf when they have ended"
OTHER = "partition other is kept because jobs 1 and 2 name it; it leaves slurm.conf when they have ended"


@pytest.mark.parametrize(
    ("why", "before", "text"),
    [
        (UNPROVEN, BUSY, BUSY),
        (UNPROVEN, f"{BUSY}; {OTHER}", BUSY),
        (UNPROVEN, f"{OTHER}; {BUSY}", BUSY),
        (UNPROVEN, OTHER, f"partition small is kept {UNPROVEN}"),
        (UNPROVEN, "partition small is kept until Slurm can be asked", f"partition small is kept {UNPROVEN}"),
        ("because job 13 names it", BUSY, "partition small is kept because job 13 names it"),
        ("until Slurm can be asked", BUSY, "partition small is kept until Slurm can be asked"),
    ],
)
def test_jobs_that_were_named_stand_until_the_jobs_have_been_read_anew(why: str, before: str, text: str) -> None:
    assert told([Retired(SHUT, why, unread=why == UNPROVEN)], before) == text


def test_jobs_that_a_new_list_does_not_name_are_not_named_any_more() -> None:
    """The partition was opened again by hand, so that slurmctld never says that it is closed."""
    assert told(retired([SHUT], Evidence(True, jobs(9.0), {})), BUSY) == f"partition small is kept {UNPROVEN}"


def test_a_partition_that_a_reservation_names_stays() -> None:
    """slurmctld drops a reservation whose partition is gone."""
    named = JobListBuilder(9.0).build([Reservation(name="course", partition="small")])
    (kept,) = retired([SHUT], Evidence(True, named, {"small": 1.0}))
    assert "because reservation course names it" in kept.why


@pytest.mark.parametrize("named", [("course",), ("course", "exam", "maint")])
def test_a_partition_that_a_reservation_may_name_stays(named: tuple[str, ...]) -> None:
    """slurmctld also drops a reservation whose `AllowedPartitions` names it, which slurmrestd does not show."""
    reserved = JobListBuilder(9.0).build([Reservation(name=name, partition="other") for name in named])
    (kept,) = retired([SHUT], Evidence(True, reserved, {"small": 1.0}, unreserved=frozenset({"other"})))
    assert kept.group == SHUT
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    assert f"because reservation course{more} may name it in AllowedPartitions" in kept.why
    assert "controller.slinky.slurm.net/unreserved-partitions=small" in kept.why


def test_an_administrator_says_that_no_reservation_names_a_partition() -> None:
    """That settles what slurmrestd does not show, and nothing else."""
    reserved = JobListBuilder(9.0).build([Reservation(name="course", partition="other")])
    word = frozenset({"small"})
    assert retired([SHUT], Evidence(True, reserved, {"small": 1.0}, unreserved=word)) == ()
    (kept,) = retired([SHUT], Evidence(True, reserved, {}, unreserved=word))
    assert kept.why == UNPROVEN
    named = JobListBuilder(9.0).build([Reservation(name="course", partition="small")])
    (kept,) = retired([SHUT], Evidence(True, named, {"small": 1.0}, unreserved=word))
    assert "reservation course names it" in kept.why


def test_a_slurm_that_was_asked_a_moment_ago_is_not_called_unreachable() -> None:
    (kept,) = retired([SHUT], Evidence(False, None, {}, asking=True))
    assert kept.why == UNPROVEN
    assert decide(looked_at(kept)).after == CLOSING_SECONDS


def test_slurmctld_is_asked_soon_while_it_has_not_taken_up_the_configuration() -> None:
    assert decide(looked_at(replace(KEPT, why=UNPROVEN, confirmed=False))).after == CLOSING_SECONDS
    unasked = decide(looked_at(replace(KEPT, ask=False, confirmed=False)))
    assert not [action for action in actions(unasked) if isinstance(action, LookAtPartitions)]


def test_without_a_kept_partition_nothing_is_asked() -> None:
    plan = decide(looked_at())
    assert plan.after is None
    assert not [action for action in actions(plan) if isinstance(action, LookAtPartitions)]


def test_a_node_set_that_cannot_be_read_is_named_and_nothing_is_deleted() -> None:
    plan = decide(looked_at(unreadable=("odd", "other")))
    assert (ready(plan), degraded(plan)) == (True, "UnreadableNodeSet")
    assert "NodeSet slurm/odd (and 1 more)" in verdict(plan, "Degraded")[2]
    assert deleted(plan) == []
    assert plan.after == WAITING_SECONDS


class Views:
    """One cluster, as far as the question goes."""

    def __init__(self, client: SlurmClient | None) -> None:
        self._client = client

    def client(self, cluster: object) -> SlurmClient | None:
        return self._client


async def test_slurmctld_says_which_partitions_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    slurm = FakeSlurm(clock.now)
    slurm.partitions = {"small": "DRAIN", "big": "UP", "other": "DRAIN"}
    async with FakeSlurmrestd(slurm) as restd, SlurmClient(restd.url, slurm.key, clock) as client:
        closed = ClosedPartitions(cast("SlurmViews", Views(client)), clock)
        asked = ("big", "gone", "small")
        before = clock.monotonic()
        await closed.look(CLUSTER, asked)
        first = closed.closed_at(CLUSTER, asked)
        assert [*first] == ["small"]
        assert before < first["small"] < clock.monotonic()
        await closed.look(CLUSTER, asked)
        assert closed.closed_at(CLUSTER, asked) == first
        monkeypatch.setattr(partitions, "ANSWER_SECONDS", 0.01)
        with slurm.failing(hang()):
            await closed.look(CLUSTER, asked)
        assert closed.closed_at(CLUSTER, asked) == first
        slurm.partitions["small"] = "UP"
        monkeypatch.undo()
        await closed.look(CLUSTER, asked)
        assert closed.closed_at(CLUSTER, asked) == {}


async def test_an_answer_of_long_ago_does_not_count() -> None:
    clock = FakeClock()
    slurm = FakeSlurm(clock.now)
    slurm.partitions = {"small": "DRAIN"}
    async with FakeSlurmrestd(slurm) as restd, SlurmClient(restd.url, slurm.key, clock) as client:
        closed = ClosedPartitions(cast("SlurmViews", Views(client)), clock)
        await closed.look(CLUSTER, ("small",))
        assert [*closed.closed_at(CLUSTER, ("small",))] == ["small"]
        later = clock.monotonic() + partitions.FRESH_SECONDS + 1
        clock.monotonic = lambda: later  # type: ignore[method-assign] # time passes and nothing is asked
        assert closed.closed_at(CLUSTER, ("small",)) == {}


async def test_a_partition_that_was_wanted_again_is_asked_for_anew() -> None:
    clock = FakeClock()
    slurm = FakeSlurm(clock.now)
    slurm.partitions = {"small": "DRAIN"}
    async with FakeSlurmrestd(slurm) as restd, SlurmClient(restd.url, slurm.key, clock) as client:
        closed = ClosedPartitions(cast("SlurmViews", Views(client)), clock)
        await closed.look(CLUSTER, ("small",))
        assert closed.closed_at(CLUSTER, ()) == {}
        assert closed.closed_at(CLUSTER, ("small",)) == {}


async def test_a_cluster_that_is_created_again_is_asked_anew() -> None:
    clock = FakeClock()
    slurm = FakeSlurm(clock.now)
    slurm.partitions = {"small": "DRAIN"}
    async with (
        FakeSlurmrestd(slurm) as restd,
        SlurmClient(restd.url, slurm.key, clock) as client,
        Client(KubeConfig("http://127.0.0.1:1")) as kube,
    ):
        closed, caches = ClosedPartitions(cast("SlurmViews", Views(client)), clock), Caches(kube)
        await closed.look(CLUSTER, ("small",))
        refused, views = RefusedPods(clock), SlurmViews(clock)
        see = Observer(caches, References(caches), views, closed, Deliveries(), refused, clock, domain="", shared={})
        assert see(CLUSTER, ()) is None
        assert closed.closed_at(CLUSTER, ("small",)) == {}


async def test_without_a_rest_api_nothing_is_closed() -> None:
    closed = ClosedPartitions(cast("SlurmViews", Views(None)), FakeClock())
    await closed.look(CLUSTER, ("small",))
    assert closed.closed_at(CLUSTER, ("small",)) == {}


def test_an_external_slurmctld_has_no_partitions_of_ours() -> None:
    plan = decide(seen(examples.controller("external: true\nexternalConfig: {host: ctl, port: 7817}\n")))
    assert "PartitionName" not in applied(plan)["ConfigMap/slurm-config"]["data"]["slurm.conf"]

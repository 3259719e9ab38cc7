"""Each write to Slurm looks once more at its nodes: an administrator may have acted since the last read."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slurm_operator.kube.custom import NODESETS
from slurm_operator.nodeset.slurm_actions import (
    KEPT_SECONDS,
    UNHEARD_SECONDS,
    Drain,
    Forget,
    Release,
    RemoveDrained,
    RemoveUnregistered,
    Resume,
    Undrain,
)
from slurm_operator.runtime.actions import Kube, Patch
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.pace import Pace
from slurm_operator.slurm.rest import Cost
from slurm_operator.slurm.view import SlurmView
from tests.fakes import slurmrestd as fake
from tests.fakes.clock import FakeClock, run_virtual
from tests.fakes.slurmrestd import KEY, FakeNode, FakeSlurm, FakeTransport
from tests.unit.nodeset.make import nodeset, pod

OURS = "slurm-operator: NodeSet slurm/gpu is scaled in"
EMPTY_ANSWER = (
    '{"jobs": [], "last_update": {"set": true, "infinite": false, "number": 0}, "warnings": [{}], "errors": []}'
)
"""What slurmrestd answers if no job has changed since `update_time`."""


class Shell:
    """A cluster of 20 nodes that we drained, seen by a view that reads every 14 seconds."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.clock = FakeClock()
        self.server = FakeSlurm(self.clock.now)
        self.server.add_nodes("gpu-[0-19]", flags=["DYNAMIC_NORM", "DRAIN"], reason=OURS)
        client = SlurmClient("http://slurm", KEY, self.clock, transport=FakeTransport(self.server))
        self.slurm = SlurmView(client, self.clock, pace or Pace(quiet=14.0))
        self.kube = cast("Kube", None)
        self.kept: dict[str, float] = {}
        """Seconds for which each record is left alone."""

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def note_kept(self, names: Iterable[str], seconds: float = KEPT_SECONDS) -> None:
        self.kept.update(dict.fromkeys(names, seconds))

    def node(self, name: str, **change: object) -> FakeNode:
        for field, value in change.items():
            setattr(self.server.nodes[name], field, value)
        self.server.touch()
        return self.server.nodes[name]


@asynccontextmanager
async def running(shell: Shell) -> AsyncIterator[Shell]:
    """Run the view until it knows the cluster, and on."""
    task = asyncio.create_task(shell.slurm.run())
    known = asyncio.Event()
    shell.slurm.subscribe(lambda change: known.set() if isinstance(change.new, Known) else None)
    await known.wait()
    yield shell
    task.cancel()
    await asyncio.wait([task])


@pytest.fixture
async def shell() -> AsyncIterator[Shell]:
    async with running(Shell()) as made:
        yield made


class Dear(Pace, frozen=True, kw_only=True):
    """A list of jobs costs slurmrestd eight seconds, as on a cluster with thousands of jobs."""

    def price(self, cost: Cost) -> float:
        return 8.0 if cost.size > 100_000 else 0.0


async def test_a_drain_that_an_administrator_took_over_is_not_lifted(shell: Shell) -> None:
    shell.node("gpu-0", reason="bad GPU")
    assert (await Undrain(("gpu-0", "gpu-1")).run(shell)).wrote
    assert ("DRAIN" in shell.node("gpu-0").flags, shell.node("gpu-0").reason) == (True, "bad GPU")
    assert "DRAIN" not in shell.node("gpu-1").flags


async def test_a_drained_node_that_went_down_meanwhile_keeps_our_reason(shell: Shell) -> None:
    """Undrained, it would be DOWN without a reason, and its successor would inherit that for ever."""
    reason = "slurm-operator: worker pod is going away"
    shell.node("gpu-0", down=True, reason=reason)
    await Undrain(("gpu-0", "gpu-1")).run(shell)
    assert ("DRAIN" in shell.node("gpu-0").flags, shell.node("gpu-0").reason) == (True, reason)
    assert "DRAIN" not in shell.node("gpu-1").flags


async def test_a_node_that_an_administrator_took_down_is_not_resumed(shell: Shell) -> None:
    shell.node("gpu-0", down=True, reason="hardware")
    shell.node("gpu-1", down=True, reason="slurm-operator: worker pod is going away")
    await Resume(("gpu-0", "gpu-1")).run(shell)
    assert shell.node("gpu-0").down
    assert not shell.node("gpu-1").down


@pytest.mark.parametrize(
    "claim",
    [
        {"reason": "disk"},
        {"flags": ["DYNAMIC_NORM"], "down": True, "reason": "burnt"},
        {"flags": ["FAIL"], "reason": "x"},
    ],
)
@pytest.mark.parametrize("count", [1, 17], ids=["few", "many"])
async def test_a_drain_writes_over_no_claim(shell: Shell, claim: dict[str, object], count: int) -> None:
    claimed = shell.node("gpu-2", **claim)
    await Drain(tuple(f"gpu-{number}" for number in range(2, 2 + count)), "slurm-operator: other").run(shell)
    assert claimed.reason == claim["reason"]
    if count > 1:
        assert shell.node("gpu-3").reason == "slurm-operator: other"


async def test_a_node_that_was_resumed_meanwhile_is_not_drained_without_a_reason(shell: Shell) -> None:
    """Neither side would lift that drain: it is not the administrator's and does not look like ours."""
    shell.node("gpu-2", flags=["DYNAMIC_NORM"], reason="")
    down = shell.node("gpu-3", flags=["DYNAMIC_NORM"], down=True, reason="burnt")
    await Drain(("gpu-2", "gpu-3")).run(shell)
    assert "DRAIN" not in shell.node("gpu-2").flags
    assert ("DRAIN" in down.flags, down.reason) == (True, "burnt")


async def test_a_silent_node_that_slurmctld_took_down_becomes_ours(shell: Shell) -> None:
    """Otherwise its successor inherits a drain that the operator never lifts."""
    shell.node("gpu-2", flags=["NOT_RESPONDING"], down=True, reason="Not responding")
    await Drain(("gpu-2",), OURS).run(shell)
    assert shell.node("gpu-2").reason == OURS


async def test_a_record_that_became_named_or_claimed_is_kept(shell: Shell) -> None:
    shell.server.start_job(1, "gpu-9", required="gpu-[9-10]")
    shell.server.start_job(2, "", state="PENDING", excluded="gpu-11")
    shell.server.reservations["exam"] = {"name": "exam", "node_list": "gpu-12"}
    shell.node("gpu-13", reason="bad disk")
    shell.server.start_job(3, "gpu-14")
    shell.server.suspend_job(3)
    nodes = tuple(f"gpu-{number}" for number in range(9, 16))
    await Forget(nodes).run(shell)
    assert sorted(set(nodes) - shell.server.nodes.keys()) == ["gpu-15"]
    assert shell.kept.keys() == set(nodes) - {"gpu-15"}


def test_no_record_is_deleted_by_a_list_of_jobs_that_is_old() -> None:
    """A list that is too costly to be read again says nothing about a job that was submitted since."""

    async def history() -> None:
        crowded = Shell(Dear())
        for number in range(10, 410):
            crowded.server.start_job(number, "", state="PENDING")
        async with running(crowded):
            await crowded.slurm.read_jobs(30.0)
            await asyncio.sleep(5)
            crowded.server.start_job(1, "", state="PENDING", required="gpu-1")
            await asyncio.sleep(6)
            assert not (await Forget(("gpu-1",)).run(crowded)).wrote
            assert ("gpu-1" in crowded.server.nodes, crowded.kept) == (True, {})
            await asyncio.sleep(60)
            assert not (await Forget(("gpu-1",)).run(crowded)).wrote
            assert ("gpu-1" in crowded.server.nodes, crowded.kept) == (True, {"gpu-1": KEPT_SECONDS})
            crowded.server.end_job(1)
            await asyncio.sleep(60)
            assert (await Forget(("gpu-1",)).run(crowded)).wrote

    run_virtual(history())


@pytest.mark.parametrize("suspended", [False, True])
@pytest.mark.parametrize("minutes", [3, 15], ids=["still behind", "caught up"])
def test_a_clock_that_was_set_back_hides_no_job(minutes: int, suspended: bool) -> None:
    """slurmctld was ten minutes ahead: until then "nothing changed since" is true of everything that happens."""

    async def history() -> None:
        shell = Shell()
        ahead = [600.0]
        shell.server.now = lambda: shell.clock.now() + ahead[0]
        shell.server.start_job(1, "", state="PENDING")
        async with running(shell):
            await shell.slurm.read_jobs(0)
            ahead[0] = 0.0
            await asyncio.sleep(120)
            if suspended:
                shell.server.start_job(2, "gpu-9")
                shell.server.suspend_job(2)
            else:
                shell.server.start_job(2, "", state="PENDING", required="gpu-9")
            await asyncio.sleep(minutes * 60 - 120)
            await Forget(("gpu-9",)).run(shell)
            assert "gpu-9" in shell.server.nodes

    run_virtual(history())


@pytest.mark.parametrize("text", [EMPTY_ANSWER, ""], ids=["empty", "nothing changed"])
async def test_an_answer_without_jobs_to_the_first_question_is_not_believed(shell: Shell, text: str) -> None:
    shell.server.start_job(2, "", state="PENDING", required="gpu-9")
    fault = fake.Fault(status=200 if text else 304, text=text.encode(), only=lambda call: call.startswith("GET jobs/"))
    with shell.server.failing(fault), pytest.raises(SlurmError):
        await Forget(("gpu-9",)).run(shell)
    assert "gpu-9" in shell.server.nodes


@pytest.mark.parametrize("registered", [False, True])
async def test_a_pod_that_registered_since_the_last_read_is_not_deleted(shell: Shell, registered: bool) -> None:
    name = "gpu-1" if registered else "gpu-99"
    worker = pod(name, ip="10.0.0.9")
    if registered:
        shell.node(name, address=worker.status.pod_ip)
    seen = (await shell.slurm.look((name,))).get(name)
    assert RemoveUnregistered(worker, name).allows(seen) is not registered


async def test_no_record_is_deleted_while_the_jobs_cannot_be_listed(shell: Shell) -> None:
    with (
        shell.server.failing(fake.Fault(status=500, only=lambda call: call.startswith("GET jobs/"))),
        pytest.raises(SlurmError),
    ):
        await Forget(("gpu-0",)).run(shell)
    assert "gpu-0" in shell.server.nodes


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (fake.refuse(422, 2016), KEPT_SECONDS),
        (fake.refuse(500), UNHEARD_SECONDS),
        (fake.refuse(502), UNHEARD_SECONDS),
        (fake.refuse(401), UNHEARD_SECONDS),
        (fake.killed(), UNHEARD_SECONDS),
        (fake.garbage(), UNHEARD_SECONDS),
    ],
    ids=["nodes are busy", "failed", "no slurmctld", "another key", "connection lost", "garbage"],
)
async def test_a_deletion_that_was_not_refused_is_tried_again_soon(
    shell: Shell, fault: fake.Fault, seconds: float
) -> None:
    only = replace(fault, only=lambda call: call.startswith("DELETE"))
    with shell.server.failing(only), pytest.raises(SlurmError):
        await Forget(("gpu-0",)).run(shell)
    assert shell.kept == {"gpu-0": seconds}


@pytest.mark.parametrize("busy", [False, True], ids=["free", "suspended job"])
async def test_a_drained_pod_with_a_suspended_job_is_not_deleted(shell: Shell, busy: bool) -> None:
    """It was resumed, took a job, and was drained again since the list of jobs was read; its node shows IDLE."""
    shell.node("gpu-1", reason="bad disk")
    await shell.slurm.read_jobs(30.0)
    if busy:
        shell.server.start_job(1, "gpu-1")
        shell.server.suspend_job(1)
    await asyncio.sleep(2)
    client = Deletions()
    shell.kube = cast("Kube", SimpleNamespace(client=client))
    await RemoveDrained(pod("gpu-1"), "gpu-1").run(shell)
    assert client.names == ([] if busy else ["gpu-1"])


class Deletions:
    def __init__(self) -> None:
        self.names: list[str] = []

    async def delete(self, resource: object, name: str, *_: object, **__: object) -> None:
        self.names.append(name)


@pytest.mark.parametrize(
    ("left", "released"),
    [({}, True), ({"gpu-30": {"flags": ["DYNAMIC_NORM"]}}, False), ({"gpu-30": {"reason": "bad disk"}}, True)],
    ids=["no record", "registered meanwhile", "an administrator's"],
)
async def test_a_nodeset_goes_unless_a_worker_of_it_registered_meanwhile(
    shell: Shell, left: dict[str, dict[str, Any]], released: bool
) -> None:
    patched: list[str] = []

    async def patch(resource: object, name: str, *_: object, **__: object) -> object:
        patched.append(name)
        return nodeset()

    for name, fields in left.items():
        shell.server.add_nodes(name, **{"flags": ["DYNAMIC_NORM", "DRAIN"], **fields})
    shell.kube = cast("Kube", SimpleNamespace(client=SimpleNamespace(patch=patch), saw=lambda *_: None))
    done = await Release(Patch(NODESETS, "slurm", "gpu", {}), ("gpu-30", "gpu-31")).run(shell)
    assert (done.wrote, patched) == (released, ["gpu"] if released else [])
    assert (done.after is None) is released

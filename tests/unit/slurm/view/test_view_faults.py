"""The view when slurmrestd or slurmctld fail: it says so at once, says why, and recovers by itself."""

import asyncio
from dataclasses import replace

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.rest import DEADLINE
from slurm_operator.slurm.transport import MOST_IN_FLIGHT
from tests.fakes import slurmrestd as fake
from tests.unit.slurm.view.conftest import Watched


def unknown(state: object) -> bool:
    return isinstance(state, Unknown)


def known(state: object) -> bool:
    return isinstance(state, Known)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (fake.refuse(511, 1007), errors.AuthFailed),
        (fake.refuse(401), errors.AuthFailed),
        (fake.refuse(500), errors.ServerFailed),
        (fake.refuse(502, 1800), errors.ControllerDown),
        (fake.refuse(504, 5004), errors.ControllerBusy),
        (fake.garbage(), errors.Garbage),
        (fake.garbage(b"{}"), errors.Garbage),
        (fake.killed(), errors.Unreachable),
    ],
)
async def test_a_failure_is_told_within_five_seconds(
    cluster: Watched, fault: fake.Fault, error: type[errors.SlurmError]
) -> None:
    before = cluster.known
    with cluster.slurm.failing(fault):
        assert await cluster.until(unknown) < 5
        state = cluster.view.state
        assert isinstance(state, Unknown)
        assert type(state.error) is error
        assert state.why == str(state.error)
        assert state.last is not None
        assert state.last.nodes == before.nodes
        assert cluster.changes[-1].new == state
        await asyncio.sleep(60)
        assert isinstance(cluster.view.state, Unknown)
        assert cluster.view.state.since == state.since
        assert len(cluster.changes) == 1
    assert await cluster.until(known) <= 6
    assert cluster.changes[-1].names == frozenset()


async def test_a_failing_slurm_is_asked_every_few_seconds(cluster: Watched) -> None:
    with cluster.slurm.failing(fake.refuse(500)):
        await asyncio.sleep(10)
        cluster.slurm.calls.clear()
        await asyncio.sleep(60)
        assert 10 <= len(cluster.slurm.calls) <= 15


async def test_late_is_not_unknown(cluster: Watched) -> None:
    began = cluster.known.began_at
    with cluster.slurm.failing(fake.slow(30)):
        await asyncio.sleep(25)
        assert known(cluster.view.state)
        assert cluster.known.began_at - began < 3
        await asyncio.sleep(200)
        assert known(cluster.view.state)
    assert cluster.changes == []


async def test_a_hung_slurm_is_unknown_once_its_deadline_has_passed(cluster: Watched) -> None:
    """scenario 165"""
    with cluster.slurm.failing(fake.hang()):
        await cluster.until(unknown, within=DEADLINE + 5)
        state = cluster.view.state
        assert isinstance(state, Unknown)
        assert isinstance(state.error, errors.DeadlineExceeded)
    assert await cluster.until(known) < DEADLINE + 6


async def test_writes_fail_at_once_while_the_circuit_is_open(cluster: Watched) -> None:
    with cluster.slurm.failing(fake.killed()):
        await asyncio.sleep(10)
        cluster.slurm.calls.clear()
        with pytest.raises((errors.CircuitOpen, errors.Unreachable)):
            await cluster.view.drain(["w-1"], "slurm-operator: x")
        with pytest.raises(errors.CircuitOpen):
            await cluster.view.drain(["w-1"], "slurm-operator: x")
        assert cluster.slurm.count("POST") <= 1
    await cluster.until(known)
    await cluster.view.drain(["w-1"], "slurm-operator: x")


async def test_what_changed_during_an_outage_is_told_at_its_end(cluster: Watched) -> None:
    with cluster.slurm.failing(fake.refuse(500)):
        await cluster.until(unknown)
        cluster.slurm.start_job(1, "w-3")
    change = await cluster.change()
    assert change.names == {"w-3"}
    assert isinstance(change.old, Unknown)


async def test_a_new_key_is_used_at_once(cluster: Watched) -> None:
    """scenario 161"""
    cluster.slurm.key = b"rotated"
    await cluster.until(unknown)
    await asyncio.sleep(30)
    cluster.view.set_key(b"rotated")
    assert await cluster.until(known) < 0.5


async def test_restart_with_its_state(cluster: Watched) -> None:
    epoch = cluster.known.epoch
    cluster.slurm.restart()
    await asyncio.sleep(2)
    assert cluster.known.epoch == epoch + 1
    assert cluster.known.boot == cluster.slurm.boot
    assert cluster.changes == []


async def test_restart_without_its_state_is_not_believed_at_once(cluster: Watched) -> None:
    cluster.slurm.restart(empty=True)
    assert await cluster.until(unknown) < 5
    state = cluster.view.state
    assert isinstance(state, Unknown)
    assert "no record of 5 of its nodes" in state.why
    cluster.slurm.add_nodes("w-[0-4]")
    assert await cluster.until(known) < 2
    assert cluster.known.nodes.keys() == {f"w-{at}" for at in range(5)}


async def test_a_second_restart_does_not_make_the_loss_forgotten(cluster: Watched) -> None:
    """slurmctld may tell two start times within a second of its start"""
    cluster.slurm.restart(empty=True)
    await cluster.until(unknown)
    await asyncio.sleep(2)
    cluster.slurm.restart()
    await asyncio.sleep(5)
    assert unknown(cluster.view.state)


async def test_restart_without_its_state_is_believed_in_the_end(cluster: Watched) -> None:
    cluster.slurm.restart(empty=True)
    await cluster.until(unknown)
    assert 25 < await cluster.until(known) < 40
    assert cluster.known.nodes == {}
    assert cluster.changes[-1].names == {f"w-{at}" for at in range(5)}


async def test_nodes_that_we_deleted_are_not_missed_after_a_restart(cluster: Watched) -> None:
    await cluster.view.delete(["w-0"])
    cluster.slurm.restart()
    await asyncio.sleep(3)
    assert known(cluster.view.state)


async def test_another_address_means_another_slurm(cluster: Watched) -> None:
    await cluster.view.drain(["w-1"], "slurm-operator: x")
    cluster.view.set_url("http://elsewhere")
    assert unknown(cluster.view.state)
    assert await cluster.until(known) < 0.5
    assert cluster.known.pending == frozenset()


async def test_an_answer_of_the_old_address_under_way_does_not_count(cluster: Watched) -> None:
    cluster.slurm.touch()
    cluster.slurm.list_seconds = 3
    await asyncio.sleep(1.5)
    cluster.view.set_url("http://elsewhere")
    await asyncio.sleep(2)
    assert unknown(cluster.view.state)
    await cluster.until(known)


async def test_a_clock_of_slurmctld_that_goes_back_hides_nothing_for_long(cluster: Watched) -> None:
    """Changes dated before the last answer look like none"""
    cluster.clock.jump(-3600)
    cluster.slurm.start_job(1, "w-1")
    await cluster.until(lambda state: "ALLOCATED" in cluster.known.nodes["w-1"].state, within=65)


async def test_calls_that_wait_for_others_are_not_late_but_fail_with_them(cluster: Watched) -> None:
    """Each call has its whole deadline once it is sent; behind calls that ran into theirs it is not sent any more."""
    names = [f"w-{number}" for number in range(5)]
    with cluster.slurm.failing(fake.slow(20)):
        slow = await asyncio.gather(*(cluster.client.node(name) for name in names * 3))
    assert [found.name for found in slow] == names * 3
    cluster.slurm.calls.clear()
    began = cluster.clock.monotonic()
    with cluster.slurm.failing(replace(fake.hang(), only=lambda call: call.startswith("GET node/"))):
        hung = await asyncio.gather(*(cluster.client.node(name) for name in names * 3), return_exceptions=True)
    assert {type(error) for error in hung} == {errors.DeadlineExceeded, errors.CircuitOpen}
    assert cluster.slurm.count("GET node/") == MOST_IN_FLIGHT
    assert cluster.clock.monotonic() - began == pytest.approx(DEADLINE)


async def test_a_poll_waits_for_no_other_call(cluster: Watched) -> None:
    only = replace(fake.slow(40), only=lambda call: call.startswith("GET node/"))
    with cluster.slurm.failing(only):
        calls = [asyncio.create_task(cluster.client.node("w-1")) for _ in range(20)]
        for _ in range(30):
            cluster.slurm.touch()  # so that it also asks when slurmctld started
            await asyncio.sleep(1)
            assert cluster.clock.monotonic() - cluster.known.began_at <= 1.0
        await asyncio.gather(*calls)

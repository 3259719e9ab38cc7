"""The live view of a real Slurm: fresh while it answers, honest when it does not, back by itself."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from slurm_local.lab import SlurmLab
from slurm_operator.slurm import errors
from slurm_operator.slurm.known import Change, Known, State, Unknown
from slurm_operator.slurm.rest import Cost
from slurm_operator.slurm.states import is_busy, is_drained
from slurm_operator.slurm.views import ClusterKey, SlurmViews
from tests.e2e.slurm_rest import Clock, cancel, client_of, run_external, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

RED, BLUE = ("red", "slurm"), ("blue", "slurm")


class Watch:
    """A cluster that is played with, and another that nothing must happen to."""

    def __init__(self, red: SlurmLab, blue: SlurmLab) -> None:
        self.red, self.blue = red, blue
        self.costs: list[tuple[ClusterKey, Cost]] = []
        self.heard: list[tuple[ClusterKey, Change]] = []
        self.views = SlurmViews(Clock(), observe=lambda cluster, cost: self.costs.append((cluster, cost)))
        self.views.subscribe(lambda cluster, change: self.heard.append((cluster, change)))
        self.view = self.views.set(RED, red.url, red.jwt_key)
        self.views.set(BLUE, blue.url, blue.jwt_key)

    async def until(self, holds: Callable[[State], bool], within: float) -> float:
        began = time.monotonic()
        while not holds(self.view.state):
            assert time.monotonic() - began < within, self.view.state
            self.blue_is_well()
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def until_known(self, within: float = 20.0) -> Known:
        await self.until(lambda state: isinstance(state, Known), within)
        assert isinstance(self.view.state, Known)
        return self.view.state

    async def until_a_restart_can_be_told(self) -> Known:
        """Slurm tells starts apart by the second, and the last test may have ended with one."""
        await self.until(lambda state: isinstance(state, Known) and time.time() >= state.boot + 1, 20)
        return known(self.view.state)

    async def until_unknown(self, within: float) -> Unknown:
        await self.until(lambda state: isinstance(state, Unknown), within)
        assert isinstance(self.view.state, Unknown)
        return self.view.state

    async def both_known(self) -> bool:
        return all(isinstance(self.views.state(cluster), Known) for cluster in (RED, BLUE))

    def blue_is_well(self) -> None:
        state = self.views.state(BLUE)
        assert isinstance(state, Known)
        assert time.monotonic() - state.began_at < 4


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watch() -> AsyncIterator[Watch]:
    async with SlurmLab(nodes=20) as red, SlurmLab(nodes=20) as blue:
        watch = Watch(red, blue)
        await until(watch.both_known)
        yield watch
        await watch.views.close()


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def well(watch: Watch) -> None:
    await watch.until_known()
    watch.heard.clear()


async def test_at_rest(watch: Watch) -> None:
    await asyncio.sleep(3)
    watch.costs.clear()
    watch.heard.clear()
    await asyncio.sleep(10)
    mine = [cost for cluster, cost in watch.costs if cluster == RED]
    assert len(mine) <= 10
    assert {cost.outcome for cost in mine} == {"304"}
    assert watch.heard == []


async def test_a_change_by_an_administrator(watch: Watch) -> None:
    """scenario 168"""
    await watch.red.scontrol("update nodename=n-03 state=drain reason=disk")
    assert await watch.until(lambda state: "DRAIN" in (known(state)).nodes["n-03"].state, 5) < 2
    assert [change.names for cluster, change in watch.heard if cluster == RED] == [{"n-03"}]
    await watch.view.undrain(["n-03"])


async def test_a_job_comes_and_goes(watch: Watch) -> None:
    async with client_of(watch.red) as client:
        job_id = await run_external(client, "n-05", tasks=3)
        await watch.until(lambda state: is_busy(known(state).nodes["n-05"].state), 5)
        assert (await watch.view.read_jobs(0)).latest.keys() == {"n-05"}
        await cancel(client, job_id)
        await watch.until(lambda state: not is_busy(known(state).nodes["n-05"].state), 5)
        assert (await watch.view.read_jobs(0)).latest == {}


async def test_a_drain_is_seen_at_once_and_confirmed_by_a_later_read(watch: Watch) -> None:
    names = [f"n-{number:02}" for number in range(10, 21)]
    watch.costs.clear()
    await watch.view.drain(names, "slurm-operator: test")
    acked = time.monotonic()
    seen = known(watch.view.state).seen("n-11")
    assert seen.node
    assert is_drained(seen.node.state)
    assert not seen.confirmed
    assert await watch.until(lambda state: known(state).seen("n-11").confirmed, 5) < 2
    assert known(watch.view.state).seen("n-11").began_at > acked
    assert sum(cost.call.startswith("POST") for _, cost in watch.costs) == 1
    await watch.view.undrain(names)


@pytest.mark.parametrize("deleted_by", ["operator", "administrator"])
async def test_the_last_records_are_deleted(watch: Watch, deleted_by: str) -> None:
    """slurmctld does not count that as a change: polls go on to say that nothing changed."""
    names = [*known(watch.view.state).nodes]
    await asyncio.sleep(2)  # into a second in which nothing changes: slurmctld tells changes apart by the second
    try:
        if deleted_by == "operator":
            await watch.view.delete(names)
        else:
            await watch.red.scontrol("delete nodename=n-[01-20]")
            assert await watch.view.look(names[:3]) == {}
        await watch.until(lambda state: not known(state).nodes and not known(state).pending, 5)
        polled = known(watch.view.state).began_at + 2
        await watch.until(lambda state: known(state).began_at > polled, 10)
        assert known(watch.view.state).nodes == {}
    finally:
        await watch.red.add_nodes("n-[01-20]", "CPUs=16 RealMemory=64000")
    await watch.until(lambda state: len(known(state).nodes) == 20, 5)


async def test_slurmrestd_killed(watch: Watch) -> None:
    await watch.red.slurmrestd.kill()
    try:
        assert isinstance((await watch.until_unknown(5)).error, errors.Unreachable)
    finally:
        await watch.red.slurmrestd.start()
    await watch.until_known(10)


async def test_slurmctld_stopped(watch: Watch) -> None:
    await watch.red.slurmctld.stop()
    try:
        assert isinstance((await watch.until_unknown(20)).error, errors.ControllerDown)
    finally:
        await watch.red.slurmctld.start()
    await watch.until_known(20)


async def test_slurmrestd_slow_is_not_unknown(watch: Watch) -> None:
    """scenario 165"""
    watch.red.slurmrestd.hang()
    try:
        before = known(watch.view.state).began_at
        await asyncio.sleep(15)
        watch.blue_is_well()
        assert known(watch.view.state).began_at - before < 3
    finally:
        watch.red.slurmrestd.resume()
    await watch.until(lambda state: time.monotonic() - known(state).began_at < 2, 10)


async def test_the_key_is_rotated(watch: Watch) -> None:
    """scenario 161"""
    new = b"another key, another day"
    old = watch.red.config("jwt.key").read_bytes()
    watch.red.config("jwt.key").write_bytes(new)
    await watch.red.slurmctld.restart()
    await watch.red.ready()
    try:
        assert isinstance((await watch.until_unknown(15)).error, errors.AuthFailed | errors.ControllerDown)
        watch.views.set(RED, watch.red.url, new)
        await watch.until_known(15)
    finally:
        watch.red.config("jwt.key").write_bytes(old)
        await watch.red.slurmctld.restart()
        await watch.red.ready()
        watch.views.set(RED, watch.red.url, old)


async def test_slurmctld_restarted_with_its_state(watch: Watch) -> None:
    before = await watch.until_a_restart_can_be_told()
    await watch.red.slurmctld.restart()
    await watch.red.ready()
    await watch.until(lambda state: isinstance(state, Known) and state.epoch > before.epoch, 20)
    after = known(watch.view.state)
    assert after.nodes.keys() == before.nodes.keys()
    assert after.boot > before.boot


async def test_slurmctld_restarted_without_its_state(watch: Watch) -> None:
    await watch.until_a_restart_can_be_told()
    await watch.red.wipe_state()
    state = await watch.until_unknown(15)
    await watch.until(lambda state: isinstance(state, Unknown) and "no record of 20" in state.why, 15)
    assert state.last
    assert len(state.last.nodes) == 20
    await watch.red.add_nodes("n-[01-20]", "CPUs=16 RealMemory=64000")
    assert len((await watch.until_known(10)).nodes) == 20


def known(state: State) -> Known:
    assert isinstance(state, Known), state
    return state

"""A large busy cluster: lists are dear, so they come seldom, and single nodes are read in between."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from slurm_operator.slurm.known import Known
from slurm_operator.slurm.pace import Budget, Pace
from slurm_operator.slurm.rest import Cost
from tests.fakes.clock import FakeClock
from tests.unit.slurm.view.conftest import Watched

LIST_SECONDS = 0.6


@pytest.fixture
async def large(clock: FakeClock) -> AsyncIterator[Watched]:
    """1,500 nodes (1.5 MB); a list takes 0.6 s, so they may come every 4.3 s."""
    watched = Watched(clock, Pace(seconds_per_byte=1e-6))
    watched.slurm.add_nodes("w-[0-1499]")
    watched.slurm.list_seconds = LIST_SECONDS
    await asyncio.sleep(10)
    task = asyncio.create_task(watched.view.run())
    await watched.until(lambda state: isinstance(state, Known))
    await asyncio.sleep(10)
    watched.slurm.calls.clear()
    watched.changes.clear()
    yield watched
    task.cancel()
    await asyncio.wait([task])


async def busy(cluster: Watched, seconds: int) -> None:
    for _ in range(seconds):
        cluster.slurm.touch()
        await asyncio.sleep(1)


async def test_lists_take_no_more_than_their_share(large: Watched) -> None:
    await busy(large, 60)
    large.slurm.calls.clear()
    await busy(large, 100)
    assert large.slurm.count("GET diag/") * LIST_SECONDS <= 15
    assert large.clock.monotonic() - large.known.began_at < 6


async def test_a_list_that_somebody_waits_for_comes_at_once(large: Watched) -> None:
    await busy(large, 60)
    await large.view.drain([f"w-{at}" for at in range(1000)], "slurm-operator: x")
    assert await large.until(lambda state: not large.known.pending) < 2 * LIST_SECONDS + 0.2


async def test_watched_nodes_are_known_within_a_second(large: Watched) -> None:
    await busy(large, 2)
    large.view.watch_nodes("scale-in", ["w-7", "w-8"])
    await asyncio.sleep(1.1)
    large.slurm.start_job(1, "w-7")
    before = large.clock.monotonic()
    change = await large.change()
    assert change.names == {"w-7"}
    assert large.clock.monotonic() - before <= 1.1
    assert large.seen("w-7").began_at > large.known.began_at
    large.slurm.end_job(1)
    before = large.clock.monotonic()
    assert (await large.change()).names == {"w-7"}
    assert large.clock.monotonic() - before <= 1.1
    assert large.known.nodes["w-7"].state[0] == "IDLE"
    large.view.watch_nodes("scale-in", [])
    await asyncio.sleep(3)
    large.slurm.calls.clear()
    await busy(large, 10)
    assert large.slurm.count("GET node/") == 0


async def test_many_watched_nodes_take_turns(large: Watched) -> None:
    large.view.watch_nodes("a", [f"w-{at}" for at in range(40)])
    await busy(large, 10)
    read = {call for call in large.slurm.calls if call.startswith("GET node/")}
    assert len(read) == 40
    assert large.slurm.count("GET node/") <= 16 * 11


async def test_a_write_is_read_back_singly(large: Watched) -> None:
    large.slurm.calls.clear()
    await large.view.drain(["w-5"], "slurm-operator: x")
    acked = large.clock.monotonic()
    assert (await large.change()).names == {"w-5"}
    assert large.clock.monotonic() - acked < 0.2
    assert large.slurm.calls[:3] == ["POST node/w-5", "GET nodes/", "GET node/w-5"]
    assert large.seen("w-5").confirmed


async def test_an_older_list_does_not_overwrite_a_newer_single_read(large: Watched) -> None:
    large.slurm.touch()
    lists = large.slurm.count("GET diag/")
    await asyncio.sleep(1.1)
    await large.view.drain(["w-5"], "slurm-operator: x")
    assert (await large.change()).names == {"w-5"}
    assert large.slurm.count("GET diag/") == lists, "the list from before the drain is still under way"
    assert large.seen("w-5").confirmed
    await asyncio.sleep(LIST_SECONDS)
    assert large.slurm.count("GET diag/") == lists + 1
    assert "DRAIN" in large.known.nodes["w-5"].state
    assert large.seen("w-5").confirmed


async def test_a_watched_node_that_goes_is_told(large: Watched) -> None:
    large.view.watch_nodes("a", ["w-5"])
    await asyncio.sleep(2)
    del large.slurm.nodes["w-5"]
    assert (await large.change()).names == {"w-5"}
    assert large.seen("w-5").node is None


async def test_a_watched_node_that_an_empty_slurmctld_lacks_is_not_told_as_gone(large: Watched) -> None:
    """It may have lost its state, which only a list shows."""
    large.view.watch_nodes("a", ["w-5"])
    await asyncio.sleep(2)
    large.changes.clear()
    large.slurm.restart(empty=True)
    await large.until(lambda state: not isinstance(state, Known))
    assert not any("w-5" in change.names for change in large.changes)


@pytest.mark.parametrize(
    ("seconds", "size", "period"),
    [
        (0.004, 10_000, 1.0),
        (0.13, 2_500_000, 1.0),
        (1.0, 12_700_000, 7.7),
        (2.9, 25_500_000, 22.3),
        (30.0, 250_000, 1.0),
    ],
)
def test_the_period_follows_the_price(seconds: float, size: int, period: float) -> None:
    pace = Pace()
    assert pace.period(pace.price(Cost("GET nodes", seconds, size, "200"))) == pytest.approx(period, abs=0.1)


def test_a_budget_saves_up_and_runs_dry() -> None:
    now = 0.0
    budget = Budget(lambda: now, share=0.1, credit=6.0, longest=30.0)
    assert budget.wait() == budget.wait(reserve=0.5) == 0.0
    budget.spend(4.0)
    assert budget.wait() == 0.0
    assert budget.wait(reserve=0.5) == pytest.approx(10.0)
    budget.spend(3.0)
    assert budget.wait() == pytest.approx(10.0)
    budget.spend(100.0)
    assert budget.wait() == 30.0
    now = 10_000.0
    assert budget.wait(reserve=1.0) == 0.0

"""Background tasks: kept alive without taking anybody along."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from slurm_operator.errors import UserError
from slurm_operator.runtime.background import Background
from tests.fakes.clock import FakeClock


@pytest.fixture
async def background(clock: FakeClock) -> AsyncIterator[Background]:
    background = Background(clock)
    running = asyncio.create_task(background.run())
    await asyncio.sleep(0)
    yield background
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_failing_task_is_started_again_later_each_time(
    background: Background, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[float] = []

    async def poll() -> None:
        starts.append(clock.monotonic())
        if len(starts) < 6:
            raise UserError("slurmrestd does not answer") if len(starts) < 5 else ValueError("a bug")
        await asyncio.Event().wait()

    background.keep("poller", poll)
    await clock.sleep(200)
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert len(gaps) == 5
    assert all(0.75 * 2**n <= gap <= 2**n for n, gap in enumerate(gaps))
    assert background.restarts == {"poller": 5}
    assert "poller failed, started again" in caplog.text
    assert [bool(record.exc_info) for record in caplog.records] == [False] * 4 + [True]


async def test_a_failure_after_a_long_good_time_is_a_first_one(background: Background, clock: FakeClock) -> None:
    starts: list[float] = []

    async def poll() -> None:
        starts.append(clock.monotonic())
        await clock.sleep(1000)
        raise ValueError

    background.keep("poller", poll)
    await clock.sleep(10_000)
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert all(gap <= 1001 for gap in gaps)


async def test_tasks_come_and_go_while_others_run(background: Background, clock: FakeClock) -> None:
    ticks: list[str] = []

    def ticking(name: str) -> None:
        async def tick() -> None:
            while True:
                ticks.append(name)
                await clock.sleep(10)

        background.keep(name.split("-")[0], tick)

    ticking("a")
    ticking("b")
    await clock.sleep(15)
    background.drop("a")
    background.drop("nobody")
    ticking("b-new")
    await clock.sleep(9)
    assert ticks == ["a", "b", "a", "b", "b-new"]


async def test_a_task_may_end(background: Background, clock: FakeClock) -> None:
    async def once() -> None:
        return None

    background.keep("once", once)
    await clock.sleep(100)
    assert background.restarts == {}


async def test_what_is_kept_before_the_start_starts_with_the_rest(clock: FakeClock) -> None:
    background, started = Background(clock), asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    background.keep("early", wait)
    assert not started.is_set()
    running = asyncio.create_task(background.run())
    await started.wait()
    running.cancel()

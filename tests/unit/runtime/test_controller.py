"""The controller as an operator of the operator sees it: retries, results, log lines."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from slurm_operator.kube.errors import Call, Conflict, TooManyRequests
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.controller import Controller, retry_after, without_worker
from slurm_operator.runtime.execute import Failure, PlanError
from slurm_operator.runtime.plan import Result, TerminalError
from slurm_operator.runtime.queue import Queue
from tests.fakes.clock import FakeClock

A, B = ("ns", "a"), ("ns", "b")
CALL = Call("patch", "pods", "Pod", "p", "ns")
Script = Callable[[int], Awaitable[Result]]


class Bench:
    """A controller whose reconcile follows a script per key: `script(attempt)`."""

    def __init__(self, clock: FakeClock, **scripts: Script) -> None:
        self.queue = Queue("test", clock=clock)
        self.seen: list[tuple[str, float]] = []
        self.scripts = scripts
        self.clock = clock
        self.controller = Controller("test", self.queue, self.reconcile, workers=2, deadline=60, clock=clock)

    async def reconcile(self, key: Key) -> Result:
        name = key[1]
        attempt = sum(1 for seen, _ in self.seen if seen == name)
        self.seen.append((name, self.clock.monotonic()))
        return await self.scripts[name](attempt)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.controller.run())
        try:
            yield
        finally:
            self.queue.shut_down()
            await asyncio.wait_for(task, 1000)

    def count(self, name: str) -> int:
        return sum(1 for seen, _ in self.seen if seen == name)


async def fine(attempt: int) -> Result:
    return Result()


async def test_a_success_is_looked_at_once(clock: FakeClock) -> None:
    bench = Bench(clock, a=fine)
    async with bench.running():
        bench.queue.add(A)
        await clock.sleep(3600)
    assert bench.count("a") == 1
    assert bench.controller.stats.results["success"] == 1
    assert bench.controller.stats.active == 0


async def test_a_wish_to_look_again_is_kept(clock: FakeClock) -> None:
    async def script(attempt: int) -> Result:
        return Result(after=30.0 if attempt == 0 else None)

    bench = Bench(clock, a=script)
    async with bench.running():
        bench.queue.add(A)
        await clock.sleep(100)
    assert [time for _, time in bench.seen] == [0, pytest.approx(30)]
    assert bench.controller.stats.results["requeue_after"] == 1


async def test_a_failure_is_retried_later_and_later_and_logged_once(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(attempt: int) -> Result:
        if attempt < 8:
            raise Conflict(CALL, "changed meanwhile")
        return Result()

    caplog.set_level(logging.INFO)
    bench = Bench(clock, a=script)
    async with bench.running():
        bench.queue.add(A)
        await clock.sleep(10)
        assert bench.queue.failures(A) == 0
    times = [time for _, time in bench.seen]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) == 8
    assert all(later > earlier for earlier, later in pairwise(gaps))
    failed, recovered = (record.getMessage() for record in caplog.records)
    assert failed.endswith(": Conflict: cannot patch pods 'p' in namespace 'ns': changed meanwhile")
    assert recovered == "recovered after 8 retries"
    assert caplog.records[0].exc_info is None
    assert bench.controller.stats.results["error"] == 8


async def test_a_failure_that_changes_is_logged_again(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    async def script(attempt: int) -> Result:
        raise ValueError("first" if attempt < 3 else "second")

    bench = Bench(clock, a=script)
    async with bench.running():
        bench.queue.add(A)
        await clock.sleep(60)
    assert ["first" in record.getMessage() for record in caplog.records] == [True, False]
    assert all(record.exc_info for record in caplog.records)


async def test_a_terminal_failure_waits_for_a_change(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    async def script(attempt: int) -> Result:
        raise TerminalError("no such partition")

    bench = Bench(clock, a=script)
    async with bench.running():
        bench.queue.add(A)
        await clock.sleep(3600)
        assert bench.count("a") == 1
        bench.queue.add(A)
        await clock.sleep(3600)
    assert bench.count("a") == 2
    assert len(caplog.records) == 1
    assert "not retried until something changes: TerminalError: no such partition" in caplog.text
    assert bench.controller.stats.terminal == 2


async def test_a_reconcile_that_hangs_is_cancelled_and_retried(clock: FakeClock) -> None:
    async def hangs(attempt: int) -> Result:
        if attempt == 0:
            await asyncio.sleep(1e6)
        return Result()

    bench = Bench(clock, a=hangs, b=fine)
    async with bench.running():
        bench.queue.add(A)
        bench.queue.add(B)
        await clock.sleep(100)
    assert bench.seen[1] == ("b", 0)
    name, time = bench.seen[2]
    assert name == "a"
    assert time == pytest.approx(60, abs=0.1)
    assert bench.controller.stats.timeouts == 1
    assert bench.controller.stats.results["error"] == 1


async def test_whatever_a_reconcile_raises_its_worker_lives(clock: FakeClock) -> None:
    async def cancels_itself(attempt: int) -> Result:
        if attempt == 0:
            raise asyncio.CancelledError
        return Result()

    async def too_deep(attempt: int) -> Result:
        if attempt == 0:
            raise RecursionError
        return Result()

    bench = Bench(clock, a=cancels_itself, b=too_deep)
    async with bench.running():
        bench.queue.add(A)
        bench.queue.add(B)
        await clock.sleep(10)
        await bench.queue.idle()
    assert bench.count("a") == bench.count("b") == 2


async def test_cancelling_the_controller_ends_it_within_a_reconcile(clock: FakeClock) -> None:
    async def slow(attempt: int) -> Result:
        await asyncio.sleep(50)
        return Result()

    bench = Bench(clock, a=slow)
    bench.queue.add(A)
    task = asyncio.create_task(bench.controller.run())
    await clock.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.queue.in_hand() == {}


async def test_a_worker_that_ignores_its_cancellation_is_called_stuck(clock: FakeClock) -> None:
    release = asyncio.Event()

    async def stubborn(attempt: int) -> Result:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Result()

    bench = Bench(clock, a=stubborn)
    async with bench.running():
        bench.queue.add(A)
        await clock.sleep(80)
        assert bench.controller.stuck() == []
        await clock.sleep(20)
        assert bench.controller.stuck() == [A]
        release.set()


async def test_what_was_decided_is_one_line_with_its_key(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    async def script(attempt: int) -> Result:
        return Result(note="create Pod ns/a-0" if attempt == 0 else "")

    caplog.set_level(logging.INFO)
    bench = Bench(clock, a=script)
    async with bench.running():
        bench.queue.add(A)
        await clock.sleep(1)
        bench.queue.add(A)
        await clock.sleep(1)
    assert [record.getMessage() for record in caplog.records] == ["create Pod ns/a-0"]


async def test_a_busy_api_server_is_given_the_time_it_asks_for(clock: FakeClock) -> None:
    busy = TooManyRequests(CALL, "slow down", retry_after=20)
    plan = PlanError([Failure("x", ValueError()), Failure("y", busy)], total=3)
    assert (retry_after(busy), retry_after(plan), retry_after(ValueError())) == (20, 20, 0)

    async def script(attempt: int) -> Result:
        if attempt == 0:
            raise plan
        return Result()

    bench = Bench(clock, a=script)
    async with bench.running():
        bench.queue.add(A)
        await clock.sleep(60)
    assert [time for _, time in bench.seen] == [0, pytest.approx(20)]


class Crowd:
    """A controller of two workers: keys `slow-*` wait for an event without a worker, others are counted."""

    def __init__(self, clock: FakeClock) -> None:
        self.queue = Queue("test", clock=clock)
        self.controller = Controller("test", self.queue, self.reconcile, workers=2, deadline=600, clock=clock)
        self.answer = asyncio.Event()
        self.waiting = 0
        self.at_work = self.most_at_work = 0
        self.done: list[str] = []

    async def reconcile(self, key: Key) -> Result:
        if key[1].startswith("slow"):
            self.waiting += 1
            await asyncio.gather(self.wait(), self.wait())
            self.waiting -= 1
        else:
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
            await asyncio.sleep(1)
            self.at_work -= 1
        self.done.append(key[1])
        return Result()

    async def wait(self) -> None:
        with without_worker(), without_worker():
            await self.answer.wait()

    def add(self, kind: str, count: int) -> None:
        for number in range(count):
            self.queue.add(("ns", f"{kind}-{number}"))


async def test_whoever_waits_without_a_worker_holds_up_no_other_key(clock: FakeClock) -> None:
    crowd = Crowd(clock)
    working = asyncio.create_task(crowd.controller.run())
    crowd.add("slow", 100)
    crowd.add("quick", 6)
    await asyncio.sleep(3.5)
    assert crowd.waiting == 100
    assert crowd.done == [f"quick-{number}" for number in range(6)]
    assert crowd.most_at_work == 2
    assert crowd.controller.stats.active == 0
    assert len(crowd.queue.in_hand()) == 100
    crowd.answer.set()
    await crowd.queue.idle()
    assert len(crowd.done) == 106
    crowd.add("quick", 20)
    await crowd.queue.idle()
    assert crowd.most_at_work == 2
    crowd.queue.shut_down()
    await asyncio.wait_for(working, 10)
    assert crowd.controller.stats.active == 0


async def test_a_reconcile_that_is_cut_off_while_it_waits_without_a_worker_gives_none_back_twice(
    clock: FakeClock,
) -> None:
    crowd = Crowd(clock)
    crowd.controller.deadline = 5
    working = asyncio.create_task(crowd.controller.run())
    crowd.add("slow", 10)
    await asyncio.sleep(6)
    assert crowd.controller.stats.timeouts == 10
    crowd.answer.set()
    await asyncio.sleep(60)
    crowd.add("quick", 10)
    await crowd.queue.idle()
    assert crowd.most_at_work == 2
    assert crowd.controller.stats.active == 0
    crowd.queue.shut_down()
    await asyncio.wait_for(working, 10)


async def test_outside_of_a_reconcile_there_is_no_worker_to_free() -> None:
    with without_worker():
        await asyncio.sleep(0)


async def test_a_task_that_outlives_its_reconcile_frees_no_worker_of_another(clock: FakeClock) -> None:
    left: list[asyncio.Task[None]] = []
    go = asyncio.Event()

    async def outlive() -> None:
        with without_worker():
            await go.wait()
        with without_worker():
            await asyncio.sleep(1)

    async def script(attempt: int) -> Result:
        left.append(asyncio.create_task(outlive()))
        await asyncio.sleep(0.1)
        return Result()

    bench = Bench(clock, a=script)
    async with bench.running():
        bench.queue.add(A)
        await bench.queue.idle()
        assert bench.controller.stats.active == 0
        go.set()
        await left[0]
        assert bench.controller.stats.active == 0

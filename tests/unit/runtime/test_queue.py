"""The queue as a worker sees it."""

import asyncio
import random

import pytest

from slurm_operator.runtime.queue import Backoff, Queue, ShutDownError
from tests.fakes.clock import FakeClock

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")


@pytest.fixture
def queue(clock: FakeClock) -> Queue:
    return Queue("test", clock=clock)


async def take(queue: Queue, within: float = 0.0) -> tuple[str, str] | None:
    try:
        async with asyncio.timeout(within):
            return await queue.get()
    except TimeoutError:
        return None


async def test_a_key_added_twice_is_handed_out_once(queue: Queue) -> None:
    queue.add(A)
    queue.add(A)
    assert await queue.get() == A
    assert await take(queue) is None
    assert queue.stats.adds == 1


async def test_a_key_added_while_in_hand_waits_until_it_is_done(queue: Queue) -> None:
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(A)
    assert await take(queue) is None
    queue.done(A)
    assert await take(queue) == A
    queue.done(A)
    assert await take(queue) is None


async def test_keys_come_in_the_order_they_were_added(queue: Queue) -> None:
    for key in (B, A, C):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == [B, A, C]


async def test_the_initial_list_waits_behind_what_just_happened(queue: Queue) -> None:
    queue.add(A, low=True)
    queue.add(B)
    assert [await queue.get(), await queue.get()] == [B, A]


async def test_an_event_promotes_a_key_of_the_initial_list(queue: Queue) -> None:
    queue.add(A, low=True)
    queue.add(B, low=True)
    queue.add(B)
    queue.add(B, low=True)
    assert [await queue.get(), await queue.get()] == [B, A]
    assert queue.depth == 0


async def test_a_key_in_hand_keeps_the_higher_of_its_new_priorities(queue: Queue) -> None:
    queue.add(A)
    await queue.get()
    queue.add(A, low=True)
    queue.add(A)
    queue.add(B, low=True)
    queue.done(A)
    assert await queue.get() == A


async def test_a_storm_does_not_starve_the_initial_list(queue: Queue) -> None:
    queue.add(A, low=True)
    handed = []
    for number in range(40):
        queue.add(("storm", str(number)))
        queue.add(("storm", str(number + 1)))
        handed.append(await queue.get())
    assert A in handed


async def test_of_several_timers_the_earliest_wins(queue: Queue, clock: FakeClock) -> None:
    queue.add_after(A, 30)
    queue.add_after(A, 10)
    queue.add_after(A, 15 * 60)
    assert queue.delayed == 1
    assert await queue.get() == A
    assert clock.monotonic() == pytest.approx(10)
    queue.done(A)
    assert await take(queue, within=3600) is None


async def test_timers_fire_in_order_and_together(queue: Queue, clock: FakeClock) -> None:
    for key, delay in ((C, 3.0), (A, 1.0), (B, 2.0)):
        queue.add_after(key, delay)
    await clock.sleep(5)
    assert [await queue.get() for _ in range(3)] == [A, B, C]


async def test_a_timer_of_no_length_is_an_add(queue: Queue) -> None:
    queue.add_after(A, 0)
    assert await take(queue) == A


async def test_a_timer_that_fires_while_the_key_is_in_hand_is_not_lost(queue: Queue, clock: FakeClock) -> None:
    queue.add(A)
    await queue.get()
    queue.add_after(A, 1)
    await clock.sleep(2)
    queue.done(A)
    assert await take(queue) == A


async def test_replaced_timers_do_not_pile_up(queue: Queue) -> None:
    for number in range(10_000):
        queue.add_after(A, 10_000 - number)
    assert queue.delayed == 1
    assert len(queue._timers._heap) < 200


async def test_the_delay_of_a_failing_key_doubles_until_the_longest(queue: Queue) -> None:
    queue._backoff = Backoff(rng=random.Random(7))
    delays = [queue.retry(A) for _ in range(24)]
    assert all(0.75 * 0.005 * 2**n <= delay <= 0.005 * 2**n for n, delay in enumerate(delays[:15]))
    assert all(225 <= delay <= 300 for delay in delays[17:])
    assert queue.failures(A) == queue.stats.retries == 24
    queue.forget(A)
    assert queue.retry(A) <= 0.005


async def test_a_key_that_fails_for_ever_never_overflows() -> None:
    assert Backoff().delay(100_000) <= 300


async def test_a_server_that_asks_for_patience_gets_it(queue: Queue) -> None:
    assert queue.retry(A, at_least=20) == 20


async def test_events_of_a_big_set_are_gathered(clock: FakeClock) -> None:
    queue = Queue(clock=clock, debounce=lambda key: 0.2 if key == A else 0.0)
    queue.add(B)
    assert await take(queue) == B
    for _ in range(10):
        queue.add(A)
        await clock.sleep(0.01)
    assert await queue.get() == A
    assert clock.monotonic() == pytest.approx(0.2)
    assert await take(queue, within=60) is None
    assert queue.stats.adds == 2


async def test_waiting_workers_get_one_key_each(queue: Queue) -> None:
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in (A, B, C):
        queue.add(key)
    assert await asyncio.gather(*workers) == [A, B, C]


async def test_a_worker_cancelled_as_it_wakes_leaves_the_key_to_another(queue: Queue) -> None:
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A)
    first.cancel()
    assert await second == A


async def test_a_worker_cancelled_while_waiting_is_forgotten(queue: Queue) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    queue.add(A)
    assert await take(queue) == A


async def test_shut_down_ends_intake_and_waits_for_keys_in_hand(queue: Queue) -> None:
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(B)
    queue.add_after(C, 1)
    queue.shut_down()
    queue.add(C)
    queue.add_after(C, 1)
    drained = asyncio.create_task(queue.idle())
    await asyncio.sleep(10)
    assert not drained.done()
    queue.done(A)
    await drained
    with pytest.raises(ShutDownError):
        await queue.get()
    assert queue.depth == queue.delayed == 0


async def test_shut_down_sends_waiting_workers_home(queue: Queue) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.shut_down()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [ShutDownError, ShutDownError]


async def test_idle_means_nothing_waits_and_nothing_is_in_hand(queue: Queue) -> None:
    await queue.idle()
    queue.add(A)
    idle = asyncio.create_task(queue.idle())
    await asyncio.sleep(0)
    key = await queue.get()
    queue.add(B)
    queue.done(key)
    await asyncio.sleep(0)
    assert not idle.done()
    queue.done(await queue.get())
    await idle


async def test_the_queue_measures_waiting_and_work(queue: Queue, clock: FakeClock) -> None:
    queue.add(A)
    await clock.sleep(3)
    await queue.get()
    await clock.sleep(2)
    assert queue.in_hand() == {A: pytest.approx(2)}
    queue.done(A)
    assert queue.stats.waited.total == pytest.approx(3)
    assert queue.stats.worked.total == pytest.approx(2)

"""The queue against a model that is too simple to be wrong: what is wanted, what is in hand, what is due when."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slurm_operator.kube.resource import Key
from slurm_operator.runtime.queue import Queue, ShutDownError
from tests.fakes.clock import FakeClock, VirtualLoop

KEYS = st.sampled_from([("ns", name) for name in "abcde"])
DELAYS = st.sampled_from([0.001, 0.5, 1.0, 2.0, 30.0, 600.0])


class QueueMachine(RuleBasedStateMachine):
    """Adds, timers, workers that wait, get cancelled and finish, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.loop = self.runner.get_loop()
        self.queue = Queue(clock=FakeClock())
        self.wanted: dict[Key, bool] = {}  # and whether only at low priority
        self.due: dict[Key, float] = {}
        self.in_hand: set[Key] = set()
        self.workers: list[asyncio.Task[Key]] = []
        self.handed_out = 0

    @initialize(workers=st.integers(0, 3))
    def start(self, workers: int) -> None:
        for _ in range(workers):
            self.worker_waits()

    def settle(self) -> None:
        """Lets the loop run until everybody waits, and books what the workers were given."""
        self.runner.run(self._rounds())
        for worker in [worker for worker in self.workers if worker.done()]:
            self.workers.remove(worker)
            self._book(worker.result())

    async def _rounds(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def _book(self, key: Key) -> None:
        assert key not in self.in_hand, "two workers on one key"
        assert key in self.wanted, "nobody wanted this key"
        del self.wanted[key]
        self.in_hand.add(key)
        self.handed_out += 1

    def _want(self, key: Key, low: bool) -> None:
        self.wanted[key] = low and self.wanted.get(key, True)

    def _do(self, *steps: Callable[[], object]) -> None:
        """In the loop, without letting anybody else run in between."""

        async def run() -> None:
            for step in steps:
                step()

        self.runner.run(run())
        self.settle()

    @rule(key=KEYS, low=st.booleans())
    def add(self, key: Key, low: bool) -> None:
        self._want(key, low)
        self._do(partial(self.queue.add, key, low=low))

    @rule(key=KEYS, delay=DELAYS)
    def add_after(self, key: Key, delay: float) -> None:
        self.due[key] = min(self.due.get(key, float("inf")), self.loop.time() + delay)
        self._do(partial(self.queue.add_after, key, delay))

    @rule(seconds=DELAYS)
    def time_passes(self, seconds: float) -> None:
        until = self.loop.time() + seconds
        for key in sorted(self.due, key=self.due.__getitem__):
            if self.due[key] <= until:
                del self.due[key]
                self._want(key, low=False)
        self.runner.run(asyncio.sleep(seconds))
        self.settle()

    @precondition(lambda self: len(self.workers) < 4)
    @rule()
    def worker_waits(self) -> None:
        self.workers.append(self.loop.create_task(self.queue.get()))
        self.settle()

    @precondition(lambda self: self.workers)
    @rule()
    def worker_is_cancelled(self) -> None:
        self.workers.pop().cancel()
        self.settle()

    @precondition(lambda self: self.workers)
    @rule(key=KEYS)
    def worker_is_cancelled_as_a_key_arrives(self, key: Key) -> None:
        self._want(key, low=False)
        self._do(partial(self.queue.add, key), self.workers.pop(0).cancel)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.in_hand)))
        self._finish(key)

    def _finish(self, key: Key) -> None:
        self.in_hand.remove(key)
        self._do(partial(self.queue.done, key))

    @invariant()
    def nothing_waits_while_a_worker_is_free(self) -> None:
        waiting = self.wanted.keys() - self.in_hand
        assert not (waiting and self.workers)
        assert self.queue.depth == len(waiting)

    @invariant()
    def the_queue_knows_what_the_model_knows(self) -> None:
        assert self.queue.delayed == len(self.due)
        assert self.handed_out == sum(self.queue.stats.waited.counts)
        assert self.queue.stats.adds == self.handed_out + len(self.wanted)

    def teardown(self) -> None:
        """Whatever is still wanted is handed out, then nothing; shutting down lets everybody go."""
        self.time_passes(601.0)
        for _ in range(50):
            if self.wanted.keys() - self.in_hand:
                self.worker_waits()
            for key in sorted(self.in_hand):
                self._finish(key)
        assert not self.wanted, "lost"
        assert not self.in_hand
        self.runner.run(self.queue.idle())
        self.queue.shut_down()
        for worker in self.workers:
            with pytest.raises(ShutDownError):
                self.runner.run(asyncio.wait_for(worker, 1))
        self.runner.close()


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

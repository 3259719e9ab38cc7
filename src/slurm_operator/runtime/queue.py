"""The work queue: what changed, each key once, never two workers on one key.

A key is in one of these places: waiting in a lane, in a worker's hands, in a worker's hands *and* wanted again.
Beside that it may have one timer. The guarantees are client-go's: whatever was added after a worker took the key
is seen by a later hand-out, however often and however fast keys are added.
"""

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from slurm_operator.kube.resource import Key
from slurm_operator.runtime.clock import Clock, SystemClock
from slurm_operator.runtime.stats import QUEUE_SECONDS, Histogram

_LOW_LANE_TURN = 16  # every so many hand-outs a low key goes first, so that a storm cannot starve the initial list


class ShutDownError(Exception):
    """The queue hands out no more keys."""


class QueueStats:
    __slots__ = ("adds", "retries", "waited", "worked")

    def __init__(self) -> None:
        self.adds = 0
        self.retries = 0
        self.waited = Histogram(QUEUE_SECONDS)
        self.worked = Histogram(QUEUE_SECONDS)


class Backoff:
    """Doubling delay with jitter. Jitter only shortens, so that `longest` is a promise."""

    def __init__(self, shortest: float = 0.005, longest: float = 300.0, rng: random.Random | None = None) -> None:
        self.shortest = shortest
        self.longest = longest
        self._rng = rng or random.Random()

    def delay(self, failures: int) -> float:
        # The exponent is capped because a float overflows long before a key stops failing.
        return min(self.longest, self.shortest * 2.0 ** min(failures, 64)) * self._rng.uniform(0.75, 1.0)


class Queue:
    def __init__(
        self,
        name: str = "",
        *,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        debounce: Callable[[Key], float] | None = None,
    ) -> None:
        self.name = name
        self.stats = QueueStats()
        self._now = (clock or SystemClock()).monotonic
        self._backoff = backoff or Backoff()
        self._debounce = debounce
        self._high: OrderedDict[Key, float] = OrderedDict()
        self._low: OrderedDict[Key, float] = OrderedDict()
        self._working: dict[Key, float] = {}
        self._again: dict[Key, tuple[bool, float]] = {}
        self._failures: dict[Key, int] = {}
        self._timers = _Timers(self._now, self._fire)
        self._getters: deque[asyncio.Future[None]] = deque()
        self._idlers: list[asyncio.Future[None]] = []
        self._turn = 0
        self._stopped = False

    # Adding

    def add(self, key: Key, *, low: bool = False) -> None:
        """Have the key looked at: at once, or after its debounce. A second add of a waiting key is free."""
        if key in self._high or self._stopped:
            return
        if self._debounce is not None and not low:
            delay = self._debounce(key)
            if delay > 0:
                self._timers.set(key, delay)
                return
        self._put(key, low, self._now())

    def add_after(self, key: Key, delay: float) -> None:
        """Have the key looked at in `delay` seconds at the latest: of several timers the earliest wins."""
        if self._stopped:
            return
        if delay > 0:
            self._timers.set(key, delay)
        else:
            self._put(key, False, self._now())

    def retry(self, key: Key, *, at_least: float = 0.0) -> float:
        """Have a failed key looked at after its own, doubling delay; returns that delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.stats.retries += 1
        delay = max(self._backoff.delay(failures), at_least)
        self.add_after(key, delay)
        return delay

    def failures(self, key: Key) -> int:
        """How often in a row the key was retried."""
        return self._failures.get(key, 0)

    def forget(self, key: Key) -> None:
        """The key is well again: its next failure starts from the shortest delay."""
        self._failures.pop(key, None)

    def _put(self, key: Key, low: bool, since: float) -> None:
        if key in self._working:
            wanted = self._again.get(key)
            if wanted is None:
                self.stats.adds += 1
                self._again[key] = (low, since)
            elif wanted[0] and not low:
                self._again[key] = (False, wanted[1])
            return
        if key in self._high:
            return
        if self._low and key in self._low:
            if not low:
                self._high[key] = self._low.pop(key)
            return
        self.stats.adds += 1
        (self._low if low else self._high)[key] = since
        self._wake_getter()

    def _fire(self, key: Key, due: float) -> None:
        self._put(key, False, due)

    # Working

    async def get(self) -> Key:
        """The next key, which is the caller's alone until `done`; raises ShutDownError at the end."""
        while not (self._high or self._low):
            if self._stopped:
                raise ShutDownError(self.name)
            await self._wait_for_key()
        self._turn = (self._turn + 1) % _LOW_LANE_TURN
        lane = self._low if self._low and (not self._high or self._turn == 0) else self._high
        key, since = lane.popitem(last=False)
        now = self._now()
        self._working[key] = now
        self.stats.waited.observe(now - since)
        return key

    def done(self, key: Key) -> None:
        """The worker lets go of the key; if it was added meanwhile it waits for a worker again."""
        now = self._now()
        self.stats.worked.observe(now - self._working.pop(key))
        wanted = self._again.pop(key, None)
        if wanted is not None and not self._stopped:
            low, since = wanted
            (self._low if low else self._high)[key] = since
            self._wake_getter()
        self._wake_idlers()

    async def _wait_for_key(self) -> None:
        getter = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if getter.cancelled():
                self._getters.remove(getter)
            else:
                # Woken and cancelled at once: the key must not wait for the next add to be noticed.
                self._wake_getter()
            raise

    def _wake_getter(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    # Ending

    def shut_down(self) -> None:
        """Take no more adds and hand out no more keys; those in hand are finished.

        Waiting keys are dropped: whoever works next starts from a fresh list of everything.
        """
        self._stopped = True
        self._high.clear()
        self._low.clear()
        self._again.clear()
        self._timers.clear()
        while self._getters:
            self._wake_getter()
        self._wake_idlers()

    async def idle(self) -> None:
        """Returns when no key waits for a worker nor is in a worker's hands; timers may still run."""
        while self._high or self._low or self._working:
            idler = asyncio.get_running_loop().create_future()
            self._idlers.append(idler)
            await idler

    def _wake_idlers(self) -> None:
        if self._idlers and not (self._high or self._low or self._working):
            for idler in self._idlers:
                if not idler.done():
                    idler.set_result(None)
            self._idlers.clear()

    # Looking in from outside

    @property
    def depth(self) -> int:
        return len(self._high) + len(self._low)

    @property
    def delayed(self) -> int:
        return len(self._timers)

    def in_hand(self) -> dict[Key, float]:
        """The keys that workers hold, and for how many seconds."""
        now = self._now()
        return {key: now - since for key, since in self._working.items()}


class _Timers:
    """One timer per key in a heap, and one event loop timer for the earliest of them."""

    def __init__(self, now: Callable[[], float], fire: Callable[[Key, float], None]) -> None:
        self._now = now
        self._fire = fire
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = float("inf")

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, delay: float) -> None:
        due = self._now() + delay
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        heappush(self._heap, (due, key))
        if len(self._heap) > 2 * len(self._due) + 64:
            # Replaced timers stay in the heap until their time; do not let them outnumber the living.
            self._heap = [(when, waiting) for waiting, when in self._due.items()]
            heapify(self._heap)
        self._arm()

    def clear(self) -> None:
        self._due.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        earliest = self._heap[0][0] if self._heap else float("inf")
        if earliest >= self._alarm_at and self._heap:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, earliest
        if self._heap:
            delay = max(0.0, earliest - self._now())
            self._alarm = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        # A loop's timer may be a hair early; what it was set for is due all the same.
        now = max(self._now(), self._alarm_at)
        self._alarm, self._alarm_at = None, float("inf")
        while self._heap and self._heap[0][0] <= now:
            due, key = heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self._fire(key, due)
        self._arm()

"""Virtual time: an event loop that, when every task waits, jumps to the next timer instead of sleeping.

Whatever asyncio does with time (sleep, timeout, call_later) becomes instant and exact, without the code under test
knowing. I/O on loopback inside the same loop still works, because the loop jumps only when no socket is ready.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

REAL_SECONDS = 10.0


class _JumpingSelector(selectors.DefaultSelector):
    """Never blocks while a timer exists: the wait is added to `skipped` instead."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return self._wait_for_the_outside()
        self.skipped += timeout
        return []

    def _wait_for_the_outside(self) -> list[tuple[selectors.SelectorKey, int]]:
        """No timer is left: only another thread or process can go on, and if none does the test hangs for ever."""
        ready = super().select(REAL_SECONDS)
        if not ready:
            raise RuntimeError("deadlock: every task waits, and no timer will wake any of them")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at 0 and moves only when nothing can run."""

    def __init__(self) -> None:
        self._jumps = _JumpingSelector()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.skipped


class FakeClock:
    """The virtual loop's time as a Clock; `jump` moves the wall clock alone, as a bad time server would."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._start = start

    def now(self) -> float:
        return self._start + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def jump(self, seconds: float) -> None:
        self._start += seconds


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time, for tests that are not coroutines themselves (Hypothesis)."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

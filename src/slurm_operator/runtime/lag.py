"""How late the event loop is: the one number that tells whether something blocks it."""

from collections import deque

from slurm_operator.runtime.clock import Clock, SystemClock
from slurm_operator.runtime.stats import Histogram

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LoopLag:
    def __init__(self, *, interval: float = 0.25, window: float = 30.0, clock: Clock | None = None) -> None:
        self.seconds = Histogram(_SECONDS)
        self._interval = interval
        self._clock = clock or SystemClock()
        self._recent: deque[float] = deque(maxlen=int(window / interval))

    @property
    def worst(self) -> float:
        """The longest delay of the last half minute."""
        return max(self._recent, default=0.0)

    async def run(self) -> None:
        while True:
            due = self._clock.monotonic() + self._interval
            await self._clock.sleep(self._interval)
            late = max(0.0, self._clock.monotonic() - due)
            self.seconds.observe(late)
            self._recent.append(late)

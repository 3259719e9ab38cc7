"""A circuit breaker: after a few failures in a row, calls fail at once instead of waiting for another deadline."""

from collections.abc import Callable

from slurm_operator.slurm.errors import CircuitOpen, SlurmError


class Breaker:
    """Opens after `threshold` outages in a row; then one try is let through per pause, and one success closes it."""

    def __init__(
        self, monotonic: Callable[[], float], *, threshold: int = 3, first: float = 1.0, longest: float = 5.0
    ) -> None:
        self._monotonic = monotonic
        self._threshold = threshold
        self._first = first
        self._longest = longest
        self._failures = 0
        self._next_try = 0.0
        self._why = ""

    @property
    def is_open(self) -> bool:
        return self._failures >= self._threshold

    def check(self, call: str) -> None:
        """Raise CircuitOpen unless this call may be sent."""
        if not self.is_open:
            return
        now = self._monotonic()
        if now < self._next_try:
            raise CircuitOpen(call, self._why, self._next_try - now)
        self._next_try = now + self._pause()

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, error: SlurmError) -> None:
        self._failures += 1
        self._why = str(error)
        if self.is_open:
            self._next_try = self._monotonic() + self._pause()

    def _pause(self) -> float:
        return min(self._longest, self._first * 2.0 ** min(self._failures - self._threshold, 10))

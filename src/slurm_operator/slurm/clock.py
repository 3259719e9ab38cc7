"""The two clocks this package needs, as a shape: the program's own clock fits, and tests own time."""

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970; may jump. Slurm and people compare it."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump. Orders reads and writes."""
        ...

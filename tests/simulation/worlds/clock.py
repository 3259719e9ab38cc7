"""Time that passes only when a history says so."""

from tests.unit.nodeset.make import NOW


class ManualClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return NOW + self.seconds

    def monotonic(self) -> float:
        return 1000.0 + self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

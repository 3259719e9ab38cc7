"""Time as a dependency, so that tests own it."""

import asyncio
import datetime
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, for people and for other machines."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump, for measuring."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def timestamp(seconds: float) -> str:
    """Seconds since 1970 as Kubernetes writes a MicroTime."""
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%dT%H:%M:%S.%f}Z"

"""Tasks that feed the controllers (pollers, recorders): kept running, and never a reason to end the process.

One that fails is started again, later each time; what it feeds grows old meanwhile, and whoever reads it says so.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from slurm_operator.errors import UserError
from slurm_operator.runtime.clock import Clock, SystemClock
from slurm_operator.runtime.queue import Backoff

log = logging.getLogger(__name__)

Start: TypeAlias = Callable[[], Awaitable[None]]

SETTLED_SECONDS = 60.0
"""A task that ran this long was well: its next failure is a first one."""


class Background:
    def __init__(self, clock: Clock | None = None, backoff: Backoff | None = None) -> None:
        self.restarts: Counter[str] = Counter()
        self._clock = clock or SystemClock()
        self._backoff = backoff or Backoff(shortest=1.0, longest=60.0)
        self._kept: dict[str, Start] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def keep(self, name: str, start: Start) -> None:
        """From now on, or from `run` on; a second task of the same name replaces the first."""
        self.drop(name)
        self._kept[name] = start
        if self._group is not None:
            self._launch(self._group, name, start)

    def drop(self, name: str) -> None:
        self._kept.pop(name, None)
        task = self._running.pop(name, None)
        if task is not None:
            task.cancel()

    async def run(self) -> None:
        """Runs all of them until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for name, start in self._kept.items():
                    self._launch(group, name, start)
                await asyncio.Event().wait()
        finally:
            self._group = None

    def _launch(self, group: asyncio.TaskGroup, name: str, start: Start) -> None:
        self._running[name] = group.create_task(self._keep_running(name, start), name=name)

    async def _keep_running(self, name: str, start: Start) -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                return await start()
            except Exception as error:  # whatever it is, the others and the controllers go on
                failures = 0 if self._clock.monotonic() - began > SETTLED_SECONDS else failures + 1
                delay = self._backoff.delay(max(0, failures - 1))
                self.restarts[name] += 1
                trace = None if isinstance(error, UserError) else error
                log.error("%s failed, started again in %.1f s: %s", name, delay, error, exc_info=trace)
            await self._clock.sleep(delay)

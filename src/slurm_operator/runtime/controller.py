"""A controller: workers that take keys from a queue, reconcile them, and decide when to look again.

Whatever a reconcile does (raises, hangs, cancels itself), the worker survives and the other keys go on. A failure is
logged when it appears, when it changes and when it is over; not on every retry.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from slurm_operator.errors import UserError
from slurm_operator.kube.errors import ApiError
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.clock import Clock, SystemClock
from slurm_operator.runtime.execute import PlanError
from slurm_operator.runtime.logs import log_fields
from slurm_operator.runtime.plan import Result, TerminalError
from slurm_operator.runtime.queue import Queue, ShutDownError
from slurm_operator.runtime.stats import RECONCILE_SECONDS, Histogram

log = logging.getLogger(__name__)

_EXPECTED = (ApiError, PlanError, UserError, TimeoutError)  # their text says it all; a traceback would hide it


Reconcile: TypeAlias = Callable[[Key], Awaitable[Result]]


class ControllerStats:
    __slots__ = ("active", "results", "seconds", "terminal", "timeouts")

    def __init__(self) -> None:
        self.active = 0
        self.results: Counter[str] = Counter(success=0, error=0, requeue=0, requeue_after=0)
        self.terminal = 0
        self.timeouts = 0
        self.seconds = Histogram(RECONCILE_SECONDS)


class Controller:
    def __init__(
        self,
        name: str,
        queue: Queue,
        reconcile: Reconcile,
        *,
        workers: int = 4,
        deadline: float = 120.0,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.queue = queue
        self.workers = workers
        self.deadline = deadline
        self.stats = ControllerStats()
        self._reconcile = reconcile
        self._clock = clock or SystemClock()
        self._failing: dict[Key, str] = {}

    async def run(self) -> None:
        """Works until the queue is shut down and the keys in hand are finished."""
        async with asyncio.TaskGroup() as workers:
            for number in range(self.workers):
                workers.create_task(self._work(), name=f"{self.name}-{number}")

    def stuck(self, grace: float = 30.0) -> list[Key]:
        """Keys whose reconcile did not even obey its cancellation: nothing but a restart frees the worker."""
        return [key for key, seconds in self.queue.in_hand().items() if seconds > self.deadline + grace]

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDownError:
                return
            self.stats.active += 1
            began = self._clock.monotonic()
            try:
                with log_fields(controller=self.name, namespace=key[0], name=key[1]):
                    await self._process(key)
            finally:
                self.stats.seconds.observe(self._clock.monotonic() - began)
                self.stats.active -= 1
                self.queue.done(key)

    async def _process(self, key: Key) -> None:
        try:
            async with asyncio.timeout(self.deadline) as scope:
                result = await self._reconcile(key)
        except TerminalError as error:
            self._give_up(key, error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._fail(key, error)  # something the reconcile awaited was cancelled; the worker was not
        except Exception as error:  # one object's failure must not end the worker of the others
            self.stats.timeouts += scope.expired()
            late = TimeoutError(f"not finished after {self.deadline:g} s, cancelled") if scope.expired() else None
            self._fail(key, late or error)
        else:
            self._succeed(key, result)

    def _succeed(self, key: Key, result: Result) -> None:
        if self._failing.pop(key, None) is not None:
            log.info("recovered after %d retries", self.queue.failures(key))
        self.queue.forget(key)
        if result.note:
            log.info(result.note)
        if result.after is None:
            self.stats.results["success"] += 1
        else:
            self.stats.results["requeue_after"] += 1
            self.queue.add_after(key, result.after)

    def _fail(self, key: Key, error: BaseException) -> None:
        self.stats.results["error"] += 1
        delay = self.queue.retry(key, at_least=retry_after(error))
        self._log_once(key, error, f"retried in {delay:.3g} s")

    def _give_up(self, key: Key, error: TerminalError) -> None:
        self.stats.results["error"] += 1
        self.stats.terminal += 1
        self.queue.forget(key)
        self._log_once(key, error, "not retried until something changes")

    def _log_once(self, key: Key, error: BaseException, then: str) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._failing.get(key) == text:
            return
        self._failing[key] = text
        unexpected = not isinstance(error, (*_EXPECTED, TerminalError))
        log.error("reconcile failed, %s: %s", then, text, exc_info=error if unexpected else None)


def retry_after(error: BaseException) -> float:
    """How long the API server asked to be left alone."""
    if isinstance(error, PlanError):
        return max((retry_after(failure.error) for failure in error.failures), default=0.0)
    return (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0

"""A controller: workers that take keys from a queue, reconcile them, and decide when to look again.

Whatever a reconcile does (raises, hangs, cancels itself), the worker survives and the other keys go on. A failure is
logged when it appears, when it changes and when it is over; not on every retry.

The workers bound how many reconciles are at work. One that waits for a system which may be slow for one object and
quick for the next (the Slurm of a cluster) gives its worker free for that time, see `without_worker`: however many
clusters do not answer, the keys of the others are taken at once.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
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


DEADLINE_SECONDS = 120.0
"""Seconds after which a reconcile is cancelled."""

Reconcile: TypeAlias = Callable[[Key], Awaitable[Result]]


class ControllerStats:
    __slots__ = ("active", "results", "seconds", "terminal", "timeouts")

    def __init__(self) -> None:
        self.active = 0
        self.results: Counter[str] = Counter(success=0, error=0, requeue=0, requeue_after=0)
        self.terminal = 0
        self.timeouts = 0
        self.seconds = Histogram(RECONCILE_SECONDS)


class _Pass:
    """One reconcile of a key, and whether it holds a worker."""

    __slots__ = ("_controller", "_over", "_waits")

    def __init__(self, controller: "Controller") -> None:
        self._controller = controller
        self._waits = 0
        """Parts of the reconcile that wait without a worker."""
        self._over = False

    def wait(self) -> None:
        self._waits += 1
        if self._waits == 1 and not self._over:
            self._controller.lend_worker()

    def go_on(self) -> None:
        self._waits -= 1
        if self._waits == 0 and not self._over:
            self._controller.take_worker_back()

    def end(self) -> None:
        if self._waits:
            self._controller.take_worker_back()
        self._over = True


_pass: ContextVar[_Pass | None] = ContextVar("pass", default=None)


@contextmanager
def without_worker() -> Iterator[None]:
    """Wait for an answer while another key may have the worker of this reconcile.

    Parts of a reconcile that run in parallel may each do so: it has its worker back when none of them waits. The
    reconcile goes on at once, so that for a moment more of them than workers may be at work.
    """
    found = _pass.get()
    if found is None:
        yield
        return
    found.wait()
    try:
        yield
    finally:
        found.go_on()


class Controller:
    def __init__(
        self,
        name: str,
        queue: Queue,
        reconcile: Reconcile,
        *,
        workers: int = 4,
        deadline: float = DEADLINE_SECONDS,
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
        self._hired = 0
        self._lent = 0
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Works until the queue is shut down and the keys in hand are finished."""
        async with asyncio.TaskGroup() as self._tasks:
            for _ in range(self.workers):
                self._hire(self._tasks)

    def _hire(self, tasks: asyncio.TaskGroup) -> None:
        self._hired += 1
        # In a context of its own: a reconcile that hires lends the new worker neither itself nor its log fields.
        tasks.create_task(self._work(), name=f"{self.name}-{self._hired}", context=Context())

    def lend_worker(self) -> None:
        """A reconcile waits without a worker: have as many workers as before for the other keys."""
        self.stats.active -= 1
        self._lent += 1
        if self._tasks is not None and self._hired - self._lent < self.workers:
            self._hire(self._tasks)

    def take_worker_back(self) -> None:
        """A reconcile goes on: the first worker that is done with its key leaves if there are too many."""
        self.stats.active += 1
        self._lent -= 1

    def stuck(self, grace: float = 30.0) -> list[Key]:
        """Keys whose reconcile did not even obey its cancellation: nothing but a restart frees the worker."""
        return [key for key, seconds in self.queue.in_hand().items() if seconds > self.deadline + grace]

    async def _work(self) -> None:
        try:
            while self._hired - self._lent <= self.workers:
                await self._take(await self.queue.get())
        except ShutDownError:
            return
        finally:
            self._hired -= 1

    async def _take(self, key: Key) -> None:
        self.stats.active += 1
        began, here = self._clock.monotonic(), _Pass(self)
        _pass.set(here)
        try:
            with log_fields(controller=self.name, namespace=key[0], name=key[1]):
                await self._process(key)
        finally:
            here.end()
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

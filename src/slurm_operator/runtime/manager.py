"""The life of the process: warm up, wait for leadership, work, and on a signal finish what is in hand.

Who is needed for being right (watches, election, controllers) ends the process by failing; who merely feeds
(`background`) is started again. Two replicas may run: both keep their view warm, one works.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from slurm_operator.kube.lease import Elector, LeadershipLost
from slurm_operator.runtime.background import Background
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import Clock, SystemClock
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.health import (
    metrics_page,
    no_blocked_loop,
    no_dead_watch,
    no_silent_watch,
    no_stuck_worker,
    probe,
    serve,
)
from slurm_operator.runtime.lag import LoopLag
from slurm_operator.runtime.metrics import ControllerMetrics, Metrics, ProcessMetrics

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where to listen, as `:port` or `host:port`; "0" for nowhere."""

    probes: str = ":8081"
    metrics: str = ":8080"


class Manager:
    def __init__(
        self,
        caches: Caches,
        controllers: Sequence[Controller],
        *,
        elector: Elector | None = None,
        background: Background | None = None,
        metrics: Metrics | None = None,
        addresses: Addresses = Addresses(),  # noqa: B008 - frozen
        drain_seconds: float = 20.0,
        clock: Clock | None = None,
    ) -> None:
        self._caches = caches
        self._controllers = tuple(controllers)
        self._elector = elector
        self._background = background or Background(clock)
        self._metrics = metrics or Metrics()
        self._addresses = addresses
        self._drain_seconds = drain_seconds
        self._clock = clock or SystemClock()
        self._lag = LoopLag(clock=self._clock)
        self._stopping = asyncio.Event()
        self._synced = asyncio.Event()
        self._working = False
        self._metrics.registry.register(ControllerMetrics(self._controllers))
        self._metrics.registry.register(ProcessMetrics(caches, elector, self._lag, self._background, self._clock))

    def stop(self) -> None:
        """Finish what is in hand, give leadership back, return from `run`."""
        self._stopping.set()

    async def run(self) -> int:
        """The exit code: 0 after `stop` or a signal, 1 when leadership was lost. Other failures are raised."""
        try:
            async with serve(self._pages()) as urls:
                log.info("listening", extra={"urls": urls})
                await self._live()
        except BaseExceptionGroup as group:
            cause = first_cause(group)
            if isinstance(cause, LeadershipLost):
                log.error("ending because leadership was lost: %s", cause)
                return 1
            raise cause from None
        return 0

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            helpers = [
                tasks.create_task(self._caches.run(), name="watches"),
                tasks.create_task(self._background.run(), name="background"),
                tasks.create_task(self._lag.run(), name="loop lag"),
            ]
            work = tasks.create_task(self._work(), name="work")
            with on_signals(self.stop):
                await self._stopping.wait()
            await self._drain(work)
            for helper in helpers:
                helper.cancel()

    async def _work(self) -> None:
        await self._caches.synced()
        self._synced.set()
        # What is cached now mostly stays: the garbage collector need not look at it again.
        gc.collect()
        gc.freeze()
        async with asyncio.TaskGroup() as tasks:
            election = None
            if self._elector is not None:
                election = tasks.create_task(self._elector.run(), name="election")
                await self._elector.leading.wait()
            self._working = True
            log.info("working", extra={"controllers": [found.name for found in self._controllers]})
            async with asyncio.TaskGroup() as controllers:
                for controller in self._controllers:
                    controllers.create_task(controller.run(), name=controller.name)
            # Only now that no worker is left may somebody else lead.
            if election is not None:
                election.cancel()

    async def _drain(self, work: asyncio.Task[None]) -> None:
        for controller in self._controllers:
            controller.queue.shut_down()
        if self._working:
            log.info("stopping, finishing what is in hand")
            await asyncio.wait({work}, timeout=self._drain_seconds)
        if not work.done():
            if self._working:
                log.warning("not finished in %g s, cancelled", self._drain_seconds)
            work.cancel()
            await asyncio.wait({work})

    def _pages(self) -> dict[str, dict[str, Any]]:
        alive = [
            no_stuck_worker(self._controllers),
            no_dead_watch(lambda: self._caches.reflectors, self._clock),
            no_blocked_loop(self._lag),
        ]
        heard = no_silent_watch(lambda: self._caches.reflectors, self._clock)
        pages: dict[str, dict[str, Any]] = {
            self._addresses.probes: {"/healthz": probe(alive), "/readyz": probe([self._not_ready, heard, *alive])}
        }
        pages.setdefault(self._addresses.metrics, {})["/metrics"] = metrics_page(self._metrics.render)
        return pages

    def _not_ready(self) -> str | None:
        if self._stopping.is_set():
            return "stopping"
        return None if self._synced.is_set() else "still reading the present state from the API server"


@contextmanager
def on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`; a second one, after this, kills as usual."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that ended a tree of tasks; a lost leadership outranks what it caused elsewhere."""
    causes = list(_leaves(group))
    return next((cause for cause in causes if isinstance(cause, LeadershipLost)), causes[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for found in group.exceptions:
        if isinstance(found, BaseExceptionGroup):
            yield from _leaves(found)
        else:
            yield found


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on uvloop, which costs a fifth less; where it is not installed, on asyncio's own loop."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop

"""The view runs in virtual time against a Slurm in memory: minutes of outage take milliseconds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.known import Change, Known, Seen, State
from slurm_operator.slurm.pace import Pace
from slurm_operator.slurm.view import SlurmView
from tests.fakes.clock import FakeClock, VirtualLoop
from tests.fakes.slurmrestd import KEY, FakeSlurm, FakeTransport


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}


class Watched:
    """A cluster, the view of it, and everything the view told its subscribers."""

    def __init__(self, clock: FakeClock, pace: Pace | None = None) -> None:
        self.clock = clock
        self.slurm = FakeSlurm(clock.now)
        self.client = SlurmClient("http://slurm", KEY, clock, transport=FakeTransport(self.slurm))
        self.view = SlurmView(self.client, clock, pace)
        self.changes: list[Change] = []
        self.view.subscribe(self.changes.append)
        self._published = asyncio.Event()
        self.view.subscribe(lambda change: self._published.set())

    @property
    def known(self) -> Known:
        state = self.view.state
        assert isinstance(state, Known), state
        return state

    def seen(self, name: str) -> Seen:
        return self.known.seen(name)

    async def until(self, holds: Callable[[State], bool], within: float = 60.0) -> float:
        """Wait until the state is so; returns how long it took."""
        began = self.clock.monotonic()
        while not holds(self.view.state):
            assert self.clock.monotonic() - began < within, self.view.state
            await asyncio.sleep(0.05)
        return self.clock.monotonic() - began

    async def change(self) -> Change:
        """The next change that subscribers hear of."""
        self._published.clear()
        async with asyncio.timeout(120):
            await self._published.wait()
        return self.changes[-1]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def cluster(clock: FakeClock) -> AsyncIterator[Watched]:
    watched = Watched(clock)
    watched.slurm.add_nodes("w-[0-4]")
    await asyncio.sleep(10)
    task = asyncio.create_task(watched.view.run())
    await watched.until(lambda state: isinstance(state, Known))
    await asyncio.sleep(5)
    watched.changes.clear()
    watched.slurm.calls.clear()
    yield watched
    task.cancel()
    await asyncio.wait([task])

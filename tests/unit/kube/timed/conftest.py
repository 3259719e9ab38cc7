"""What follows runs in virtual time: minutes of waiting take milliseconds, and are exact."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from slurm_operator.kube import Client, KubeConfig
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock, VirtualLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer(run_controllers=False) as server:
        yield server


@pytest.fixture
async def client(server: FakeApiServer, clock: FakeClock) -> AsyncIterator[Client]:
    async with Client(KubeConfig(server.url), clock=clock) as client:
        yield client

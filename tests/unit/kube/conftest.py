"""A fake API server and a client that talks to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slurm_operator.kube import Client, KubeConfig
from slurm_operator.kube.clock import SystemClock
from tests.fakes.apiserver import FakeApiServer


class HurriedClock(SystemClock):
    """Pauses between two tries take a fiftieth of their time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 50)


HURRIED = HurriedClock()


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(KubeConfig(server.url)) as client:
        yield client


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[list["asyncio.Task[None]"]]:
    """Tasks for the length of a block. One that fails inside the block fails the test."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(met: Callable[[], object], seconds: float = 5.0) -> None:
    """Give other tasks their turn until the condition is met."""
    async with asyncio.timeout(seconds):
        while not met():  # noqa: ASYNC110 - what is waited for is often on the other side of a socket
            await asyncio.sleep(0.005)

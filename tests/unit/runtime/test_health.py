"""What a probe is told."""

import asyncio
from typing import Any

import aiohttp
import pytest

from slurm_operator.errors import UserError
from slurm_operator.kube.client import Client
from slurm_operator.kube.kinds import NODES, PODS
from slurm_operator.kube.reflector import Reflector
from slurm_operator.kube.resource import Key
from slurm_operator.kube.store import Store
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
from slurm_operator.runtime.plan import Result
from slurm_operator.runtime.queue import Queue
from tests.fakes.apiserver import Disconnect, FakeApiServer, Hang
from tests.fakes.clock import FakeClock


async def fetch(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_the_reason_is_in_the_body() -> None:
    problems: list[str | None] = [None, None]
    page = probe([lambda: problems[0], lambda: problems[1]])
    async with serve({"127.0.0.1:0": {"/healthz": page, "/metrics": metrics_page(lambda: b"up 1\n")}}) as (url,):
        assert await fetch(f"{url}/healthz") == (200, "ok\n")
        problems[:] = ["one", "two"]
        assert await fetch(f"{url}/healthz") == (503, "one\ntwo\n")
        assert await fetch(f"{url}/metrics") == (200, "up 1\n")
        assert (await fetch(f"{url}/elsewhere"))[0] == 404


async def test_an_address_of_0_is_not_served() -> None:
    async with serve({"0": {}, "": {}}) as urls:
        assert urls == []


async def test_every_interface_is_served_by_a_port_alone() -> None:
    async with serve({":0": {"/healthz": probe([])}}) as (url,):
        here = url.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")
        assert await fetch(f"{here}/healthz") == (200, "ok\n")


@pytest.mark.parametrize("address", ["8081", "localhost:http", ":99999"])
async def test_a_wrong_address_is_explained(address: str) -> None:
    with pytest.raises(UserError, match="cannot listen on"):
        async with serve({address: {}}):
            pass


async def test_an_address_in_use_is_explained() -> None:
    async with serve({"127.0.0.1:0": {}}) as (url,):
        with pytest.raises(UserError, match=r"cannot listen on 127\.0\.0\.1:\d+: .*in use"):
            async with serve({url.removeprefix("http://"): {}}):
                pass


async def test_a_worker_that_never_comes_back_is_named(clock: FakeClock) -> None:
    queue, release = Queue(clock=clock), asyncio.Event()

    async def stubborn(key: Key) -> Result:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Result()

    controller = Controller("nodeset", queue, stubborn, workers=1, deadline=60, clock=clock)
    check = no_stuck_worker([controller])
    queue.add(("ns", "gpu"))
    running = asyncio.create_task(controller.run())
    await clock.sleep(60)
    assert check() is None
    await clock.sleep(40)
    assert check() == "a worker does not come back: nodeset on ns/gpu"
    release.set()
    queue.shut_down()
    await running


async def test_a_watch_without_a_sign_of_life_is_named(client: Client, clock: FakeClock) -> None:
    reflectors: list[Reflector[Any]] = [
        Reflector(client, NODES, Store(), clock=clock),
        Reflector(client, PODS, Store(), clock=clock),
    ]
    dead, silent = no_dead_watch(lambda: reflectors, clock), no_silent_watch(lambda: reflectors, clock)
    await clock.sleep(299)
    reflectors[0].last_contact = clock.monotonic()
    assert (dead(), silent()) == (None, None)
    await clock.sleep(2)
    assert dead() == "no attempt on the watch of pods (301 s)"
    assert silent() == "nothing heard on the watch of pods (301 s)"


@pytest.mark.parametrize("fault", [Disconnect(), Hang()], ids=["gone", "hanging"])
async def test_an_api_server_that_is_away_is_no_reason_to_restart(
    client: Client, server: FakeApiServer, clock: FakeClock, fault: Disconnect | Hang
) -> None:
    """A new process would not reach it either, and the kubelet would start that one later each time."""
    reflector = Reflector(client, PODS, Store(), clock=clock)
    dead, silent = no_dead_watch(lambda: [reflector], clock), no_silent_watch(lambda: [reflector], clock)
    running = asyncio.create_task(reflector.run())
    await reflector_synced(reflector, clock)
    server.inject(fault, "list|watch", "pods", times=None)
    server.cut_watches()
    for _ in range(20):
        await clock.sleep(30)
        assert dead() is None
    assert silent() is not None
    server.faults.clear()
    await clock.sleep(200)
    assert (dead(), silent()) == (None, None)
    running.cancel()


async def reflector_synced(reflector: Reflector[Any], clock: FakeClock) -> None:
    while not reflector.connected:
        await clock.sleep(0.1)


class SlowClock(FakeClock):
    """A loop that wakes each sleeper `late` seconds too late."""

    late = 0.0

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds + self.late)


async def test_a_loop_that_was_blocked_is_unwell_for_half_a_minute() -> None:
    clock = SlowClock()
    lag = LoopLag(clock=clock)
    check = no_blocked_loop(lag)
    measuring = asyncio.create_task(lag.run())
    await asyncio.sleep(10)
    assert check() is None
    clock.late = 6.0
    await asyncio.sleep(7)
    clock.late = 0.0
    await asyncio.sleep(7)
    assert check() == "the event loop was blocked for 6.0 s"
    await asyncio.sleep(40)
    assert check() is None
    measuring.cancel()

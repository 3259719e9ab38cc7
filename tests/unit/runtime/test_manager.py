"""The life of the process, against the in-memory API server, in virtual time."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.errors import Forbidden
from slurm_operator.kube.kinds import CONFIG_MAPS, LEASES
from slurm_operator.kube.lease import Elector
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.background import Background
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.manager import Addresses, Manager, run
from slurm_operator.runtime.plan import Result
from slurm_operator.runtime.queue import Queue
from slurm_operator.runtime.sources import feed, itself
from tests.fakes.apiserver import FakeApiServer, Fault, Hang, Refuse
from tests.fakes.clock import FakeClock

Work = Callable[[Key], Awaitable[Result]]


async def nothing(key: Key) -> Result:
    return Result()


class Replica:
    """One process of the operator: a controller of ConfigMaps that writes down what it saw."""

    def __init__(
        self, client: Client, clock: FakeClock, name: str, *, lead: bool = True, work: Work = nothing, **options: Any
    ) -> None:
        self.seen: list[str] = []
        self.work = work
        self.caches = Caches(client, clock=clock)
        self.queue = Queue("maps", clock=clock)
        self.elector = Elector(client, "default", "slurm-operator", name, clock=clock) if lead else None
        self.controller = Controller("maps", self.queue, self.reconcile, workers=2, clock=clock)
        feed(self.queue, self.caches.follow(CONFIG_MAPS), itself)
        options = {"addresses": Addresses("127.0.0.1:0", "0"), "elector": self.elector, "clock": clock} | options
        self.manager = Manager(self.caches, [self.controller], **options)

    async def reconcile(self, key: Key) -> Result:
        self.seen.append(key[1])
        return await self.work(key)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[int]"]:
        task = asyncio.create_task(self.manager.run())
        try:
            yield task
        finally:
            self.manager.stop()
            await asyncio.wait({task}, timeout=1000)


@pytest.fixture
async def clients(server: FakeApiServer, clock: FakeClock) -> AsyncIterator[list[Client]]:
    """Two processes share no connection."""
    clients = [Client(KubeConfig(server.url), clock=clock) for _ in range(2)]
    yield clients
    for client in clients:
        await client.close()


async def make(client: Client, name: str) -> None:
    await client.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "default"}, "data": {}})


async def holder(client: Client) -> str:
    return (await client.get(LEASES, "slurm-operator", "default")).spec.holder_identity


async def test_it_works_off_what_is_there_and_what_comes(client: Client, clock: FakeClock) -> None:
    await make(client, "old")
    replica = Replica(client, clock, "a")
    async with replica.running() as task:
        await clock.sleep(5)
        assert replica.seen == ["old"]
        await make(client, "new")
        await clock.sleep(5)
        assert replica.seen == ["old", "new"]
        replica.manager.stop()
        assert await task == 0
    assert await holder(client) == ""


async def test_only_the_lease_holder_works_and_the_other_takes_over_at_once(
    clients: list[Client], clock: FakeClock
) -> None:
    """scenario 20"""
    first, second = (Replica(client, clock, name) for client, name in zip(clients, "ab", strict=True))
    async with first.running() as one:
        await clock.sleep(1)
        async with second.running():
            await make(clients[0], "x")
            await clock.sleep(30)
            assert (first.seen, second.seen) == (["x"], [])
            assert second.caches.store(CONFIG_MAPS).get("default", "x") is not None
            first.manager.stop()
            assert await one == 0
            await clock.sleep(4)  # a try every two seconds, far less than the lease's fifteen
            assert await holder(clients[1]) == "b"
            assert second.seen == ["x"]


async def test_losing_the_lease_ends_the_process(
    client: Client, server: FakeApiServer, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[float] = []

    async def endless(key: Key) -> Result:
        while True:
            written.append(clock.monotonic())
            await clock.sleep(0.5)

    replica = Replica(client, clock, "a", work=endless)
    await make(client, "x")
    async with replica.running() as task:
        await clock.sleep(5)
        server.faults.add(Fault(Hang(), resource="leases", times=None))
        assert await task == 1
        ended = clock.monotonic()
    assert ended < 5 + 15, "another may lead after fifteen seconds"
    assert written[-1] <= ended
    assert "ending because leadership was lost" in caplog.text


async def test_without_election_it_works_alone(client: Client, clock: FakeClock) -> None:
    replica = Replica(client, clock, "a", lead=False)
    await make(client, "x")
    async with replica.running():
        await clock.sleep(1)
        assert replica.seen == ["x"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_work_in_hand_finish(client: Client, clock: FakeClock, number: signal.Signals) -> None:
    finished: list[str] = []

    async def slow(key: Key) -> Result:
        await clock.sleep(8)
        finished.append(key[1])
        return Result()

    for name in ("a", "b", "c"):
        await make(client, name)
    replica = Replica(client, clock, "a", work=slow)
    async with replica.running() as task:
        while len(replica.seen) < 2:
            await clock.sleep(0.1)
        os.kill(os.getpid(), number)
        assert await task == 0
    assert sorted(finished) == ["a", "b"]
    assert replica.seen == ["a", "b"], "a third key must not be begun"
    assert await holder(client) == ""


async def test_work_that_takes_too_long_is_cancelled_before_the_lease_is_given_back(
    client: Client, clock: FakeClock
) -> None:
    ends: list[str] = []

    async def endless(key: Key) -> Result:
        try:
            await asyncio.sleep(1e6)
        finally:
            ends.append(await holder(client))
        return Result()

    await make(client, "x")
    replica = Replica(client, clock, "a", work=endless, drain_seconds=20)
    async with replica.running() as task:
        await clock.sleep(5)
        before = clock.monotonic()
        replica.manager.stop()
        assert await task == 0
        assert clock.monotonic() - before == pytest.approx(20, abs=1)
    assert ends == ["a"]
    assert await holder(client) == ""


async def test_a_standby_stops_at_once(clients: list[Client], clock: FakeClock) -> None:
    first, second = (Replica(client, clock, name) for client, name in zip(clients, "ab", strict=True))
    async with first.running():
        await clock.sleep(1)
        async with second.running() as two:
            await clock.sleep(5)
            before = clock.monotonic()
            second.manager.stop()
            assert await two == 0
            assert clock.monotonic() - before < 1
        assert await holder(clients[0]) == "a"


async def test_a_refused_watch_ends_the_process_with_a_clear_word(
    client: Client, server: FakeApiServer, clock: FakeClock
) -> None:
    server.faults.add(Fault(Refuse(403, "Forbidden", "no"), resource="configmaps", times=None))
    with pytest.raises(Forbidden, match="configmaps"):
        await Replica(client, clock, "a").manager.run()


async def test_a_failing_poller_does_not(client: Client, clock: FakeClock) -> None:
    background = Background(clock)

    async def broken() -> None:
        raise ValueError

    background.keep("poller", broken)
    replica = Replica(client, clock, "a", background=background)
    async with replica.running():
        await clock.sleep(600)
        await make(client, "x")
        await clock.sleep(1)
        assert replica.seen == ["x"]
    assert background.restarts["poller"] > 5


async def test_probes_follow_the_life_of_the_process(
    client: Client, server: FakeApiServer, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    listing = server.faults.add(Fault(Refuse(503), resource="configmaps", times=None))
    replica = Replica(client, clock, "a", addresses=Addresses("127.0.0.1:0", "127.0.0.1:0"))
    async with replica.running(), aiohttp.ClientSession() as session:

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(f"{url}{path}") as answer:
                return answer.status, await answer.text()

        while not (lines := [record for record in caplog.records if record.getMessage() == "listening"]):
            await clock.sleep(0.1)
        (url,) = lines[0].__dict__["urls"]
        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (503, "still reading the present state from the API server\n")
        listing.times = 0
        await clock.sleep(60)
        assert await ask("/readyz") == (200, "ok\n")
        status, text = await ask("/metrics")
        assert status == 200
        assert 'leader_election_master_status{name="slurm-operator"} 1.0' in text
        replica.manager.stop()
        assert await ask("/readyz") == (503, "stopping\n")


def test_run_uses_the_faster_loop() -> None:
    async def loop() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run(loop()) == "uvloop"


def test_run_works_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def loop() -> str:
        return type(asyncio.get_running_loop()).__module__

    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    assert run(loop()).startswith("asyncio")

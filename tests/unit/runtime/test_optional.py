"""A kind that the cluster may not know: followed while it is served, and never a reason to end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slurm_operator.kube.client import Client
from slurm_operator.kube.errors import Call, ServerError
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import SERVICE_MONITORS
from slurm_operator.runtime.health import SILENT_SECONDS, no_dead_watch
from slurm_operator.runtime.optional import DISCOVERY_SECONDS
from tests.fakes.apiserver import FakeApiServer, Refuse
from tests.fakes.clock import FakeClock

A_WHILE = 2 * DISCOVERY_SECONDS


def monitor(name: str = "m") -> Manifest:
    return {"metadata": {"name": name, "namespace": "default"}}


@asynccontextmanager
async def running(caches: Caches) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(caches.run())
    try:
        async with asyncio.timeout(60):
            await caches.synced()
        yield task
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def caches(client: Client, clock: FakeClock, told: list[Any]) -> Caches:
    found = Caches(client, clock=clock)
    found.follow_if_served(SERVICE_MONITORS)
    found.when_served(told.append)
    return found


async def test_a_kind_that_is_there_is_listed_before_the_work_begins(caches: Caches, client: Client) -> None:
    await client.create(SERVICE_MONITORS, monitor())
    async with running(caches):
        assert SERVICE_MONITORS in caches.followed
        assert len(caches.store(SERVICE_MONITORS)) == 1


@pytest.mark.parametrize("answer", [b"{}", b'{"resources":[{}]}', b"[]", b"<html>", b'{"resources":null}'])
async def test_an_answer_that_says_nothing_ends_nothing(
    caches: Caches, client: Client, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """A proxy may answer for the server; a group without kinds has null for a list."""
    send = client._send

    async def sent(call: Call, method: str, path: str, **options: Any) -> bytes:
        return answer if path == f"/apis/{SERVICE_MONITORS.api_version}" else await send(call, method, path, **options)

    monkeypatch.setattr(client, "_send", sent)
    async with running(caches):
        assert SERVICE_MONITORS not in caches.followed


async def test_a_kind_may_come_and_go(
    caches: Caches, client: Client, server: FakeApiServer, clock: FakeClock, told: list[Any]
) -> None:
    kind = server.cluster.kind("ServiceMonitor")
    server.cluster.kinds.remove(kind)
    async with running(caches):
        assert SERVICE_MONITORS not in caches.followed
        assert server.log("watch", "servicemonitors") == []
        for visit in (1, 2):
            server.cluster.kinds.add(kind)
            await client.create(SERVICE_MONITORS, monitor(f"m{visit}"))
            await clock.sleep(A_WHILE)
            assert SERVICE_MONITORS in caches.followed
            assert len(caches.store(SERVICE_MONITORS)) == visit
            server.cluster.kinds.remove(kind)
            server.cut_watches()
            await clock.sleep(A_WHILE)
            assert SERVICE_MONITORS not in caches.followed
            assert len(caches.store(SERVICE_MONITORS)) == 0
            assert caches.reflectors == []
    assert told == [SERVICE_MONITORS] * 4


async def test_a_kind_that_may_not_be_listed_holds_up_nothing(
    caches: Caches, server: FakeApiServer, clock: FakeClock
) -> None:
    server.inject(Refuse(403, "Forbidden", "User cannot list"), "list|watch", "servicemonitors", times=None)
    async with running(caches):
        await clock.sleep(2 * SILENT_SECONDS)
        assert SERVICE_MONITORS not in caches.followed
        assert no_dead_watch(lambda: caches.reflectors, clock)() is None
        server.faults.clear()
        await clock.sleep(A_WHILE)
        assert SERVICE_MONITORS in caches.followed


async def test_a_question_without_an_answer_changes_nothing(
    caches: Caches, client: Client, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise ServerError(Call("get", "monitoring.coreos.com/v1", "kinds"), "overloaded", status=500)

    with monkeypatch.context() as broken:
        broken.setattr(client, "kinds", refused)
        async with running(caches):
            assert SERVICE_MONITORS not in caches.followed
            broken.undo()
            await clock.sleep(A_WHILE)
            assert SERVICE_MONITORS in caches.followed
            broken.setattr(client, "kinds", refused)
            await clock.sleep(A_WHILE)
            assert SERVICE_MONITORS in caches.followed

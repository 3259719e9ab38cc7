"""The sample controller, which is also the shortest test of all the parts together."""

import asyncio

from examples.configmap_controller.__main__ import build

from slurm_operator.kube.client import Client
from slurm_operator.kube.kinds import CONFIG_MAPS
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.manager import Addresses
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock

LABEL = "example.slinky.slurm.net/mirror"


def source(text: str) -> Manifest:
    meta = {"name": "hello", "namespace": "default", "labels": {LABEL: "source"}}
    return {"metadata": meta, "data": {"text": text}}


async def test_a_copy_follows_its_source(client: Client, server: FakeApiServer, clock: FakeClock) -> None:
    manager = build(client, Addresses("0", "0"))
    running = asyncio.create_task(manager.run())

    async def copies() -> dict[str, dict[str, str]]:
        await clock.sleep(1)
        listing = await client.list(CONFIG_MAPS, "default", labels=f"{LABEL}=copy")
        return {found.metadata.name: found.data for found in listing.items}

    await client.create(CONFIG_MAPS, source("good morning"))
    assert await copies() == {"hello-shouted": {"text": "GOOD MORNING"}}
    await client.patch(CONFIG_MAPS, "hello", {"data": {"text": "good night"}}, "default")
    assert await copies() == {"hello-shouted": {"text": "GOOD NIGHT"}}
    await client.delete(CONFIG_MAPS, "hello-shouted", "default")
    assert await copies() == {"hello-shouted": {"text": "GOOD NIGHT"}}
    quiet = len(server.requests)
    await clock.sleep(60)
    assert [line.verb for line in server.requests[quiet:]] == []
    await client.patch(CONFIG_MAPS, "hello", {"metadata": {"labels": {LABEL: None}}}, "default")
    assert await copies() == {}
    manager.stop()
    assert await running == 0


async def test_a_second_process_writes_nothing(client: Client, server: FakeApiServer, clock: FakeClock) -> None:
    async def live() -> None:
        manager = build(client, Addresses("0", "0"))
        running = asyncio.create_task(manager.run())
        await clock.sleep(5)
        manager.stop()
        await running

    await client.create(CONFIG_MAPS, source("good morning"))
    await live()
    assert [line.verb for line in server.writes] == ["create", "apply"]
    await live()
    assert len(server.writes) == 2

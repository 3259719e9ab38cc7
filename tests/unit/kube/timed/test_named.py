"""Watches of single objects: as many as are needed, for as long as anyone needs them."""

import asyncio

import pytest

from slurm_operator.kube import SECRETS, Client, NamedWatches, Secret
from tests.fakes.apiserver import FakeApiServer, Refuse
from tests.fakes.clock import FakeClock
from tests.unit.kube.conftest import running

A, B, C = ("default", "a"), ("default", "b"), ("kube-system", "c")


@pytest.fixture
def watches(client: Client, clock: FakeClock) -> NamedWatches[Secret]:
    return NamedWatches(client, SECRETS, clock=clock)


async def make(client: Client, namespace: str, name: str, value: str = "MQ==") -> None:
    meta = {"name": name, "namespace": namespace}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"k": value}}
    await client.create(SECRETS, manifest)


async def test_only_what_is_needed_is_watched(
    server: FakeApiServer, client: Client, watches: NamedWatches[Secret]
) -> None:
    for key in (A, B, C):
        await make(client, *key)
    heard: list[str] = []
    watches.store.subscribe(lambda old, new: heard.append(new.metadata.name if new else "gone"))
    async with running(watches.run()):
        watches.ensure("first", [A, C])
        assert not watches.known(*A)
        await asyncio.sleep(1)
        assert watches.known(*A)
        assert not watches.known(*B)
        assert {obj.metadata.name for obj in watches.store} == {"a", "c"}
        await client.patch(SECRETS, "a", {"data": {"k": "Mg=="}}, "default")
        await client.patch(SECRETS, "b", {"data": {"k": "Mg=="}}, "default")
        await asyncio.sleep(1)
        assert sorted(heard) == ["a", "a", "c"]
        assert {line.query["fieldSelector"] for line in server.log("watch")} == {"metadata.name=a", "metadata.name=c"}
        assert len(watches.reflectors) == 2


async def test_the_last_who_needs_it_ends_the_watch(server: FakeApiServer, watches: NamedWatches[Secret]) -> None:
    async with running(watches.run()):
        watches.ensure("first", [A, B])
        watches.ensure("second", [B])
        await asyncio.sleep(1)
        assert len(server.open_watches) == 2
        watches.ensure("first", [])
        await asyncio.sleep(1)
        assert len(server.open_watches) == 1
        assert not watches.known(*A)
        assert watches.known(*B)
        watches.ensure("second", [])
        await asyncio.sleep(1)
        assert server.open_watches == []


async def test_the_same_need_again_costs_nothing(server: FakeApiServer, watches: NamedWatches[Secret]) -> None:
    async with running(watches.run()):
        watches.ensure("nobody", [])
        watches.ensure("first", [A])
        await asyncio.sleep(1)
        requests = len(server.requests)
        for _ in range(100):
            watches.ensure("first", [A])
        await asyncio.sleep(30)
        assert len(server.requests) == requests


async def test_a_missing_object_is_known_to_be_missing_until_it_comes(
    client: Client, watches: NamedWatches[Secret]
) -> None:
    async with running(watches.run()):
        watches.ensure("first", [A])
        await asyncio.sleep(1)
        assert watches.known(*A)
        assert watches.store.get(*A) is None
        await make(client, *A)
        await asyncio.sleep(1)
        found = watches.store.get(*A)
        assert found is not None
        assert found.data == {"k": b"1"}


async def test_a_refusal_for_one_does_not_end_the_others(
    server: FakeApiServer, client: Client, watches: NamedWatches[Secret]
) -> None:
    server.inject(Refuse(403, "Forbidden", "no"), "watch", "secrets", times=5)
    await make(client, *A)
    async with running(watches.run()) as [task]:
        watches.ensure("first", [A])
        await asyncio.sleep(2)
        assert not task.done()
        assert watches.reflectors[0].last_error is not None
        await asyncio.sleep(30)
        assert watches.known(*A)

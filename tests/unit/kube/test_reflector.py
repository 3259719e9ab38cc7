"""The reflector keeps a store equal to the server, through every way a watch can end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slurm_operator.kube import (
    CONFIG_MAPS,
    Client,
    ConfigMap,
    Forbidden,
    Invalid,
    KubeConfig,
    NotFound,
    Partial,
    Reflector,
    Resource,
    Scope,
    Store,
    Unauthorized,
)
from slurm_operator.kube.config import Material
from tests.fakes.apiserver import Disconnect, FailStream, FakeApiServer, Refuse
from tests.unit.kube.conftest import HURRIED, running, until

pytestmark = pytest.mark.parametrize("streaming", [True, False], ids=["watch-list", "pages"])


def config_map(name: str, value: str = "1", namespace: str = "default", **labels: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"v": value}}


@pytest.fixture
async def server(streaming: bool) -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer(watch_list=streaming, run_controllers=False) as server:
        yield server


def reflector_of(client: Client, store: Store[ConfigMap], **options: Any) -> Reflector[ConfigMap]:
    return Reflector(client, CONFIG_MAPS, store, clock=HURRIED, **options)


class Changes:
    """What a handler of the store heard."""

    def __init__(self, store: Store[ConfigMap]) -> None:
        self.heard: list[tuple[str, str]] = []
        store.subscribe(self._hear)

    def _hear(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        obj = new or old
        assert obj is not None
        what = "deleted" if new is None else "added" if old is None else "changed"
        self.heard.append((what, obj.metadata.name))


def names(store: Store[ConfigMap]) -> set[str]:
    return {obj.metadata.name for obj in store}


async def test_lists_then_follows(server: FakeApiServer, client: Client) -> None:
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, config_map(name))
    store = Store[ConfigMap]()
    changes = Changes(store)
    reflector = reflector_of(client, store)
    async with running(reflector.run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        assert names(store) == {"a", "b"}
        await client.create(CONFIG_MAPS, config_map("c"))
        await client.patch(CONFIG_MAPS, "a", {"data": {"v": "2"}}, "default")
        await client.delete(CONFIG_MAPS, "b", "default")
        await until(lambda: ("deleted", "b") in changes.heard)
        assert reflector.connected
        assert reflector.last_error is None
    found = store.get("default", "a")
    assert found is not None
    assert found.data == {"v": "2"}
    assert names(store) == {"a", "c"}
    assert changes.heard[-3:] == [("added", "c"), ("changed", "a"), ("deleted", "b")]
    assert not reflector.connected


async def test_many_objects_arrive_in_pages(server: FakeApiServer, client: Client, streaming: bool) -> None:
    for number in range(1100):
        server.cluster.create(server.cluster.kind("ConfigMap"), config_map(f"c{number}"))
    store = Store[ConfigMap]()
    async with running(reflector_of(client, store).run()):
        await asyncio.wait_for(store.synced.wait(), 10)
    assert len(store) == 1100
    assert len(server.log("list", "configmaps")) == (0 if streaming else 3)


async def test_a_refused_stream_of_lists_is_not_asked_for_again(
    server: FakeApiServer, client: Client, streaming: bool
) -> None:
    stores = [Store[ConfigMap](), Store[ConfigMap]()]
    for store in stores:
        async with running(reflector_of(client, store).run()):
            await asyncio.wait_for(store.synced.wait(), 5)
    refused = [line for line in server.log("watch") if line.code >= 400]
    assert len(refused) == (0 if streaming else 1)
    assert client.streams_lists is streaming


@pytest.mark.parametrize("how", ["cut", "stop"])
async def test_a_broken_watch_resumes_without_listing(server: FakeApiServer, client: Client, how: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    store = Store[ConfigMap]()
    changes = Changes(store)
    async with running(reflector_of(client, store).run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        await until(lambda: server.open_watches)
        before = len(server.log("list")), len([r for r in server.log("watch") if "sendInitialEvents" in r.query])
        kind = server.cluster.kind("ConfigMap")
        if how == "cut":
            server.cut_watches()
            server.cluster.create(kind, config_map("missed"))
        else:
            await server.stop()
            server.cluster.create(kind, config_map("missed"))
            await server.start()
        await until(lambda: "missed" in names(store))
    after = len(server.log("list")), len([r for r in server.log("watch") if "sendInitialEvents" in r.query])
    assert before == after
    assert changes.heard == [("added", "a"), ("added", "missed")]


async def test_an_expired_version_lists_again_and_synthesises_deletes(server: FakeApiServer, client: Client) -> None:
    for name in ("stays", "goes", "changes"):
        await client.create(CONFIG_MAPS, config_map(name))
    store = Store[ConfigMap]()
    changes = Changes(store)
    async with running(reflector_of(client, store).run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        await until(lambda: server.open_watches)
        changes.heard.clear()
        server.silence_watches()
        kind = server.cluster.kind("ConfigMap")
        server.cluster.delete(kind, "goes", "default")
        server.cluster.patch(kind, "changes", "default", {"data": {"v": "2"}})
        server.expire_watches()
        await until(lambda: ("deleted", "goes") in changes.heard)
    assert names(store) == {"stays", "changes"}
    assert sorted(changes.heard) == [("changed", "changes"), ("deleted", "goes")]


async def test_a_version_too_old_at_the_door_lists_again(server: FakeApiServer, client: Client) -> None:
    store = Store[ConfigMap]()
    async with running(reflector_of(client, store).run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        await until(lambda: server.open_watches)
        server.inject(Refuse(410, "Expired"), "watch", "configmaps")
        server.cut_watches()
        server.cluster.create(server.cluster.kind("ConfigMap"), config_map("new"))
        await until(lambda: "new" in names(store))


async def test_silence_is_noticed(server: FakeApiServer, client: Client) -> None:
    store = Store[ConfigMap]()
    async with running(reflector_of(client, store, inactivity=0.3).run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        await until(lambda: server.open_watches)
        server.silence_watches()
        server.cluster.create(server.cluster.kind("ConfigMap"), config_map("unheard"))
        await until(lambda: "unheard" in names(store))


@pytest.mark.parametrize(
    "fault",
    [Refuse(429, retry_after=1), Refuse(500), Refuse(503), Disconnect(), FailStream(500)],
    ids=["429", "500", "503", "disconnect", "stream-error"],
)
async def test_a_struggling_server_is_asked_again(server: FakeApiServer, client: Client, fault: Any) -> None:
    server.inject(fault, "watch", "configmaps", times=2)
    await client.create(CONFIG_MAPS, config_map("a"))
    store = Store[ConfigMap]()
    reflector = reflector_of(client, store)
    async with running(reflector.run()):
        await until(lambda: reflector.last_error is not None)
        await until(lambda: store.synced.is_set() and reflector.connected and reflector.last_error is None)
    assert names(store) == {"a"}


async def test_several_namespaces_feed_one_store(server: FakeApiServer, client: Client) -> None:
    for namespace, name in (("default", "a"), ("kube-system", "b")):
        await client.create(CONFIG_MAPS, config_map(name, namespace=namespace))
    store = Store[ConfigMap]()
    first, second = (reflector_of(client, store, namespace=n) for n in ("default", "kube-system"))
    async with running(first.run()):
        await until(lambda: store.has_synced(Scope("default")))
        assert not store.synced.is_set()
        async with running(second.run()):
            await asyncio.wait_for(store.synced.wait(), 5)
    assert names(store) == {"a", "b"}
    assert {line.namespace for line in server.requests} == {"default", "kube-system"}


async def test_selects_by_label(server: FakeApiServer, client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("in", mine="yes"))
    await client.create(CONFIG_MAPS, config_map("out"))
    store = Store[ConfigMap]()
    async with running(reflector_of(client, store, labels="mine=yes").run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        assert names(store) == {"in"}
        await client.patch(CONFIG_MAPS, "in", {"metadata": {"labels": {"mine": None}}}, "default")
        await until(lambda: not len(store))


@pytest.mark.parametrize(("code", "kind"), [(403, Forbidden), (404, NotFound), (401, Unauthorized), (400, Invalid)])
async def test_a_refusal_at_the_start_is_raised(
    server: FakeApiServer, client: Client, code: int, kind: type[Exception]
) -> None:
    server.inject(Refuse(code), "watch|list", "configmaps", times=None)
    with pytest.raises(kind, match=r"cannot (watch|list) configmaps"):
        await asyncio.wait_for(reflector_of(client, Store()).run(), 5)


async def test_a_refusal_later_is_waited_out(server: FakeApiServer, client: Client) -> None:
    store = Store[ConfigMap]()
    reflector = reflector_of(client, store)
    async with running(reflector.run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        await until(lambda: server.open_watches)
        server.inject(Refuse(403), "watch", "configmaps", times=3)
        server.cut_watches()
        await until(lambda: isinstance(reflector.last_error, Forbidden))
        await client.create(CONFIG_MAPS, config_map("late"))
        await until(lambda: "late" in names(store))


async def test_an_expired_token_is_read_anew(server: FakeApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    server.tokens = {"first"}
    store = Store[ConfigMap]()
    async with (
        Client(KubeConfig(server.url, token=Material(token))) as client,
        running(reflector_of(client, store).run()),
    ):
        await asyncio.wait_for(store.synced.wait(), 5)
        await until(lambda: server.open_watches)
        token.write_text("second")
        server.tokens = {"second"}
        server.cut_watches()
        server.cluster.create(server.cluster.kind("ConfigMap"), config_map("after"))
        await until(lambda: "after" in names(store))


def unreadable(store: Store[Any]) -> set[str]:
    return {name for _, name in store.unreadable}


@pytest.mark.parametrize("streams", [True, False])
async def test_one_unreadable_object_does_not_hide_the_others(
    server: FakeApiServer, client: Client, caplog: pytest.LogCaptureFixture, streams: bool
) -> None:
    client.streams_lists = streams

    class Numbers(Partial):
        data: dict[str, int] = msgspec.field(default_factory=dict)

    numbers = Resource("", "v1", "ConfigMap", "configmaps", Numbers)
    kind = server.cluster.kind("ConfigMap")
    for name in ("fits", "spoils"):
        server.cluster.create(kind, config_map(name) | {"data": {}})
    server.cluster.create(kind, config_map("never-fits"))
    store = Store[Numbers]()
    async with running(Reflector(client, numbers, store).run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        assert unreadable(store) == {"never-fits"}
        await until(lambda: server.open_watches)
        server.cluster.patch(kind, "spoils", "default", {"data": {"v": "text"}})
        server.cluster.create(kind, config_map("later") | {"data": {}})
        await until(lambda: store.get("default", "later"))
        assert unreadable(store) == {"never-fits", "spoils"}
        server.cluster.create(kind, config_map("spoils-and-goes") | {"data": {}})
        await until(lambda: store.get("default", "spoils-and-goes"))
        server.cluster.patch(kind, "spoils-and-goes", "default", {"data": {"v": "text"}})
        server.cluster.delete(kind, "spoils-and-goes", "default")
        await until(lambda: not store.get("default", "spoils-and-goes"))
        assert unreadable(store) == {"never-fits", "spoils"}
        server.expire_watches()
        server.cluster.create(kind, config_map("last") | {"data": {}})
        await until(lambda: store.get("default", "last"))
        assert unreadable(store) == {"never-fits", "spoils"}
        server.cluster.patch(kind, "spoils", "default", {"data": None})
        await until(lambda: unreadable(store) == {"never-fits"})
        server.cluster.delete(kind, "never-fits", "default")
        await until(lambda: not store.unreadable)
    assert {obj.metadata.name for obj in store} == {"fits", "spoils", "later", "last"}
    assert ("default", "never-fits") in {record.__dict__.get("object") for record in caplog.records}

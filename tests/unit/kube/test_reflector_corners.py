"""What a well-behaved server never does to a watch, played from a script."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from slurm_operator.kube import CONFIG_MAPS, Client, ConfigMap, KubeConfig, Reflector, Store
from tests.unit.kube.conftest import HURRIED, running, until

Json = dict[str, Any]
Watch = list[tuple[str, Json]] | int


def cm(name: str, version: int, **data: str) -> Json:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}, "data": data}


def bookmark(version: int) -> tuple[str, Json]:
    meta = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    return "BOOKMARK", {"metadata": meta}


class Script:
    """Each watch gets the next entry: events and then a clean end, or a refusal. The last one stays open."""

    def __init__(self) -> None:
        self.watches: list[Watch] = []
        self.asked: list[str] = []

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.query.get("resourceVersion", ""))
        entry = self.watches.pop(0) if self.watches else []
        if isinstance(entry, int):
            message = "Too large resource version: 500, current: 90"
            return web.json_response({"code": entry, "reason": "Timeout", "message": message}, status=entry)
        response = web.StreamResponse()
        await response.prepare(request)
        for type_, obj in entry:
            await response.write(json.dumps({"type": type_, "object": obj}).encode() + b"\n")
        if not self.watches:
            await asyncio.Event().wait()
        return response


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def client(script: Script) -> AsyncIterator[Client]:
    runner = web.ServerRunner(web.Server(script.serve, handler_cancellation=True), shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with Client(KubeConfig(f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
        yield client
    await runner.cleanup()


def names(store: Store[ConfigMap]) -> set[str]:
    return {obj.metadata.name for obj in store}


async def test_a_deletion_while_the_state_is_still_coming(script: Script, client: Client) -> None:
    bad: Json = cm("bad", 4) | {"data": 3}
    script.watches = [
        [
            ("ADDED", cm("a", 1)),
            ("ADDED", cm("b", 2)),
            ("ADDED", bad),
            ("DELETED", cm("a", 5)),
            ("DELETED", bad),
            bookmark(6),
        ]
    ]
    store = Store[ConfigMap]()
    async with running(Reflector(client, CONFIG_MAPS, store, clock=HURRIED).run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        assert names(store) == {"b"}
        assert not store.unreadable


async def test_an_object_that_changes_while_the_state_is_still_coming(script: Script, client: Client) -> None:
    script.watches = [
        [
            ("ADDED", cm("spoils", 1)),
            ("ADDED", cm("heals", 2) | {"data": 3}),
            ("MODIFIED", cm("spoils", 4) | {"data": 3}),
            ("MODIFIED", cm("heals", 5)),
            bookmark(6),
        ]
    ]
    store = Store[ConfigMap]()
    async with running(Reflector(client, CONFIG_MAPS, store, clock=HURRIED).run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        assert names(store) == {"spoils", "heals"}
        assert list(store.unreadable) == [("default", "spoils")]


async def test_a_stream_that_ends_halfway_through_the_state_begins_anew(script: Script, client: Client) -> None:
    script.watches = [[("ADDED", cm("a", 1))], [("ADDED", cm("b", 2)), bookmark(6)]]
    store = Store[ConfigMap]()
    async with running(Reflector(client, CONFIG_MAPS, store, clock=HURRIED).run()):
        await asyncio.wait_for(store.synced.wait(), 5)
        assert names(store) == {"b"}
    assert script.asked == ["", ""]


async def test_a_server_that_hangs_up_at_once_is_not_hammered(
    script: Script, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "slurm_operator")
    script.watches = [[("ADDED", cm("a", 1)), bookmark(6)], [], [], [], [("ADDED", cm("b", 7))]]
    store = Store[ConfigMap]()
    reflector = Reflector(client, CONFIG_MAPS, store, clock=HURRIED)
    async with running(reflector.run()):
        await until(lambda: "b" in names(store))
    assert script.asked == ["", "6", "6", "6", "6"]
    ours = [record for record in caplog.records if record.name.startswith("slurm_operator")]
    assert [record.message for record in ours] == ["watch fails, trying on", "watch works again"]
    assert "as soon as it begins" in ours[0].__dict__["error"]


async def test_a_server_restored_from_a_backup(script: Script, client: Client) -> None:
    """Its versions are lower than ours: only a new listing tells what is true now."""
    script.watches = [
        [("ADDED", cm("stays", 400, v="new")), ("ADDED", cm("lost", 410)), bookmark(500)],
        504,
        [("ADDED", cm("stays", 80, v="old")), bookmark(90), ("MODIFIED", cm("stays", 91, v="newest"))],
    ]
    store = Store[ConfigMap]()
    async with running(Reflector(client, CONFIG_MAPS, store, clock=HURRIED).run()):
        await until(lambda: (obj := store.get("default", "stays")) and obj.data == {"v": "newest"})
        assert names(store) == {"stays"}
    assert script.asked == ["", "500", ""]

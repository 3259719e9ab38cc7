"""Events: told once, counted when repeated, and never at the expense of the work."""

import asyncio
from typing import Any

import pytest

from slurm_operator.kube import CONFIG_MAPS, EVENTS, Client, ConfigMap, Event, Recorder
from slurm_operator.kube import events as module
from tests.fakes.apiserver import FakeApiServer, Hang, Refuse
from tests.fakes.clock import FakeClock
from tests.unit.kube.conftest import running


@pytest.fixture
def recorder(client: Client, clock: FakeClock) -> Recorder:
    return Recorder(client, "slurm-operator", clock=clock)


async def subject(client: Client, name: str = "subject") -> ConfigMap:
    meta = {"name": name, "namespace": "default"}
    return await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})


async def recorded(client: Client) -> list[Event]:
    return (await client.list(EVENTS, "default")).items


async def test_an_event_says_what_happened_to_whom(client: Client, recorder: Recorder) -> None:
    obj = await subject(client)
    recorder.record(CONFIG_MAPS, obj, "SyncFailed", "no such Secret", type="Warning", action="Apply")
    async with running(recorder.run()):
        await asyncio.sleep(1)
    [event] = await recorded(client)
    assert (event.type, event.reason, event.note, event.action) == ("Warning", "SyncFailed", "no such Secret", "Apply")
    assert (event.regarding.kind, event.regarding.name, event.regarding.uid) == (
        "ConfigMap",
        "subject",
        obj.metadata.uid,
    )
    raw = await client.get_raw(EVENTS, event.metadata.name, "default")
    assert raw["reportingController"] == "slurm-operator"
    assert event.series is None


async def test_repetition_is_a_count(server: FakeApiServer, client: Client, recorder: Recorder) -> None:
    obj = await subject(client)
    async with running(recorder.run()):
        for _ in range(300):
            recorder.record(CONFIG_MAPS, obj, "SyncFailed", "again")
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        quiet = len(server.requests)
        await asyncio.sleep(600)
        assert len(server.requests) == quiet, "at rest it is silent"
        [event] = await recorded(client)
        assert event.series is not None
        assert event.series.count == 300
        assert len(server.log("patch", "events")) <= 6, "about one update a minute"
        recorder.record(CONFIG_MAPS, obj, "SyncFailed", "again")
        await asyncio.sleep(1)
        assert len(await recorded(client)) == 2, "after a long silence it is a new event"


async def test_one_object_cannot_flood(client: Client, recorder: Recorder) -> None:
    noisy, other = await subject(client), await subject(client, "other")
    async with running(recorder.run()):
        for number in range(100):
            recorder.record(CONFIG_MAPS, noisy, "Scaled", f"to {number}")
        recorder.record(CONFIG_MAPS, other, "Scaled", "to 1")
        await asyncio.sleep(1)
        found = await recorded(client)
        assert sum(event.regarding.name == "subject" for event in found) == module.BURST
        assert sum(event.regarding.name == "other" for event in found) == 1
        assert recorder.dropped == 100 - module.BURST
        await asyncio.sleep(module.REFILL_SECONDS)
        recorder.record(CONFIG_MAPS, noisy, "Scaled", "at last")
        await asyncio.sleep(1)
        assert "at last" in {event.note for event in await recorded(client)}


async def test_what_an_object_had_to_say_is_forgotten_after_some_minutes(client: Client, recorder: Recorder) -> None:
    """Objects come and go for as long as the operator runs."""
    async with running(recorder.run()):
        for number in range(10):
            recorder.record(CONFIG_MAPS, await subject(client, f"s{number}"), "Made", "so")
        await asyncio.sleep(1)
        assert recorder.remembered == 20
        await asyncio.sleep(module.FORGET_SECONDS)
        assert recorder.remembered == 0
    assert len(await recorded(client)) == 10


async def test_a_slow_server_costs_events_and_nothing_else(
    server: FakeApiServer, client: Client, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PENDING", 10)
    monkeypatch.setattr(module, "REMEMBERED", 15)
    server.inject(Hang(), "create", "events")
    objects: list[Any] = [await subject(client, f"s{number}") for number in range(30)]
    async with running(recorder.run()):
        for obj in objects:
            recorder.record(CONFIG_MAPS, obj, "Made", "so")
        await asyncio.sleep(120)
        found = {event.regarding.name for event in await recorded(client)}
    assert found <= {f"s{number}" for number in range(20, 30)}
    assert len(found) == 9, "the newest, but for the one that hung"
    assert recorder.dropped == 21


async def test_an_event_that_is_refused_is_dropped(server: FakeApiServer, client: Client, recorder: Recorder) -> None:
    obj = await subject(client)
    server.inject(Refuse(403, "Forbidden", "the namespace is going away"), "create", "events")
    async with running(recorder.run()):
        recorder.record(CONFIG_MAPS, obj, "A", "first")
        await asyncio.sleep(1)
        recorder.record(CONFIG_MAPS, obj, "A", "first")
        await asyncio.sleep(1)
    assert len(await recorded(client)) == 1
    assert recorder.dropped == 1


async def test_a_long_reason_is_cut(client: Client, recorder: Recorder) -> None:
    """The kubelet names a resource in it, and the API server refuses events with more than 128 characters."""
    recorder.record(CONFIG_MAPS, await subject(client), "OutOf" + "r" * 300, "a device is missing")
    async with running(recorder.run()):
        await asyncio.sleep(1)
    [event] = await recorded(client)
    assert event.reason == "OutOf" + "r" * 123


async def test_a_long_note_is_cut(client: Client, recorder: Recorder) -> None:
    recorder.record(CONFIG_MAPS, await subject(client), "Long", "ü" * 2000)
    async with running(recorder.run()):
        await asyncio.sleep(1)
    [event] = await recorded(client)
    assert event.note == "ü" * 512

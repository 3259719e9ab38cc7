"""Watch: order, selectors, initial events, resuming, and versions that are too old."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from slurm_operator.kube.errors import ServerError
from slurm_operator.kube.kinds import CONFIG_MAPS, PODS, ConfigMap
from slurm_operator.kube.watch import Added, Bookmark, Deleted, Failed, Modified, WatchEvent
from tests.contract.server import WIDGETS, ContractServer

Event = WatchEvent[ConfigMap]


async def take(events: AsyncIterator[Event], count: int) -> list[tuple[str, str]]:
    """The next events that are about objects, as (type, name)."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            event = await anext(events)
            if isinstance(event, Added | Modified | Deleted):
                found.append((type(event).__name__, event.object.metadata.name))
    return found


def watch(server: ContractServer, version: str = "", **options: Any) -> "aclosing[Any]":
    events = server.client.watch(CONFIG_MAPS, server.namespace, resource_version=version, **options)
    return aclosing(events)


async def now(server: ContractServer) -> str:
    return (await server.client.list(CONFIG_MAPS, server.namespace)).resource_version


class Watching:
    async def test_tells_every_change_in_order(self, server: ContractServer) -> None:
        async with watch(server, await now(server)) as events:
            await server.client.create(CONFIG_MAPS, server.named("a"))
            await server.client.patch(CONFIG_MAPS, "a", {"data": {"k": "1"}}, server.namespace)
            await server.client.create(CONFIG_MAPS, server.named("b"))
            await server.client.delete(CONFIG_MAPS, "a", server.namespace)
            assert await take(events, 4) == [("Added", "a"), ("Modified", "a"), ("Added", "b"), ("Deleted", "a")]

    async def test_events_carry_whole_objects_and_growing_versions(self, server: ContractServer) -> None:
        async with watch(server, await now(server)) as events:
            await server.client.create(CONFIG_MAPS, server.named("a", data={"k": "v"}))
            await server.client.delete(CONFIG_MAPS, "a", server.namespace)
            added, deleted = await anext(events), await anext(events)
        assert isinstance(added, Added)
        assert isinstance(deleted, Deleted)
        assert added.object.data == deleted.object.data == {"k": "v"}
        assert int(deleted.object.metadata.resource_version) > int(added.object.metadata.resource_version)

    async def test_idle_writes_are_not_told(self, server: ContractServer) -> None:
        await server.client.apply(CONFIG_MAPS, server.named("a", data={"k": "v"}), manager="m")
        async with watch(server, await now(server)) as events:
            await server.client.apply(CONFIG_MAPS, server.named("a", data={"k": "v"}), manager="m")
            await server.client.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, server.namespace)
            await server.client.create(CONFIG_MAPS, server.named("next"))
            assert await take(events, 1) == [("Added", "next")]

    async def test_resumes_after_the_version_it_is_given(self, server: ContractServer) -> None:
        made = await server.client.create(CONFIG_MAPS, server.named("a"))
        await server.client.create(CONFIG_MAPS, server.named("b"))
        await server.client.delete(CONFIG_MAPS, "a", server.namespace)
        async with watch(server, made.metadata.resource_version) as events:
            assert await take(events, 2) == [("Added", "b"), ("Deleted", "a")]

    async def test_without_a_version_the_present_comes_first(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a"))
        async with watch(server) as events:
            assert await take(events, 1) == [("Added", "a")]
            await server.client.delete(CONFIG_MAPS, "a", server.namespace)
            assert await take(events, 1) == [("Deleted", "a")]

    async def test_streamed_lists_end_with_a_bookmark(self, server: ContractServer) -> None:
        for name in ("a", "b"):
            await server.client.create(CONFIG_MAPS, server.named(name))
        async with watch(server, initial_events=True) as events:
            assert sorted(await take(events, 2)) == [("Added", "a"), ("Added", "b")]
            end = await anext(events)
            assert isinstance(end, Bookmark)
            assert end.ends_initial_events
            newest = await server.client.get(CONFIG_MAPS, "b", server.namespace)
            assert int(end.resource_version) >= int(newest.metadata.resource_version)
            await server.client.delete(CONFIG_MAPS, "a", server.namespace)
            assert await take(events, 1) == [("Deleted", "a")]

    async def test_an_empty_streamed_list_ends_too(self, server: ContractServer) -> None:
        async with watch(server, initial_events=True) as events, asyncio.timeout(20):
            end = await anext(events)
        assert isinstance(end, Bookmark)
        assert end.ends_initial_events

    async def test_entering_and_leaving_a_selector(self, server: ContractServer) -> None:
        async def label(value: str) -> None:
            await server.client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"in": value}}}, server.namespace)

        async with watch(server, await now(server), labels="in=yes") as events:
            await server.client.create(CONFIG_MAPS, server.named("a"))
            await label("yes")
            await server.client.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, server.namespace)
            await label("no")
            await server.client.delete(CONFIG_MAPS, "a", server.namespace)
            await server.client.create(CONFIG_MAPS, server.named("b", meta={"labels": {"in": "yes"}}))
            expected = [("Added", "a"), ("Modified", "a"), ("Deleted", "a"), ("Added", "b")]
            assert await take(events, 4) == expected

    async def test_what_leaves_a_selector_is_shown_as_it_was(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a", meta={"labels": {"in": "yes"}}, data={"k": "old"}))
        async with watch(server, await now(server), labels="in=yes") as events:
            patch = {"metadata": {"labels": None}, "data": {"k": "new"}}
            left = await server.client.patch(CONFIG_MAPS, "a", patch, server.namespace)
            async with asyncio.timeout(20):
                event = await anext(events)
        assert isinstance(event, Deleted)
        assert event.object.data == {"k": "old"}
        assert event.object.metadata.resource_version == left.metadata.resource_version

    async def test_one_object_by_its_name(self, server: ContractServer) -> None:
        async with watch(server, await now(server), fields="metadata.name=b") as events:
            await server.client.create(CONFIG_MAPS, server.named("a"))
            await server.client.create(CONFIG_MAPS, server.named("b"))
            assert await take(events, 1) == [("Added", "b")]

    async def test_pods_of_one_node(self, server: ContractServer) -> None:
        version = (await server.client.list(PODS, server.namespace)).resource_version
        stream = server.client.watch(PODS, server.namespace, fields="spec.nodeName=n1", resource_version=version)
        async with aclosing(stream) as events:
            await server.client.create(PODS, server.pod("p"))
            target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
            await server.client.post_subresource(PODS, "p", server.namespace, "binding", binding)
            async with asyncio.timeout(20):
                event = await anext(events)
        assert isinstance(event, Added)
        assert event.object.spec.node_name == "n1"

    async def test_ends_when_asked(self, server: ContractServer) -> None:
        async with watch(server, await now(server), server_seconds=1) as events, asyncio.timeout(20):
            rest = [event async for event in events]
        assert all(isinstance(event, Bookmark) for event in rest)

    async def test_a_version_from_before_our_time_is_gone(self, server: ContractServer) -> None:
        stream = server.client.watch(WIDGETS, server.namespace, resource_version="1")
        async with aclosing(stream) as events, asyncio.timeout(20):
            event = await anext(events)
        assert isinstance(event, Failed)
        assert (event.object.code, event.object.reason) == (410, "Expired")
        assert "too old resource version: 1" in event.object.message

    async def test_a_version_that_is_none_is_refused(self, server: ContractServer) -> None:
        with pytest.raises(ServerError):
            async with watch(server, "yesterday") as events:
                await anext(events)

    async def test_initial_events_need_their_options(self, server: ContractServer) -> None:
        path = CONFIG_MAPS.path(server.namespace)
        reply = await server.raw("GET", path, watch="1", sendInitialEvents="true", timeoutSeconds="1")
        assert (reply.code, reply.body["reason"]) == (422, "Invalid")
        assert "resourceVersionMatch" in reply.body["message"]

    async def test_other_namespaces_stay_out(self, server: ContractServer) -> None:
        name = f"{server.namespace}-stranger"
        version = await now(server)
        await server.client.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "default"}})
        await server.client.delete(CONFIG_MAPS, name, "default")
        await server.client.create(CONFIG_MAPS, server.named("mine"))
        async with watch(server, version) as events:
            assert await take(events, 1) == [("Added", "mine")]

"""What the operator remembers of NodeSets and clusters that are gone: nothing."""

import asyncio
import copy
import re
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.simulation.control_plane import Json, Running, World, example, keys, token, until, world
from tests.simulation.sizes import grown, sizes

HERE = "slurm"
CLUSTER = (HERE, "slurm")
MANY = 4


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as found:
        found.create(keys(found.slurms[CLUSTER]), HERE)
        found.create_all(example("ConfigMap"), HERE)
        yield found


def manifest(kind: str, name: str, cluster: str = "") -> Json:
    found = copy.deepcopy(example(kind)[0])
    found["metadata"]["name"] = name
    if cluster:
        found["spec"]["controllerRef"]["name"] = cluster
    found["spec"].pop("accountingRef", None)
    return found


def create_clusters(here: World, *names: str) -> None:
    for name in names:
        here.slurms[HERE, name], here.urls[HERE, name] = here.slurms[CLUSTER], here.urls[CLUSTER]
        here.create(manifest("Controller", name), HERE)
        here.create(manifest("RestApi", f"{name}-rest", name), HERE)


async def live_nodesets(here: World, cluster: str, *names: str) -> None:
    """NodeSets are created, run and are deleted."""
    for name in names:
        one = manifest("NodeSet", name, cluster)
        one["spec"] |= {"replicas": 2, "partition": {"enabled": False}, "template": {"spec": {"hostname": f"{name}-"}}}
        here.create(one, HERE)
    await until(lambda: all(here.ready("NodeSet", name, HERE) for name in names), 60)
    for name in names:
        here.delete("NodeSet", name, HERE)
    await until(lambda: not any(here.find("NodeSet", name, HERE) for name in names), 60)


async def live_clusters(here: World, *names: str) -> None:
    """Clusters with one NodeSet and one Token each are created, run and are deleted."""
    create_clusters(here, *names)
    for name in names:
        here.create(token(f"user-{name}"), HERE)
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(live_nodesets(here, name, f"w{name}"))
    for name in names:
        here.delete("Token", f"user-{name}", HERE)
        here.delete("RestApi", f"{name}-rest", HERE)
        here.delete("Controller", name, HERE)


def remembered(running: Running) -> dict[str, int]:
    """Return sizes by the way to them, without events and timers, which last some minutes, and idle connections."""
    kept = re.compile(r"recorder|_timers|_transport\._idle")
    return {way: size for way, size in sizes(running.operator).items() if not kept.search(way)}


async def settled(running: Running, before: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return what is larger than before for longer than it takes to notice deletions."""
    with suppress(TimeoutError):
        await until(lambda: not grown(before, remembered(running)), 10)
    return grown(before, remembered(running))


async def test_nothing_is_remembered_of_nodesets_and_clusters_that_are_gone(here: World) -> None:
    create_clusters(here, "c")
    async with here.operator() as running:
        await until(lambda: here.ready("Controller", "c", HERE), 30)
        await running.quiet()
        before = remembered(running)
        async with asyncio.TaskGroup() as group:
            group.create_task(live_nodesets(here, "c", *(f"w{number}" for number in range(MANY))))
            group.create_task(live_clusters(here, "d", "e"))
        assert await settled(running, before) == {}


async def test_what_is_remembered_is_seen(here: World) -> None:
    """The sizes of a NodeSet that exists are larger."""
    create_clusters(here, "c")
    async with here.operator() as running:
        await until(lambda: here.ready("Controller", "c", HERE), 30)
        await running.quiet()
        before = remembered(running)
        here.create(manifest("NodeSet", "small", "c"), HERE)
        await until(lambda: here.ready("NodeSet", "small", HERE), 30)
        found = " ".join(grown(before, remembered(running)))
        for part in ("_memories", "_owners", "_needs", "_objects", "_indexes"):
            assert part in found

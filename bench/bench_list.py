"""From nothing to a synced store, beside merely downloading the same bytes."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import aiohttp

from bench.canned import canned_server
from bench.fresh import in_fresh_process, resident_mb
from bench.table import Limit, Options, Row
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.kinds import NODES, PODS
from slurm_operator.kube.reflector import Reflector
from slurm_operator.kube.resource import Resource
from slurm_operator.kube.store import Store
from slurm_operator.runtime.manager import run

_STREAMED = {"watch": "1", "sendInitialEvents": "true", "hold": "no"}


def measure(options: Options) -> Iterator[Row]:
    for count in (options.count(5000), options.count(10_000)):
        with canned_server(count) as url:
            for how in ("streamed", "paged"):
                ours = in_fresh_process(seconds_to_sync, url, how)
                raw = in_fresh_process(seconds_to_download, url, how)
                yield Row(f"LIST {count:,} pods, {how}", ours, "s", raw, "bare download")
                if how == "streamed":
                    stall = in_fresh_process(longest_stall, url)
                    yield Row(f"LIST {count:,} pods, longest stall", stall * 1e3, "ms")
    count = options.count(10_000)
    with canned_server(count) as url:
        memory = in_fresh_process(megabytes_when_synced, url)
        bare = in_fresh_process(megabytes_of_imports)
        limit = Limit("figure", "<=", 120)
        yield Row(f"RSS with {count:,} pods and {count:,} nodes", memory, "MB", bare, "nothing cached", limit)


def seconds_to_sync(url: str, how: str) -> float:
    """CPU seconds: on a loaded machine the wall clock measures the neighbours."""
    spent, _ = run(_sync(url, [PODS], paged=how == "paged"))
    return spent


def seconds_to_download(url: str, how: str) -> float:
    return run(_download(url, how))


def longest_stall(url: str) -> float:
    return run(_stall(url))


def megabytes_when_synced(url: str) -> float:
    _, stores = run(_sync(url, [PODS, NODES]))
    memory = resident_mb()
    if not all(stores):
        raise RuntimeError("a store is empty")
    return memory


def megabytes_of_imports() -> float:
    return resident_mb()


async def _sync(url: str, resources: list[Resource[Any]], *, paged: bool = False) -> tuple[float, list[Store[Any]]]:
    async with Client(KubeConfig(url)) as client:
        client.streams_lists = not paged
        began = time.process_time()
        stores: list[Store[Any]] = [Store() for _ in resources]
        pairs = zip(resources, stores, strict=True)
        tasks = [asyncio.create_task(Reflector(client, resource, store).run()) for resource, store in pairs]
        for store in stores:
            await store.synced.wait()
        spent = time.process_time() - began
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return spent, stores


async def _download(url: str, how: str) -> float:
    connector = aiohttp.TCPConnector()
    async with aiohttp.ClientSession(connector=connector, read_bufsize=2**18) as session:
        began, position = time.process_time(), 0
        while True:
            params = _STREAMED if how == "streamed" else {"limit": "500", "continue": str(position)}
            size = 0
            async with session.get(f"{url}/api/v1/pods", params=params) as response:
                async for chunk in response.content.iter_any():
                    size += len(chunk)
            position += 500
            if how == "streamed" or size < 4e6:
                return time.process_time() - began


async def _stall(url: str) -> float:
    """How long the longest wait for a turn of the loop was while the store filled."""
    syncing = asyncio.create_task(_sync(url, [PODS]))
    worst = 0.0
    while not syncing.done():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - began - 0.001)
    await syncing
    return worst

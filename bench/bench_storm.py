"""From an event's bytes to the start of its reconcile, while 20,000 events come in as fast as they can."""

import asyncio
import time
from collections.abc import Callable, Iterator
from statistics import quantiles

import orjson

from bench.pods import Lines
from bench.table import Options, Row
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.resource import Key
from slurm_operator.kube.store import Store
from slurm_operator.kube.watch import Modified, event_decoder
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.manager import run
from slurm_operator.runtime.plan import Result
from slurm_operator.runtime.queue import Queue
from slurm_operator.runtime.sources import feed, itself

WORKERS = 16
CHUNK = 6  # events of 10 KB in one read of a socket


def measure(options: Options) -> Iterator[Row]:
    count = options.count(20_000)
    lines = _lines(count)
    ours, theirs = run(_ours(lines)), run(_bare(lines))
    for name, mine, reference in zip(("p50", "p99"), _percentiles(ours), _percentiles(theirs), strict=True):
        yield Row(f"storm of {count:,} events, to reconcile {name}", mine * 1e6, "us", reference * 1e6, "asyncio.Queue")
    mine, reference = _adds(Queue().add), _adds(asyncio.Queue[Key]().put_nowait)
    yield Row("add a key to the queue", mine, "us", reference, "asyncio.Queue")


def _lines(count: int) -> list[bytes]:
    pods = Lines("pods")
    return [pods.event("MODIFIED", number % (count // 2), number + 1) for number in range(count)]


def _percentiles(latencies: list[float]) -> tuple[float, float]:
    cut = quantiles(latencies, n=100)
    return cut[49], cut[98]


async def _ours(lines: list[bytes]) -> list[float]:
    """Latency from the bytes of the first event that made the key dirty."""
    store, queue, decode = Store[Pod](), Queue(), event_decoder(Pod)
    arrived: dict[Key, float] = {}
    latencies: list[float] = []
    feed(queue, store, itself)
    store.synced.set()

    async def reconcile(key: Key) -> Result:
        latencies.append(time.perf_counter() - arrived.pop(key))
        return Result()

    working = asyncio.create_task(Controller("storm", queue, reconcile, workers=WORKERS).run())
    for start in range(0, len(lines), CHUNK):
        now = time.perf_counter()
        for line in lines[start : start + CHUNK]:
            event = decode(line)
            if isinstance(event, Modified):
                arrived.setdefault((event.object.metadata.namespace, event.object.metadata.name), now)
                store.upsert(event.object)
        await asyncio.sleep(0)
    await queue.idle()
    queue.shut_down()
    await working
    return latencies


async def _bare(lines: list[bytes]) -> list[float]:
    """The same through plain dictionaries and the standard library's queue: no cache, no dedupe, no safety."""
    queue: asyncio.Queue[tuple[Key, float]] = asyncio.Queue()
    latencies: list[float] = []

    async def work() -> None:
        while True:
            _, arrived = await queue.get()
            latencies.append(time.perf_counter() - arrived)
            queue.task_done()

    workers = [asyncio.create_task(work()) for _ in range(WORKERS)]
    for start in range(0, len(lines), CHUNK):
        now = time.perf_counter()
        for line in lines[start : start + CHUNK]:
            meta = orjson.loads(line)["object"]["metadata"]
            queue.put_nowait(((meta["namespace"], meta["name"]), now))
        await asyncio.sleep(0)
    await queue.join()
    for worker in workers:
        worker.cancel()
    return latencies


def _adds(add: Callable[[Key], None]) -> float:
    keys = [("slurm", f"worker-{number}") for number in range(100_000)]
    began = time.process_time()
    for key in keys:
        add(key)
    return (time.process_time() - began) / len(keys) * 1e6

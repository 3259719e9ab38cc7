"""The live view of a real Slurm: what it costs us and slurmrestd, and how old it gets."""

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from bench.fresh import resident_mb
from bench.process import cpu_seconds
from bench.table import Limit, Options, Row
from slurm_local.lab import SlurmLab
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.manager import run
from slurm_operator.slurm.client import _NODE_ITEMS, _NODES, SlurmClient
from slurm_operator.slurm.jwt import new_claims, sign
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.ledger import Began, ListRead
from slurm_operator.slurm.model import Answer, Node, NodeUpdate, Number
from slurm_operator.slurm.rest import Call, Cost, WholeBody
from slurm_operator.slurm.stream import ListStream
from slurm_operator.slurm.transport import HttpTransport
from slurm_operator.slurm.view import SlurmView

Figures = dict[str, float]

_SCHEDULER = """\
MaxJobCount=40000
MessageTimeout=100
SchedulerParameters=default_queue_depth=20000,sched_max_job_start=0,max_sched_time=45,sched_min_interval=0
"""
_CHUNK = 1 << 16


def measure(options: Options) -> list[Row]:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> list[Row]:
    count = options.count(10_000)
    async with SlurmLab(nodes=count, conf=_SCHEDULER) as lab:
        rows = await _with_jobs(lab, count, options)
    busy = options.count(5000)
    async with SlurmLab(nodes=busy, conf="MinJobAge=2\n") as lab:
        rows += await _watched(lab, f"{busy:,} nodes, 5 job starts/s", options, lambda: _start_jobs(lab))
    workers = options.count(100)
    async with SlurmLab(slurmds=workers, conf="SlurmdTimeout=30\n") as lab:
        rows += await _watched(lab, f"{workers} real slurmd", options, lambda: asyncio.sleep(3600))
    return rows


# --- a large cluster with a job on every node ---------------------------------------------------------------------


async def _with_jobs(lab: SlurmLab, count: int, options: Options) -> list[Row]:
    name = f"{count:,} nodes and jobs"
    await _fill(lab, count)
    decoding = await _apart(lab, decode)
    rest = await _apart(lab, at_rest, 60 if not options.quick else 10)
    change = await _apart(lab, one_change)
    jobs = await _apart(lab, all_jobs)
    return [
        Row(f"{name}: decode the list", decoding["decode"], "CPU s", limit=Limit("figure", "<=", 0.1)),
        Row(f"{name}: read it", decoding["read"], "CPU s", decoding["download"], "bare download"),
        Row(f"{name}: longest stall of the loop", rest["stall"] * 1e3, "CPU ms", limit=Limit("figure", "<=", 50)),
        Row(f"{name}: memory at rest", rest["memory"], "MB more", limit=Limit("figure", "<=", 40)),
        Row(f"{name}: a quiet poll", rest["poll"] * 1e3, "CPU ms", limit=Limit("figure", "<=", 25)),
        Row(f"{name}: requests at rest", rest["requests"], "1/s", limit=Limit("figure", "<=", 1)),
        Row(f"{name}: answers until a change is known", change["answers"], "", limit=Limit("figure", "<=", 1)),
        Row(f"{name}: the same", change["seconds"], "s"),
        Row(f"{name}: draining a tenth", change["writes"], "requests", limit=Limit("figure", "<=", 1)),
        Row(f"{name}: the same until confirmed", change["confirmed"], "s"),
        Row(f"{name}: reading all jobs", jobs["seconds"], "s"),
        Row(f"{name}: the same", jobs["cpu"], "CPU s"),
        Row(f"{name}: the same, at its peak", jobs["peak"], "MB more"),
    ]


async def _fill(lab: SlurmLab, count: int) -> None:
    async with SlurmClient(lab.url, lab.jwt_key, SystemClock()) as client:
        names: list[str] = []
        await client.nodes(lambda nodes: names.extend(node.name for node in nodes))
        waiting = iter(names)

        async def submit_some() -> None:
            for name in waiting:
                await _submit(client, 600, required_nodes=[name])

        await asyncio.gather(*(submit_some() for _ in range(4)))
        while (await client.diag()).jobs_running < count:  # noqa: ASYNC110 - Slurm sends no events
            await asyncio.sleep(2)


async def _submit(client: SlurmClient, minutes: int, **fields: object) -> None:
    """A job that fills a node and needs no slurmd."""
    job = {
        "name": "bench",
        "flags": ["EXTERNAL_JOB"],
        "tasks": 16,
        "nodes": "1",
        "current_working_directory": "/tmp",
        "environment": ["PATH=/usr/bin:/bin"],
        "time_limit": Number(set=True, number=minutes),
        **fields,
    }
    call = Call(method="POST", path="job/submit", body={"job": job})
    await client.rest.send(call, WholeBody(msgspec.json.Decoder(Answer)))


# --- a cluster where something always changes ---------------------------------------------------------------------


async def _watched(lab: SlurmLab, name: str, options: Options, load: Callable[[], Awaitable[None]]) -> list[Row]:
    seconds = 60 if not options.quick else 10
    pid = lab.slurmrestd.pid
    assert pid
    loading = asyncio.ensure_future(load())
    before = cpu_seconds(pid)
    figures = await _apart(lab, watch, seconds)
    server = cpu_seconds(pid) - before
    loading.cancel()
    with suppress(asyncio.CancelledError):
        await loading
    return [
        Row(f"{name}: slurmrestd", 100 * server / figures["wall"], "% of a core", limit=Limit("figure", "<=", 20)),
        Row(f"{name}: we", 100 * figures["cpu"] / seconds, "% of a core"),
        Row(f"{name}: traffic", figures["bytes"] / seconds / 1e6, "MB/s"),
        Row(f"{name}: age of the view, mean", figures["mean age"], "s"),
        Row(f"{name}: age of the view, worst", figures["worst age"], "s"),
    ]


async def _start_jobs(lab: SlurmLab) -> None:
    async with SlurmClient(lab.url, lab.jwt_key, SystemClock()) as client:
        while True:
            await asyncio.gather(_submit(client, 1), asyncio.sleep(0.2))


# --- measured in a process of its own -----------------------------------------------------------------------------


async def _apart(lab: SlurmLab, function: Callable[..., Awaitable[Figures]], *arguments: float) -> Figures:
    code = f"import bench.bench_slurm_view as b, sys; b.report(b.{function.__name__}, *sys.argv[1:])"
    command = [sys.executable, "-c", code, lab.url, lab.jwt_key.hex(), *map(str, arguments)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    figures: Figures = json.loads(output)
    return figures


def report(function: Callable[..., Any], url: str, key: str, *arguments: str) -> None:
    print(json.dumps(run(function(url, bytes.fromhex(key), *map(float, arguments)))))


class Viewed:
    def __init__(self, view: SlurmView, costs: list[Cost], memory: float) -> None:
        self.view = view
        self.costs = costs
        self.memory_before = memory

    @property
    def known(self) -> Known:
        assert isinstance(self.view.state, Known)
        return self.view.state

    async def until(self, holds: Callable[[], bool]) -> float:
        began = time.monotonic()
        while not holds():  # noqa: ASYNC110 - what it reads changes without an event
            await asyncio.sleep(0.02)
        return time.monotonic() - began


@asynccontextmanager
async def viewed(url: str, key: bytes) -> AsyncIterator[Viewed]:
    costs: list[Cost] = []
    memory = resident_mb()
    async with SlurmClient(url, key, SystemClock(), observe=costs.append) as client:
        view = SlurmView(client, SystemClock())
        polling = asyncio.create_task(view.run())
        result = Viewed(view, costs, memory)
        await result.until(lambda: isinstance(view.state, Known))
        yield result
        polling.cancel()
        await asyncio.wait([polling])


async def decode(url: str, key: bytes) -> Figures:
    async with SlurmClient(url, key, SystemClock()) as client:
        began = time.process_time()
        await client.nodes(lambda nodes: None)
        read = time.process_time() - began
        headers = {"X-SLURM-USER-TOKEN": sign(key, new_claims("slurm", 600, time.time()))}
        transport = HttpTransport()
        began = time.process_time()
        async with transport.request("GET", f"{url}/slurm/{client.version}/nodes/", headers, None) as response:
            chunks = [chunk async for chunk in response.chunks()]
        download = time.process_time() - began
        await transport.close()
    body = b"".join(chunks)
    return {"read": read, "download": download, "decode": min(_decode(body) for _ in range(3))}


def _decode(body: bytes) -> float:
    began = time.process_time()
    read = ListRead({}, Began(1, 0.0, 0.0))
    stream: ListStream[Node, Any] = ListStream("nodes", _NODE_ITEMS, _NODES, read.add)
    for at in range(0, len(body), _CHUNK):
        stream.feed(body[at : at + _CHUNK])
    read.add(stream.finish().nodes)
    return time.process_time() - began


async def at_rest(url: str, key: bytes, seconds: float) -> Figures:
    """The stall is CPU time of the loop between two beats: the wall clock would measure the neighbours."""
    stall = 0.0

    async def beat() -> None:
        nonlocal stall
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            stall = max(stall, time.thread_time() - began)

    beating = asyncio.create_task(beat())
    async with viewed(url, key) as cluster:
        beating.cancel()
        await cluster.until(lambda: cluster.costs[-1].outcome == "304")
        cluster.costs.clear()
        began = time.process_time()
        await asyncio.sleep(seconds)
        spent = time.process_time() - began
        requests = len(cluster.costs)
        return {
            "stall": stall,
            "memory": resident_mb() - cluster.memory_before,
            "poll": spent / requests,
            "requests": requests / seconds,
        }


async def one_change(url: str, key: bytes) -> Figures:
    async with viewed(url, key) as cluster, SlurmClient(url, key, SystemClock()) as other:
        await cluster.until(lambda: cluster.costs[-1].outcome == "304")
        cluster.costs.clear()
        name = next(iter(cluster.known.nodes))
        await other.update_nodes([name], NodeUpdate(comment="changed"))
        seconds = await cluster.until(lambda: cluster.known.nodes[name].comment == "changed")
        answers = sum(cost.call == "GET nodes" and cost.outcome == "200" for cost in cluster.costs)
        cluster.costs.clear()
        names = list(cluster.known.nodes)[: len(cluster.known.nodes) // 10]
        await cluster.view.drain(names, "slurm-operator: bench")
        confirmed = await cluster.until(lambda: not cluster.known.pending)
        writes = sum(cost.call.startswith("POST") for cost in cluster.costs)
        await cluster.view.undrain(names)
        return {"answers": answers, "seconds": seconds, "writes": writes, "confirmed": confirmed}


async def all_jobs(url: str, key: bytes) -> Figures:
    async with SlurmClient(url, key, SystemClock()) as client:
        view = SlurmView(client, SystemClock())
        memory = resident_mb()
        began, spent = time.monotonic(), time.process_time()
        ends = await view.read_jobs(30.0)
        assert ends.latest
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        return {"seconds": time.monotonic() - began, "cpu": time.process_time() - spent, "peak": peak - memory}


async def watch(url: str, key: bytes, seconds: float) -> Figures:
    began = time.monotonic()
    ages: list[float] = []
    async with viewed(url, key) as cluster:
        cluster.costs.clear()
        spent = time.process_time()
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            ages.append(now - cluster.known.began_at)
            await asyncio.sleep(0.1)
        return {
            "cpu": time.process_time() - spent,
            "bytes": sum(cost.size for cost in cluster.costs),
            "mean age": sum(ages) / len(ages),
            "worst age": max(ages),
            "wall": time.monotonic() - began,
        }

"""Creates and applies a second through our client, beside the same requests sent by a bare loop to the same server.

The server is a real kube-apiserver where the stage's programs are built, else a canned one. Both loops run at the same
time, each in its own process with as many connections, so that the server's mood and whatever else the machine does hit
both alike: what differs is what a client costs.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import aiohttp

from bench.canned import canned_server
from bench.fresh import in_fresh_process
from bench.pods import Json, pod
from bench.table import Limit, Options, Row
from slurm_operator.errors import UserError
from slurm_operator.kube.auth import Credentials
from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import SystemClock
from slurm_operator.kube.config import KubeConfig, from_files
from slurm_operator.kube.kinds import PODS
from slurm_operator.kube.model import Partial
from slurm_operator.kube.resource import Resource
from slurm_operator.runtime.manager import run

PARALLEL = 8
WARM_UP_SECONDS = 2.0
NAMESPACE = "default"
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", Partial)

Send = Callable[[Json], Awaitable[object]]


def measure(options: Options) -> Iterator[Row]:
    with _server() as (kind, where), ThreadPoolExecutor() as threads:
        run(_prepare(where))
        for verb in ("create", "apply"):
            sides = [
                threads.submit(in_fresh_process, rate, side, verb, where, options.count(20))
                for side in ("ours", "bare")
            ]
            ours, bare = (side.result() for side in sides)
            limit = Limit("ratio", ">=", 0.9)
            yield Row(f"{verb} pods on a {kind}", ours, "1/s", bare, "bare loop", limit)


@contextmanager
def _server() -> Iterator[tuple[str, str]]:
    try:
        from slurm_local.apiserver import ApiServer

        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            server = ApiServer(Path(folder))
            server.start()
            try:
                yield "real server", str(server.kubeconfig)
            finally:
                server.stop()
    except (ImportError, UserError):
        with canned_server(1) as url:
            yield "canned server", url


def _config(where: str) -> KubeConfig:
    return KubeConfig(where) if where.startswith("http") else from_files([Path(where)])


async def _prepare(where: str) -> None:
    """Without its controllers a server lacks the account that every pod runs as."""
    meta = {"name": "default", "namespace": NAMESPACE}
    async with Client(_config(where)) as client:
        await client.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})


def rate(side: str, verb: str, where: str, seconds: str) -> float:
    """Requests a second, counted after a warm-up in which the other side gets going too."""
    return run((_ours if side == "ours" else _bare)(verb, _config(where), float(seconds)))


async def _ours(verb: str, config: KubeConfig, seconds: float) -> float:
    async with Client(config) as client:
        if verb == "create":
            return await _rate(lambda manifest: client.create(PODS, manifest), f"ours-{verb}", seconds)
        return await _rate(lambda manifest: client.apply(PODS, manifest, manager="bench"), f"ours-{verb}", seconds)


async def _bare(verb: str, config: KubeConfig, seconds: float) -> float:
    path = f"{config.server}/api/v1/namespaces/{NAMESPACE}/pods"
    context = Credentials(config, SystemClock()).ssl if config.server.startswith("https") else None
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    connector = aiohttp.TCPConnector(limit=0, ssl=context or True)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def create(manifest: Json) -> None:
            content = {"Content-Type": "application/json"}
            async with session.post(path, data=json.dumps(manifest).encode(), headers=content) as answer:
                await _check(answer)

        async def apply(manifest: Json) -> None:
            content = {"Content-Type": "application/apply-patch+yaml"}
            url = f"{path}/{manifest['metadata']['name']}?fieldManager=bench&force=true"
            async with session.patch(url, data=json.dumps(manifest).encode(), headers=content) as answer:
                await _check(answer)

        return await _rate(create if verb == "create" else apply, f"bare-{verb}", seconds)


async def _check(answer: aiohttp.ClientResponse) -> None:
    body = await answer.read()
    if answer.status >= 400:
        raise RuntimeError(body.decode())


async def _rate(send: Send, prefix: str, seconds: float) -> float:
    numbers = count()
    begin = time.perf_counter() + WARM_UP_SECONDS
    end = begin + seconds
    done = 0

    async def sender() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await send(_manifest(f"{prefix}-{next(numbers)}"))
            done += begin <= time.perf_counter() < end

    async with asyncio.TaskGroup() as group:
        for _ in range(PARALLEL):
            group.create_task(sender())
    return done / seconds


def _manifest(name: str) -> Json:
    """What a controller sends: no status, and nothing that the server fills in."""
    whole = pod(name)
    meta = {key: whole["metadata"][key] for key in ("name", "labels", "annotations")} | {"namespace": NAMESPACE}
    spec = {key: value for key, value in whole["spec"].items() if key not in ("nodeName", "serviceAccountName")}
    spec |= {"automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

"""What judging a manifest costs, beside the same HTTPS server with a handler that judges nothing."""

import asyncio
import base64
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

import bench
from bench.table import Limit, Options, Row
from slurm_operator.admission.certs import issue, new_authority
from slurm_operator.admission.certs_tls import ServingContext
from slurm_operator.admission.defaults import admitted
from slurm_operator.admission.review import Request, Verdict
from slurm_operator.admission.reviewer import Reviewer, validate_path
from slurm_operator.admission.server import serve_reviews
from slurm_operator.api import KINDS, Kind, Object, names
from slurm_operator.api.names import API_VERSION
from slurm_operator.kube import Client, KubeConfig
from slurm_operator.runtime.manager import run

_HOST = "localhost"
_CONNECTIONS = 16
_ROUNDS = 300
_ROTATIONS_EACH_SECOND = 20


@dataclass(frozen=True, slots=True)
class Server:
    process: int
    url: str
    authority: str
    """Whom to trust, as PEM."""


def measure(options: Options) -> Iterator[Row]:
    with _server("judge") as judging, _server("empty") as empty:
        ours, theirs = run(_in_turn([judging, empty], options.count(48)))
    yield Row("admission reviews over TLS", ours, "1/s", theirs, "empty handler", Limit("ratio", ">=", 0.5))
    with _server("rotate") as server:
        dropped = run(_dropped(server, options.count(2000)))
    yield Row("reviews dropped while certificates rotate", dropped, "", limit=Limit("figure", "<=", 0))


async def _in_turn(servers: list[Server], count: int) -> list[float]:
    """Reviews per second of each server's CPU, as on a loaded machine the wall clock measures others.

    The best of many short rounds, so that all of them meet a quiet moment; connections stay open throughout.
    """
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(_session(server)) for server in servers]
        rounds = [
            [await _seconds(server, session, count) for server, session in zip(servers, sessions, strict=True)]
            for _ in range(_ROUNDS)
        ]
    return [count / min(seconds) for seconds in zip(*rounds, strict=True)]


async def _seconds(server: Server, session: aiohttp.ClientSession, count: int) -> float:
    before = _cpu_seconds(server.process)
    dropped = await _load(server, [session], count)
    if dropped:
        raise RuntimeError(f"{dropped} of {count} reviews failed")
    return _cpu_seconds(server.process) - before


async def _dropped(server: Server, count: int) -> int:
    """Half of the reviews come on connections that stay, half on connections of their own."""
    async with _session(server) as kept, _session(server, force_close=True) as brief:
        return await _load(server, [kept, brief], count)


def _session(server: Server, *, force_close: bool = False) -> aiohttp.ClientSession:
    trust = ssl.create_default_context(cadata=server.authority)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust, force_close=force_close))


def _cpu_seconds(process: int) -> float:
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def _server(how: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "bench.bench_admission", how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("the server's output is not connected")
        try:
            url, authority = process.stdout.readline().split()
            yield Server(process.pid, url, base64.b64decode(authority).decode())
        finally:
            process.terminate()


async def _load(server: Server, sessions: list[aiohttp.ClientSession], count: int) -> int:
    """How many of so many reviews, sent over many connections at once, got no good answer."""
    left, dropped, reviews = count, 0, _reviews()

    async def worker(session: aiohttp.ClientSession) -> None:
        nonlocal left, dropped
        while left > 0:
            left -= 1
            path, body = reviews[left % len(reviews)]
            try:
                async with session.post(server.url + path, data=body) as response:
                    good = response.status == 200 and b'"allowed":true' in await response.read()
            except aiohttp.ClientError:
                good = False
            dropped += not good

    await asyncio.gather(*(worker(sessions[number % len(sessions)]) for number in range(_CONNECTIONS)))
    return dropped


@cache
def _reviews() -> list[tuple[str, bytes]]:
    """The objects of the example, as `kubectl apply` and the API server make them; no references to look up."""
    kinds = {kind.name: kind for kind in KINDS}
    example = Path(bench.__file__).parents[1] / "examples" / "cluster.yaml"
    found = []
    for document in yaml.safe_load_all(example.read_text()):
        if document["kind"] in kinds and document["apiVersion"] == API_VERSION:
            document["spec"].pop("configFileRefs", None)
            kind = kinds[document["kind"]]
            found.append((validate_path(kind), msgspec.json.encode(_review(kind, document))))
    return found


def _review(kind: Kind[Object], document: dict[str, Any]) -> dict[str, Any]:
    obj = dict(admitted(kind, document))
    manager = {"manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": API_VERSION}
    obj["metadata"] = {
        **document["metadata"],
        "namespace": "slurm",
        "uid": "11111111-2222-3333-4444-555555555555",
        "creationTimestamp": "2030-01-01T00:00:00Z",
        "generation": 1,
        "annotations": {names.ANNOTATION_LAST_APPLIED: msgspec.json.encode(document).decode()},
        "managedFields": [{**manager, "fieldsType": "FieldsV1", "fieldsV1": _fields(document)}],
    }
    about = {"group": names.GROUP, "version": names.VERSION, "kind": kind.name}
    where = {"group": names.GROUP, "version": names.VERSION, "resource": kind.plural}
    request = {
        "uid": "66666666-7777-8888-9999-000000000000",
        "kind": about,
        "resource": where,
        "requestKind": about,
        "requestResource": where,
        "name": document["metadata"]["name"],
        "namespace": "slurm",
        "operation": "CREATE",
        "userInfo": {"username": "kubernetes-admin", "groups": ["kubeadm:cluster-admins", "system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldValidation": "Strict"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _fields(value: Any) -> dict[str, Any]:
    """What the API server notes about who set which field."""
    return {f"f:{name}": _fields(item) for name, item in value.items()} if isinstance(value, dict) else {}


async def _nothing(request: Request) -> Verdict:
    return Verdict()


async def _serve(how: str) -> None:
    now, serving = datetime.now(UTC), ServingContext()
    authority = new_authority(now)
    serving.use(issue(authority, [_HOST], now))
    async with Client(KubeConfig("http://127.0.0.1:1")) as client:
        reviewer = Reviewer(client)
        reviewer.rehearse()
        routes = reviewer.routes() if how == "judge" else dict.fromkeys(reviewer.routes(), _nothing)
        async with serve_reviews("127.0.0.1:0", routes, serving) as url:
            print(url.replace("127.0.0.1", _HOST), base64.b64encode(authority.certificate).decode(), flush=True)
            while how == "rotate":
                serving.use(issue(authority, [_HOST], now))
                await asyncio.sleep(1 / _ROTATIONS_EACH_SECOND)
            await asyncio.Event().wait()


if __name__ == "__main__":
    run(_serve(sys.argv[1]))

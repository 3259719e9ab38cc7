"""An operator that dies with kill -9 after every single write it makes: nothing of its memory survives a step.

It runs outside of the cluster and reaches Kubernetes and slurmrestd through a proxy, which lets a write through, kills
the operator, and throws the answer away.
"""

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from slurm_operator.kube.auth import tls_context
from slurm_operator.kube.clock import SystemClock
from slurm_operator.kube.config import load
from slurm_operator.slurm.transport import HttpTransport
from tests.e2e.slurm import Slurm

_READS = ("GET", "HEAD", "OPTIONS")
_NOT_A_STEP = re.compile(r"/(events|leases|selfsubject\w+)(/|$)")
_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "host", "content-length", "content-encoding"}


class Deadly:
    """Runs operators one after another for as long as they keep being killed."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.writes: list[str] = []
        self._slurm = slurm
        self._folder = folder
        self._operator: subprocess.Popen[bytes] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def until(self, done: Callable[[], bool], timeout: float = 420) -> None:
        """Until something holds and the operator has nothing left to write."""
        deadline = time.monotonic() + timeout
        while not (self._lives() and done()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not after {timeout:.0f} s and {len(self.writes)} writes: {self.writes[-10:]}")
            if not self._lives():
                self._start_operator()
            time.sleep(0.2)

    def _lives(self) -> bool:
        return self._operator is not None and self._operator.poll() is None

    def _start_operator(self) -> None:
        command = [str(Path(sys.executable).parent / "slurm-operator"), "run", "--kubeconfig", str(self._kubeconfig)]
        options = [
            "--health-addr=0",
            "--metrics-addr=0",
            f"--slurm-url={self._slurm.namespace}/slurm={self._slurm_url}",
        ]
        with (self._folder / "operator.log").open("ab") as log:
            self._operator = subprocess.Popen([*command, *options], stdout=log, stderr=log)

    # The proxy

    @contextmanager
    def running(self) -> Iterator["Deadly"]:
        self._thread.start()
        try:
            self._call(self._listen())
            yield self
        finally:
            if self._operator is not None:
                self._operator.kill()
                self._operator.wait()
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        config = load(str(self._slurm.cluster.kubeconfig))
        tls = tls_context(config, SystemClock())
        self._session = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None))
        self._slurm_transport = HttpTransport()
        self._runners: list[web.AppRunner] = []

        async def kubernetes(request: web.Request) -> web.StreamResponse:
            url = URL(config.server + request.raw_path, encoded=True)
            body = await request.read() or None
            async with self._session.request(
                request.method, url, headers=_headers(request), data=body, ssl=tls
            ) as answer:
                return await self._pass_on(request, answer.status, answer.headers, answer.content.iter_any())

        async def slurm(request: web.Request) -> web.StreamResponse:
            url = await asyncio.to_thread(self._slurmrestd) + request.raw_path
            body = await request.read() or None
            async with self._slurm_transport.request(request.method, url, _headers(request), body) as answer:
                return await self._pass_on(request, answer.status, {}, answer.chunks())

        self._slurm_url = await self._serve(slurm)
        self._kubeconfig = self._folder / "deadly.kubeconfig"
        self._kubeconfig.write_text(yaml.safe_dump(_kubeconfig(await self._serve(kubernetes))))

    async def _close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        await self._session.close()
        await self._slurm_transport.close()

    def _slurmrestd(self) -> str:
        query = ("get", "pods", "-n", self._slurm.namespace, "-l", "app.kubernetes.io/name=slurmrestd")
        pods = self._slurm.cluster.kubectl.json(*query)["items"]
        address = next(pod["status"]["podIP"] for pod in pods if "deletionTimestamp" not in pod["metadata"])
        return f"http://{address}:6820"

    async def _serve(self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> str:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _pass_on(
        self, request: web.Request, status: int, headers: Mapping[str, str], pieces: AsyncIterator[bytes]
    ) -> web.StreamResponse:
        if request.method not in _READS and not _NOT_A_STEP.search(request.path):
            body = [piece async for piece in pieces]
            self._kill(f"{request.method} {request.path} -> {status}")
            return web.Response(status=status, body=b"".join(body))
        response = web.StreamResponse(status=status, headers=_ours(headers))
        with suppress(ConnectionResetError):  # whoever asked was killed meanwhile
            await response.prepare(request)
            async for piece in pieces:
                await response.write(piece)
            await response.write_eof()
        return response

    def _kill(self, write: str) -> None:
        self.writes.append(write)
        if self._operator is not None:
            self._operator.kill()


def _headers(request: web.Request) -> dict[str, str]:
    return _ours(request.headers)


def _ours(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "deadly",
        "contexts": [{"name": "deadly", "context": {"cluster": "deadly", "user": "nobody"}}],
        "clusters": [{"name": "deadly", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
    }

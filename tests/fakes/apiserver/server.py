"""The fake API server on the wire: HTTP on loopback, request log, faults, and switches for what a network can do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from tests.fakes.apiserver.cluster import Cluster
from tests.fakes.apiserver.faults import (
    Action,
    CutStream,
    Delay,
    Disconnect,
    FailStream,
    Fault,
    Faults,
    Hang,
    Refuse,
    SilenceStream,
)
from tests.fakes.apiserver.handlers import Handlers
from tests.fakes.apiserver.routes import Target, find_target, kinds_served_at, resource_list, verb_of
from tests.fakes.apiserver.status import Refusal, UnknownPath
from tests.fakes.apiserver.streams import Stream, StreamOptions

Json = dict[str, Any]

WRITES = frozenset({"create", "update", "patch", "apply", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the request log; `resource` includes the subresource, as in `pods/status`."""

    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    user_agent: str
    query: dict[str, str]

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES


class FakeApiServer:
    """`async with FakeApiServer() as server:` and talk to `server.url`.

    `server.cluster` is the same server without the wire. State survives `stop()` and `start()`, as etcd's does.
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        seed: int = 0,
        run_controllers: bool = True,
        watch_list: bool = True,
        bookmark_interval: float = 60.0,
        tokens: set[str] | None = None,
    ) -> None:
        self.cluster = cluster or Cluster(seed=seed, run_controllers=run_controllers)
        self.faults = Faults(random.Random(seed))
        self.requests: list[Request] = []
        self.tokens = tokens
        """Bearer tokens let in; None lets everybody in."""
        self.options = StreamOptions(watch_list, bookmark_interval)
        self._handlers = Handlers(self.cluster)
        self._streams: set[Stream] = set()
        self._port = 0
        self._runner: web.ServerRunner | None = None

    # life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the port of the last time if there was one."""
        server = web.Server(self._serve, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Cut every connection and refuse new ones."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    # what a test looks at and does

    def log(self, verb: str = "", resource: str = "") -> list[Request]:
        return [line for line in self.requests if verb in ("", line.verb) and resource in ("", line.resource)]

    @property
    def writes(self) -> list[Request]:
        return [line for line in self.requests if line.is_write]

    def inject(self, action: Action, verb: str = "*", resource: str = "*", **options: Any) -> Fault:
        """`inject(Refuse(429, retry_after=1), "patch", "pods", times=3)`; more in `Fault`."""
        return self.faults.add(Fault(action, verb, resource, **options))

    def cut_watches(self) -> None:
        self._act_on_streams(lambda stream: CutStream(stream.sent))

    def silence_watches(self) -> None:
        """No byte more on any watch that is open now; the connections stay."""
        self._act_on_streams(lambda stream: SilenceStream(stream.sent))

    def expire_watches(self) -> None:
        """Forget the history: open watches end with 410, and none can resume."""
        self.cluster.storage.compact()
        self._act_on_streams(lambda stream: FailStream(410, stream.sent))

    @property
    def open_watches(self) -> list[str]:
        """The resources now being watched, one entry per open stream."""
        return sorted(stream.watch.kind.plural for stream in self._streams)

    def _act_on_streams(self, action: Callable[[Stream], Action]) -> None:
        for stream in self._streams:
            stream.action = action(stream)
            stream.watch.wake()

    # serving

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in {"/healthz", "/readyz", "/livez"}:
            return web.Response(text="ok")
        if request.path == "/version":
            return _json(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.0-fake"})
        if kinds := kinds_served_at(request.path, self.cluster.kinds):
            return _json(200, resource_list(kinds))
        try:
            self._authenticate(request)
            target = find_target(request.path, self.cluster.kinds)
        except UnknownPath:
            self._log(request, None, "get", 404)
            return web.Response(status=404, text="404 page not found\n")
        except Refusal as refusal:
            return self._refuse(request, None, "get", refusal)
        verb = verb_of(request.method, target, request.query, request.content_type)
        action = self.faults.strike(verb, target.resource, target.name)
        try:
            await self._strike_before(request, action)
            if verb == "watch":
                return await self._stream(request, target, action)
            query = {"fieldManager": _agent(request)} | dict(request.query) if verb != "apply" else request.query
            answer = self._handlers.answer(verb, target, query, await request.read(), request.content_type)
        except Refusal as refusal:
            return self._refuse(request, target, verb, refusal)
        self._log(request, target, verb, answer.code)
        if action == Disconnect(after_effect=True):
            await _abort(request)
        if isinstance(answer.body, str):
            return web.Response(status=answer.code, text=answer.body)
        return _json(answer.code, answer.body)

    def _authenticate(self, request: web.BaseRequest) -> None:
        if self.tokens is None:
            return
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            raise Refusal(401, "Unauthorized")

    async def _strike_before(self, request: web.BaseRequest, action: Action | None) -> None:
        match action:
            case Refuse(code, reason, message, retry_after):
                raise Refusal(code, message, reason=reason, retry_after=retry_after)
            case Disconnect(after_effect=False):
                await _abort(request)
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Hang():
                await _for_ever()
            case _:
                pass

    async def _stream(self, request: web.BaseRequest, target: Target, action: Action | None) -> web.StreamResponse:
        stream = Stream.open(self.cluster, target, request.query, self.options, action)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self._log(request, target, "watch", 200)
        self._streams.add(stream)
        try:
            await stream.run(_writer(response), lambda: _abort(request))
        finally:
            self._streams.discard(stream)
            self.cluster.storage.unwatch(stream.watch)
        return response

    def _refuse(
        self, request: web.BaseRequest, target: Target | None, verb: str, refusal: Refusal
    ) -> web.StreamResponse:
        self._log(request, target, verb, refusal.code)
        response = _json(refusal.code, refusal.body)
        if refusal.retry_after is not None:
            response.headers["Retry-After"] = str(refusal.retry_after)
        return response

    def _log(self, request: web.BaseRequest, target: Target | None, verb: str, code: int) -> None:
        resource, namespace, name = (
            (target.resource, target.namespace, target.name) if target else (request.path, "", "")
        )
        agent = request.headers.get("User-Agent", "")
        self.requests.append(Request(verb, resource, namespace, name, code, agent, dict(request.query)))


def _agent(request: web.BaseRequest) -> str:
    """The name that a writer goes by who gives none: its user agent up to the first slash."""
    return request.headers.get("User-Agent", "").split("/")[0] or "unknown"


def _writer(response: web.StreamResponse) -> Callable[[Json], Awaitable[None]]:
    async def write(event: Json) -> None:
        await response.write(msgspec.json.encode(event) + b"\n")

    return write


def _json(code: int, body: Json) -> web.Response:
    return web.Response(status=code, body=msgspec.json.encode(body), content_type="application/json")


async def _abort(request: web.BaseRequest) -> None:
    """Reset the connection; aiohttp then cancels the handler, so this never returns."""
    if request.transport is not None:
        request.transport.abort()
    await _for_ever()


async def _for_ever() -> None:
    await asyncio.Event().wait()

"""/healthz, /readyz and /metrics over HTTP. The probes tell the truth, and the reason in the body."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any, TypeAlias

from aiohttp import web

from slurm_operator.errors import UserError
from slurm_operator.kube.reflector import Reflector
from slurm_operator.runtime.clock import Clock, SystemClock
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.lag import LoopLag

Check: TypeAlias = Callable[[], str | None]
"""What is wrong right now, in one sentence, or None."""
Page: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]

SILENT_SECONDS = 300.0
"""More than twice as long as a reflector itself waits before it connects anew."""
BLOCKED_SECONDS = 5.0


def no_stuck_worker(controllers: Iterable[Controller]) -> Check:
    watched = tuple(controllers)

    def check() -> str | None:
        stuck = [f"{found.name} on {'/'.join(key)}" for found in watched for key in found.stuck()]
        return f"a worker does not come back: {', '.join(stuck)}" if stuck else None

    return check


def no_dead_watch(reflectors: Callable[[], Iterable[Reflector[Any]]], clock: Clock | None = None) -> Check:
    """Report watches that neither hear nor ask: a restart cures them, but not an API server that does not answer."""
    return _watches(
        "no attempt on the watch of", lambda found: max(found.last_contact, found.last_attempt), reflectors, clock
    )


def no_silent_watch(reflectors: Callable[[], Iterable[Reflector[Any]]], clock: Clock | None = None) -> Check:
    """Report watches on which the API server was not heard."""
    return _watches("nothing heard on the watch of", lambda found: found.last_contact, reflectors, clock)


def _watches(
    problem: str,
    seen: Callable[[Reflector[Any]], float],
    reflectors: Callable[[], Iterable[Reflector[Any]]],
    clock: Clock | None,
) -> Check:
    monotonic = (clock or SystemClock()).monotonic

    def check() -> str | None:
        now = monotonic()
        late = {
            f"{found.resource.label} ({now - seen(found):.0f} s)"
            for found in reflectors()
            if now - seen(found) > SILENT_SECONDS
        }
        return f"{problem} {', '.join(sorted(late))}" if late else None

    return check


def no_blocked_loop(lag: LoopLag) -> Check:
    def check() -> str | None:
        worst = lag.worst
        return f"the event loop was blocked for {worst:.1f} s" if worst > BLOCKED_SECONDS else None

    return check


def probe(checks: Iterable[Check]) -> Page:
    """200 and "ok", or 503 and what is wrong, one problem a line."""
    asked = tuple(checks)

    async def answer(request: web.Request) -> web.Response:
        problems = [problem for check in asked if (problem := check()) is not None]
        return web.Response(status=503 if problems else 200, text="\n".join(problems or ["ok"]) + "\n")

    return answer


def metrics_page(render: Callable[[], bytes]) -> Page:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return answer


@asynccontextmanager
async def serve(pages: Mapping[str, Mapping[str, Page]]) -> AsyncIterator[list[str]]:
    """Serves `{address: {path: page}}`, yields the URLs. Address "0" means not at all, ":8081" every interface."""
    runners: list[web.AppRunner] = []
    urls = []
    try:
        for address, routes in pages.items():
            if address in ("0", ""):
                continue
            app = web.Application()
            app.add_routes([web.get(path, page) for path, page in routes.items()])
            runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
            runners.append(runner)
            urls.append(await listen(runner, address))
        yield urls
    finally:
        for runner in runners:
            await runner.cleanup()


async def listen(runner: web.AppRunner, address: str, context: SSLContext | None = None) -> str:
    """Starts the server at an address like those above, with TLS if there is a context; the URL it is reached at."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"cannot listen on {address!r}", hint="an address looks like :8081 or 127.0.0.1:8081")
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=context).start()
    except OSError as error:
        raise UserError(f"cannot listen on {address}: {error.strerror}", hint="choose another address") from error
    bound_host, bound_port, *_ = runner.addresses[0]
    scheme = "https" if context else "http"
    return f"{scheme}://{f'[{bound_host}]' if ':' in bound_host else bound_host}:{bound_port}"

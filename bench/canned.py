"""A server that answers from memory, in its own process: what it costs to talk to it is what the client costs.

It knows what a reflector asks (lists in pages, lists as streams, watches) and what a writer asks (create, apply).
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from aiohttp import web

from bench.pods import Lines

_CHUNK = 64 * 1024


@contextmanager
def canned_server(count: int) -> Iterator[str]:
    """The URL of a server with so many pods and as many nodes."""
    command = [sys.executable, "-m", "bench.canned", str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("the server's output is not connected")
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class Canned:
    def __init__(self, count: int) -> None:
        self._objects = {
            kind: [lines.one(number, number + 1) for number in range(count)]
            for kind, lines in (("pods", Lines("pods")), ("nodes", Lines("nodes")))
        }
        self._version = count + 1

    async def read(self, request: web.Request) -> web.StreamResponse:
        objects = self._objects[request.match_info["kind"]]
        if "watch" not in request.query:
            return self._page(objects, request)
        return await self._stream(objects, request)

    def _page(self, objects: list[bytes], request: web.Request) -> web.Response:
        start, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", len(objects)))
        rest = b'"%d"' % (start + limit) if start + limit < len(objects) else b'""'
        meta = b'{"resourceVersion":"%d","continue":%s}' % (self._version, rest)
        items = b",".join(objects[start : start + limit])
        body = b'{"kind":"List","apiVersion":"v1","metadata":%s,"items":[%s]}' % (meta, items)
        return web.Response(body=body, content_type="application/json")

    async def _stream(self, objects: list[bytes], request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if "sendInitialEvents" in request.query:
            async for chunk in self._chunks(objects):
                await response.write(chunk)
        if "hold" in request.query:
            return response
        await asyncio.Event().wait()
        return response

    async def _chunks(self, objects: list[bytes]) -> AsyncIterator[bytes]:
        pending = bytearray()
        for body in objects:
            pending += b'{"type":"ADDED","object":%s}\n' % body
            if len(pending) >= _CHUNK:
                yield bytes(pending)
                pending.clear()
        yield bytes(pending) + (
            b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d",'
            b'"annotations":{"k8s.io/initial-events-end":"true"}}}}\n' % self._version
        )

    async def write(self, request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type="application/json")


async def _serve(count: int) -> None:
    canned = Canned(count)
    app = web.Application(client_max_size=2**20)
    app.add_routes(
        [
            web.get("/api/v1/{kind:pods|nodes}", canned.read),
            web.post("/api/v1/namespaces/{namespace}/{kind}", canned.write),
            web.patch("/api/v1/namespaces/{namespace}/{kind}/{name}", canned.write),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(int(sys.argv[1])))
    else:
        uvloop.run(_serve(int(sys.argv[1])))

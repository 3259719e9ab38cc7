"""A TCP proxy on loopback that can do to connections what networks do: forget them, or cut them."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CHUNK = 2**16


class Proxy:
    """`async with Proxy(url) as proxy:` and talk to `proxy.url`, which leads to `url`."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._flow: asyncio.Event = asyncio.Event()
        self._flow.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the proxy does not run")
        port = self._server.sockets[0].getsockname()[1]
        return f"{self._target.scheme}://127.0.0.1:{port}"

    def forget(self) -> None:
        """As a firewall that loses its table: connections open now stay open, but no byte passes any more."""
        self._flow.clear()
        self._flow = asyncio.Event()
        self._flow.set()

    def block(self) -> None:
        """As a network that is split: connections can be made, and no byte passes on any of them."""
        self._flow.clear()

    def cut(self) -> None:
        for connection in self._connections:
            connection.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._connections.add(task)
        try:
            await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            # The other end went away, or we cut it: either way this connection is over.
            return
        finally:
            writer.transport.abort()
            self._connections.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flow = self._flow
        far_reader, far_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        pumps = [_pump(reader, far_writer, flow), _pump(far_reader, writer, flow)]
        tasks = [asyncio.ensure_future(pump) for pump in pumps]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            far_writer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, flow: asyncio.Event) -> None:
    while chunk := await source.read(CHUNK):
        await flow.wait()
        sink.write(chunk)
        await sink.drain()

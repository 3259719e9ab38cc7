"""A proxy that counts what passes between a program and slurmrestd, so that the program's own books are not needed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_CHUNK = 1 << 18
_METHODS = (b"GET ", b"POST ", b"DELETE ")
_STATUS = slice(len("HTTP/1.1 "), len("HTTP/1.1 200"))


@dataclass
class Traffic:
    requests: Counter[str] = field(default_factory=Counter)
    """By method."""
    answers: Counter[str] = field(default_factory=Counter)
    """By HTTP status."""
    size: int = 0
    """Bytes that came back."""

    def copy(self) -> "Traffic":
        return Traffic(self.requests.copy(), self.answers.copy(), self.size)

    def since(self, before: "Traffic") -> "Traffic":
        return Traffic(self.requests - before.requests, self.answers - before.answers, self.size - before.size)


class CountingProxy:
    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = target.hostname or "", target.port or 80
        self.seen = Traffic()
        self.url = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["CountingProxy"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            self._pass_on(reader, there_writer, self._asked),
            self._pass_on(there_reader, writer, self._answered),
            return_exceptions=True,
        )

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, count: Callable[[bytes], None]
    ) -> None:
        try:
            while chunk := await source.read(_CHUNK):
                count(chunk)
                sink.write(chunk)
                await sink.drain()
        finally:
            sink.close()

    def _asked(self, chunk: bytes) -> None:
        """Every request of ours is one message, so it begins where a chunk begins."""
        if chunk.startswith(_METHODS):
            self.seen.requests[chunk.split(b" ", 1)[0].decode()] += 1

    def _answered(self, chunk: bytes) -> None:
        self.seen.size += len(chunk)
        if chunk.startswith(b"HTTP/1.1 "):
            self.seen.answers[chunk[_STATUS].decode()] += 1

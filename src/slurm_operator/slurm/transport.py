"""How bytes travel to slurmrestd: the only file of this package that knows HTTP.

slurmrestd 26.05 sends every refusal twice on one connection, a second answer right behind the body of the first,
which strict HTTP libraries reject together with the first. So this speaks just enough HTTP itself: it reads one
answer and hangs up where slurmrestd says it will. Everything else sees a `Transport`, so that a simulation can put
a Slurm in memory in its place.
"""

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol, SupportsIndex
from urllib.parse import urlsplit

from slurm_operator.slurm.errors import Garbage, Unreachable

MOST_IN_FLIGHT = 4
GONE_SECONDS = 4
"""A machine that acknowledges nothing for so long is not there any more."""
_CHUNK = 1 << 18
_NO_BODY = (204, 304)
_UNTIL_THE_END = -1


class Response(Protocol):
    @property
    def status(self) -> int: ...

    def chunks(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> AbstractAsyncContextManager[Response]:
        """One request; raises Unreachable or Garbage, also while the body is read. Deadlines are the caller's."""
        ...

    async def close(self) -> None: ...


class _Origin(NamedTuple):
    host: str
    port: int
    tls: bool


class HttpTransport:
    """Keeps a few connections open for reads. A write has a fresh one, so that it is never sent twice.

    A connection is closed after any failure, and if anything arrives on it that no answer accounts for.
    """

    def __init__(self) -> None:
        self._idle: list[_Connection] = []

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> AsyncIterator[Response]:
        origin, message = _message(method, url, headers, body)
        try:
            connection, response = await self._send(origin, message, reuse=method == "GET")
            try:
                yield response
            except BaseException:
                connection.drop()
                raise
            self._release(connection, response)
        except (_Malformed, asyncio.LimitOverrunError) as error:
            raise Garbage("", str(error)) from error
        except (OSError, EOFError) as error:
            raise Unreachable("", str(error) or "no connection") from error

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().hang_up()

    async def _send(self, origin: _Origin, message: bytes, *, reuse: bool) -> tuple["_Connection", "_HttpResponse"]:
        while reuse and (old := self._take(origin)):
            try:
                return old, await old.exchange(message)
            except (OSError, EOFError):
                old.drop()
            except BaseException:
                old.drop()
                raise
        new = await _Connection.open(origin)
        try:
            return new, await new.exchange(message)
        except BaseException:
            new.drop()
            raise

    def _take(self, origin: _Origin) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.origin == origin and connection.is_clean:
                return connection
            connection.drop()
        return None

    def _release(self, connection: "_Connection", response: "_HttpResponse") -> None:
        if response.reusable and not connection.has_unread_bytes and len(self._idle) < MOST_IN_FLIGHT:
            self._idle.append(connection)
        else:
            connection.drop()


class _Malformed(Exception):  # noqa: N818 - never leaves this file
    """Not HTTP as slurmrestd speaks it."""


class _Reader(asyncio.StreamReader):
    """Counts what arrived and what was taken, so that bytes behind an answer are noticed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_CHUNK, loop=loop)
        self._left = 0

    @property
    def has_unread_bytes(self) -> bool:
        return self._left > 0

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        data = bytes(data)
        self._left += len(data)
        super().feed_data(data)

    async def take_until(self, separator: bytes) -> bytes:
        return self._took(await self.readuntil(separator))

    async def take_exactly(self, size: int) -> bytes:
        return self._took(await self.readexactly(size))

    async def take(self, most: int) -> bytes:
        return self._took(await self.read(most))

    def _took(self, data: bytes) -> bytes:
        self._left -= len(data)
        return data


class _Connection:
    def __init__(self, origin: _Origin, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self.origin = origin
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, origin: _Origin) -> "_Connection":
        loop = asyncio.get_running_loop()
        reader = _Reader(loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        async with asyncio.timeout(GONE_SECONDS):
            transport, _ = await loop.create_connection(
                lambda: protocol, origin.host, origin.port, ssl=origin.tls or None
            )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        _notice_its_end(writer.get_extra_info("socket"))
        return cls(origin, reader, writer)

    @property
    def has_unread_bytes(self) -> bool:
        return self._reader.has_unread_bytes

    @property
    def is_clean(self) -> bool:
        """Return whether the connection is open and nothing has arrived on it but what was read."""
        if self.has_unread_bytes or self._reader.at_eof() or self._writer.is_closing():
            return False
        arrived = select.poll()
        arrived.register(self._writer.get_extra_info("socket").fileno(), select.POLLIN)
        return not arrived.poll(0)

    async def exchange(self, message: bytes) -> "_HttpResponse":
        self._writer.write(message)
        await self._writer.drain()
        return _HttpResponse(self._reader, await self._reader.take_until(b"\r\n\r\n"))

    def drop(self) -> None:
        self._writer.transport.abort()

    async def hang_up(self) -> None:
        self.drop()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


def _notice_its_end(connection: socket.socket) -> None:
    """A pod that is replaced takes its connections along without a word, and a read would wait for its whole deadline.

    The kernel of a slurmrestd that is merely slow or hung goes on to answer for it.
    """
    for option, value in (
        (socket.TCP_USER_TIMEOUT, GONE_SECONDS * 1000),
        (socket.TCP_KEEPIDLE, 2),
        (socket.TCP_KEEPINTVL, 1),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class _HttpResponse:
    def __init__(self, reader: _Reader, head: bytes) -> None:
        status_line, *lines = head.decode("latin-1").strip().split("\r\n")
        version, _, rest = status_line.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise _Malformed(f"the answer begins with {status_line[:60]!r}")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.status = int(rest[:3])
        self._reader = reader
        self._chunked = "chunked" in fields.get("transfer-encoding", "").lower()
        self._length = _size(fields["content-length"]) if "content-length" in fields else _UNTIL_THE_END
        if self.status in _NO_BODY:
            self._length = 0
        self._complete = self._length == 0
        self._stays_open = "close" not in fields.get("connection", "").lower()

    @property
    def reusable(self) -> bool:
        return self._stays_open and self._complete

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._chunked:
            while size := _size((await self._reader.take_until(b"\r\n")).split(b";")[0], 16):
                yield (await self._reader.take_exactly(size + 2))[:-2]
            await self._reader.take_until(b"\r\n")
        elif self._length == _UNTIL_THE_END:
            self._stays_open = False
            while chunk := await self._reader.take(_CHUNK):
                yield chunk
        else:
            async for chunk in self._counted():
                yield chunk
        self._complete = True

    async def _counted(self) -> AsyncIterator[bytes]:
        left = self._length
        while left:
            chunk = await self._reader.take(min(left, _CHUNK))
            if not chunk:
                raise EOFError("the connection ended in the middle of the answer")
            left -= len(chunk)
            yield chunk


def _size(text: str | bytes, base: int = 10) -> int:
    try:
        size = int(text, base)
    except ValueError as error:
        raise _Malformed(f"{text!r} is not a number") from error
    if size < 0:
        raise _Malformed(f"{text!r} is no size")
    return size


def _message(method: str, url: str, headers: dict[str, str], body: bytes | None) -> tuple[_Origin, bytes]:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    origin = _Origin(parts.hostname or "", parts.port or (443 if tls else 80), tls)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    fields = {"Host": parts.netloc, **headers}
    if body is not None:
        fields["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return origin, "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")

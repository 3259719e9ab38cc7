"""Connections to slurmrestd."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from slurm_operator.slurm.errors import Garbage
from slurm_operator.slurm.transport import GONE_SECONDS, HttpTransport


async def test_a_connection_whose_other_end_vanished_is_noticed_by_the_kernel() -> None:
    """A replaced pod says nothing; a slow slurmrestd still acknowledges what it is sent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 304 Not Modified\r\n\r\n")
        await writer.drain()

    transport = HttpTransport()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with transport.request("GET", f"http://127.0.0.1:{port}/", {}, None) as response:
            assert response.status == 304
        (kept,) = transport._idle
        connection: socket.socket = kept._writer.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == GONE_SECONDS * 1000
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        await transport.close()


def answer_of(body: bytes, *more: bytes) -> bytes:
    fields = b"".join(field + b"\r\n" for field in (b"Content-Length: %d" % len(body), *more))
    return b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n" + body


class Server:
    """Answers each request with the bytes that a test gives for its path, and counts connections."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self.answers = answers
        self.opened = 0
        self.closed = asyncio.Event()
        self.later = b""
        """Bytes that are sent when `stray` is set, behind whatever was sent before."""
        self.stray = asyncio.Event()
        self.sent = asyncio.Event()
        self.hanging = asyncio.Event()
        """Set once a path was asked for that has no answer."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                found = self.answers.get(head.split(b" ")[1])
                if found is None:
                    self.hanging.set()
                    continue
                writer.write(found)
                await writer.drain()
                if self.later:
                    await self.stray.wait()
                    writer.write(self.later)
                    self.later = b""
                    await writer.drain()
                    self.sent.set()
        except (EOFError, ConnectionError):
            self.closed.set()
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(
    answers: dict[bytes, bytes],
) -> AsyncIterator[tuple[Server, Callable[[str], Coroutine[None, None, bytes]]]]:
    """A server, and how to read a path of it with one transport."""
    server, transport = Server(answers), HttpTransport()

    async def read(path: str) -> bytes:
        async with transport.request("GET", f"http://127.0.0.1:{port}{path}", {}, None) as response:
            return b"".join([chunk async for chunk in response.chunks()])

    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        try:
            yield server, read
        finally:
            await transport.close()


async def test_a_connection_is_used_again_after_a_whole_answer() -> None:
    async with serving({b"/a": answer_of(b"a"), b"/b": answer_of(b"b")}) as (server, read):
        assert [await read("/a"), await read("/b"), await read("/a")] == [b"a", b"b", b"a"]
        assert server.opened == 1


@pytest.mark.parametrize(
    "behind",
    [answer_of(b"a"), b"x", b"\r\n"],
    ids=["a second answer", "a byte", "an empty line"],
)
async def test_bytes_behind_an_answer_are_not_the_next_answer(behind: bytes) -> None:
    async with serving({b"/a": answer_of(b"a") + behind, b"/b": answer_of(b"b")}) as (server, read):
        assert [await read("/a"), await read("/b")] == [b"a", b"b"]
        assert server.opened == 2


async def test_bytes_that_follow_later_are_not_the_next_answer() -> None:
    async with serving({b"/a": answer_of(b"a"), b"/b": answer_of(b"b")}) as (server, read):
        server.later = answer_of(b"stray")
        assert await read("/a") == b"a"
        server.stray.set()
        await server.sent.wait()
        assert await read("/b") == b"b"
        assert server.opened == 2


async def test_trailers_of_a_chunked_answer_are_not_the_next_answer() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nOne: 1\r\nTwo: 2\r\n\r\n"
    async with serving({b"/a": chunked, b"/b": answer_of(b"b")}) as (_, read):
        assert [await read("/a"), await read("/b")] == [b"a", b"b"]


@pytest.mark.parametrize("before", [["/a"], []], ids=["kept", "new"])
async def test_a_read_that_is_given_up_closes_its_connection(before: list[str]) -> None:
    """A deadline that passes must not leave the socket open, whether the connection was used before or not."""
    async with serving({b"/a": answer_of(b"a")}) as (server, read):
        for path in before:
            await read(path)
        hanging = asyncio.create_task(read("/hangs"))
        await asyncio.wait_for(server.hanging.wait(), 10)
        hanging.cancel()
        await asyncio.wait([hanging])
        await asyncio.wait_for(server.closed.wait(), 10)
        assert await read("/a") == b"a"
        assert server.opened == 2


async def test_a_connection_that_was_reset_is_not_used_again() -> None:
    opened = 0

    async def answer_and_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer_of(b"a"))
        await writer.drain()
        await read.wait()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    transport, read = HttpTransport(), asyncio.Event()
    async with await asyncio.start_server(answer_and_reset, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/a"
        for _ in range(2):
            async with transport.request("GET", url, {}, None) as response:
                assert [chunk async for chunk in response.chunks()] == [b"a"]
            read.set()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(transport._idle[0]._writer.wait_closed(), 10)
        await transport.close()
    assert opened == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabcde",
    ],
    ids=["chunk", "whole"],
)
async def test_a_negative_size_is_garbage(answer: bytes) -> None:
    async with serving({b"/a": answer}) as (server, read):
        with pytest.raises(Garbage):
            await asyncio.wait_for(read("/a"), 10)
        await asyncio.wait_for(server.closed.wait(), 10)


async def test_a_connection_is_not_kept_if_its_answer_could_not_be_used() -> None:
    transport = HttpTransport()

    async def refuse(url: str) -> None:
        async with transport.request("GET", url, {}, None) as response:
            assert [chunk async for chunk in response.chunks()] == [b"a"]
            raise RuntimeError("not what was asked for")

    async with await asyncio.start_server(Server({b"/a": answer_of(b"a")}).serve, "127.0.0.1", 0) as listening:
        with pytest.raises(RuntimeError):
            await refuse(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/a")
        assert transport._idle == []

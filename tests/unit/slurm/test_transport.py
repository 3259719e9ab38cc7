"""Connections to slurmrestd."""

import asyncio
import socket

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

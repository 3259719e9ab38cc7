"""Bytes to and from the API server: the only module that knows aiohttp."""

import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractCookieJar

from slurm_operator import __version__
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.proxy import without_password

MAX_REQUESTS = 64
CONNECT_SECONDS = 10.0
STREAM_BUFFER = 2**18


class TransportError(Exception):
    """No complete answer came; `hint` says what a person can check."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Stream:
    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class _Pool:
    """Connections of one time. Watches live for minutes, so they have their own and never take a request's turn."""

    def __init__(self, config: KubeConfig, context: ssl.SSLContext | None) -> None:
        self.requests = _session(config, context, limit=MAX_REQUESTS)
        self.streams = _session(config, context, limit=0)
        self.users = 0

    async def close(self) -> None:
        await self.requests.close()
        await self.streams.close()


class Transport:
    def __init__(self, config: KubeConfig, context: ssl.SSLContext | None) -> None:
        self._config = config
        self._context = context
        self._server_name = config.tls_server_name or None
        self._proxy = config.proxy or None
        self._pool = _Pool(config, context)
        self._former: list[_Pool] = []

    def renew(self) -> None:
        """Open new connections from now on. What is under way on the old ones ends there."""
        self._former.append(self._pool)
        self._pool = _Pool(self._config, self._context)

    async def request(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        try:
            async with (
                self._in_use() as pool,
                pool.requests.request(
                    method,
                    self._config.server + path,
                    params=params,
                    headers=headers,
                    data=body,
                    server_hostname=self._server_name,
                    proxy=self._proxy,
                    allow_redirects=False,
                ) as response,
            ):
                return Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, OSError) as error:
            raise explain(error, self._config) from error

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], headers: Mapping[str, str], inactivity: float
    ) -> AsyncIterator[Stream]:
        """The chunks as they come; silence for longer than `inactivity` seconds is an error."""
        try:
            async with (
                self._in_use() as pool,
                pool.streams.get(
                    self._config.server + path,
                    params=params,
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=inactivity),
                    server_hostname=self._server_name,
                    proxy=self._proxy,
                    allow_redirects=False,
                ) as response,
            ):
                yield Stream(response.status, response.headers, response.content.iter_any())
        except (aiohttp.ClientError, OSError) as error:
            raise explain(error, self._config) from error

    async def close(self) -> None:
        for pool in (*self._former, self._pool):
            await pool.close()

    @asynccontextmanager
    async def _in_use(self) -> AsyncIterator[_Pool]:
        pool = self._pool
        pool.users += 1
        try:
            yield pool
        finally:
            pool.users -= 1
            unused = [former for former in self._former if not former.users]
            self._former = [former for former in self._former if former.users]
            for former in unused:
                await former.close()


def _session(config: KubeConfig, context: ssl.SSLContext | None, limit: int) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=limit, ssl=context or True, socket_factory=_patient_socket)
    jar: AbstractCookieJar = aiohttp.DummyCookieJar()
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=jar,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        read_bufsize=STREAM_BUFFER,
        headers=[
            ("User-Agent", f"slurm-operator/{__version__}"),
            ("Accept", "application/json"),
            # Unpacking costs more than loopback or a data-centre network saves.
            ("Accept-Encoding", "identity"),
            *config.impersonate,
        ],
    )


def _patient_socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """TCP itself asks every ten seconds whether the other end still exists, so a dead peer is noticed."""
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock


def explain(error: Exception, config: KubeConfig) -> TransportError:
    """Say in one sentence what is wrong between here and the server."""
    server = config.server
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _explain_certificate(error.certificate_error, config)
    if "alert" in str(error).lower():
        said = str(error).lower()
        problem = "expired" if "expired" in said else "unknown to the server" if "unknown ca" in said else "refused"
        return TransportError(
            f"{server} ended the TLS handshake: the client certificate is {problem}",
            f"renew the client certificate that {config.source} names",
        )
    hint = f"check that the API server runs and that `server:` in {config.source} is right"
    proxy = without_password(config.proxy)
    if proxy:
        hint += f", and that the proxy {proxy} leads to it"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return TransportError(f"the proxy {proxy} refuses: {error.status} {error.message}", hint)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return TransportError(f"the host name in {server} does not resolve", hint)
    if isinstance(error, TimeoutError):
        return TransportError(f"{server} does not answer: timed out", hint)
    if isinstance(error, aiohttp.ClientConnectorError):
        return TransportError(f"{server} does not answer: {os.strerror(error.errno or 0).lower()}", hint)
    return TransportError(f"the connection to {server} broke: {str(error) or type(error).__name__}", hint)


def _explain_certificate(error: Exception, config: KubeConfig) -> TransportError:
    problem = getattr(error, "verify_message", "") or str(error)
    authority = config.ca.origin if config.ca else "the system's trust store"
    hint = f"use the CA of this cluster: {config.source} takes it from {authority}"
    if "hostname" in problem.lower() or "ip address" in problem.lower():
        hint = f"reach the server by a name in its certificate, or set `tls-server-name` in {config.source}"
    elif "expired" in problem:
        hint = "the server's certificate must be renewed (or this machine's clock is wrong)"
    return TransportError(f"the certificate of {config.server} is not trusted: {problem}", hint)

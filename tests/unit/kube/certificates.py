"""A certificate authority for tests, and an HTTPS server that says who came."""

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True)
class Pair:
    certificate: bytes
    key: bytes

    def save(self, folder: Path, name: str) -> tuple[Path, Path]:
        cert, key = folder / f"{name}.crt", folder / f"{name}.key"
        cert.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return cert, key


class Authority:
    """Its certificates lack key identifiers, as those of many clusters do."""

    def __init__(self, name: str = "cluster-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._build(self._name, self._key.public_key(), 3650).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.certificate = certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, days: int = 1, host: str = "127.0.0.1") -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            alternative = x509.DNSName(host)
        certificate = self._build(subject, key.public_key(), days).add_extension(
            x509.SubjectAlternativeName([alternative]), critical=False
        )
        return Pair(
            certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def _build(self, subject: x509.Name, public: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - datetime.timedelta(days=30))
            .not_valid_after(NOW + datetime.timedelta(days=days))
        )


@asynccontextmanager
async def https(
    server: Pair,
    clients: Authority,
    folder: Path,
    refused: Collection[str] = (),
    opened: list[asyncio.Transport] | None = None,
) -> AsyncIterator[str]:
    """Answers /version with the name in the client's certificate, and "Bearer ..." if it sent a token.

    While `refused` has an entry, connections that were used before are answered 401, as an API server answers once
    the certificate of a connection has expired. A watch gets a bookmark whenever it asks for more. The connections
    that requests come on are added to `opened`.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=clients.certificate.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(*server.save(folder, "server"))
    used: set[asyncio.BaseTransport | None] = set()

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        if opened is not None and request.transport is not None and request.transport not in opened:
            opened.append(request.transport)
        if "watch" in request.query:
            return await _bookmarks(request)
        if refused and request.transport in used:
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        if not refused:
            used.add(request.transport)
        peer = request.get_extra_info("peercert") or {}
        names = [value for part in peer.get("subject", ()) for key, value in part if key == "commonName"]
        who = " ".join([*names, request.headers.get("Authorization", "")]).strip()
        if "Impersonate-User" in request.headers:
            asked = [request.headers["Impersonate-User"], *request.headers.getall("Impersonate-Group", [])]
            who += f" as {','.join(asked)}"
        return web.json_response({"gitVersion": who})

    runner = web.ServerRunner(web.Server(serve), shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _bookmarks(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}\n')
            await asyncio.sleep(0.05)
    return response


@asynccontextmanager
async def tunnel() -> AsyncIterator[tuple[str, list[str]]]:
    """An HTTP proxy that knows CONNECT: its URL, and the first line of every request."""
    asked: list[str] = []
    writers: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.splitlines()[0])
        host, _, port = asked[-1].split()[1].rpartition(":")
        onward_reader, onward = await asyncio.open_connection(host, int(port))
        writers.extend((writer, onward))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(carry(reader, onward), carry(onward_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        for writer in writers:
            writer.close()

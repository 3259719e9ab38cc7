"""Credentials over real TLS: shown, rotated, refused, and explained."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from slurm_operator.errors import UserError
from slurm_operator.kube import CONFIG_MAPS, Client, KubeConfig, Unreachable
from slurm_operator.kube.auth import Credentials
from slurm_operator.kube.clock import SystemClock
from slurm_operator.kube.config import ExecPlugin, Material
from slurm_operator.kube.transport import explain
from tests.unit.kube.certificates import Authority, https, tunnel

CLUSTER = Authority()
STRANGER = Authority("somebody-else")
CLUSTER_CA = Material(data=CLUSTER.certificate)


class SettableClock(SystemClock):
    ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def config(url: str, **more: Any) -> KubeConfig:
    return KubeConfig(url, source="/etc/kube, context 'x'", **{"ca": CLUSTER_CA} | more)


def certificate(name: str = "me", authority: Authority = CLUSTER) -> dict[str, Material]:
    pair = authority.issue(name)
    return {"certificate": Material(data=pair.certificate), "key": Material(data=pair.key)}


async def who(config: KubeConfig) -> str:
    async with Client(config) as client:
        return await client.version()


async def test_a_client_certificate(tmp_path: Path) -> None:
    async with https(CLUSTER.issue("server"), CLUSTER, tmp_path) as url:
        assert await who(config(url, **certificate("alice"))) == "alice"
        assert await who(config(url, token=Material(data=b"t0ken"))) == "Bearer t0ken"
        assert await who(config(url)) == ""


async def test_only_the_given_authority_is_trusted() -> None:
    given, none = (Credentials(config("https://c", ca=ca), SystemClock()).ssl for ca in (CLUSTER_CA, None))
    assert given is not None
    assert none is not None
    assert len(given.get_ca_certs()) == 1
    assert none.get_ca_certs() != given.get_ca_certs()


async def test_another_name_or_no_verification(tmp_path: Path) -> None:
    async with https(CLUSTER.issue("server", host="kubernetes.default.svc"), CLUSTER, tmp_path) as url:
        assert await who(config(url, tls_server_name="kubernetes.default.svc")) == ""
        assert await who(config(url, insecure=True)) == ""
        with pytest.raises(Unreachable, match="is not trusted: IP address mismatch") as caught:
            await who(config(url))
        assert "tls-server-name" in caught.value.hint


async def test_the_wrong_authority(tmp_path: Path) -> None:
    async with https(STRANGER.issue("server"), CLUSTER, tmp_path) as url:
        with pytest.raises(Unreachable, match=f"the certificate of {url} is not trusted") as caught:
            await who(config(url))
    assert caught.value.hint == "use the CA of this cluster: /etc/kube, context 'x' takes it from the kubeconfig"


async def test_a_server_whose_certificate_expired(tmp_path: Path) -> None:
    async with https(CLUSTER.issue("server", days=-1), CLUSTER, tmp_path) as url:
        with pytest.raises(Unreachable, match="certificate has expired") as caught:
            await who(config(url))
    assert "must be renewed" in caught.value.hint


@pytest.mark.parametrize(
    ("alert", "problem"),
    [("unknown ca", "unknown to the server"), ("certificate expired", "expired"), ("handshake failure", "refused")],
)
def test_a_server_that_does_not_like_the_client_certificate(alert: str, problem: str) -> None:
    error = explain(aiohttp.ClientOSError(1, f"[SSL: ALERT] tlsv1 alert {alert} (_ssl.c:2580)"), config("https://c"))
    assert error.message == f"https://c ended the TLS handshake: the client certificate is {problem}"
    assert error.hint == "renew the client certificate that /etc/kube, context 'x' names"


def test_an_expired_client_certificate(tmp_path: Path) -> None:
    cert, key = CLUSTER.issue("me", days=-2).save(tmp_path, "me")
    with pytest.raises(UserError, match=rf"the client certificate in {cert} expired on \d{{4}}-\d\d-\d\d") as caught:
        Client(config("https://c", certificate=Material(cert), key=Material(key)))
    assert "renew" in caught.value.hint


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ca": Material(data=b"nonsense")}, "certificate authority in the kubeconfig is not PEM"),
        ({"ca": Material(data=b"\xff")}, "certificate authority in the kubeconfig is not PEM"),
        ({"ca": Material(Path("/no/ca.crt"))}, "cannot read /no/ca.crt"),
        ({"key": None}, "a client certificate without its key"),
        ({"key": Material(data=STRANGER.issue("x").key)}, "do not make a pair"),
        ({"key": Material(data=b"nonsense")}, "do not make a pair"),
        ({"certificate": Material(data=b"nonsense")}, "client certificate in the kubeconfig is not PEM"),
    ],
)
def test_wrong_material(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Client(config("https://c", **certificate() | wrong))


async def test_rotated_files_are_used_without_a_restart(tmp_path: Path) -> None:
    """The certificate, then the authority that signed the server's: both change under a running client."""
    authority = tmp_path / "ca.crt"
    authority.write_bytes(CLUSTER.certificate)
    cert, key = CLUSTER.issue("first").save(tmp_path, "me")
    settings = KubeConfig("", ca=Material(authority), certificate=Material(cert), key=Material(key))
    clock = SettableClock()

    async def ask(url: str) -> str:
        async with Client(KubeConfig(url, **material(settings)), clock=clock) as client:
            before = await client.version()
            CLUSTER.issue("second").save(tmp_path, "me")
            os.utime(cert, (1, 1))
            clock.ahead += 11
            return f"{before} {await client.version()}"

    async with https(CLUSTER.issue("server"), CLUSTER, tmp_path) as url:
        assert await ask(url) == "first second"


async def test_half_of_a_rotation_leaves_the_old_certificate_in_use(tmp_path: Path) -> None:
    """The new certificate is written and its key is not: new connections show the old pair until then."""
    cert, key = CLUSTER.issue("first").save(tmp_path, "me")
    second = CLUSTER.issue("second")
    clock = SettableClock()
    async with https(CLUSTER.issue("server"), CLUSTER, tmp_path) as url:
        settings = config(url, certificate=Material(cert), key=Material(key))
        async with Client(settings, clock=clock) as client:
            cert.write_bytes(second.certificate)
            clock.ahead += 11
            assert await client.version() == "first"
            key.write_bytes(second.key)
            clock.ahead += 11
            assert await client.version() == "second"


async def test_a_refused_certificate_is_shown_on_a_new_connection(tmp_path: Path) -> None:
    """The files were renewed before the last look, so the 401 alone tells that the open connection is too old."""
    refused: set[str] = set()
    async with (
        https(CLUSTER.issue("server"), CLUSTER, tmp_path, refused) as url,
        Client(config(url, **certificate("me"))) as client,
    ):
        await asyncio.gather(*(client.version() for _ in range(5)))
        refused.add("oldest connections")
        assert await client.version() == "me"
        assert await client.version() == "me"


async def test_a_rotation_ends_no_stream(tmp_path: Path) -> None:
    """A watch that is open goes on with the connection it has."""
    cert, key = CLUSTER.issue("first").save(tmp_path, "me")
    clock = SettableClock()
    async with https(CLUSTER.issue("server"), CLUSTER, tmp_path) as url:
        settings = config(url, certificate=Material(cert), key=Material(key))
        async with Client(settings, clock=clock) as client:
            events = client.watch(CONFIG_MAPS, "default")
            first = await anext(events)
            assert await client.version() == "first"
            CLUSTER.issue("second").save(tmp_path, "me")
            os.utime(cert, (1, 1))
            clock.ahead += 11
            assert await client.version() == "second"
            assert await anext(events) == first
            await events.aclose()


async def test_a_rotation_leaves_no_connection_behind(tmp_path: Path) -> None:
    """Certificates are renewed for as long as the process lives: each time the former connections are closed."""
    cert, key = CLUSTER.issue("0").save(tmp_path, "me")
    clock, opened = SettableClock(), list[asyncio.Transport]()
    async with https(CLUSTER.issue("server"), CLUSTER, tmp_path, opened=opened) as url:
        settings = config(url, certificate=Material(cert), key=Material(key))
        async with Client(settings, clock=clock) as client:
            for number in range(3):
                assert await client.version() == str(number)
                CLUSTER.issue(str(number + 1)).save(tmp_path, "me")
                os.utime(cert, (number + 1, number + 1))
                clock.ahead += 11
            assert await client.version() == "3"
            async with asyncio.timeout(10):
                while sum(not transport.is_closing() for transport in opened) > 1:  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(0.01)
    assert len(opened) == 4


def material(settings: KubeConfig) -> dict[str, Any]:
    return {"ca": settings.ca, "certificate": settings.certificate, "key": settings.key}


async def test_a_rotated_authority_is_trusted(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(STRANGER.certificate)
    clock = SettableClock()
    async with (
        https(CLUSTER.issue("server"), CLUSTER, tmp_path) as url,
        Client(config(url, ca=Material(authority)), clock=clock) as client,
    ):
        with pytest.raises(Unreachable, match="not trusted"):
            await client.version()
        authority.write_bytes(CLUSTER.certificate)
        os.utime(authority, (1, 1))
        clock.ahead += 11
        assert await client.version() == ""


async def test_a_file_that_vanishes_leaves_the_old_content_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    clock = SettableClock()
    credentials = Credentials(KubeConfig("http://c", token=Material(token)), clock)
    token.unlink()
    clock.ahead += 11
    assert await credentials.header() == "Bearer one"
    assert "cannot read" in caplog.records[0].__dict__["error"]


def plugin(folder: Path, script: str, **more: Any) -> ExecPlugin:
    path = folder / "login"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return ExecPlugin(str(path), **more)


def answer(**status: Any) -> str:
    body = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(body)}\nEND\n"


async def test_a_plugin_is_run_once_until_its_token_expires(tmp_path: Path) -> None:
    clock = SettableClock()
    calls = tmp_path / "calls"
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    script = f"echo $MARK $1 >> {calls}\n" + answer(token="from-plugin", expirationTimestamp=until)
    login = plugin(tmp_path, script, args=("-x",), env=(("MARK", "called"),))
    credentials = Credentials(KubeConfig("http://c", exec=login), clock)
    assert set(await asyncio.gather(*(credentials.header() for _ in range(5)))) == {"Bearer from-plugin"}
    assert calls.read_text() == "called -x\n"
    clock.ahead = 61
    await credentials.header()
    credentials.distrust()
    await credentials.header()
    assert calls.read_text() == "called -x\n" * 3


async def test_a_plugin_learns_about_the_cluster(tmp_path: Path) -> None:
    script = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n' + answer(token="t")
    login = plugin(tmp_path, script, cluster={"server": "https://c"})
    await Credentials(KubeConfig("http://c", exec=login), SystemClock()).header()
    info = json.loads((tmp_path / "info").read_text())
    assert info["kind"] == "ExecCredential"
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://c"}}


async def test_a_plugin_may_bring_a_certificate(tmp_path: Path) -> None:
    pair = CLUSTER.issue("plugged")
    status = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    async with https(CLUSTER.issue("server"), CLUSTER, tmp_path) as url:
        assert await who(config(url, exec=plugin(tmp_path, answer(**status)))) == "plugged"


async def test_the_next_certificate_of_a_plugin_is_shown_on_a_new_connection(tmp_path: Path) -> None:
    clock, said = SettableClock(), tmp_path / "said"

    def certify(name: str) -> None:
        pair, until = CLUSTER.issue(name), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + 60))
        data = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
        said.write_text(answer(**data, expirationTimestamp=until))

    certify("first")
    login = plugin(tmp_path, f". {said}")
    async with (
        https(CLUSTER.issue("server"), CLUSTER, tmp_path) as url,
        Client(config(url, exec=login), clock=clock) as client,
    ):
        assert await client.version() == "first"
        clock.ahead = 61
        certify("second")
        assert await client.version() == "second"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo sorry >&2; exit 3", "the credential plugin 'login' failed with exit code 3: sorry"),
        ("echo hello", "did not print an ExecCredential"),
        ("exec sleep 60", "did not end within 0.2 s"),
    ],
)
async def test_a_plugin_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str) -> None:
    monkeypatch.setattr("slurm_operator.kube.auth.PLUGIN_SECONDS", 0.2 if "sleep" in script else 20.0)
    with pytest.raises(Unreachable, match=says):
        await who(KubeConfig("http://127.0.0.1:1", exec=plugin(tmp_path, script)))


async def test_a_plugin_that_is_not_there() -> None:
    missing = ExecPlugin("/no/such/login", install_hint="get it from your provider")
    with pytest.raises(Unreachable, match="cannot run the credential plugin '/no/such/login'") as caught:
        await who(KubeConfig("http://127.0.0.1:1", exec=missing))
    assert caught.value.hint == "get it from your provider"


def test_a_name_that_does_not_resolve() -> None:
    key = ConnectionKey("no.such.host", 443, True, True, None, None, None)
    error = aiohttp.ClientConnectorDNSError(key, OSError(-2, "Name or service not known"))
    assert explain(error, KubeConfig("https://no.such.host")).message == (
        "the host name in https://no.such.host does not resolve"
    )


def test_silence_and_breaking_are_told_apart() -> None:
    settings = KubeConfig("https://c")
    assert explain(aiohttp.ServerTimeoutError(), settings).message == "https://c does not answer: timed out"
    assert explain(aiohttp.ServerDisconnectedError(), settings).message == (
        "the connection to https://c broke: Server disconnected"
    )
    assert explain(ConnectionResetError(), settings).message == (
        "the connection to https://c broke: ConnectionResetError"
    )


async def test_another_user_is_asked_for_in_every_request(tmp_path: Path) -> None:
    impersonate = (("Impersonate-User", "alice"), ("Impersonate-Group", "one"), ("Impersonate-Group", "two"))
    async with https(CLUSTER.issue("server"), CLUSTER, tmp_path) as url:
        assert await who(config(url, token=Material(data=b"t"), impersonate=impersonate)) == "Bearer t as alice,one,two"


async def test_through_a_proxy(tmp_path: Path) -> None:
    """TLS reaches from here to the server; the proxy passes bytes on, of requests and of watches."""
    async with https(CLUSTER.issue("server"), CLUSTER, tmp_path) as url, tunnel() as (proxy, asked):
        connect = f"CONNECT {url.removeprefix('https://')} HTTP/1.1"
        async with Client(config(url, **certificate("alice"), proxy=proxy)) as client:
            assert await client.version() == "alice"
            assert asked == [connect]
            events = client.watch(CONFIG_MAPS, "default")
            await anext(events)
            assert asked == [connect] * 2
            await events.aclose()
    with pytest.raises(Unreachable, match="does not answer") as caught:
        await who(config(url, proxy=proxy))
    assert proxy in caught.value.hint


async def test_the_password_of_a_proxy_is_never_told() -> None:
    """Errors go to the log, to conditions and to events."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def told() -> str:
        with pytest.raises(Unreachable) as caught:
            await who(config("https://10.0.0.1", proxy=f"http://bob:s3cret@{where}"))
        return f"{caught.value} {caught.value.hint}"

    refused = await told()
    server.close()
    await server.wait_closed()
    for words in (refused, await told()):
        assert f"http://{where}" in words
        assert "s3cret" not in words
    assert "407" in refused

"""A cache on a real API server through every way the server or the way to it can fail: no event is lost.

Proof each time: the store equals a fresh list, and every coming and going of an object was told exactly once.
"""

import asyncio
import base64
import json
import ssl
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_local.apiserver import ApiServer
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig, load
from slurm_operator.kube.errors import Unauthorized
from tests.fakes.proxy import Proxy
from tests.kube.follower import Editor, Follower, until
from tests.kube.tokens import KubernetesTokens


@pytest.fixture
def config(api_server: ApiServer) -> KubeConfig:
    return load(str(api_server.kubeconfig))


@pytest.fixture
async def admin(config: KubeConfig) -> AsyncIterator[Client]:
    async with Client(config) as client:
        yield client


@pytest.fixture
async def proxy(config: KubeConfig) -> AsyncIterator[Proxy]:
    async with Proxy(config.server) as proxy:
        yield proxy


@pytest.fixture
async def client(config: KubeConfig, proxy: Proxy) -> AsyncIterator[Client]:
    """A client whose every connection goes through the proxy."""
    async with Client(replace(config, server=proxy.url)) as client:
        yield client


@pytest.fixture
def editor(admin: Client, namespace: str) -> Editor:
    return Editor(admin, namespace)


def compact_etcd(api_server: ApiServer) -> None:
    """Throw away all history up to now, as the API server itself does every five minutes."""
    pki = api_server.folder / "pki"
    context = ssl.create_default_context(cafile=str(pki / "etcd" / "ca.crt"))
    context.load_cert_chain(pki / "etcd" / "apiserver.crt", pki / "etcd" / "apiserver.key")
    url = f"https://127.0.0.1:{api_server.plane.etcd_port}/v3/kv"

    def ask(path: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(f"{url}/{path}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            decoded: dict[str, dict[str, str]] = json.load(answer)
            return decoded

    key = base64.b64encode(b"nothing").decode()
    revision = ask("range", {"key": key})["header"]["revision"]
    ask("compaction", {"revision": revision, "physical": True})


async def test_the_api_server_is_killed_and_comes_back(
    api_server: ApiServer, config: KubeConfig, admin: Client, editor: Editor, namespace: str
) -> None:
    await editor.begin("before", "after")
    async with Client(config) as client, Follower(client, namespace).running() as follower:
        await editor.busy_hour("before")
        api_server.apiserver.stop(patience=0)
        await until(lambda: not follower.reflector.connected)
        api_server.apiserver.start()
        await asyncio.to_thread(api_server.wait_ready)
        await editor.busy_hour("after")
        await follower.caught_up(admin)


async def test_etcd_is_killed_and_comes_back(
    api_server: ApiServer, config: KubeConfig, admin: Client, editor: Editor, namespace: str
) -> None:
    await editor.begin("before", "after")
    async with Client(config) as client, Follower(client, namespace).running() as follower:
        await editor.busy_hour("before")
        api_server.etcd.stop(patience=0)
        api_server.etcd.start()
        await asyncio.to_thread(api_server.wait_ready)
        await editor.busy_hour("after")
        await follower.caught_up(admin)


async def test_history_is_compacted_while_the_watch_is_away(
    api_server: ApiServer,
    proxy: Proxy,
    client: Client,
    admin: Client,
    editor: Editor,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The server answers 410: everything is listed anew, and what vanished meanwhile is told as deleted."""
    caplog.set_level("INFO", "slurm_operator.kube.reflector")
    await editor.begin("before", "missed")
    async with Follower(client, namespace).running() as follower:
        await editor.busy_hour("before")
        await follower.caught_up(admin)
        proxy.forget()
        await editor.busy_hour("missed")
        # The watch cache would still know the history, so it has to go too.
        api_server.apiserver.stop(patience=0)
        compact_etcd(api_server)
        api_server.apiserver.start()
        await asyncio.to_thread(api_server.wait_ready)
        proxy.cut()
        await follower.caught_up(admin)
    assert "the server forgot our version, listing again" in caplog.messages


async def test_a_watch_is_dropped_in_silence(
    proxy: Proxy, client: Client, admin: Client, editor: Editor, namespace: str
) -> None:
    """As when a firewall forgets a connection: both ends believe in it, and nothing arrives."""
    await editor.begin("missed")
    async with Follower(client, namespace, inactivity=3.0).running() as follower:
        proxy.forget()
        await editor.busy_hour("missed")
        assert follower.updates["stays"] == 0
        await follower.caught_up(admin)
        assert follower.updates["stays"] == 1


async def test_connections_are_cut_again_and_again(
    proxy: Proxy, client: Client, admin: Client, editor: Editor, namespace: str
) -> None:
    await editor.begin()
    async with Follower(client, namespace).running() as follower:
        for number in range(8):
            proxy.cut()
            await editor.change("stays", value=str(number + 1))
            await editor.create(f"new-{number}")
        await editor.delete(*(f"new-{number}" for number in range(0, 8, 2)))
        await follower.caught_up(admin)
        # Resumed each time where it had stopped, so not even one of many updates is folded into another.
        assert follower.updates["stays"] == 8


async def test_a_token_expires(
    api_server: ApiServer,
    config: KubeConfig,
    proxy: Proxy,
    admin: Client,
    editor: Editor,
    namespace: str,
    tmp_path: Path,
) -> None:
    """Refused until the file holds a fresh token, as the kubelet writes one; then it goes on where it was."""
    tokens = await KubernetesTokens.grant(api_server, admin, namespace)
    file = tmp_path / "token"
    file.write_text(tokens.sign(seconds=6))
    await editor.begin("missed")
    account = tokens.config(config, proxy.url, file)
    async with Client(account) as client, Follower(client, namespace).running() as follower:
        await tokens.wait_refused(account)
        proxy.cut()
        await editor.busy_hour("missed")
        await until(lambda: isinstance(follower.reflector.last_error, Unauthorized))
        file.write_text(tokens.sign(seconds=600))
        await follower.caught_up(admin)

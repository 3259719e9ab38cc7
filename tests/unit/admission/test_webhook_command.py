"""`slurm-operator webhook` as a whole: certificates, probes, the objects it is installed with."""

import argparse
import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from slurm_local.apiserver import free_ports
from slurm_operator.admission.certs import Keys, renewed
from slurm_operator.admission.certs_secret import SECRET
from slurm_operator.admission.reviewer import validate_path
from slurm_operator.api import KINDS
from slurm_operator.cli import parser
from slurm_operator.cli import webhook as command
from slurm_operator.cli.webhook_manifests import (
    NAME,
    WebhookOptions,
    cluster_rules,
    mutating_configuration,
    validating_configuration,
    webhook_manifests,
)
from slurm_operator.errors import UserError
from slurm_operator.kube import KubeConfig
from tests.fakes.apiserver import FakeApiServer
from tests.unit.admission.conftest import NOW, client_context, put, review
from tests.unit.admission.examples import BY_NAME, manifest

NODESET = validate_path(BY_NAME["NodeSet"])
SERVICE = f"{NAME}.slurm.svc"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LEAVE_SECONDS", 0.0)
    monkeypatch.setattr(command, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(command, "CERT_DIR", "/nowhere")


class Running:
    def __init__(self, ports: list[int]) -> None:
        self.https, self.health = (f"127.0.0.1:{port}" for port in ports)
        self.stop = asyncio.Event()

    def options(self, *more: str) -> argparse.Namespace:
        given = [f"--server-addr={self.https}", f"--health-addr={self.health}", f"--metrics-addr={self.health}"]
        return parser().parse_args(["webhook", *given, *more])

    async def page(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.health}{path}") as response:
            return response.status, await response.text()

    async def post(self, bundle: bytes, host: str = SERVICE) -> int:
        """As the API server does: to an address, with the name of the Service."""
        connector = aiohttp.TCPConnector(ssl=client_context(bundle))
        async with aiohttp.ClientSession(connector=connector) as session:
            body = review(manifest("NodeSet"))
            async with session.post(f"https://{self.https}{NODESET}", data=body, server_hostname=host) as response:
                return response.status


@asynccontextmanager
async def running(server: FakeApiServer, *more: str) -> AsyncIterator[Running]:
    found = Running(free_ports(2))
    config = KubeConfig(server.url, namespace="slurm")
    task = asyncio.create_task(command.serve_webhook(found.options(*more), config, found.stop))
    try:
        await _until(task, found)
        yield found
    finally:
        found.stop.set()
        await task


async def _until(task: "asyncio.Task[None]", found: Running) -> None:
    async with asyncio.timeout(10):
        while not task.done():
            try:
                if (await found.page("/readyz"))[0] == 200:
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)
    await task


async def _eventually(met: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not met():  # noqa: ASYNC110 - what is waited for is on the other side of a socket
            await asyncio.sleep(0.01)


@pytest.fixture
def installed(server: FakeApiServer) -> FakeApiServer:
    put(server, "Namespace", "slurm")
    options = WebhookOptions("slurm", binding=True)
    for configuration in (validating_configuration(options), mutating_configuration(options)):
        put(server, configuration["kind"], NAME, webhooks=configuration["webhooks"])
    return server


def bundle(server: FakeApiServer, kind: str = "ValidatingWebhookConfiguration") -> bytes:
    found = server.cluster.get(server.cluster.kind(kind), NAME)
    (text,) = {webhook["clientConfig"].get("caBundle", "") for webhook in found["webhooks"]}
    return b64decode(text)


async def test_ready_means_that_the_api_server_can_reach_and_trust_it(installed: FakeApiServer) -> None:
    async with running(installed) as webhook:
        assert await webhook.post(bundle(installed)) == 200
        assert bundle(installed, "MutatingWebhookConfiguration") == bundle(installed)
        assert (await webhook.page("/healthz"))[0] == 200
        metrics = (await webhook.page("/metrics"))[1]
        assert f'controller_runtime_webhook_requests_total{{code="200",webhook="{NODESET}"}} 1.0' in metrics
        assert "rest_client_requests_total" in metrics


async def test_a_second_replica_serves_the_same_certificate(installed: FakeApiServer) -> None:
    async with running(installed):
        first = bundle(installed)
        async with running(installed) as second:
            assert bundle(installed) == first
            assert await second.post(first) == 200


async def test_a_deleted_secret_is_made_anew(installed: FakeApiServer) -> None:
    async with running(installed) as webhook:
        first = bundle(installed)
        installed.cluster.delete(installed.cluster.kind("Secret"), SECRET, "slurm")
        await _eventually(lambda: bundle(installed) != first)
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await webhook.post(bundle(installed)) == 200
                    break
                except aiohttp.ClientConnectorCertificateError:
                    await asyncio.sleep(0.01)


async def test_files_of_cert_manager_are_followed(server: FakeApiServer, tmp_path: Path) -> None:
    def write(keys: Keys) -> None:
        (tmp_path / "tls.crt").write_bytes(keys.leaf.certificate)
        (tmp_path / "tls.key").write_bytes(keys.leaf.key)

    first, second = renewed(None, [SERVICE], NOW), renewed(None, [SERVICE], NOW)
    write(first)
    async with running(server, f"--cert-dir={tmp_path}") as webhook:
        assert await webhook.post(first.bundle) == 200
        write(second)
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await webhook.post(second.bundle) == 200
                    break
                except aiohttp.ClientConnectorCertificateError:
                    await asyncio.sleep(0.01)
    assert not [request for request in server.requests if request.resource == "secrets"]


async def test_a_folder_without_certificates(server: FakeApiServer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*tls\.crt"):
        async with running(server, f"--cert-dir={tmp_path}"):
            pytest.fail("it must not become ready")


async def test_stopping_is_told_before_it_happens(installed: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LEAVE_SECONDS", 0.5)
    async with running(installed) as webhook:
        webhook.stop.set()
        assert await webhook.page("/readyz") == (503, "stopping\n")
        assert await webhook.post(bundle(installed)) == 200


def test_a_dead_webhook_stops_nobody_else() -> None:
    options = WebhookOptions("slurm", binding=True)
    for webhook in validating_configuration(options)["webhooks"]:
        assert webhook["failurePolicy"] == "Fail"
        assert [rule["apiGroups"] for rule in webhook["rules"]] == [["slinky.slurm.net"]]
        assert [rule["operations"] for rule in webhook["rules"]] == [["CREATE", "UPDATE"]]
    for webhook in mutating_configuration(options)["webhooks"]:
        assert webhook["failurePolicy"] == "Ignore"
        (excluded,) = webhook["namespaceSelector"]["matchExpressions"]
        assert {"kube-system", "kube-public", "kube-node-lease"} <= set(excluded["values"])
        assert webhook["timeoutSeconds"] <= 10


def test_the_binding_webhook_is_off_unless_asked_for() -> None:
    def paths(options: WebhookOptions) -> set[str]:
        return {webhook["clientConfig"]["service"]["path"] for webhook in mutating_configuration(options)["webhooks"]}

    assert paths(WebhookOptions("slurm", binding=True)) - paths(WebhookOptions("slurm")) == {"/mutate--v1-binding"}
    plain = {resource for rule in cluster_rules(WebhookOptions("slurm")) for resource in rule["resources"]}
    assert plain.isdisjoint({"pods", "nodes", "secrets"})
    assert len(paths(WebhookOptions("slurm"))) == len(KINDS)


def test_only_named_namespaces() -> None:
    options = WebhookOptions("slurm", namespaces=["a", "b"])
    for webhook in validating_configuration(options)["webhooks"]:
        assert {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]} in (
            webhook["namespaceSelector"]["matchExpressions"]
        )
    deployment = webhook_manifests(options)[-1]
    assert "--namespaces=a,b" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_command_line_of_the_deployment_is_understood() -> None:
    for options in (WebhookOptions("slurm", namespaces=["a"], certificate="tls", replicas=2), WebhookOptions("slurm")):
        container = webhook_manifests(options)[-1]["spec"]["template"]["spec"]["containers"][0]
        assert parser().parse_args(container["args"]).run == command.run

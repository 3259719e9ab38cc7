"""The webhook's server with real TLS on loopback, beside a fake API server that it asks for facts."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import pytest

from slurm_operator.admission.binding import PATH, Binder
from slurm_operator.admission.certs import Pair, issue, new_authority
from slurm_operator.admission.certs_tls import ServingContext
from slurm_operator.admission.reviewer import Reviewer, validate_path
from slurm_operator.admission.server import serve_reviews
from slurm_operator.kube import Client, KubeConfig
from tests.fakes.apiserver import FakeApiServer
from tests.unit.admission.examples import BY_NAME, Manifest

NOW = datetime.now(UTC)
HOST = "localhost"


def review(new: Manifest | None, old: Manifest | None = None, version: str = "v1", **request: Any) -> bytes:
    """What the API server posts."""
    about = new or old or {}
    group, _, number = str(about.get("apiVersion", "")).rpartition("/")
    content = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": number, "kind": about.get("kind", "")},
        "operation": "UPDATE" if old else "CREATE",
        "namespace": "default",
        "name": "slurm",
        "object": new,
        "oldObject": old,
        **request,
    }
    return msgspec.json.encode(
        {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "request": content}
    )


def put(server: FakeApiServer, kind: str, name: str, **content: Any) -> None:
    """An object that exists already."""
    found = server.cluster.kind(kind)
    place = {"namespace": "default"} if found.namespaced else {}
    metadata = {"name": name, **place, **content.pop("metadata", {})}
    manifest = {"apiVersion": found.api_version, "kind": kind, "metadata": metadata, **content}
    server.cluster.create(found, manifest, place.get("namespace", ""))


def client_context(*authorities: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=b"".join(authorities).decode())


@dataclass(frozen=True)
class Webhook:
    url: str
    authority: Pair
    serving: ServingContext
    session: aiohttp.ClientSession

    async def post(self, path: str, body: bytes) -> tuple[int, str]:
        async with self.session.post(self.url + path, data=body) as response:
            return response.status, await response.text()

    async def response(self, path: str, body: bytes) -> Manifest:
        """The answer to a review that is one."""
        status, text = await self.post(path, body)
        assert status == 200, text
        found: Manifest = msgspec.json.decode(text)
        assert found["kind"] == "AdmissionReview"
        response: Manifest = found["response"]
        return response

    async def validated(self, new: Manifest, old: Manifest | None = None, **request: Any) -> Manifest:
        return await self.response(validate_path(BY_NAME[new["kind"]]), review(new, old, **request))


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer(run_controllers=False) as server:
        yield server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(KubeConfig(server.url), deadline=0.5) as client:
        yield client


@pytest.fixture
async def webhook(client: Client) -> AsyncIterator[Webhook]:
    authority, serving = new_authority(NOW), ServingContext()
    serving.use(issue(authority, [HOST], NOW))
    routes = Reviewer(client).routes() | {PATH: Binder(client).bound}
    connector = aiohttp.TCPConnector(ssl=client_context(authority.certificate))
    async with (
        serve_reviews("127.0.0.1:0", routes, serving) as url,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        yield Webhook(url.replace("127.0.0.1", HOST), authority, serving, session)

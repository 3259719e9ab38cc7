"""What the fake API server can do beyond the contract: faults on demand, a request log, and the same again by seed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.errors import ApiError, Forbidden, ServerError, TooManyRequests, Unauthorized, Unreachable
from slurm_operator.kube.kinds import CONFIG_MAPS
from slurm_operator.kube.watch import Added, Failed, WatchEvent
from tests.fakes.apiserver import (
    Cluster,
    CutStream,
    Delay,
    Disconnect,
    FailStream,
    FakeApiServer,
    Hang,
    Refusal,
    Refuse,
    SilenceStream,
)
from tests.fakes.apiserver.faults import Action
from tests.fakes.apiserver.kinds import Kind

Json = dict[str, Any]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(KubeConfig(server.url), deadline=1.0) as client:
        yield client


def config_map(name: str) -> Json:
    return {"metadata": {"name": name, "namespace": "default"}}


@pytest.fixture
def maps(server: FakeApiServer) -> Kind:
    return server.cluster.kind("ConfigMap")


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (Refuse(500), ServerError),
        (Refuse(429, retry_after=60), TooManyRequests),
        (Refuse(403, message="no"), Forbidden),
        (Disconnect(), Unreachable),
        (Hang(), Unreachable),
    ],
    ids=lambda value: str(value),
)
async def test_a_struck_write_has_no_effect(
    server: FakeApiServer, client: Client, maps: Kind, action: Action, error: type[ApiError]
) -> None:
    server.inject(action, "create", "configmaps", times=None)
    with pytest.raises(error):
        await client.create(CONFIG_MAPS, config_map("a"))
    assert server.cluster.list(maps, "default") == []


async def test_a_lost_answer_hides_a_write_that_happened(server: FakeApiServer, client: Client, maps: Kind) -> None:
    server.inject(Disconnect(after_effect=True), "create")
    with pytest.raises(Unreachable):
        await client.create(CONFIG_MAPS, config_map("a"))
    assert len(server.cluster.list(maps, "default")) == 1


async def test_faults_choose_their_victims(server: FakeApiServer, client: Client) -> None:
    server.inject(Refuse(500), "create", "configmaps", name="*", skip=1, times=1)
    await client.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(ServerError):
        await client.create(CONFIG_MAPS, config_map("b"))
    await client.create(CONFIG_MAPS, config_map("c"))
    assert [line.code for line in server.log("create", "configmaps")] == [201, 500, 201]


async def test_a_delayed_answer_arrives(server: FakeApiServer, client: Client) -> None:
    server.inject(Delay(0.05), "list")
    started = asyncio.get_running_loop().time()
    await client.list(CONFIG_MAPS, "default")
    assert asyncio.get_running_loop().time() - started >= 0.05


async def watched(client: Client, count: int) -> list[WatchEvent[Any]]:
    found: list[WatchEvent[Any]] = []
    async for event in client.watch(CONFIG_MAPS, "default", inactivity=0.2):
        found.append(event)
        if len(found) == count:
            break
    return found


async def test_streams_are_cut_or_fall_silent_or_fail(server: FakeApiServer, client: Client) -> None:
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, config_map(name))
    for action in (CutStream(1), SilenceStream(1)):
        server.inject(action, "watch")
        with pytest.raises(Unreachable):
            await watched(client, 2)
    server.inject(FailStream(410, 1), "watch")
    first, second = await watched(client, 2)
    assert isinstance(first, Added)
    assert isinstance(second, Failed)


async def test_the_log_tells_who_did_what(server: FakeApiServer, client: Client) -> None:
    await client.list(CONFIG_MAPS, "default")
    await client.apply(CONFIG_MAPS, config_map("a"), manager="m")
    await client.delete(CONFIG_MAPS, "a", "default")
    assert [(line.verb, line.name, line.code) for line in server.writes] == [("apply", "a", 201), ("delete", "a", 200)]
    assert all(line.user_agent.startswith("slurm-operator/") for line in server.requests)


async def test_only_known_tokens_enter() -> None:
    async with FakeApiServer(tokens={"good"}) as server, Client(KubeConfig(server.url)) as client:
        with pytest.raises(Unauthorized):
            await client.list(CONFIG_MAPS)
        server.tokens = None
        await client.list(CONFIG_MAPS)


async def test_state_outlives_a_stop(server: FakeApiServer, client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    url = server.url
    await server.stop()
    with pytest.raises(Unreachable):
        await client.get(CONFIG_MAPS, "a", "default")
    await server.start()
    assert server.url == url
    assert (await client.get(CONFIG_MAPS, "a", "default")).metadata.name == "a"


async def test_a_compaction_expires_pages(server: FakeApiServer, client: Client) -> None:
    for number in range(4):
        await client.create(CONFIG_MAPS, config_map(f"c{number}"))
    pages = client.pages(CONFIG_MAPS, "default", limit=2)
    assert len((await anext(pages)).items) == 2
    server.expire_watches()
    with pytest.raises(ApiError, match="continue parameter is too old"):
        await anext(pages)


def test_the_same_seed_gives_the_same_names() -> None:
    def names(seed: int) -> list[tuple[str, str]]:
        cluster = Cluster(seed=seed)
        kind = cluster.kind("ConfigMap")
        made = [cluster.create(kind, {"metadata": {"generateName": "x-"}}, "default") for _ in range(3)]
        return [(obj["metadata"]["name"], obj["metadata"]["uid"]) for obj in made]

    assert names(1) == names(1)
    assert names(1) != names(2)


def test_strategic_patches_merge_keyed_lists() -> None:
    cluster = Cluster()
    pods = cluster.kind("Pod")
    containers = [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]
    cluster.create(pods, {"metadata": {"name": "p"}, "spec": {"containers": containers}}, "default")
    patch = {"spec": {"containers": [{"name": "b", "image": "2"}]}}
    patched = cluster.patch(pods, "p", "default", patch, "strategic")
    assert [(item["name"], item["image"]) for item in patched["spec"]["containers"]] == [("a", "1"), ("b", "2")]


def test_a_custom_kind_takes_no_strategic_patch() -> None:
    cluster = Cluster()
    sets = cluster.kind("NodeSet")
    cluster.create(sets, {"metadata": {"name": "n"}, "spec": {}}, "default")
    with pytest.raises(Refusal):
        cluster.patch(sets, "n", "default", {"spec": {"a": 1}}, "strategic")

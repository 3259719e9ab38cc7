"""The client: every verb, every refusal, patience where it helps and none where it does not."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from slurm_operator import __version__
from slurm_operator.errors import UserError
from slurm_operator.kube import (
    CONFIG_MAPS,
    NODES,
    PODS,
    STATEFUL_SETS,
    AlreadyExists,
    ApiError,
    Client,
    Conflict,
    Expired,
    Forbidden,
    Gone,
    Invalid,
    KubeConfig,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from slurm_operator.kube.config import Material
from slurm_operator.kube.errors import Call, from_response
from tests.fakes.apiserver import Delay, Disconnect, FakeApiServer, Hang, Refuse
from tests.unit.kube.conftest import HURRIED

Seen = list[tuple[str, str]]


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
async def client(server: FakeApiServer, seen: Seen) -> AsyncIterator[Client]:
    def observe(method: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        seen.append((method, code))

    async with Client(KubeConfig(server.url), observer=observe, clock=HURRIED, deadline=2.0) as client:
        yield client


async def test_reads_and_writes(client: Client, seen: Seen) -> None:
    made = await client.create(CONFIG_MAPS, config_map(k="1"))
    assert made.data == {"k": "1"}
    assert (await client.get(CONFIG_MAPS, "a", "default")) == made
    assert (await client.get_raw(CONFIG_MAPS, "a", "default"))["kind"] == "ConfigMap"
    changed = await client.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}}, "default")
    assert changed.data == {"k": "2"}
    operation = [{"op": "replace", "path": "/data/k", "value": "3"}]
    assert (await client.patch(CONFIG_MAPS, "a", operation, "default", kind="json")).data == {"k": "3"}
    applied = await client.apply(CONFIG_MAPS, config_map(k="4"), manager="me")
    assert applied.data == {"k": "4"}
    assert applied.metadata.managed_fields[0].manager == "me"
    await client.delete(CONFIG_MAPS, "a", "default")
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", "default")
    assert seen[-1] == ("GET", "404")
    assert await client.version() == "v1.36.0-fake"


async def test_a_dry_run_changes_nothing(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map(k="1"))
    await client.create(CONFIG_MAPS, config_map("b"), dry_run=True)
    await client.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}}, "default", dry_run=True)
    await client.apply(CONFIG_MAPS, config_map("c"), manager="me", dry_run=True)
    await client.delete(CONFIG_MAPS, "a", "default", dry_run=True)
    found = (await client.list(CONFIG_MAPS, "default")).items
    assert [(obj.metadata.name, obj.data) for obj in found] == [("a", {"k": "1"})]


async def test_deletes_only_what_was_looked_at(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map())
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", "default", uid="another")
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", "default", resource_version="1")
    meta = made.metadata
    await client.delete(
        CONFIG_MAPS,
        "a",
        "default",
        uid=meta.uid,
        resource_version=meta.resource_version,
        grace_seconds=0,
        propagation="Background",
    )


async def test_lists_by_page_and_selection(server: FakeApiServer, client: Client) -> None:
    for number in range(7):
        manifest = config_map(f"c{number}")
        manifest["metadata"]["labels"] = {"odd": str(number % 2)}
        await client.create(CONFIG_MAPS, manifest)
    listing = await client.list(CONFIG_MAPS, limit=3)
    assert len(listing.items) == 7
    assert int(listing.resource_version) > 0
    assert len(server.log("list", "configmaps")) == 3
    assert len((await client.list(CONFIG_MAPS, "default", labels="odd=1")).items) == 3
    assert len((await client.list(CONFIG_MAPS, "default", fields="metadata.name=c4")).items) == 1


async def test_a_listing_that_grows_too_old_starts_over(server: FakeApiServer, client: Client) -> None:
    for number in range(5):
        await client.create(CONFIG_MAPS, config_map(f"c{number}"))
    server.inject(Refuse(410, "Expired"), "list", "configmaps", skip=1)
    assert len((await client.list(CONFIG_MAPS, limit=2)).items) == 5
    server.inject(Refuse(410, "Expired"), "list", "configmaps", times=None)
    with pytest.raises(Expired):
        await client.list(CONFIG_MAPS)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (405, "MethodNotAllowed", ApiError),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Expired),
        (410, "Gone", Gone),
        (422, "Invalid", Invalid),
        (500, "InternalError", ServerError),
        (504, "Timeout", ServerError),
    ],
)
async def test_refusals_have_types_and_tell_what_was_tried(
    server: FakeApiServer, client: Client, code: int, reason: str, kind: type[ApiError]
) -> None:
    server.inject(Refuse(code, reason, "because"), "create", "configmaps", times=2)
    with pytest.raises(kind) as caught:
        await client.create(CONFIG_MAPS, config_map())
    error = caught.value
    assert type(error) is kind
    assert error.message == "cannot create configmaps 'a' in namespace 'default': because"
    assert (error.verb, error.kind, error.name, error.namespace) == ("create", "ConfigMap", "a", "default")
    assert (error.status, error.reason) == (code, reason)
    assert isinstance(error, UserError)


async def test_an_rbac_refusal_names_the_cure(server: FakeApiServer, client: Client) -> None:
    said = 'User "x" cannot list resource "nodes" in API group "" at the cluster scope'
    server.inject(Refuse(403, "Forbidden", said), "list", "nodes")
    with pytest.raises(Forbidden) as caught:
        await client.list(NODES)
    assert caught.value.hint == "grant this account the verb 'list' on 'nodes' with a ClusterRole"
    said = 'User "x" cannot create resource "pods/eviction" in API group ""'
    server.inject(Refuse(403, "Forbidden", said), "*", "pods/*")
    with pytest.raises(Forbidden) as caught:
        await client.post_subresource(PODS, "p", "jobs", "eviction", {})
    assert caught.value.hint == (
        "grant this account the verb 'create' on 'pods/eviction' with a Role in namespace 'jobs'"
    )


async def test_an_admission_refusal_is_not_blamed_on_rbac(server: FakeApiServer, client: Client) -> None:
    server.inject(Refuse(403, "Forbidden", "exceeded quota: pods"), "create", "configmaps")
    with pytest.raises(Forbidden, match="exceeded quota") as caught:
        await client.create(CONFIG_MAPS, config_map())
    assert caught.value.hint == ""


async def test_waits_when_told_to(server: FakeApiServer, client: Client, seen: Seen) -> None:
    server.inject(Refuse(429, retry_after=1), "create", "configmaps")
    await client.create(CONFIG_MAPS, config_map())
    assert seen == [("POST", "429"), ("POST", "201")]


@pytest.mark.parametrize("code", [429, 503])
async def test_gives_up_with_the_refusal_when_there_is_no_time(
    server: FakeApiServer, client: Client, seen: Seen, code: int
) -> None:
    server.inject(Refuse(code, retry_after=60), "get", "configmaps", times=None)
    with pytest.raises((TooManyRequests, ServerError)) as caught:
        await client.get(CONFIG_MAPS, "a", "default")
    assert (caught.value.status, caught.value.retry_after) == (code, 60.0)
    assert len(seen) == 1


async def test_503_is_tried_again_only_where_that_is_safe(server: FakeApiServer, client: Client, seen: Seen) -> None:
    server.inject(Refuse(503), "*", "configmaps", times=1)
    with pytest.raises(ServerError):
        await client.create(CONFIG_MAPS, config_map())
    server.inject(Refuse(503), "*", "configmaps", times=3)
    assert (await client.list(CONFIG_MAPS)).items == []
    assert [code for _, code in seen] == ["503", "503", "503", "503", "200"]


async def test_a_budget_that_forbids_an_eviction_is_an_answer(server: FakeApiServer, client: Client) -> None:
    server.inject(Refuse(429, "TooManyRequests", "would violate the budget", retry_after=10), "*", "pods/eviction")
    with pytest.raises(TooManyRequests, match="budget"):
        await client.post_subresource(PODS, "p", "default", "eviction", {})


async def test_a_broken_connection_is_tried_again_only_where_that_is_safe(
    server: FakeApiServer, client: Client, seen: Seen
) -> None:
    server.inject(Disconnect(after_effect=True), "create", "configmaps")
    with pytest.raises(Unreachable):
        await client.create(CONFIG_MAPS, config_map())
    assert seen == [("POST", "<error>")]
    server.inject(Disconnect(), "apply", "configmaps")
    assert (await client.apply(CONFIG_MAPS, config_map(k="1"), manager="me")).data == {"k": "1"}
    server.inject(Disconnect(after_effect=True), "apply", "configmaps")
    with pytest.raises(Unreachable):  # a second try would find what the first has made, and take it for another's
        await client.apply_new(CONFIG_MAPS, config_map(name="b"), manager="me")


@pytest.mark.parametrize("fault", [Hang(), Delay(5.0)])
async def test_every_call_has_a_deadline(server: FakeApiServer, fault: Any) -> None:
    server.inject(fault, times=None)
    async with Client(KubeConfig(server.url), deadline=0.1) as client:
        with pytest.raises(Unreachable, match=r"within 0.1 s"):
            await client.get(CONFIG_MAPS, "a", "default")


async def test_a_rotated_token_is_picked_up_by_the_call_that_was_refused(server: FakeApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    server.tokens = {"old"}
    async with Client(KubeConfig(server.url, token=Material(token))) as client:
        await client.create(CONFIG_MAPS, config_map())
        token.write_text("new\n")
        server.tokens = {"new"}
        await client.get(CONFIG_MAPS, "a", "default")
        server.tokens = set()
        with pytest.raises(Unauthorized) as caught:
            await client.get(CONFIG_MAPS, "a", "default")
    assert "renew the token" in caught.value.hint


async def test_a_watch_that_is_refused(server: FakeApiServer, client: Client, seen: Seen) -> None:
    server.inject(Refuse(403, "Forbidden", "no"), "watch", "configmaps")
    with pytest.raises(Forbidden, match="cannot watch configmaps in namespace 'default': no"):
        await anext(client.watch(CONFIG_MAPS, "default"))
    # Twice, because a connection that is used again may break for no other reason than its age.
    server.inject(Disconnect(), "watch", "configmaps", times=2)
    with pytest.raises(Unreachable):
        await anext(client.watch(CONFIG_MAPS, "default"))
    assert seen == [("GET", "403"), ("GET", "<error>")]


async def test_who_we_are(server: FakeApiServer, client: Client) -> None:
    await client.list(CONFIG_MAPS)
    assert server.requests[0].user_agent == f"slurm-operator/{__version__}"


async def test_a_namespaced_object_needs_its_namespace(client: Client) -> None:
    with pytest.raises(ValueError, match="needs a namespace"):
        await client.get(CONFIG_MAPS, "a")


def test_paths_and_names() -> None:
    assert STATEFUL_SETS.path("a", "b", "scale") == "/apis/apps/v1/namespaces/a/statefulsets/b/scale"
    assert STATEFUL_SETS.path() == "/apis/apps/v1/statefulsets"
    assert NODES.path(name="n") == "/api/v1/nodes/n"
    assert PODS.path("a") == "/api/v1/namespaces/a/pods"
    assert (STATEFUL_SETS.label, PODS.label) == ("statefulsets.apps", "pods")


@pytest.mark.parametrize(
    ("status", "says"), [(502, "<html>Bad Gateway</html>"), (200, "the answer is not what Kubernetes would say")]
)
async def test_a_proxy_that_speaks_html(unused_tcp_port: int, status: int, says: str) -> None:
    async def serve(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status, text="<html>Bad Gateway</html>\n")

    runner = web.ServerRunner(web.Server(serve))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
        async with Client(KubeConfig(f"http://127.0.0.1:{unused_tcp_port}")) as client:
            for ask in (client.list(NODES), client.get(NODES, "n"), client.version(), anext(client.watch(NODES))):
                with pytest.raises(ServerError, match=re.escape(says)):
                    await ask
    finally:
        await runner.cleanup()


async def test_an_unreachable_server(unused_tcp_port: int) -> None:
    async with Client(KubeConfig(f"http://127.0.0.1:{unused_tcp_port}", source="/etc/kube, context 'x'")) as client:
        with pytest.raises(Unreachable) as caught:
            await client.list(NODES)
    assert caught.value.message == (
        f"cannot list nodes: http://127.0.0.1:{unused_tcp_port} does not answer: connection refused"
    )
    assert caught.value.hint == "check that the API server runs and that `server:` in /etc/kube, context 'x' is right"


async def test_many_calls_at_once(server: FakeApiServer, client: Client) -> None:
    await asyncio.gather(*(client.create(CONFIG_MAPS, config_map(f"c{i}")) for i in range(200)))
    assert len((await client.list(CONFIG_MAPS)).items) == 200


@pytest.mark.parametrize(("told", "waited"), [("5", 5.0), ("86400", 60.0), ("9" * 400, 60.0), ("soon", None)])
def test_no_server_can_ask_for_silence_for_ever(told: str, waited: float | None) -> None:
    error = from_response(Call.on(CONFIG_MAPS, "get"), 429, {"Retry-After": told}, b"slow down")
    assert error.retry_after == waited


def test_nor_can_it_in_its_answer() -> None:
    body = b'{"kind":"Status","details":{"retryAfterSeconds":86400}}'
    assert from_response(Call.on(CONFIG_MAPS, "get"), 503, {}, body).retry_after == 60.0

"""Apply: nothing is sent at rest, drift is repaired, what belongs to others is never touched."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from slurm_operator.kube import (
    APPLIED_HASH,
    CONFIG_MAPS,
    DEPLOYMENTS,
    SERVICES,
    Applier,
    Client,
    ConfigMap,
    Conflict,
    Invalid,
    NotOurs,
    Reflector,
    Service,
    Store,
)
from slurm_operator.kube.apply import lost_fields, stamped
from slurm_operator.kube.clock import SystemClock
from slurm_operator.kube.errors import Call
from slurm_operator.kube.model import ChildMeta, ManagedFields
from tests.fakes.apiserver import FakeApiServer, Refuse
from tests.unit.kube.conftest import running, until

MANAGER = "slurm-operator"
OWNER = {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "Controller", "name": "slurm", "uid": "u-1"}


class SteppedClock(SystemClock):
    time = 1000.0

    def monotonic(self) -> float:
        return self.time


def owned(owner: dict[str, Any] = OWNER) -> dict[str, Any]:
    return {"name": "svc", "namespace": "default", "ownerReferences": [owner | {"controller": True}]}


def service(port: int = 80, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned() | {"labels": labels},
        "spec": {"selector": {"app": "x"}, "ports": [{"name": "main", "port": port, "targetPort": "web"}]},
    }


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer(run_controllers=False) as server:
        yield server


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def applier(client: Client, clock: SteppedClock) -> Applier:
    return Applier(client, MANAGER, clock)


@pytest.fixture
async def store(client: Client) -> AsyncIterator[Store[Service]]:
    """Follows the server."""
    store = Store[Service]()
    async with running(Reflector(client, SERVICES, store).run()):
        await store.synced.wait()
        yield store


async def edit(client: Client, store: Store[Service], patch: dict[str, Any]) -> None:
    result = await client.patch(SERVICES, "svc", patch, "default")
    await until(lambda: (obj := store.get("default", "svc")) and obj.metadata == result.metadata)


async def test_creates_then_rests(server: FakeApiServer, applier: Applier, store: Store[Service]) -> None:
    assert (await applier.apply(SERVICES, service(), store)).wrote
    assert store.get("default", "svc") is not None, "its own write is seen at once"
    writes = len(server.writes)
    for _ in range(3):
        assert not (await applier.apply(SERVICES, service(), store)).wrote
    assert len(server.writes) == writes == 1


async def test_a_restart_writes_nothing(server: FakeApiServer, client: Client, store: Store[Service]) -> None:
    await Applier(client, MANAGER).apply(SERVICES, service(), store)
    assert not (await Applier(client, MANAGER).apply(SERVICES, service(), store)).wrote
    assert len(server.writes) == 1


async def test_a_wish_that_changes_is_applied(client: Client, applier: Applier, store: Store[Service]) -> None:
    await applier.apply(SERVICES, service(80, old="label"), store)
    assert (await applier.apply(SERVICES, service(81), store)).wrote
    found = await client.get(SERVICES, "svc", "default")
    assert [port.port for port in found.spec.ports] == [81]
    assert found.metadata.labels == {}, "what we no longer want is gone"


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"spec": {"selector": {"app": "hijacked"}}}, "spec.selector"),
        ({"metadata": {"labels": {"tier": None}}}, "metadata.labels"),
        ({"metadata": {"annotations": {APPLIED_HASH: "lies"}}}, None),
        ({"spec": {"ports": [{"name": "main", "port": 80, "targetPort": "other"}]}}, "spec.ports"),
    ],
)
async def test_drift_is_repaired_once(
    client: Client, applier: Applier, store: Store[Service], patch: dict[str, Any], field: str | None
) -> None:
    wanted = service(tier="front")
    await applier.apply(SERVICES, wanted, store)
    before = await client.get_raw(SERVICES, "svc", "default")
    await edit(client, store, patch)
    outcome = await applier.apply(SERVICES, wanted, store)
    assert outcome.wrote
    assert all(path.startswith(field or "") for path in outcome.drift)
    assert bool(outcome.drift) is (field is not None)
    after = await client.get_raw(SERVICES, "svc", "default")
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    assert not (await applier.apply(SERVICES, wanted, store)).wrote


async def test_what_others_add_is_left_alone(client: Client, applier: Applier, store: Store[Service]) -> None:
    await applier.apply(SERVICES, service(), store)
    await edit(client, store, {"metadata": {"labels": {"theirs": "1"}}, "spec": {"sessionAffinity": "ClientIP"}})
    assert not (await applier.apply(SERVICES, service(), store)).wrote


async def test_two_who_disagree_do_not_race(
    client: Client, applier: Applier, store: Store[Service], clock: SteppedClock
) -> None:
    hijack = {"spec": {"selector": {"app": "hijacked"}}}
    await applier.apply(SERVICES, service(), store)
    await edit(client, store, hijack)
    assert (await applier.apply(SERVICES, service(), store)).wrote
    clock.time += 4
    await edit(client, store, hijack)
    outcome = await applier.apply(SERVICES, service(), store)
    assert (outcome.wrote, outcome.after, outcome.drift) == (False, 6.0, ("spec.selector",))
    clock.time += 6
    assert (await applier.apply(SERVICES, service(), store)).wrote


async def test_a_field_that_the_server_never_books_does_not_loop(
    server: FakeApiServer, client: Client, store: Store[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor once it is booked after all, or no longer wished for."""
    applier = Applier(client, MANAGER)
    for port, lost in ((80, ("spec.dropped",)), (81, ())):
        monkeypatch.setattr("slurm_operator.kube.apply.lost_fields", lambda *_, lost=lost: lost)
        assert (await applier.apply(SERVICES, service(port), store)).wrote
        writes = len(server.writes)
        assert not (await applier.apply(SERVICES, service(port), store)).wrote
        assert len(server.writes) == writes


async def test_an_element_that_has_the_name_of_ours_is_removed(
    client: Client, applier: Applier, store: Store[Service]
) -> None:
    """A list by ports: where somebody changed a port, an apply alone adds ours beside it and is refused."""
    await applier.apply(SERVICES, service(), store)
    await edit(client, store, {"spec": {"ports": [{"name": "main", "port": 7000}]}})
    assert (await applier.apply(SERVICES, service(), store)).wrote
    found = await client.get_raw(SERVICES, "svc", "default")
    assert [(port["name"], port["port"]) for port in found["spec"]["ports"]] == [("main", 80)]


async def test_a_repair_that_is_refused_stays_a_failure(
    server: FakeApiServer, client: Client, applier: Applier, store: Store[Service], clock: SteppedClock
) -> None:
    """Until it is tried again the refusal is as true as before: it does not count as recovered meanwhile."""
    await applier.apply(SERVICES, service(), store)
    await edit(client, store, {"spec": {"selector": {"app": "hijacked"}}})
    server.inject(Refuse(422, "Invalid", "no"), "apply", "services", times=None)
    with pytest.raises(Invalid):
        await applier.apply(SERVICES, service(), store)
    writes = len(server.writes)
    clock.time += 4
    with pytest.raises(Invalid):
        await applier.apply(SERVICES, service(), store)
    assert len(server.writes) == writes
    server.faults.clear()
    clock.time += 6
    assert (await applier.apply(SERVICES, service(), store)).wrote


async def test_what_stands_in_the_way_of_a_repair_is_taken_over(
    client: Client, applier: Applier, store: Store[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses two ports of one name, and an apply alone would leave the port that another program set."""
    real = client.apply

    async def strict(res: Any, manifest: Any, **options: Any) -> Any:
        tried = await real(res, manifest, **options, dry_run=True)
        if len({port.name for port in tried.spec.ports}) < len(tried.spec.ports):
            call = Call.on(res, "patch", "default", "svc")
            raise Invalid(call, "Duplicate value", status=422, fields=("spec.ports[1].name",))
        return await real(res, manifest, **options)

    await applier.apply(SERVICES, service(), store)
    await edit(client, store, {"spec": {"ports": [{"name": "main", "port": 7000}]}})
    monkeypatch.setattr(client, "apply", strict)
    assert (await applier.apply(SERVICES, service(), store)).wrote
    assert [port.port for port in (await client.get(SERVICES, "svc", "default")).spec.ports] == [80]
    assert not (await applier.apply(SERVICES, service(), store)).wrote


async def test_what_the_server_does_not_book_is_forgotten_with_its_object(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_operator.kube.apply.lost_fields", lambda *_: ("spec.dropped",))
    applier = Applier(client, MANAGER)
    store: Store[ConfigMap] = Store()
    for number in range(3):
        meta = {"name": f"c{number}", "namespace": "default"}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        await applier.apply(CONFIG_MAPS, manifest, store)
        assert len(applier._gaps) == 1
        made = await client.get(CONFIG_MAPS, f"c{number}", "default")
        store.remove(made)


def create_after_a_look(client: Client, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Awaitable[Any]]) -> None:
    """Another program, or a request of ours that was late, makes the object after we looked and before we write."""
    real, made = client.get, False

    async def get(*args: Any) -> Any:
        nonlocal made
        try:
            return await real(*args)
        finally:
            if not made:
                made = True
                await make()

    monkeypatch.setattr(client, "get", get)


@pytest.mark.parametrize("fault", [None, Refuse(422, "Invalid", "field is immutable")], ids=["accepted", "invalid"])
@pytest.mark.parametrize("port", [80, 81], ids=["same field", "other field"])
async def test_an_object_made_meanwhile_is_not_taken_over(
    server: FakeApiServer,
    client: Client,
    applier: Applier,
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    fault: Refuse | None,
) -> None:
    foreign = service(port) | {"metadata": {"name": "svc", "namespace": "default"}}
    foreign["spec"] |= {"selector": {"app": "theirs"}} if port == 80 else {}
    create_after_a_look(client, monkeypatch, partial(client.create, SERVICES, foreign))
    if fault is not None:
        server.inject(fault, "apply", "services")
    with pytest.raises(NotOurs, match="was not made by us"):
        await applier.apply(SERVICES, service(80), Store[Service]())
    found = await client.get_raw(SERVICES, "svc", "default")
    assert "ownerReferences" not in found["metadata"]
    assert [item["port"] for item in found["spec"]["ports"]] == [port]
    assert found["spec"]["selector"] == foreign["spec"]["selector"]


async def test_what_a_late_request_of_ours_made_is_kept(
    client: Client, applier: Applier, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = partial(client.apply, SERVICES, stamped(service()), manager=MANAGER)
    create_after_a_look(client, monkeypatch, late)
    store = Store[Service]()
    await applier.apply(SERVICES, service(), store)
    found = await client.get(SERVICES, "svc", "default")
    assert found.metadata.controller is not None
    assert [port.port for port in found.spec.ports] == [80]
    assert not (await applier.apply(SERVICES, service(), store)).wrote


async def test_an_object_that_cannot_be_made_is_refused_as_such(server: FakeApiServer, applier: Applier) -> None:
    server.inject(Refuse(422, "Invalid", "no such port"), "apply", "services")
    with pytest.raises(Invalid, match="no such port"):
        await applier.apply(SERVICES, service(), Store[Service]())


@pytest.mark.parametrize(
    ("owners", "says"),
    [
        ([], "was not made by us"),
        ([OWNER | {"uid": "u-2", "name": "rival", "controller": True}], "is controlled by Controller 'rival'"),
    ],
)
@pytest.mark.parametrize("cached", [True, False])
async def test_an_object_of_somebody_else_is_not_touched(
    server: FakeApiServer,
    client: Client,
    applier: Applier,
    store: Store[Service],
    owners: list[Any],
    says: str,
    cached: bool,
) -> None:
    foreign = service() | {"metadata": {"name": "svc", "namespace": "default", "ownerReferences": owners}}
    await client.create(SERVICES, foreign)
    await until(lambda: store.get("default", "svc"))
    view = store if cached else Store[Service]()
    with pytest.raises(NotOurs, match=f"Service default/svc {says}") as caught:
        await applier.apply(SERVICES, service(), view)
    assert caught.value.hint
    assert len(server.writes) == 1


async def test_an_object_without_owner_is_ours_once_we_applied_it(client: Client, applier: Applier) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
    store = Store[ConfigMap]()
    assert (await applier.apply(CONFIG_MAPS, manifest, store)).wrote
    assert (await applier.apply(CONFIG_MAPS, manifest | {"data": {"a": "b"}}, store)).wrote
    await client.create(CONFIG_MAPS, manifest | {"metadata": {"name": "theirs", "namespace": "default"}})
    with pytest.raises(NotOurs):
        await applier.apply(CONFIG_MAPS, manifest | {"metadata": {"name": "theirs", "namespace": "default"}}, store)


async def test_an_object_that_is_being_deleted_is_left_to_go(
    server: FakeApiServer, client: Client, applier: Applier, store: Store[Service]
) -> None:
    await applier.apply(SERVICES, service(), store)
    await edit(client, store, {"metadata": {"finalizers": ["example.com/wait"]}})
    await client.delete(SERVICES, "svc", "default")
    await until(lambda: (obj := store.get("default", "svc")) and obj.metadata.terminating)
    writes = len(server.writes)
    assert not (await applier.apply(SERVICES, service(99), store)).wrote
    assert len(server.writes) == writes


async def test_a_successor_of_the_same_name_is_not_overwritten(client: Client, applier: Applier) -> None:
    """The store still shows our object, but somebody has replaced it."""
    store = Store[Service]()
    await applier.apply(SERVICES, service(), store)
    await client.delete(SERVICES, "svc", "default")
    foreign = service() | {"metadata": {"name": "svc", "namespace": "default"}}
    await client.create(SERVICES, foreign)
    with pytest.raises((Invalid, Conflict)):
        await applier.apply(SERVICES, service(81), store)
    assert (await client.get(SERVICES, "svc", "default")).spec.ports[0].port == 80


async def test_a_workload(client: Client, applier: Applier) -> None:
    labels = {"app": "x"}
    container = {
        "name": "main",
        "image": "a:1",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "1"}],
        "args": ["-v"],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": []}}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": owned(),
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    store: Store[Any] = Store()
    assert (await applier.apply(DEPLOYMENTS, manifest, store)).wrote
    assert not (await applier.apply(DEPLOYMENTS, manifest, store)).wrote
    store.upsert(await client.patch(DEPLOYMENTS, "svc", {"spec": {"replicas": 7}}, "default"))
    assert (await applier.apply(DEPLOYMENTS, manifest, store)).drift == ("spec.replicas",)


def test_the_hash_is_of_the_wish_and_not_of_its_order() -> None:
    first, second = {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}, {"data": {"y": "2", "x": "1"}}
    assert stamped(first) == stamped(second | {"metadata": {"name": "a"}})
    assert stamped(first) != stamped(first | {"data": {}})
    assert "annotations" not in first["metadata"], "the wish itself is not changed"


@pytest.mark.parametrize(
    ("wish", "books", "lost"),
    [
        ({"a": 1}, {"f:a": {}}, ()),
        ({"a": 1, "b": 2}, {"f:a": {}}, ("b",)),
        ({"a": {"b": 1, "c": 2}}, {"f:a": {"f:b": {}}}, ("a.c",)),
        ({"a": {"b": 1}}, {"f:a": {}}, ()),
        ({"a": {"b": 1}}, {"f:a": {".": {}}}, ("a.b",)),
        ({"a": {}, "b": [], "c": None}, {"f:z": {}}, ("a", "b")),
        ({"a": {}, "b": [], "c": None}, {"f:a": {}, "f:b": {}}, ()),
        (
            {"volumes": [{"name": "n", "emptyDir": {}}]},
            {"f:volumes": {'k:{"name":"n"}': {"f:name": {}}}},
            ("volumes.0.emptyDir",),
        ),
        ({"env": [], "ports": [], "volumes": [], "claims": []}, {"f:z": {}}, ()),
        ({"a": ["x", "y"]}, {"f:a": {'v:"x"': {}}}, ("a.1",)),
        ({"a": [{"name": "n", "v": 1}]}, {"f:a": {'k:{"name":"n"}': {".": {}, "f:name": {}, "f:v": {}}}}, ()),
        ({"a": [{"name": "n", "v": 1}]}, {"f:a": {'k:{"name":"n"}': {".": {}, "f:name": {}}}}, ("a.0.v",)),
        ({"a": [{"name": "m"}]}, {"f:a": {'k:{"name":"n"}': {".": {}, "f:name": {}}}}, ("a.0",)),
        ({"a": [{"port": 1}]}, {"f:a": {'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}}}}, ()),
        ({"a": 1}, None, ("*",)),
    ],
)
def test_lost_fields(wish: dict[str, Any], books: dict[str, Any] | None, lost: tuple[str, ...]) -> None:
    entries = () if books is None else (ManagedFields(manager=MANAGER, operation="Apply", fields_v1=books),)
    meta = ChildMeta(managed_fields=entries)
    wanted = wish | {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n", "namespace": "s", "uid": "u"}}
    assert lost_fields(wanted, meta, MANAGER) == lost

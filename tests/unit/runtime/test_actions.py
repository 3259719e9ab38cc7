"""Kubernetes actions on the in-memory API server: what they write, remember and forgive."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from slurm_operator.kube.client import Client
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.errors import AlreadyExists, Conflict
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.kinds import CONFIG_MAPS, EVENTS, NODES, PODS, SECRETS, ConfigMap
from slurm_operator.kube.resource import Manifest, Resource
from slurm_operator.kube.store import Store
from slurm_operator.runtime.actions import Apply, ApplyStatus, Create, Delete, Kube, Patch, RecordEvent
from slurm_operator.runtime.children import reported, unread
from slurm_operator.runtime.conditions import summed_up
from slurm_operator.runtime.execute import execute
from slurm_operator.runtime.plan import InOrder
from slurm_operator.runtime.references import Refs
from slurm_operator.runtime.trouble import Trouble
from tests.fakes.apiserver import FakeApiServer, Refuse
from tests.fakes.clock import FakeClock


@dataclass
class Hands:
    kube: Kube


@pytest.fixture
async def hands(client: Client, clock: FakeClock) -> AsyncIterator[Hands]:
    recorder = Recorder(client, "test", clock=clock)
    stores: dict[Resource[Any], Store[Any]] = {CONFIG_MAPS: Store(), PODS: Store()}
    sending = asyncio.create_task(recorder.run())
    yield Hands(Kube(client, recorder, stores, manager="test", clock=clock))
    sending.cancel()


def config_map(name: str = "a", **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


def pod(name: str) -> Manifest:
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def test_applying_twice_writes_once(hands: Hands, server: FakeApiServer) -> None:
    """scenario 9: the second pass sends nothing, and says that it did nothing"""
    action = Apply(CONFIG_MAPS, config_map(x="1"))
    assert (await execute([action], hands)).wrote == (action,)
    assert (await execute([action], hands)).wrote == ()
    assert len(server.writes) == 1


async def test_a_write_is_seen_at_once(hands: Hands) -> None:
    store = hands.kube.store(CONFIG_MAPS)
    await Create(CONFIG_MAPS, config_map(x="1")).run(hands)
    found = store.get("default", "a")
    assert isinstance(found, ConfigMap)
    assert found.data == {"x": "1"}
    await Patch(CONFIG_MAPS, "default", "a", {"data": {"x": "2"}}).run(hands)
    patched = store.get("default", "a")
    assert patched is not None
    assert patched.data == {"x": "2"}


async def test_a_kind_that_nobody_follows_can_be_written(hands: Hands) -> None:
    secret = {**config_map("s"), "kind": "Secret", "data": {"key": "c2VjcmV0"}}
    assert (await Apply(SECRETS, secret).run(hands)).wrote
    assert not (await Apply(SECRETS, secret).run(hands)).wrote


async def test_creating_what_exists_is_a_failure(hands: Hands) -> None:
    await Create(CONFIG_MAPS, config_map()).run(hands)
    with pytest.raises(AlreadyExists):
        await Create(CONFIG_MAPS, config_map()).run(hands)


async def test_patching_and_reporting_on_what_is_gone_is_no_failure(hands: Hands) -> None:
    """scenarios 108 and 112"""
    assert not (await Patch(PODS, "default", "gone", {"metadata": {"labels": {"a": "b"}}}).run(hands)).wrote
    status = {"metadata": {"name": "gone", "namespace": "default"}, "status": {"phase": "Running"}}
    assert not (await ApplyStatus(PODS, status).run(hands)).wrote


async def test_only_the_object_that_was_seen_is_deleted(hands: Hands, client: Client) -> None:
    await Create(CONFIG_MAPS, config_map()).run(hands)
    assert not (await Delete(CONFIG_MAPS, "default", "a", uid="of-its-predecessor").run(hands)).wrote
    found = await client.get(CONFIG_MAPS, "a", "default")
    delete = Delete(CONFIG_MAPS, "default", "a", found.metadata.uid)
    assert (await delete.run(hands)).wrote
    assert not (await delete.run(hands)).wrote


async def test_status_is_written_through_its_subresource(hands: Hands, server: FakeApiServer) -> None:
    await Create(PODS, pod("p")).run(hands)
    status = {"metadata": {"name": "p", "namespace": "default"}, "status": {"phase": "Running"}}
    assert (await ApplyStatus(PODS, status).run(hands)).wrote
    found = hands.kube.store(PODS).get("default", "p")
    assert found is not None
    assert found.status.phase == "Running"
    assert [line.query["fieldManager"] for line in server.log("apply", "pods/status")] == ["test-status"]


async def test_a_report_says_in_the_log_what_changed(hands: Hands) -> None:
    """Conditions by their new status and reason, or as a new message; numbers by their new value."""
    spec = {"controllerRef": {"name": "slurm"}, "slurmd": {"image": "a"}, "logfile": {"image": "a"}}
    await Create(NODESETS, {"metadata": {"name": "gpu", "namespace": "default"}, "spec": spec}).run(hands)

    def report(ready: str, waits: str, count: int) -> ApplyStatus:
        conditions = [
            {"type": "Ready", "status": ready, "reason": "AllWorkersReady" if ready == "True" else "WorkersMissing"},
            {"type": "Progressing", "status": "True", "reason": "Working", "message": waits},
            {"type": "Degraded", "status": "False", "reason": "Healthy"},
        ]
        status = {"conditions": conditions, "readyReplicas": count, "nodeSetHash": "a", "selector": "b"}
        return ApplyStatus(NODESETS, {"metadata": {"name": "gpu", "namespace": "default"}, "status": status})

    first = await execute([report("False", "waiting for a", 1)], hands)
    assert first.result().note.startswith("report on NodeSet default/gpu (Ready False WorkersMissing, Progressing True")
    changed = await execute([report("True", "waiting for b", 2)], hands)
    assert changed.result().note == (
        "report on NodeSet default/gpu (Ready True AllWorkersReady, Progressing message, readyReplicas 2)"
    )
    ordered = await execute([InOrder((report("True", "waiting for b", 3), Create(CONFIG_MAPS, config_map())))], hands)
    assert ordered.result().note == ("report on NodeSet default/gpu, then create ConfigMap default/a (readyReplicas 3)")


def replicas(uid: str, count: int) -> dict[str, Any]:
    return {"metadata": {"name": "n", "namespace": "default", "uid": uid}, "status": {"replicas": count}}


NODE_SET = {"metadata": {"name": "n", "namespace": "default"}, "spec": {"controllerRef": {"name": "c"}}}


@pytest.mark.parametrize("seen", [True, False], ids=["known", "not yet known"])
async def test_the_report_on_a_predecessor_is_not_written(hands: Hands, client: Client, seen: bool) -> None:
    """The object was deleted and made again under the same name, whether our store knows it or not."""
    first = await client.create(NODESETS, NODE_SET)
    hands.kube.saw(NODESETS, first)
    await client.delete(NODESETS, "n", "default")
    second = await client.create(NODESETS, NODE_SET)
    if seen:
        hands.kube.saw(NODESETS, second)
    assert not (await ApplyStatus(NODESETS, replicas(first.metadata.uid, 3)).run(hands)).wrote
    assert (await client.get(NODESETS, "n", "default")).status.replicas == 0
    assert (await ApplyStatus(NODESETS, replicas(second.metadata.uid, 2)).run(hands)).wrote
    assert (await client.get(NODESETS, "n", "default")).status.replicas == 2


@pytest.mark.parametrize("refused", [True, False], ids=["reference refused", "ready"])
async def test_no_kind_reports_on_a_successor(hands: Hands, client: Client, refused: bool) -> None:
    """What was decided about an object is not written to the one that took its name meanwhile."""
    first = await client.create(NODESETS, NODE_SET)
    refs = Refs({}, {}, loading=True, refused=Trouble("Forbidden", "Secret a/b may not be read"))
    ready = reported(NODESETS, first, summed_up(waiting="", done="all is well"), 0.0)
    actions = unread(NODESETS, first, refs, 0.0).actions if refused else tuple(ready)
    assert any(isinstance(action, ApplyStatus) for action in actions)
    await client.delete(NODESETS, "n", "default")
    await client.create(NODESETS, NODE_SET)
    await execute(actions, hands)
    assert (await client.get(NODESETS, "n", "default")).status.conditions == ()


async def test_a_change_meanwhile_does_not_hold_up_the_report(hands: Hands, client: Client) -> None:
    made = await client.create(NODESETS, NODE_SET)
    hands.kube.saw(NODESETS, made)
    await client.patch(NODESETS, "n", {"metadata": {"labels": {"a": "b"}}}, "default")
    assert (await ApplyStatus(NODESETS, replicas(made.metadata.uid, 3)).run(hands)).wrote
    assert (await client.get(NODESETS, "n", "default")).status.replicas == 3
    await client.delete(NODESETS, "n", "default")
    assert not (await ApplyStatus(NODESETS, replicas(made.metadata.uid, 4)).run(hands)).wrote


@pytest.mark.parametrize(("changes", "succeeds"), [(4, True), (None, False)], ids=["busy", "without end"])
async def test_a_report_outlasts_changes_of_others(
    hands: Hands, client: Client, server: FakeApiServer, changes: int | None, succeeds: bool
) -> None:
    """A tool that goes on writing to the object keeps no report, and no drain that follows it, from being sent."""
    made = await client.create(NODESETS, NODE_SET)
    hands.kube.saw(NODESETS, made)
    server.inject(Refuse(409, "Conflict"), "apply", "nodesets/status", times=changes)
    report = ApplyStatus(NODESETS, replicas(made.metadata.uid, 3))
    if succeeds:
        assert (await report.run(hands)).wrote
    else:
        with pytest.raises(Conflict):
            await report.run(hands)
    assert (await client.get(NODESETS, "n", "default")).status.replicas == (3 if succeeds else 0)


async def test_an_event_reaches_its_object(hands: Hands, client: Client, clock: FakeClock) -> None:
    await Create(PODS, pod("p")).run(hands)
    about = await client.get(PODS, "p", "default")
    await RecordEvent(PODS, about, "Drained", "nothing runs here", "Warning").run(hands)
    await clock.sleep(1)
    listing = await client.list(EVENTS, "default")
    assert [(event.reason, event.note, event.type) for event in listing.items] == [
        ("Drained", "nothing runs here", "Warning")
    ]


async def test_what_a_person_reads_of_an_action(client: Client, hands: Hands) -> None:
    await Create(PODS, pod("p")).run(hands)
    about = await client.get(PODS, "p", "default")
    address = {"metadata": {"name": "p", "namespace": "default"}, "status": {"phase": "Failed"}}
    described = [
        Apply(CONFIG_MAPS, config_map(x="1")).describe(),
        Create(NODES, {"metadata": {"generateName": "n-"}}).describe(),
        Patch(PODS, "default", "p", {"spec": {}}, subresource="resize").describe(),
        Delete(PODS, "default", "p", "uid-1").describe(),
        ApplyStatus(PODS, address).describe(),
        RecordEvent(PODS, about, "Drained", "free").describe(),
    ]
    assert [line.pop("action") for line in described] == [
        "apply ConfigMap default/a",
        "create Node n-",
        "patch resize of Pod default/p",
        "delete Pod default/p",
        "report on Pod default/p",
        "tell Pod default/p: Drained",
    ]
    assert described == [
        {"manifest": config_map(x="1")},
        {"manifest": {"metadata": {"generateName": "n-"}}},
        {"patch": {"spec": {}}},
        {"uid": "uid-1"},
        {"status": {"phase": "Failed"}},
        {"type": "Normal", "note": "free"},
    ]


def test_a_dry_run_shows_no_secret() -> None:
    secret = {**config_map("s"), "kind": "Secret", "data": {"key": "aHVudGVyMg=="}, "stringData": {"key": "hunter2"}}
    shown = str(Create(SECRETS, secret).describe()) + str(Apply(SECRETS, secret).describe())
    shown += str(Patch(SECRETS, "default", "s", {"data": {"key": "aHVudGVyMg=="}}).describe())
    assert "hunter2" not in shown
    assert "aHVudGVyMg" not in shown
    assert shown.count("sha256:") == 5

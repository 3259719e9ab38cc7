"""The whole operator in memory: the example comes up, stays quiet, and mends what others break."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from slurm_operator import loginset
from slurm_operator.api import names
from slurm_operator.nodeset import observe
from tests.fakes.apiserver import Disconnect, Refuse
from tests.simulation.control_plane import (
    KINDS,
    World,
    example,
    keys,
    not_allowed,
    quick_host_keys,
    token,
    until,
    world,
)

HERE = "slurm"


@pytest.fixture(autouse=True)
def host_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real RSA keys take seconds."""
    monkeypatch.setattr(loginset, "ssh_host_keys", quick_host_keys)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """The example's objects, with keys, and nobody who looks after them yet."""
    async with world() as found:
        found.create(keys(found.slurms[HERE, "slurm"]), HERE)
        found.create_all([*example(), token()], HERE)
        yield found


async def test_the_example_comes_up(here: World) -> None:
    """scenarios 171, 182, 183, 184: every child is there, every object is ready, and events tell the story."""
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
    made = {
        "StatefulSet": {"slurm-controller", "slurm-accounting", "slurm-mariadb"},
        "Deployment": {"slurm-restapi", "login"},
        "Service": {
            "slurm-controller",
            "slurm-controller-internal",
            "slurm-logins-slurm",
            "slurm-accounting",
            "slurm-restapi",
            "login",
            "slurm-mariadb",
            "slurm-workers-slurm",
        },
        "EndpointSlice": {"login-logins-ipv4"},
        "ConfigMap": {"slurm-config", "slurm-files", "login-ssh-config"},
        "Secret": {
            "slurm-keys",
            "slurm-keys-ring",
            "slurm-sssd",
            "slurm-accounting",
            "login-ssh-host-keys",
            "alice-jwt-alice",
        },
        "PodDisruptionBudget": {"slurm-workers-pdb-slurm"},
    }
    assert {kind: {obj["metadata"]["name"] for obj in here.all(kind, HERE)} for kind in made} == made
    controller = here.get("Controller", "slurm", HERE)
    assert controller["status"]["configHash"] == controller["status"]["deliveredConfigHash"]
    told = set(here.events(HERE))
    assert {(kind, "Ready") for kind in KINDS if kind != "NodeSet"} <= told
    assert ("Controller", names.EVENT_CREATE_SUCCEEDED) in told
    assert not_allowed(here.server.requests) == set()


async def test_what_kubernetes_writes_about_our_services_wakes_nobody(here: World) -> None:
    """Its EndpointSlices inherit the labels of a Service, and change with every worker that does."""
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        before = running.passes()
        labels = here.get("Service", "slurm-workers-slurm", HERE)["metadata"]["labels"]
        manager = {names.LABEL_SLICE_MANAGER: "endpointslice-controller.k8s.io"}
        meta = {"name": "slurm-workers-slurm-x", "labels": {**labels, **manager}}
        here.create({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta}, HERE)
        await running.quiet()
        assert running.passes() == before


async def test_nothing_is_written_at_rest_nor_after_a_restart(here: World) -> None:
    """scenario 9: a second look at every object, and the first of a new operator, send no write."""
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        here.server.requests.clear()
        running.look_again(HERE)
        await running.quiet()
        assert here.server.writes == []
    async with here.operator() as running:
        await until(lambda: running.views.clusters)
        await running.quiet(1.5)
        assert here.server.writes == []


@pytest.mark.parametrize("how", [Refuse(409), Refuse(429, retry_after=1), Refuse(500), Disconnect(after_effect=True)])
async def test_refusals_on_the_way_are_overcome(here: World, how: Refuse | Disconnect) -> None:
    """scenario 195: a third of the first sixty writes fails, and the end is the same."""
    here.server.inject(how, "create|apply|patch|delete", times=20, chance=0.34)
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE), 60)
        await running.quiet()
        assert here.degraded("Controller", "slurm", HERE) == ""
        assert len(here.all("Pod", HERE)) == 8


async def test_what_others_change_is_set_back_and_what_they_add_stays(here: World) -> None:
    """scenario 12"""
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        conf = here.get("ConfigMap", "slurm-config", HERE)["data"]["slurm.conf"]
        here.change("ConfigMap", "slurm-config", HERE, {"data": {"slurm.conf": "ClusterName=hacked\n"}})
        here.change("Service", "slurm-restapi", HERE, {"metadata": {"labels": {"mine": "kept"}}})
        here.delete("Service", "slurm-controller", HERE)
        await until(lambda: here.get("ConfigMap", "slurm-config", HERE)["data"]["slurm.conf"] == conf)
        await until(lambda: here.find("Service", "slurm-controller", HERE))
        here.change("RestApi", "slurm", HERE, {"spec": {"service": {"port": 7000}}})
        await until(lambda: here.get("Service", "slurm-restapi", HERE)["spec"]["ports"][0]["port"] == 7000)
        assert here.get("Service", "slurm-restapi", HERE)["metadata"]["labels"]["mine"] == "kept"


async def test_deleting_everything_leaves_nothing_of_ours(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "GONE_SECONDS", 1.0)  # before a deleted slurmctld counts as gone
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        for kind in KINDS:
            for obj in here.all(kind, HERE):
                here.delete(kind, obj["metadata"]["name"], HERE)
        await until(lambda: not any(here.all(kind, HERE) for kind in KINDS))
        await until(lambda: not running.views.clusters)
        await running.quiet()
    assert [obj["metadata"]["name"] for obj in here.all("StatefulSet", HERE)] == ["slurm-mariadb"]
    assert {obj["metadata"]["name"] for obj in here.all("Secret", HERE)} == {"slurm-keys", "slurm-sssd"}
    assert [obj["metadata"]["name"] for obj in here.all("ConfigMap", HERE)] == ["slurm-files"]


async def test_our_own_report_is_no_reason_to_look_again(here: World) -> None:
    """scenario 15"""
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
        before = running.passes()
        controllers = here.cluster.kind("Controller")
        note = {"status": {"conditions": here.get("Controller", "slurm", HERE)["status"]["conditions"], "x": "y"}}
        here.cluster.patch(controllers, "slurm", HERE, note)
        await asyncio.sleep(0.3)
        passes = {name: running.passes()[name] - before[name] for name in ("controller", "restapi", "cluster")}
    assert passes == {"controller": 0, "restapi": 0, "cluster": 0}

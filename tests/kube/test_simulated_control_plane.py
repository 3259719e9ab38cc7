"""The control plane on a real API server with its controllers; pods run on nodes in name only."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from slurm_local.apiserver import ApiServer
from slurm_local.simulation import SimulatedNodes
from slurm_operator.api import names
from slurm_operator.cli.keys import key_secret
from slurm_operator.kube.kinds import EVENTS
from slurm_operator.kube.resource import Manifest
from tests.fakes.slurmrestd import KEY
from tests.kube.control_plane import Place, define_kinds, example, place, token, until

BACKBONE = (("Controller", "slurm"), ("Accounting", "slurm"), ("RestApi", "slurm"))


@pytest.fixture(scope="module", autouse=True)
def nodes(simulated_nodes: SimulatedNodes) -> None:
    """Nodes to run on, and the kinds."""
    simulated_nodes.add(3, prefix="plane")
    asyncio.run(define_kinds(simulated_nodes.server))


@pytest.fixture
async def here(api_server: ApiServer, namespace: str) -> AsyncIterator[Place]:
    async with place(api_server, namespace) as found:
        secret = key_secret("slurm-keys")
        secret["data"]["jwt.key"] = b64encode(KEY).decode()
        await found.apply(secret, *example("Secret", "ConfigMap"))
        yield found


async def test_everything_at_work_with_the_rights_it_is_installed_with(here: Place) -> None:
    """Create, change, scale and delete objects of all kinds: the server refuses nothing for lack of a right.

    scenario 9: and once it rests nothing is written, not even by the first pass of a new operator.
    """
    workers = asyncio.create_task(here.register_workers())
    everything = [*BACKBONE, ("LoginSet", "login"), ("NodeSet", "small"), ("NodeSet", "big"), ("Token", "alice")]
    async with here.operator(lead="first"):
        await here.apply(*example(), token(lifetime="2m"))
        await here.all_ready(*everything)
        await here.quiet()
    here.audit.mark()
    async with here.operator(lead="second"):
        await asyncio.sleep(5)
        assert here.writes() == []
        await here.change(
            "Controller", "slurm", {"spec": {"extraConf": "PartitionName=all Nodes=ALL\nMaxJobCount=5\n"}}
        )
        await here.change("NodeSet", "small", {"spec": {"replicas": 1, "partition": {"enabled": False}}})
        await here.change("LoginSet", "login", {"spec": {"replicas": 0}})
        await here.change("Token", "alice", {"spec": {"lifetime": "3m"}})
        await here.change("ConfigMap", "slurm-files", {"data": {"gres.conf": "AutoDetect=off\n"}})
        await here.change("Secret", "slurm-keys", {"data": {"db-password": "aHVudGVyMw=="}})
        await here.all_ready(*everything)
        await until(partial(_gone, here, "Pod", "small-1"))
        for kind, name in reversed(everything):
            await here.delete(kind, name)
        for kind, name in everything:
            await until(partial(_gone, here, kind, name))
    workers.cancel()
    assert [request for request in here.audit.requests() if request.response_status.code in (401, 403)] == []


async def _gone(here: Place, kind: str, name: str) -> bool:
    return await here.get(kind, name) is None


async def test_children_users_and_others(here: Place) -> None:
    """Labels of users stay, drift is set back, and what goes is left alone: scenario 11."""
    await here.apply(*example("Controller", "Accounting", "RestApi"))
    async with here.operator():
        await here.all_ready(*BACKBONE)
        await here.quiet()
        hold: Manifest = {"metadata": {"finalizers": ["example.com/hold"], "labels": {"mine": "kept"}}}
        await here.change("Service", "slurm-restapi", hold)
        conf = (await _found(here, "ConfigMap", "slurm-config"))["data"]
        await here.change("ConfigMap", "slurm-config", {"data": {"slurm.conf": "ClusterName=hacked\n", "mine": "kept"}})

        async def mended() -> bool:
            data = (await _found(here, "ConfigMap", "slurm-config"))["data"]
            return bool(data == {**conf, "mine": "kept"})

        await until(mended)
        assert (await _found(here, "Service", "slurm-restapi"))["metadata"]["labels"]["mine"] == "kept"
        await here.delete("Service", "slurm-restapi")
        await here.quiet()
        here.audit.mark()
        await here.change("RestApi", "slurm", {"metadata": {"annotations": {"note": "look again"}}})
        await here.quiet()
        assert [request for request in here.writes() if request.object_ref.resource == "services"] == []
        assert await here.degraded("RestApi", "slurm") == ""
        await here.change("Service", "slurm-restapi", {"metadata": {"finalizers": None}})

        async def anew() -> bool:
            found = await here.get("Service", "slurm-restapi")
            return found is not None and "deletionTimestamp" not in found["metadata"]

        await until(anew)


async def _found(here: Place, kind: str, name: str) -> Manifest:
    found = await here.get(kind, name)
    assert found is not None
    return found


async def test_a_name_that_is_taken(here: Place) -> None:
    await here.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slurm-config"}, "data": {"a": "b"}}
    )
    await here.apply(*example("Controller", "Accounting"))
    async with here.operator():

        async def taken() -> bool:
            return await here.degraded("Controller", "slurm") == "NameTaken"

        await until(taken)
        told = (await here.condition("Controller", "slurm", "Degraded"))["message"]
        assert f"ConfigMap {here.namespace}/slurm-config was not made by us" in told
        assert (await _found(here, "ConfigMap", "slurm-config"))["data"] == {"a": "b"}
        await here.delete("ConfigMap", "slurm-config")
        await here.all_ready(("Controller", "slurm"))


OLD: list[tuple[dict[str, Any], bool]] = [
    ({"podManagementPolicy": "OrderedReady"}, True),
    ({"serviceName": "slurm-controller"}, False),
]


async def _make_old(here: Place, difference: dict[str, Any]) -> Manifest:
    """Put a StatefulSet as an older version made it in the place of ours, whose pod is left without an owner."""
    made = await _found(here, "StatefulSet", "slurm-controller")
    await here.delete("StatefulSet", "slurm-controller", propagation="Orphan")
    await until(partial(_gone, here, "StatefulSet", "slurm-controller"))
    kept = {key: made["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
    await here.apply(
        {**{key: made[key] for key in ("apiVersion", "kind")}, "metadata": kept, "spec": made["spec"] | difference}
    )
    return await _found(here, "StatefulSet", "slurm-controller")


async def _owned(here: Place, uid: str) -> bool:
    found = await here.get("Pod", "slurm-controller-0") or {"metadata": {}}
    return [owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()] == [uid]


async def _runs_below(here: Place, uid: str) -> bool:
    status = (await here.get("Pod", "slurm-controller-0") or {}).get("status", {})
    ready = any(found["type"] == "Ready" and found["status"] == "True" for found in status.get("conditions", ()))
    return ready and await _owned(here, uid)


async def _replaced(here: Place, uid: str) -> bool:
    found = await here.get("StatefulSet", "slurm-controller")
    return found is not None and found["metadata"]["uid"] != uid


@pytest.mark.parametrize(("difference", "pod_stays"), OLD, ids=["policy", "service"])
async def test_an_old_stateful_set_is_replaced_once(here: Place, difference: dict[str, Any], pod_stays: bool) -> None:
    """scenario 172; with only the policy changed the pod, and slurmctld in it, runs on below the new StatefulSet."""
    await here.apply(*example("Controller", "Accounting"))
    async with here.operator():
        await here.all_ready(("Controller", "slurm"))
        await here.quiet()
    old = (await _make_old(here, difference))["metadata"]["uid"]
    # Before that, the pod would not go with the old StatefulSet.
    await until(partial(_owned, here, old))
    pod = (await _found(here, "Pod", "slurm-controller-0"))["metadata"]["uid"]

    async with here.operator():
        await until(partial(_replaced, here, old))
        fresh = await _found(here, "StatefulSet", "slurm-controller")
        assert fresh["spec"]["podManagementPolicy"] == "Parallel"
        assert fresh["spec"]["serviceName"] == "slurm-controller-internal"
        # Only then the Controller's readiness is about this pod: until the old one is collected, it is about that.
        await until(partial(_runs_below, here, fresh["metadata"]["uid"]))
        now = (await _found(here, "Pod", "slurm-controller-0"))["metadata"]["uid"]
        assert (now == pod) == pod_stays
        await here.all_ready(("Controller", "slurm"))
        await here.quiet()
        here.audit.mark()
        await asyncio.sleep(2)
        assert here.writes() == []


async def test_a_pod_that_outlived_its_old_stateful_set_gets_its_new_name(here: Place) -> None:
    """The new StatefulSet adopts it as it is."""
    await here.apply(*example("Controller", "Accounting"))
    async with here.operator():
        await here.all_ready(("Controller", "slurm"))
        await here.quiet()
    await _make_old(here, {"serviceName": "slurm-controller"})
    await here.delete("Pod", "slurm-controller-0")
    await until(partial(_below, here, "slurm-controller"))
    await here.delete("StatefulSet", "slurm-controller", propagation="Orphan")
    await until(partial(_gone, here, "StatefulSet", "slurm-controller"))
    async with here.operator():
        await until(partial(_below, here, "slurm-controller-internal"))


async def _below(here: Place, service: str) -> bool:
    found = await here.get("Pod", "slurm-controller-0")
    return found is not None and found["spec"]["subdomain"] == service


async def test_a_claim_without_volume_is_named_and_heals(here: Place) -> None:
    (controller,) = example("Controller")
    size = {"requests": {"storage": "1Gi"}}
    controller["spec"]["persistence"] = {
        "enabled": True,
        "storageClassName": f"none-{here.namespace}",
        "resources": size,
    }
    await here.apply(controller, *example("Accounting"))
    async with here.operator():

        async def unbound() -> bool:
            return await here.degraded("Controller", "slurm") == "ClaimNotBound"

        await until(unbound)
        told = (await here.condition("Controller", "slurm", "Degraded"))["message"]
        assert f"{here.namespace}/statesave-slurm-controller-0" in told
        volume = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"none-{here.namespace}",
            "hostPath": {"path": "/nowhere"},
        }
        name = f"volume-{here.namespace}"
        await here.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume})
        await here.all_ready(("Controller", "slurm"))
        await here.quiet()
        here.audit.mark()
        bigger = {"spec": {"persistence": {"resources": {"requests": {"storage": "2Gi"}}, "volumeMode": "Filesystem"}}}
        await here.change("Controller", "slurm", bigger)
        await here.all_ready(("Controller", "slurm"))
        assert "cannot change claim templates" in (await here.condition("Controller", "slurm", "Ready"))["message"]
    await here.delete("PersistentVolume", name)


async def test_rest_api_services_and_restarts(here: Place) -> None:
    """scenario 182; a new slurm.key needs no restart, as slurmrestd holds none."""
    (restapi,) = example("RestApi")
    restapi["spec"]["service"] = {"nodePort": 31817, "spec": {"type": "NodePort", "externalIPs": ["192.0.2.1"]}}
    (controller,) = example("Controller")
    del controller["spec"]["accountingRef"]
    await here.apply(controller, restapi)
    async with here.operator():
        await here.all_ready(("RestApi", "slurm"))
        service = (await _found(here, "Service", "slurm-restapi"))["spec"]
        assert (service["ports"][0]["nodePort"], service.get("externalIPs")) == (31817, None)

        async def revision() -> str:
            found = await _found(here, "Deployment", "slurm-restapi")
            (container,) = found["spec"]["template"]["spec"]["containers"]
            assert container["args"][:2] == ["-s", "openapi/slurmctld"]
            return str(found["metadata"]["generation"])

        first = await revision()
        await here.change("Controller", "slurm", {"spec": {"extraConf": "MaxJobCount=7\n"}})

        async def restarted() -> bool:
            return await revision() != first

        await until(restarted)
        await here.all_ready(("RestApi", "slurm"))


async def test_login_keys_scale_and_a_missing_controller(here: Place) -> None:
    """scenario 183"""
    await here.apply(*example("LoginSet"))
    async with here.operator():

        async def alone() -> bool:
            return await here.degraded("LoginSet", "login") == names.EVENT_CONTROLLER_REF_FAILED

        await until(alone)

        async def told() -> bool:
            events = (await here.admin.list(EVENTS, here.namespace)).items
            return any(event.reason == names.EVENT_CONTROLLER_REF_FAILED for event in events)

        await until(told)
        await here.apply(*example("Controller", "Accounting"))
        await here.all_ready(("LoginSet", "login"))
        keys = await _found(here, "Secret", "login-ssh-host-keys")
        await here.quiet()
        await here.change("LoginSet", "login", {"spec": {"replicas": 2}}, subresource="scale")
        await here.all_ready(("LoginSet", "login"))
        assert (await _found(here, "LoginSet", "login"))["status"]["replicas"] == 2
        rolled = (await _found(here, "Deployment", "login"))["metadata"]["generation"]
        await here.change("Secret", "slurm-sssd", {"data": {"sssd.conf": b64encode(b"[sssd]\n# new\n").decode()}})

        async def rolls() -> bool:
            return bool((await _found(here, "Deployment", "login"))["metadata"]["generation"] > rolled)

        await until(rolls)
        await here.all_ready(("LoginSet", "login"))
    async with here.operator():
        await here.quiet()
        assert (await _found(here, "Secret", "login-ssh-host-keys"))["metadata"]["uid"] == keys["metadata"]["uid"]
        await here.delete("LoginSet", "login")
        await until(partial(_gone, here, "Secret", "login-ssh-host-keys"))


async def test_tokens(here: Place) -> None:
    """scenario 184"""
    await here.apply(token(lifetime="10s"), token("once", refresh=False, lifetime="1h"))
    async with here.operator():
        await here.all_ready(("Token", "alice"), ("Token", "once"))
        once = await _found(here, "Secret", "once-jwt-once")
        assert once["immutable"] is True
        assert once["metadata"]["ownerReferences"][0]["kind"] == "Token"
        first = (await _found(here, "Secret", "alice-jwt-alice"))["data"]["SLURM_JWT"]
        assert len(b64decode(first).split(b".")) == 3
        assert (await _found(here, "Token", "alice"))["status"]["issuedAt"]

        async def renewed() -> bool:
            return bool((await _found(here, "Secret", "alice-jwt-alice"))["data"]["SLURM_JWT"] != first)

        await until(renewed, 15)
        await here.change("Secret", "slurm-keys", {"data": {"jwt.key": b64encode(b"n" * 32).decode()}})

        async def expired() -> bool:
            return await here.degraded("Token", "once") == "Expired"

        await until(expired)
        await here.delete("Token", "alice")
        await until(partial(_gone, here, "Secret", "alice-jwt-alice"))


async def test_one_of_two_operators_works(here: Place) -> None:
    """scenario 20: the second acts as soon as the first has stopped."""
    async with here.operator(lead="first") as first, here.operator(lead="second"):
        await here.apply(token())
        await here.all_ready(("Token", "alice"))
        first.stop()
        await here.apply(token("bob"))
        await here.all_ready(("Token", "bob"))


async def test_other_namespaces_are_none_of_its_business(here: Place) -> None:
    """scenario 19: the operator writes to its namespaces alone."""
    elsewhere = token("carol")
    elsewhere["metadata"]["namespace"] = "default"
    await here.apply(elsewhere)
    async with here.operator():
        await here.apply(token())
        await here.all_ready(("Token", "alice"))
        touched = {request.object_ref.namespace for request in here.audit.requests() if request.is_write}
    assert touched == {here.namespace}
    await here.admin.delete(await here.resource("Token"), "carol", "default")

"""The operator on a real API server, where other programs change, install and refuse things beside it."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from slurm_local.apiserver import ApiServer
from slurm_operator.api import names
from slurm_operator.cli.keys import key_secret
from slurm_operator.kube import AlreadyExists, Manifest, NotFound
from slurm_operator.kube.kinds import CUSTOM_RESOURCE_DEFINITIONS, PODS
from slurm_operator.runtime.children import SERVICE_MONITORS
from tests.contract.server import SERVICE_ACCOUNTS
from tests.fakes.slurmrestd import KEY
from tests.kube.control_plane import Place, define_kinds, established, example, place, until

MONITORS = f"{SERVICE_MONITORS.plural}.{SERVICE_MONITORS.group}"
MONITOR_DEFINITION: Manifest = {
    "metadata": {"name": MONITORS, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
    "spec": {
        "group": SERVICE_MONITORS.group,
        "scope": "Namespaced",
        "names": {"plural": SERVICE_MONITORS.plural, "singular": "servicemonitor", "kind": SERVICE_MONITORS.kind},
        "versions": [
            {
                "name": SERVICE_MONITORS.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
SERVICE = names.restapi("slurm")


@pytest.fixture(scope="module", autouse=True)
def kinds(api_server: ApiServer) -> None:
    asyncio.run(define_kinds(api_server))


@pytest.fixture
async def here(api_server: ApiServer, namespace: str) -> AsyncIterator[Place]:
    async with place(api_server, namespace) as found:
        secret = key_secret("slurm-keys")
        secret["data"]["jwt.key"] = b64encode(KEY).decode()
        await found.apply(secret, *example("Secret", "ConfigMap", "Controller", "RestApi"))
        await found.change("Controller", "slurm", {"spec": {"accountingRef": None}})
        yield found


async def exists(here: Place, kind: str, name: str) -> bool:
    return await here.get(kind, name) is not None


async def ports(here: Place) -> list[tuple[str, int]]:
    found = await here.get("Service", SERVICE)
    return [(port["name"], port["port"]) for port in found["spec"]["ports"]] if found else []


async def test_a_port_of_a_service_changed_by_hand_is_set_back(here: Place) -> None:
    """The entry that is left has the name of ours, so an apply alone is refused as a duplicate."""
    async with here.operator():
        await until(partial(exists, here, "Service", SERVICE))
        wanted = await ports(here)
        await here.change("Service", SERVICE, {"spec": {"ports": [{"name": wanted[0][0], "port": 7000}]}})

        async def repaired() -> bool:
            return await ports(here) == wanted

        await until(repaired, 30)
        await here.quiet()
        assert await here.degraded("RestApi", "slurm") == ""


async def test_a_reason_of_the_kubelet_does_not_break_the_report(here: Place) -> None:
    """A pod that a device plugin refuses has a reason with a slash, which our own kinds do not allow."""
    with suppress(AlreadyExists):  # where the controllers run, they create it
        account = {"metadata": {"name": "default", "namespace": here.namespace}}
        await here.admin.create(SERVICE_ACCOUNTS, account)
    labels = {names.LABEL_APP: names.APP_SLURMRESTD, names.LABEL_INSTANCE: "slurm"}
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
    meta = {"name": "refused", "namespace": here.namespace, "labels": labels}
    await here.admin.create(PODS, {"metadata": meta, "spec": spec})
    status = {"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "Pod was rejected"}
    await here.admin.patch(PODS, "refused", {"status": status}, here.namespace, subresource="status")
    async with here.operator():

        async def told() -> bool:
            return await here.degraded("RestApi", "slurm") == "OutOfnvidia_com_gpu"

        await until(told, 30)


async def monitor_exists(here: Place) -> bool:
    try:
        await here.admin.get(SERVICE_MONITORS, names.controller("slurm"), here.namespace)
    except NotFound:
        return False
    return True


async def gone(here: Place) -> bool:
    try:
        await here.admin.get(CUSTOM_RESOURCE_DEFINITIONS, MONITORS)
    except NotFound:
        return True
    return False


async def test_monitors_appear_once_their_kind_is_installed(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISCOVERY_SECONDS", "CHECK_SECONDS"):
        monkeypatch.setattr(f"slurm_operator.runtime.optional.{name}", 0.2)
    watched: dict[str, Any] = {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}}
    await here.change("Controller", "slurm", {"spec": watched})
    async with here.operator():
        await until(partial(exists, here, "StatefulSet", names.controller("slurm")))
        for _ in range(2):
            await here.admin.apply(CUSTOM_RESOURCE_DEFINITIONS, MONITOR_DEFINITION, manager="test")
            await until(partial(established, here.admin, MONITORS))
            await until(partial(monitor_exists, here), 30)
            await here.admin.delete(CUSTOM_RESOURCE_DEFINITIONS, MONITORS)
            await until(partial(gone, here))
        await here.change("Controller", "slurm", {"spec": {"extraConf": "MaxJobCount=7\n"}})

        async def taken_up() -> bool:
            found = await here.get("ConfigMap", names.config("slurm")) or {}
            return "MaxJobCount=7" in found.get("data", {}).get("slurm.conf", "")

        await until(taken_up, 30)
        assert await here.degraded("Controller", "slurm") == ""

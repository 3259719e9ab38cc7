"""The whole operator on a real API server, as a user with exactly the rights it is installed with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from slurm_local.apiserver import ApiServer
from slurm_local.audit import Request
from slurm_operator.api import RestApi, names
from slurm_operator.cli.install import crd_manifests
from slurm_operator.cli.manifests import cluster_rules, lease_rules
from slurm_operator.cli.wiring import Operator, Settings
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import load
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.kinds import CUSTOM_RESOURCE_DEFINITIONS, PODS
from slurm_operator.kube.lease import Elector
from slurm_operator.kube.manifests import Manifests
from slurm_operator.kube.model import find_condition
from slurm_operator.kube.resource import Manifest, Resource
from slurm_operator.runtime.background import Background
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.manager import Addresses, Manager
from slurm_operator.slurm.views import SlurmViews
from tests.fakes.slurmrestd import FakeSlurm, FakeSlurmrestd
from tests.kube.audit import Audit
from tests.kube.mirror import BRISK
from tests.kube.rbac import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.yaml"
PATIENCE = 60.0
UNSEEN = ("PersistentVolumeClaim",)
"""Nobody provides volumes here."""


async def until(met: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
    """Asks again and again, at the server, until the answer is yes."""
    async with asyncio.timeout(seconds):
        while not await met():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.1)


def example(*kinds: str) -> list[Manifest]:
    """The example without its database and its volumes, which need a real stage."""
    documents = [document for document in yaml.safe_load_all(EXAMPLE.read_text()) if document]
    return [_without_volumes(document) for document in documents if _wanted(document, kinds)]


def _wanted(document: Manifest, kinds: tuple[str, ...]) -> bool:
    return (
        document["metadata"]["name"] != "slurm-mariadb"
        and document["kind"] not in UNSEEN
        and (not kinds or document["kind"] in kinds)
    )


def _without_volumes(document: Manifest) -> Manifest:
    spec = document.get("spec", {})
    for container in ("login", "slurmd"):
        spec.get(container, {}).pop("volumeMounts", None)
    spec.get("template", {}).get("spec", {}).pop("volumes", None)
    if document["kind"] == "Controller":
        spec["persistence"] = {"enabled": False}
    return document


def token(name: str = "alice", **spec: Any) -> Manifest:
    about = {"username": name, "jwtKeyRef": {"name": "slurm-keys", "key": "jwt.key"}, **spec}
    return {"apiVersion": names.API_VERSION, "kind": "Token", "metadata": {"name": name}, "spec": about}


class Place:
    """One namespace: what a user does there, and what they see."""

    def __init__(self, admin: Client, namespace: str, audit: Audit, config: Path, restd: FakeSlurmrestd) -> None:
        self.admin = admin
        self.namespace = namespace
        self.audit = audit
        self.slurm = restd.slurm
        self.kubeconfig = config
        """The operator's own account."""
        self.slurm_url = restd.url
        self._manifests = Manifests(admin, "user", namespace)

    async def apply(self, *manifests: Manifest) -> None:
        await self._manifests.apply(manifests)

    async def resource(self, kind: str) -> Resource[Any]:
        groups = {"StatefulSet": "apps/v1", "Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1"}
        core = ("Service", "Secret", "ConfigMap", "Pod", "PersistentVolume", "PersistentVolumeClaim")
        version = groups.get(kind, "v1" if kind in core else names.API_VERSION)
        return await self._manifests.resource_of({"apiVersion": version, "kind": kind})

    async def get(self, kind: str, name: str) -> Manifest | None:
        try:
            return await self.admin.get_raw(await self.resource(kind), name, self.namespace)
        except NotFound:
            return None

    async def change(self, kind: str, name: str, patch: Manifest, **options: Any) -> None:
        await self.admin.patch(await self.resource(kind), name, patch, self.namespace, **options)

    async def delete(self, kind: str, name: str, **options: Any) -> None:
        await self.admin.delete(await self.resource(kind), name, self.namespace, **options)

    async def condition(self, kind: str, name: str, type_: str) -> Manifest:
        found = await self.get(kind, name) or {}
        conditions = found.get("status", {}).get("conditions", ())
        return next((condition for condition in conditions if condition["type"] == type_), {})

    async def ready(self, kind: str, name: str) -> bool:
        generation = ((await self.get(kind, name)) or {}).get("metadata", {}).get("generation")
        found = await self.condition(kind, name, "Ready")
        return found.get("status") == "True" and found["observedGeneration"] == generation

    async def all_ready(self, *objects: tuple[str, str]) -> None:
        for kind, name in objects:
            await until(partial(self.ready, kind, name))

    async def degraded(self, kind: str, name: str) -> str:
        found = await self.condition(kind, name, "Degraded")
        return str(found["reason"]) if found.get("status") == "True" else ""

    async def quiet(self, seconds: float = 1.5) -> None:
        """Returns when the operator has written nothing for a while."""
        loop = asyncio.get_running_loop()
        since, count = loop.time(), len(self.writes())
        async with asyncio.timeout(PATIENCE):
            while loop.time() - since < seconds:
                await asyncio.sleep(0.1)
                if len(self.writes()) != count:
                    since, count = loop.time(), len(self.writes())

    def writes(self) -> list[Request]:
        return [request for request in self.audit.writes() if request.resource != "leases"]

    @asynccontextmanager
    async def operator(self, *, lead: str = "") -> AsyncIterator[Manager]:
        """The operator's own account, seeing this namespace alone so that tests do not meet."""
        clock = SystemClock()
        async with Client(load(str(self.kubeconfig)), clock=clock) as client:
            caches, views = Caches(client, namespaces=[self.namespace], clock=clock), SlurmViews(clock)
            operator = Operator(client, caches, views, clock, self._locate, Settings("cluster.local"))
            background = Background(clock)
            background.keep("events", operator.recorder.run)
            elector = Elector(client, self.namespace, "slurm-operator", lead, timing=BRISK) if lead else None
            manager = Manager(
                caches, operator.controllers, elector=elector, background=background, addresses=Addresses("0", "0")
            )
            task = asyncio.create_task(manager.run())
            try:
                yield manager
            finally:
                manager.stop()
                await asyncio.wait_for(task, 30)
                await views.close()

    def _locate(self, restapi: RestApi) -> str:
        return self.slurm_url

    async def register_workers(self) -> None:
        """Every worker that runs becomes a node of the Slurm; for ever."""
        while True:
            for pod in (await self.admin.list(PODS, self.namespace, labels=f"{names.LABEL_APP}=slurmd")).items:
                if pod.status.phase == "Running" and pod.metadata.name not in self.slurm.nodes:
                    record = {"address": pod.status.pod_ip, "slurmd_start": int(SystemClock().now())}
                    feature = pod.metadata.labels[names.LABEL_INSTANCE]
                    self.slurm.add_nodes(pod.metadata.name, features=[feature], **record)
            await asyncio.sleep(0.2)


async def define_kinds(server: ApiServer) -> None:
    """Install our CustomResourceDefinitions and wait until they are served."""
    async with Client(load(str(server.kubeconfig))) as admin:
        await Manifests(admin, "test").apply(crd_manifests())
        for crd in crd_manifests():
            await until(partial(established, admin, crd["metadata"]["name"]))


async def established(admin: Client, name: str) -> bool:
    found = (await admin.get(CUSTOM_RESOURCE_DEFINITIONS, name)).status.conditions or ()
    condition = find_condition(found, "Established")
    return condition is not None and condition.is_true


async def grant(admin: Client, user: str, namespace: str) -> None:
    """Exactly what `slurm-operator install` grants."""
    group = "rbac.authorization.k8s.io"
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    everywhere, here = {"name": user}, {"name": user, "namespace": namespace}
    ref = {"apiGroup": group, "name": user}
    for resource, manifest in (
        (CLUSTER_ROLES, {"metadata": everywhere, "rules": cluster_rules()}),
        (CLUSTER_ROLE_BINDINGS, {"metadata": everywhere, "roleRef": ref | {"kind": "ClusterRole"}}),
        (ROLES, {"metadata": here, "rules": lease_rules()}),
        (ROLE_BINDINGS, {"metadata": here, "roleRef": ref | {"kind": "Role"}}),
    ):
        bound = {"subjects": subjects} if "roleRef" in manifest else {}
        await admin.apply(resource, {**manifest, **bound}, manager="test")


@asynccontextmanager
async def place(api_server: ApiServer, namespace: str) -> AsyncIterator[Place]:
    user = f"operator-{namespace}"
    config = api_server.kubeconfig_for(user, user)
    slurm = FakeSlurm(SystemClock().now)
    async with Client(load(str(api_server.kubeconfig))) as admin, FakeSlurmrestd(slurm) as restd:
        await grant(admin, user, namespace)
        yield Place(admin, namespace, Audit(api_server.audit_log, user), config, restd)

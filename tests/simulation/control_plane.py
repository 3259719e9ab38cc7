"""The whole operator against an in-memory API server and slurmrestd, with a Kubernetes that runs its pods."""

import asyncio
import copy
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from slurm_operator.api import RestApi, names
from slurm_operator.cli.manifests import cluster_rules
from slurm_operator.cli.wiring import Operator, Settings
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.background import Background
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.manager import Addresses, Manager
from slurm_operator.slurm.conf.parser import parse
from slurm_operator.slurm.conf.writer import STAMP
from slurm_operator.slurm.views import SlurmViews
from tests.fakes.apiserver import FakeApiServer, Refusal, Writer
from tests.fakes.apiserver.server import Request
from tests.fakes.slurmrestd import KEY, FakeSlurm, FakeSlurmrestd

Json = dict[str, Any]

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.yaml"
KINDS = ("Controller", "Accounting", "RestApi", "LoginSet", "NodeSet", "Token")
STATUS = Writer("kubernetes", subresource="status")
PATIENCE = 20.0
HOST_KEYS = {"ssh_host_rsa_key": b"rsa", "ssh_host_ed25519_key": b"ed", "ssh_host_ecdsa_key": b"ec"}


async def until(met: Callable[[], object], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not met():  # noqa: ASYNC110 - the world has no event for what a test waits for
            await asyncio.sleep(0.02)


class World:
    """A Kubernetes whose StatefulSets and Deployments make pods that run at once, and any number of Slurms."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.cluster = server.cluster
        self.slurms: dict[Key, FakeSlurm] = {}
        self.urls: dict[Key, str] = {}
        self._keys_read: dict[str, str] = {}
        self._addresses = count()
        self._conf_read: dict[Key, str] = {}
        self.refuse = ""
        """What the sidecar of slurmctld writes instead of having delivered a configuration; `{}` is its hash."""
        self.bad_word = ""
        """What a configuration has that is not delivered."""
        self.quota = ""
        """What the API server says against every new pod of a StatefulSet or Deployment."""

    # What a user does

    def create(self, manifest: Json, namespace: str) -> Json:
        kind = self.cluster.kind(manifest["kind"], manifest["apiVersion"])
        return self.cluster.create(kind, manifest, namespace)

    def create_all(self, manifests: Iterable[Json], namespace: str) -> None:
        for manifest in manifests:
            self.create(manifest, namespace)

    def change(self, kind: str, name: str, namespace: str, patch: Json) -> Json:
        return self.cluster.patch(self.cluster.kind(kind), name, namespace, patch, writer=Writer("user"))

    def delete(self, kind: str, name: str, namespace: str) -> None:
        self.cluster.delete(self.cluster.kind(kind), name, namespace)

    def get(self, kind: str, name: str, namespace: str) -> Json:
        return self.cluster.get(self.cluster.kind(kind), name, namespace)

    def find(self, kind: str, name: str, namespace: str) -> Json | None:
        try:
            return self.get(kind, name, namespace)
        except Refusal:
            return None

    def uid(self, kind: str, name: str, namespace: str) -> str:
        """Tells an object from its successor of the same name; empty while there is neither."""
        found = self.find(kind, name, namespace)
        return str(found["metadata"]["uid"]) if found else ""

    def all(self, kind: str, namespace: str) -> list[Json]:
        return self.cluster.list(self.cluster.kind(kind), namespace)

    # What a user sees

    def condition(self, kind: str, name: str, namespace: str, type_: str) -> Json:
        found = self.find(kind, name, namespace) or {}
        conditions = found.get("status", {}).get("conditions", ())
        return next((condition for condition in conditions if condition["type"] == type_), {})

    def ready(self, kind: str, name: str, namespace: str) -> bool:
        return self.condition(kind, name, namespace, "Ready").get("status") == "True"

    def degraded(self, kind: str, name: str, namespace: str) -> str:
        found = self.condition(kind, name, namespace, "Degraded")
        return str(found["reason"]) if found.get("status") == "True" else ""

    def all_ready(self, namespace: str) -> bool:
        found = [(kind, obj["metadata"]["name"]) for kind in KINDS for obj in self.all(kind, namespace)]
        return all(self.ready(kind, name, namespace) for kind, name in found)

    def events(self, namespace: str) -> list[tuple[str, str]]:
        found = self.cluster.list(self.cluster.kind("Event", "events.k8s.io/v1"), namespace)
        return [(event["regarding"]["kind"], event["reason"]) for event in found]

    # What Kubernetes does

    async def run(self) -> None:
        while True:
            for kind in ("StatefulSet", "Deployment"):
                for workload in self.all(kind, ""):
                    if "deletionTimestamp" not in workload["metadata"]:
                        self._roll_out(kind, workload)
            for pod in self.all("Pod", ""):
                self._run_pod(pod)
                self._reread_keys(pod)
            for cluster, slurm in self.slurms.items():
                self._deliver(cluster, slurm)
            await asyncio.sleep(0.01)

    def _roll_out(self, kind: str, workload: Json) -> None:
        meta, spec = workload["metadata"], workload["spec"]
        for ordinal in range(spec["replicas"]):
            self._keep_pod(kind, workload, f"{meta['name']}-{ordinal}")
        for pod in self._pods_of(workload):
            if int(pod["metadata"]["name"].rpartition("-")[2]) >= spec["replicas"]:
                self._remove(pod)
        count = len(self._pods_of(workload)) if self.quota else spec["replicas"]
        status: Json = {
            "observedGeneration": meta["generation"],
            **dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), count),
        }
        if self.quota and kind == "Deployment":
            status["conditions"] = [{"type": "ReplicaFailure", "status": "True", "message": self.quota}]
        elif "conditions" in workload.get("status", {}):
            status["conditions"] = None
        if workload.get("status") != status:
            self.cluster.patch(
                self.cluster.kind(kind), meta["name"], meta["namespace"], {"status": status}, writer=STATUS
            )

    def _keep_pod(self, kind: str, workload: Json, name: str) -> None:
        meta, template = workload["metadata"], workload["spec"]["template"]
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}
        found = self.find("Pod", name, meta["namespace"])
        if found is not None and not found["metadata"].get("ownerReferences"):
            self.change("Pod", name, meta["namespace"], {"metadata": {"ownerReferences": [owner]}})
        elif found is not None:
            wanted = template["metadata"].get("annotations", {})
            if not wanted.items() <= found["metadata"].get("annotations", {}).items():
                self._remove(found)
        if found is not None:
            return
        if self.quota:
            self._refuse_pod(kind, workload)
            return
        manifest = copy.deepcopy(template)
        manifest["metadata"] |= {"name": name, "ownerReferences": [owner]}
        self.create({"apiVersion": "v1", "kind": "Pod", **manifest}, meta["namespace"])

    def _refuse_pod(self, kind: str, workload: Json) -> None:
        """Tell of it as Kubernetes does, by an event."""
        namespace, events = workload["metadata"]["namespace"], self.cluster.kind("Event", "events.k8s.io/v1")
        uid = workload["metadata"]["uid"]
        told = (event["regarding"].get("uid") for event in self.cluster.list(events, namespace))
        if kind == "StatefulSet" and uid not in told:
            event = {
                "metadata": {"name": f"refused-{uid}"},
                "regarding": {"kind": kind, "name": workload["metadata"]["name"], "uid": uid},
                "reason": names.EVENT_FAILED_CREATE,
                "note": self.quota,
                "deprecatedLastTimestamp": self.cluster.timestamp(),
            }
            self.cluster.create(events, event, namespace)

    def _pods_of(self, workload: Json) -> list[Json]:
        uid = workload["metadata"]["uid"]
        pods = self.all("Pod", workload["metadata"]["namespace"])
        return [pod for pod in pods if any(ref["uid"] == uid for ref in pod["metadata"].get("ownerReferences") or ())]

    def _run_pod(self, pod: Json) -> None:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta:
            self._remove(pod)
        elif pod["status"]["phase"] == "Pending":
            running = {"running": {"startedAt": self.cluster.timestamp()}}
            containers = [
                {"name": one["name"], "ready": True, "restartCount": 0, "state": running}
                for one in pod["spec"]["containers"]
            ]
            number = next(self._addresses)
            address = f"10.0.{number // 250}.{number % 250 + 1}"
            status = {
                "phase": "Running",
                "podIP": address,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": self.cluster.timestamp()}],
                "containerStatuses": containers,
            }
            self.cluster.patch(
                self.cluster.kind("Pod"), meta["name"], meta["namespace"], {"status": status}, writer=STATUS
            )
            self._register(pod, address)

    def _register(self, pod: Json, address: str) -> None:
        """A worker that runs becomes a node of its Slurm."""
        labels = pod["metadata"].get("labels", {})
        if labels.get(names.LABEL_APP) == names.APP_SLURMD:
            slurm = self.slurms[pod["metadata"]["namespace"], labels[names.LABEL_CLUSTER]]
            name = pod["spec"].get("hostname") or pod["metadata"]["name"]
            told = " ".join(arg for one in pod["spec"]["containers"] for arg in one.get("args", ()))
            found = re.search(r"Features=([^\s']+)", told)
            features = found[1].split(",") if found else []
            slurm.add_nodes(name, address=address, slurmd_start=int(slurm.boot), features=features)

    def _reread_keys(self, pod: Json) -> None:
        """A worker whose kubelet has brought new keys starts its slurmd again some seconds later."""
        labels, notes = pod["metadata"].get("labels", {}), pod["metadata"].get("annotations", {})
        digest = notes.get(names.ANNOTATION_SLURM_KEY_HASH)
        if labels.get(names.LABEL_APP) != names.APP_SLURMD or digest in (
            None,
            self._keys_read.get(pod["metadata"]["uid"]),
        ):
            return
        self._keys_read[pod["metadata"]["uid"]] = digest
        slurm = self.slurms[pod["metadata"]["namespace"], labels[names.LABEL_CLUSTER]]
        slurm.nodes[pod["metadata"]["name"]].slurmd_start = int(time.time()) + 5
        slurm.touch()

    def _deliver(self, cluster: Key, slurm: FakeSlurm) -> None:
        """slurmctld takes up the partitions of a new slurm.conf."""
        namespace, name = cluster
        found = self.find("ConfigMap", names.config(name), namespace)
        conf = found.get("data", {}).get("slurm.conf", "") if found else ""
        if conf and conf != self._conf_read.get(cluster):
            self._conf_read[cluster] = conf
            is_bad = bool(self.refuse) and self.bad_word in conf
            verdict = self.refuse if is_bad else "accepted {}"
            log = (namespace, f"{names.controller(name)}-0", "reconfigure")
            self.cluster.logs[log] = verdict.format(conf.rpartition(STAMP)[2].strip()) + "\n"
            if is_bad:
                return
            slurm.reconfigure(
                {line.value: (line.get("State") or "UP").upper() for line in parse(conf).all("PartitionName")}
            )

    def _remove(self, pod: Json) -> None:
        meta = pod["metadata"]
        self.cluster.delete(self.cluster.kind("Pod"), meta["name"], meta["namespace"], {"gracePeriodSeconds": 0})

    # The operator

    def locate(self, restapi: RestApi) -> str:
        """At an address of its own, or at its cluster's."""
        namespace, cluster = restapi.metadata.namespace, restapi.spec.controller_ref.name
        return self.urls.get((namespace, restapi.metadata.name)) or self.urls[namespace, cluster]

    @asynccontextmanager
    async def operator(self, **settings: Any) -> AsyncIterator["Running"]:
        clock = SystemClock()
        async with Client(KubeConfig(self.server.url), clock=clock) as client:
            caches, views = Caches(client, clock=clock), SlurmViews(clock)
            operator = Operator(client, caches, views, clock, self.locate, Settings("cluster.local", **settings))
            background = Background(clock)
            background.keep("events", operator.recorder.run)
            manager = Manager(caches, operator.controllers, background=background, addresses=Addresses("0", "0"))
            task = asyncio.create_task(manager.run())
            try:
                yield Running(self, operator, views)
            finally:
                manager.stop()
                await asyncio.wait_for(task, 30)
                await views.close()


class Running:
    """An operator at work."""

    def __init__(self, world: World, operator: Operator, views: SlurmViews) -> None:
        self.world = world
        self.operator = operator
        self.views = views

    async def quiet(self, seconds: float = 0.4) -> None:
        """Returns when nothing has been written for a while, and nobody has anything in hand."""
        loop = asyncio.get_running_loop()
        since, writes = loop.time(), len(self.world.server.writes)
        async with asyncio.timeout(PATIENCE):
            while loop.time() - since < seconds:
                await asyncio.sleep(0.05)
                for controller in self.operator.controllers:
                    await controller.queue.idle()
                if len(self.world.server.writes) != writes:
                    since, writes = loop.time(), len(self.world.server.writes)

    def look_again(self, namespace: str) -> None:
        """Has every object of the namespace looked at once more, as after any change around it."""
        kinds = {kind.lower(): kind for kind in KINDS} | {
            "cluster": "Controller",
            "pod-state": "Pod",
            "keyring": "Secret",
        }
        for controller in self.operator.controllers:
            for obj in self.world.all(kinds[controller.name], namespace):
                controller.queue.add((namespace, obj["metadata"]["name"]))

    def passes(self) -> dict[str, int]:
        """How often objects of each kind have been looked at."""
        return {found.name: sum(found.stats.results.values()) for found in self.operator.controllers}


@asynccontextmanager
async def world(*clusters: Key) -> AsyncIterator[World]:
    """Kubernetes, and a Slurm for each of the clusters."""
    async with FakeApiServer() as server, AsyncExitStack() as stack:
        found = World(server)
        for cluster in clusters or (("slurm", "slurm"),):
            key = bytes(at ^ len(found.slurms) for at in KEY)
            slurm = FakeSlurm(SystemClock().now, key=key)
            slurm.database_up = True
            restd = await stack.enter_async_context(FakeSlurmrestd(slurm))
            found.slurms[cluster], found.urls[cluster] = slurm, restd.url
            found.cluster.create(found.cluster.kind("Namespace"), {"metadata": {"name": cluster[0]}})
        kubernetes = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            kubernetes.cancel()
            await asyncio.gather(kubernetes, return_exceptions=True)


def not_allowed(requests: Iterable[Request]) -> set[tuple[str, str]]:
    """Return verbs and resources of requests for which the role of an installed operator gives no right."""
    rules = [(verb, name) for rule in cluster_rules() for verb in rule["verbs"] for name in rule["resources"]]
    asked = {("patch" if found.verb == "apply" else found.verb, found.resource) for found in requests}
    return {found for found in asked if found[1]} - {*rules}


def quick_host_keys() -> dict[str, bytes]:
    return dict(HOST_KEYS)


def keys(slurm: FakeSlurm) -> Json:
    text = {"slurm.key": "s" * 32, "jwt.key": slurm.key.decode(), "db-password": "hunter2"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "slurm-keys"}, "stringData": text}


def token(name: str = "alice", **spec: Any) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Token",
        "metadata": {"name": name},
        "spec": {"username": name, "jwtKeyRef": {"name": "slurm-keys", "key": "jwt.key"}, **spec},
    }


def example(*kinds: str) -> list[Json]:
    """The example as it is in the documentation, or these kinds of it."""
    documents = [document for document in yaml.safe_load_all(EXAMPLE.read_text()) if document]
    return [document for document in documents if not kinds or document["kind"] in kinds]

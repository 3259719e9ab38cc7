"""A Kubernetes of simulated nodes, a real Slurm whose nodes exist in name only, and the operator between the two.

Everything but kubelets and slurmds is real, so a thousand workers fit on one machine: kwok says that their pods run,
and slurmctld holds EXTERNAL records of their names. Each program has a user of its own, so that the audit log tells who
asked for what.
"""

import asyncio
import sys
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from bench.audit import AuditLog
from bench.counting import CountingProxy
from bench.process import cpu_seconds, resident_mb
from slurm_local.apiserver import ApiServer, free_ports
from slurm_local.lab import SlurmLab
from slurm_local.processes import Background
from slurm_local.simulation import SimulatedNodes, node_manifest
from slurm_operator.api import Controller, NodeSet, names
from slurm_operator.cli.install import crd_manifests
from slurm_operator.cli.keys import key_secret
from slurm_operator.cli.manifests import cluster_rules
from slurm_operator.desired.worker import WorkerFacts, ordinal_slot, worker_pod, worker_template
from slurm_operator.desired.workers import workers_objects
from slurm_operator.kube.auth import Credentials
from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import SystemClock
from slurm_operator.kube.config import load
from slurm_operator.kube.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from slurm_operator.kube.manifests import Manifests
from slurm_operator.kube.model import Partial, find_condition
from slurm_operator.kube.resource import Manifest, Resource

NAMESPACE, BARE = "slurm", "bare"
CONTROLLER, NODESET = "slurm", "worker"
OPERATOR, LOOP, KWOK = "operator", "loop", "kwok"
"""Users."""
SPARE_NODES = 20
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", Partial)
_GROUP = "bench:operators"
_AT_ONCE = 8

T = TypeVar("T")


async def each(items: Iterable[T], work: Callable[[T], Awaitable[object]]) -> None:
    """A few at a time."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(worker())


async def until(met: Callable[[], Awaitable[bool]], *, seconds: float = 180.0, pause: float = 0.25) -> None:
    """What is waited for happens in other processes."""
    async with asyncio.timeout(seconds):
        while not await met():  # noqa: ASYNC110 - it asks another process, which sends no events
            await asyncio.sleep(pause)


class Stage:
    def __init__(self, workers: int, server: ApiServer, lab: SlurmLab, proxy: CountingProxy, admin: Client) -> None:
        self.workers = workers
        self.server = server
        self.lab = lab
        self.proxy = proxy
        self.admin = admin
        self.audit = AuditLog(server.audit_log)
        self.loop = BareLoop(server)

    async def prepare(self) -> None:
        manifests = Manifests(self.admin, "bench")
        await manifests.apply(crd_manifests())
        await until(self._defined)
        for namespace in (NAMESPACE, BARE):
            await manifests.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
        await manifests.apply(_rights())
        nodes = [f"sim-{number}" for number in range(self.workers + SPARE_NODES)]
        await each(nodes, lambda name: self.admin.create(NODES, node_manifest(name)))
        secret = key_secret("slurm-keys", NAMESPACE)
        secret["data"]["jwt.key"] = b64encode(self.lab.jwt_key).decode()
        await manifests.apply([secret, _controller(), _restapi()])
        # What Kubernetes does for every worker it does for the loop's pods too: they are in a Service as well.
        await manifests.apply(workers_objects(CONTROLLER, BARE))
        await until(self._accounts_exist)
        await until(self._nodes_ready, pause=1.0)
        # The controllers take minutes to take the taints of so many new nodes away one by one.
        await each(nodes, lambda name: self.admin.patch(NODES, name, {"spec": {"taints": None}}))

    async def apply_nodeset(self) -> None:
        await Manifests(self.admin, "bench").apply([nodeset_manifest(self.workers)])

    async def register_workers(self) -> None:
        """What their slurmds would do: Slurm gets a record of each worker. A name with a record would not be taken."""
        await self.lab.add_nodes(f"{NODESET}-[0-{self.workers - 1}]", "CPUs=16 RealMemory=64000")

    async def running(self, namespace: str, count: int) -> bool:
        pods = (await self.admin.list(PODS, namespace, labels=f"{names.LABEL_APP}={names.APP_SLURMD}")).items
        return len(pods) == count and all(pod.status.phase == "Running" for pod in pods)

    async def _defined(self) -> bool:
        found = [await self.admin.get(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"]) for crd in crd_manifests()]
        conditions = [find_condition(crd.status.conditions or (), "Established") for crd in found]
        return all(condition is not None and condition.is_true for condition in conditions)

    async def _nodes_ready(self) -> bool:
        nodes = (await self.admin.list(NODES)).items
        ready = [find_condition(node.status.conditions, "Ready") for node in nodes]
        return sum(found is not None and found.is_true for found in ready) == self.workers + SPARE_NODES

    async def _accounts_exist(self) -> bool:
        accounts = (await self.admin.list(SERVICE_ACCOUNTS)).items
        return {NAMESPACE, BARE} <= {account.metadata.namespace for account in accounts}


@asynccontextmanager
async def simulated_stage(workers: int) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        server = ApiServer(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))))
        stack.callback(server.stop)
        server.start()
        nodes = SimulatedNodes(server)
        stack.callback(nodes.stop)
        nodes.start()
        lab = await stack.enter_async_context(SlurmLab())
        proxy = await stack.enter_async_context(CountingProxy(lab.url).serve())
        admin = await stack.enter_async_context(Client(load(str(server.kubeconfig))))
        stage = Stage(workers, server, lab, proxy, admin)
        await stage.prepare()
        yield stage


class OperatorProcess:
    """`slurm-operator run`, with the rights that it is installed with."""

    def __init__(self, stage: Stage) -> None:
        self._ready = f"http://127.0.0.1:{free_ports(1)[0]}"
        config = stage.server.kubeconfig_for(OPERATOR, OPERATOR, _GROUP)
        command = [sys.executable, "-c", "import sys; from slurm_operator.cli import main; sys.exit(main())", "run"]
        options = [
            f"--kubeconfig={config}",
            f"--health-addr={self._ready.removeprefix('http://')}",
            "--metrics-addr=0",
            f"--slurm-url={NAMESPACE}/{CONTROLLER}={stage.proxy.url}",
        ]
        self.log = stage.server.folder / "operator.log"
        self._process = Background("slurm-operator", [*command, *options], self.log)

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds(self._process.pid or 0)

    @property
    def resident_mb(self) -> float:
        return resident_mb(self._process.pid or 0)

    @asynccontextmanager
    async def run(self) -> AsyncIterator["OperatorProcess"]:
        self._process.start()
        try:
            await until(self._answers)
            yield self
        finally:
            self._process.stop(patience=20)

    async def _answers(self) -> bool:
        self._process.check()
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self._ready}/readyz") as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False


class BareLoop:
    """A few connections that do nothing but send: what the server can do."""

    def __init__(self, server: ApiServer) -> None:
        self._config = load(str(server.kubeconfig_for(LOOP, LOOP, _GROUP)))
        self._path = f"{self._config.server}/api/v1/namespaces/{BARE}/pods"

    async def create(self, manifests: Iterable[Manifest]) -> None:
        await self._send(("POST", self._path, msgspec.json.encode(manifest)) for manifest in manifests)

    async def delete(self, pods: Iterable[str]) -> None:
        await self._send(("DELETE", f"{self._path}/{name}", b"{}") for name in pods)

    async def _send(self, requests: Iterable[tuple[str, str, bytes]]) -> None:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
        connector = aiohttp.TCPConnector(limit=0, ssl=Credentials(self._config, SystemClock()).ssl or True)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

            async def send(request: tuple[str, str, bytes]) -> None:
                method, url, body = request
                async with session.request(method, url, data=body) as answer:
                    said = await answer.read()
                    if answer.status >= 300:
                        raise RuntimeError(said.decode())

            await each(requests, send)


def bare_pods(count: int) -> list[Manifest]:
    """The pods that the operator would make, for a loop to make."""
    nodeset = msgspec.convert(nodeset_manifest(count), NodeSet)
    controller = msgspec.convert(_controller(), Controller)
    template = worker_template(nodeset, WorkerFacts(controller=controller))
    slots = [ordinal_slot(nodeset, number) for number in range(count)]
    pods = [worker_pod(nodeset, template, slot, "0123456789", "uid") for slot in slots]
    for pod in pods:
        pod["metadata"]["namespace"] = BARE
        del pod["metadata"]["ownerReferences"]  # garbage collection would take what belongs to nobody
    return pods


def nodeset_manifest(replicas: int) -> Manifest:
    limits = {"cpu": "1", "memory": "1Gi"}
    return _custom(
        "NodeSet",
        NODESET,
        controllerRef={"name": CONTROLLER},
        replicas=replicas,
        slurmd={"image": "none", "resources": {"limits": limits}},
        logfile={"image": "none"},
        template={"spec": {"nodeSelector": {"type": "kwok"}}},
    )


def _controller() -> Manifest:
    keys = {
        "slurmKeyRef": {"name": "slurm-keys", "key": "slurm.key"},
        "jwtKeyRef": {"name": "slurm-keys", "key": "jwt.key"},
    }
    return _custom("Controller", CONTROLLER, external=True, externalConfig={"host": "lab", "port": 6817}, **keys)


def _restapi() -> Manifest:
    return _custom("RestApi", CONTROLLER, controllerRef={"name": CONTROLLER}, slurmrestd={"image": "none"})


def _custom(kind: str, name: str, **spec: Any) -> Manifest:
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": meta, "spec": spec}


def _rights() -> list[Manifest]:
    """The loop has the operator's, so that the server treats both alike."""
    api = "rbac.authorization.k8s.io"
    meta = {"name": "bench-operators"}
    role = {"apiGroup": api, "kind": "ClusterRole", **meta}
    subjects = [{"apiGroup": api, "kind": "Group", "name": _GROUP}]
    return [
        {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": meta, "rules": cluster_rules()},
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": subjects,
        },
    ]

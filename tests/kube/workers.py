"""NodeSets on the simulated nodes: what the tests of their workers share."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from slurm_local.apiserver import ApiServer
from slurm_local.simulation import SimulatedNodes
from slurm_operator.api import names
from slurm_operator.cli.install import crd_manifests
from slurm_operator.cli.keys import key_secret
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import load
from slurm_operator.kube.kinds import CUSTOM_RESOURCE_DEFINITIONS, PODS, Pod
from slurm_operator.kube.manifests import Manifests
from slurm_operator.kube.model import find_condition
from slurm_operator.kube.resource import Manifest
from slurm_operator.runtime.clock import SystemClock
from tests.fakes.slurmrestd import KEY
from tests.kube.control_plane import Place, example, place, until

POOL = "tests.example.com/pool"
CLUSTER = "slurm"
BUDGET = names.workers_budget(CLUSTER)
SERVICE = names.workers_service(CLUSTER)


def prepare(nodes: SimulatedNodes, pool: str, count: int = 3) -> None:
    """Make nodes that only the workers of this pool run on, and define the kinds."""
    for name in nodes.add(count, prefix=pool):
        nodes.kubectl("label", "node", name, f"{POOL}={pool}")
    asyncio.run(_define(nodes.server))


async def _define(server: ApiServer) -> None:
    async with Client(load(str(server.kubeconfig))) as admin:
        await Manifests(admin, "test").apply(crd_manifests())
        for crd in crd_manifests():
            await until(partial(_established, admin, crd["metadata"]["name"]))


async def _established(admin: Client, name: str) -> bool:
    found = (await admin.get(CUSTOM_RESOURCE_DEFINITIONS, name)).status.conditions or ()
    condition = find_condition(found, "Established")
    return condition is not None and condition.is_true


@asynccontextmanager
async def cluster(server: ApiServer, namespace: str) -> AsyncIterator[Place]:
    """A namespace with a Controller and a RestApi, whose workers register and start a job each."""
    async with place(server, namespace) as found:
        secret = key_secret("slurm-keys")
        secret["data"]["jwt.key"] = _encoded(KEY)
        (controller,) = example("Controller")
        del controller["spec"]["accountingRef"]
        await found.apply(secret, *example("Secret", "ConfigMap"), controller, *example("RestApi"))
        registering = asyncio.create_task(_register(found))
        try:
            yield found
        finally:
            registering.cancel()


def _encoded(value: bytes) -> str:
    return b64encode(value).decode()


async def _register(here: Place) -> None:
    """Make each running worker a node of the Slurm cluster with one job on it, until cancelled."""
    seen: set[str] = set()
    while True:
        for pod in (await workers(here)).values():
            if pod.status.phase != "Running" or pod.metadata.uid in seen:
                continue
            seen.add(pod.metadata.uid)
            name = pod.metadata.labels[names.LABEL_POD_HOSTNAME]
            started = int(SystemClock().now())
            feature = pod.metadata.labels[names.LABEL_INSTANCE]
            here.slurm.add_nodes(name, address=pod.status.pod_ip, slurmd_start=started, features=[feature])
            here.slurm.start_job(100 + len(seen), name)
        await asyncio.sleep(0.1)


def end_jobs(here: Place, *nodes: str) -> None:
    """End the jobs on these nodes, or all."""
    for number, job in here.slurm.jobs.items():
        if job.state == "RUNNING" and (not nodes or set(job.nodes) & set(nodes)):
            here.slurm.end_job(number)


def nodeset_of(pool: str, **spec: Any) -> Manifest:
    """NodeSet `gpu`, whose workers run on the nodes of the pool."""
    template = {"spec": {"nodeSelector": {POOL: pool}, "terminationGracePeriodSeconds": 1}}
    images = {"slurmd": {"image": "slurmd", "args": ["<&>\u2028ä"]}, "logfile": {"image": "slurm"}}
    spec = {"controllerRef": {"name": CLUSTER}, "template": template, **images, **spec}
    return {"apiVersion": names.API_VERSION, "kind": "NodeSet", "metadata": {"name": "gpu"}, "spec": spec}


async def workers(here: Place) -> dict[str, Pod]:
    """The worker pods by name."""
    found = await here.admin.list(PODS, here.namespace, labels=f"{names.LABEL_APP}={names.APP_SLURMD}")
    return {pod.metadata.name: pod for pod in found.items}


async def busy(here: Place, count: int) -> bool:
    """Whether so many workers run, and all carry the protection label."""
    pods = (await workers(here)).values()
    marked = [pod for pod in pods if pod.metadata.labels.get(names.LABEL_POD_PROTECT) == names.TRUE]
    return len(pods) == len(marked) == count and all(pod.status.phase == "Running" for pod in pods)


async def gone(here: Place, kind: str, name: str) -> bool:
    return await here.get(kind, name) is None

"""Whether busy workers can be evicted, as the real API server and disruption controller decide it."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from slurm_local.apiserver import ApiServer
from slurm_local.simulation import SimulatedNodes
from slurm_operator.api import names
from slurm_operator.kube.errors import TooManyRequests
from slurm_operator.kube.kinds import PODS
from slurm_operator.kube.resource import Manifest
from slurm_operator.nodeset.identity import slurm_name
from tests.kube.control_plane import Place, until
from tests.kube.workers import BUDGET, busy, cluster, end_jobs, nodeset_of, prepare, workers

POOL = "protected"


@pytest.fixture(scope="module", autouse=True)
def nodes(simulated_nodes: SimulatedNodes) -> None:
    prepare(simulated_nodes, POOL)


@pytest.fixture
async def here(api_server: ApiServer, namespace: str) -> AsyncIterator[Place]:
    async with cluster(api_server, namespace) as found:
        yield found


async def evict(here: Place, pod: str) -> None:
    body: Manifest = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    await here.admin.post_subresource(PODS, pod, here.namespace, "eviction", body)


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"replicas": 3}, {}),
    ({"scalingMode": "DaemonSet"}, {}),
    ({"replicas": 3}, {"replicas": 1}),
]


@pytest.mark.parametrize(("spec", "change"), CASES, ids=["StatefulSet", "DaemonSet", "scale-in"])
async def test_a_busy_worker_is_not_evicted(here: Place, spec: dict[str, Any], change: dict[str, Any]) -> None:
    """Every eviction is refused while jobs run; the worker whose job has ended can be evicted."""
    async with here.operator():
        await here.apply(nodeset_of(POOL, **spec))
        await until(partial(busy, here, 3))
        if change:
            await here.change("NodeSet", "gpu", {"spec": change})
            await until(partial(_draining, here, 2))
        await until(partial(_counted, here, 3))
        pods = await workers(here)
        for name in pods:
            with pytest.raises(TooManyRequests):
                await evict(here, name)
        assert not any(pod.metadata.terminating for pod in (await workers(here)).values())
        idle = next(pod for pod in pods.values() if "DRAIN" not in here.slurm.nodes[slurm_name(pod)].flags)
        end_jobs(here, slurm_name(idle))
        await until(partial(_unprotected, here, idle.metadata.name))
        await evict(here, idle.metadata.name)


async def _draining(here: Place, count: int) -> bool:
    found = await here.get("NodeSet", "gpu") or {}
    return bool(found.get("status", {}).get("slurmDrain") == count)


async def _counted(here: Place, healthy: int) -> bool:
    """Whether the disruption controller has seen so many workers."""
    found = await here.get("PodDisruptionBudget", BUDGET) or {}
    return bool(found.get("status", {}).get("currentHealthy") == healthy)


async def _unprotected(here: Place, name: str) -> bool:
    return names.LABEL_POD_PROTECT not in (await workers(here))[name].metadata.labels

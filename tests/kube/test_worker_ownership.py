"""Deletions of NodeSets under running jobs, with the real garbage collector and namespace controller."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from slurm_local.apiserver import ApiServer
from slurm_local.simulation import SimulatedNodes
from slurm_operator.api import names
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.kinds import CONTROLLER_REVISIONS, NAMESPACES, Pod
from slurm_operator.kube.resource import Manifest
from tests.kube.control_plane import Place, until
from tests.kube.workers import BUDGET, SERVICE, busy, cluster, end_jobs, gone, nodeset_of, prepare, workers

pytestmark = pytest.mark.timeout(240)
POOL = "owned"
COLLECTOR_SECONDS = 120.0
"""The garbage collector looks for new kinds every 30 seconds, and the CRDs may be new."""
SHARED = (("Service", SERVICE), ("PodDisruptionBudget", BUDGET))


@pytest.fixture(scope="module", autouse=True)
def nodes(simulated_nodes: SimulatedNodes) -> None:
    prepare(simulated_nodes, POOL)


@pytest.fixture
async def here(api_server: ApiServer, namespace: str) -> AsyncIterator[Place]:
    async with cluster(api_server, namespace) as found:
        yield found


def owners(pod: Pod) -> set[str]:
    return {owner.kind for owner in pod.metadata.owner_references}


async def all_owned_by(here: Place, *kinds: str) -> bool:
    return all(owners(pod) == set(kinds) for pod in (await workers(here)).values())


async def uids(here: Place) -> dict[str, str]:
    """The workers that are not being deleted."""
    return {name: pod.metadata.uid for name, pod in (await workers(here)).items() if not pod.metadata.terminating}


async def shared_gone(here: Place) -> bool:
    return all([await gone(here, *address) for address in SHARED])


async def meta(here: Place, kind: str, name: str) -> Manifest:
    found = await here.get(kind, name)
    assert found is not None
    about: Manifest = found["metadata"]
    return about


@pytest.mark.parametrize("present", [True, False], ids=["operator-runs", "operator-is-away"])
async def test_a_foreground_deletion_waits_for_jobs(here: Place, present: bool) -> None:
    """The garbage collector is done when its finalizer is gone: it has collected what it collects."""
    async with here.operator():
        await here.apply(nodeset_of(POOL, replicas=2))
        await until(partial(busy, here, 2))
        await here.quiet()
        before = await uids(here)
        assert await all_owned_by(here, "NodeSet", "PodDisruptionBudget")
        if present:
            await _delete_in_foreground(here)
    if not present:
        await _delete_in_foreground(here)
    async with here.operator():
        await until(partial(_draining, here, 2))
        await here.quiet()
        assert await uids(here) == before
        assert await all_owned_by(here, "PodDisruptionBudget")
        for kind, name in SHARED:
            assert "deletionTimestamp" not in await meta(here, kind, name)
        ours = names.selector_text(names.APP_SLURMD, "gpu")
        assert (await here.admin.list(CONTROLLER_REVISIONS, here.namespace, labels=ours)).items == []
        assert await busy(here, 2)
        end_jobs(here)
        await until(partial(gone, here, "NodeSet", "gpu"))
        await until(partial(shared_gone, here))
        assert await uids(here) == {}


async def _delete_in_foreground(here: Place) -> None:
    await here.delete("NodeSet", "gpu", propagation="Foreground")

    async def collected() -> bool:
        return bool((await meta(here, "NodeSet", "gpu"))["finalizers"] == [names.FINALIZER_WORKERS])

    await until(collected, COLLECTOR_SECONDS)


async def _draining(here: Place, count: int) -> bool:
    return sum("DRAIN" in node.flags for node in here.slurm.nodes.values()) == count


@pytest.mark.parametrize("present", [True, False], ids=["operator-runs", "operator-is-away"])
async def test_orphaned_workers_run_on_and_are_adopted(here: Place, present: bool) -> None:
    async with here.operator():
        await here.apply(nodeset_of(POOL, replicas=2))
        await until(partial(busy, here, 2))
        await here.quiet()
        before = await uids(here)
        if present:
            await here.delete("NodeSet", "gpu", propagation="Orphan")
            await until(partial(gone, here, "NodeSet", "gpu"), COLLECTOR_SECONDS)
    if not present:
        await here.delete("NodeSet", "gpu", propagation="Orphan")
        await until(partial(all_owned_by, here, "PodDisruptionBudget"), COLLECTOR_SECONDS)
    async with here.operator():
        await until(partial(gone, here, "NodeSet", "gpu"))
        await here.quiet()
        assert await uids(here) == before
        assert await all_owned_by(here)
        assert await _draining(here, 0)
        for kind, name in SHARED:
            assert "deletionTimestamp" not in await meta(here, kind, name)
        await here.apply(nodeset_of(POOL, replicas=2))
        await until(partial(all_owned_by, here, "NodeSet", "PodDisruptionBudget"))
        await here.all_ready(("NodeSet", "gpu"))
        await here.quiet()
        assert await here.degraded("NodeSet", "gpu") == ""
        assert await uids(here) == before
        assert await _draining(here, 0)


async def test_the_namespace_can_be_deleted_under_jobs(here: Place) -> None:
    async with here.operator():
        await here.apply(nodeset_of(POOL, replicas=2))
        await until(partial(busy, here, 2))
        await here.admin.delete(NAMESPACES, here.namespace)
        await until(partial(_namespace_gone, here), COLLECTOR_SECONDS)


async def _namespace_gone(here: Place) -> bool:
    try:
        await here.admin.get(NAMESPACES, here.namespace)
    except NotFound:
        return True
    return False


async def test_objects_of_an_earlier_version_lose_their_owner_and_stay(here: Place) -> None:
    """Earlier versions made all NodeSets owners of the Service and the budget, and gave workers one owner."""
    async with here.operator():
        await here.apply(nodeset_of(POOL, replicas=2))
        await until(partial(busy, here, 2))
        await here.quiet()
    before = await uids(here)
    nodeset = await meta(here, "NodeSet", "gpu")
    owner = {"apiVersion": names.API_VERSION, "kind": "NodeSet", "name": "gpu", "uid": nodeset["uid"]}
    made = {name: (await meta(here, kind, name))["uid"] for kind, name in SHARED}
    for kind, name in SHARED:
        await _as_earlier(here, kind, name, owner)
    for name in before:
        await here.change("Pod", name, {"metadata": {"ownerReferences": [{**owner, "controller": True}]}})
    async with here.operator():
        await until(partial(all_owned_by, here, "NodeSet", "PodDisruptionBudget"))
        await here.quiet()
        for kind, name in SHARED:
            about = await meta(here, kind, name)
            assert "ownerReferences" not in about
            assert about["uid"] == made[name]
        budget = await here.get("PodDisruptionBudget", BUDGET)
        assert budget is not None
        assert "maxUnavailable" not in budget["spec"]
        here.audit.mark()
    async with here.operator():
        await here.quiet()
        assert here.writes() == []
    assert await uids(here) == before


async def _as_earlier(here: Place, kind: str, name: str, owner: Manifest) -> None:
    """Apply it under the operator's name as an earlier version did."""
    found = await here.get(kind, name)
    assert found is not None
    spec: dict[str, Any] = {"selector": found["spec"]["selector"]}
    if kind == "Service":
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": found["spec"]["ports"]}
    else:
        spec |= {"maxUnavailable": 0}
    notes = {"slinky.slurm.net/applied-hash": "0"}
    about = {"name": name, "namespace": here.namespace, "labels": found["metadata"]["labels"], "annotations": notes}
    manifest = {"apiVersion": found["apiVersion"], "kind": kind, "metadata": {**about, "ownerReferences": [owner]}}
    await here.admin.apply(await here.resource(kind), {**manifest, "spec": spec}, manager="slurm-operator")
    assert (await meta(here, kind, name))["ownerReferences"]


async def test_what_was_left_behind_while_the_operator_was_away_is_deleted(here: Place) -> None:
    async with here.operator():
        await here.apply(nodeset_of(POOL, replicas=1))
        await until(partial(busy, here, 1))
        await here.quiet()
    await here.change("NodeSet", "gpu", {"metadata": {"finalizers": None}})
    await here.delete("NodeSet", "gpu")
    for name in await uids(here):
        await here.delete("Pod", name, grace_seconds=0)
    await until(partial(_nothing_left, here))
    for kind, name in SHARED:
        assert "deletionTimestamp" not in await meta(here, kind, name)
    async with here.operator():
        await until(partial(shared_gone, here))


async def _nothing_left(here: Place) -> bool:
    return await workers(here) == {}

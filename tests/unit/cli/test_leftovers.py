"""What an uninstallation deletes beside NodeSets: their workers have a second owner, which nothing owns."""

import pytest

from slurm_operator.api import names
from slurm_operator.cli.install import uninstall
from slurm_operator.cli.leftovers import delete_shared, delete_workers
from slurm_operator.cli.release import HeldNodeSet, leaves_workers
from slurm_operator.cli.wiring import MANAGER
from slurm_operator.desired.workers import budget_owner, workers_objects
from slurm_operator.kube.client import Client
from slurm_operator.kube.kinds import POD_DISRUPTION_BUDGETS, SERVICES
from slurm_operator.kube.model import ObjectMeta
from slurm_operator.kube.resource import Manifest
from tests.fakes.apiserver import FakeApiServer

HERE = "default"


async def make_shared(client: Client, manager: str = MANAGER) -> str:
    """Make the Service and the budget of cluster `slurm`; the uid of the budget."""
    service, budget = workers_objects("slurm", HERE)
    await client.apply(SERVICES, service, manager=manager)
    return (await client.apply(POD_DISRUPTION_BUDGETS, budget, manager=manager)).metadata.uid


def make_nodeset(server: FakeApiServer, name: str = "gpu") -> Manifest:
    meta = {"name": name, "finalizers": [names.FINALIZER_WORKERS]}
    return server.cluster.create(server.cluster.kind("NodeSet"), {"metadata": meta, "spec": {}}, HERE)


def controlled_by(nodeset: Manifest) -> Manifest:
    meta = nodeset["metadata"]
    kind = {"apiVersion": names.API_VERSION, "kind": "NodeSet", "controller": True}
    return {**kind, "name": meta["name"], "uid": meta["uid"]}


def make_worker(server: FakeApiServer, name: str, *owners: Manifest, nodeset: str = "gpu") -> None:
    labels = {**names.selector(names.APP_SLURMD, nodeset), names.LABEL_CLUSTER: "slurm"}
    meta = {"name": name, "labels": labels, "ownerReferences": list(owners)}
    spec = {"containers": [{"name": "slurmd", "image": "slurmd"}]}
    server.cluster.create(server.cluster.kind("Pod"), {"metadata": meta, "spec": spec}, HERE)


def left(server: FakeApiServer, *kinds: str) -> list[str]:
    cluster = server.cluster
    return [f"{kind}/{obj['metadata']['name']}" for kind in kinds for obj in cluster.list(cluster.kind(kind), HERE)]


async def test_workers_without_a_nodeset_go_with_what_they_shared(server: FakeApiServer, client: Client) -> None:
    """A worker that an administrator orphaned has no owner, and stays."""
    keeper = budget_owner("slurm", await make_shared(client))
    make_worker(server, "gpu-0", keeper)
    make_worker(server, "gpu-1")
    await delete_shared(client)
    assert left(server, "Pod", "PodDisruptionBudget", "Service") == ["Pod/gpu-1"]


async def test_workers_that_an_administrator_orphaned_stay(server: FakeApiServer, client: Client) -> None:
    """The garbage collector is done with the NodeSet, and the operator was away: only the revision tells."""
    keeper = budget_owner("slurm", await make_shared(client))
    make_nodeset(server)
    make_worker(server, "gpu-0", keeper)
    cluster, labels = server.cluster, names.selector(names.APP_SLURMD, "gpu")
    revision = {"metadata": {"name": "gpu-1", "labels": labels}, "revision": 1}
    cluster.create(cluster.kind("ControllerRevision"), revision, HERE)
    cluster.delete(cluster.kind("NodeSet"), "gpu", HERE, {"gracePeriodSeconds": 0})
    await uninstall(client, "slurm-operator", force=True)
    await delete_shared(client)
    assert left(server, "Pod", "NodeSet", "PodDisruptionBudget") == ["Pod/gpu-0"]


@pytest.mark.parametrize(
    ("finalizer", "deleted", "left"),
    [("orphan", True, True), ("foregroundDeletion", True, False), ("x", True, False), ("orphan", False, False)],
)
async def test_the_finalizer_of_a_cascade_tells_which_one_it_is(
    client: Client, finalizer: str, deleted: bool, left: bool
) -> None:
    """The garbage collector is not done with the NodeSet yet."""
    when = "2027-01-15T08:00:00Z" if deleted else None
    finalizers = (names.FINALIZER_WORKERS, finalizer)
    meta = ObjectMeta(name="gpu", namespace=HERE, finalizers=finalizers, deletion_timestamp=when)
    assert await leaves_workers(client, HeldNodeSet(metadata=meta)) is left


async def test_what_others_made_stays(server: FakeApiServer, client: Client) -> None:
    await make_shared(client, manager="kubectl")
    await delete_shared(client)
    assert len(left(server, "PodDisruptionBudget", "Service")) == 2


async def test_only_the_workers_of_one_nodeset_go(server: FakeApiServer, client: Client) -> None:
    keeper = budget_owner("slurm", await make_shared(client))
    going, other = make_nodeset(server), make_nodeset(server, "cpu")
    make_worker(server, "gpu-0", controlled_by(going), keeper)
    make_worker(server, "gpu-1", keeper)
    make_worker(server, "gpu-2")
    make_worker(server, "gpu-3", controlled_by(other), keeper)
    make_worker(server, "cpu-0", controlled_by(other), keeper, nodeset="cpu")
    await delete_workers(client, ObjectMeta(name="gpu", namespace=HERE, uid=going["metadata"]["uid"]))
    assert sorted(left(server, "Pod")) == ["Pod/cpu-0", "Pod/gpu-2", "Pod/gpu-3"]


async def test_an_uninstallation_takes_the_workers_of_a_nodeset_that_is_being_deleted(
    server: FakeApiServer, client: Client
) -> None:
    keeper = budget_owner("slurm", await make_shared(client))
    staying = make_nodeset(server, "cpu")
    make_worker(server, "cpu-0", controlled_by(staying), keeper, nodeset="cpu")
    make_worker(server, "gpu-0", controlled_by(make_nodeset(server)), keeper)
    server.cluster.delete(server.cluster.kind("NodeSet"), "gpu", HERE)
    await uninstall(client, "slurm-operator")
    assert left(server, "NodeSet", "Pod", "PodDisruptionBudget") == [
        "NodeSet/cpu",
        "Pod/cpu-0",
        "PodDisruptionBudget/slurm-workers-pdb-slurm",
    ]


async def test_without_the_crds_nothing_shared_is_left(server: FakeApiServer, client: Client) -> None:
    await make_shared(client)
    make_nodeset(server)
    await uninstall(client, "slurm-operator", crds=True)
    assert left(server, "PodDisruptionBudget", "Service") == []

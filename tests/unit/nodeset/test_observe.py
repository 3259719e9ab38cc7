"""What is gathered about the workers of one NodeSet."""

from dataclasses import replace
from typing import TypeVar, cast

import msgspec
import pytest

from slurm_operator.api import NodeSet, names
from slurm_operator.kube import indexes
from slurm_operator.kube.client import Client
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.kinds import CONTROLLER_REVISIONS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, Node
from slurm_operator.kube.model import Condition, OwnerReference
from slurm_operator.nodeset.drains import left_behind
from slurm_operator.nodeset.hands import Memory
from slurm_operator.nodeset.observe import Observer
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.references import References
from slurm_operator.slurm.views import SlurmViews
from tests.unit.nodeset.make import known, node, nodeset, pod, record

KEY = ("slurm", "gpu")
T = TypeVar("T", NodeSet, Node)
CLUSTER = {names.LABEL_CLUSTER: "slurm"}
TAKEN = {names.LABEL_POD_HOSTNAME: "gpu-0"}


def stored(obj: T) -> T:
    """The object as the API server would send it: with a version."""
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version="1"))


class Sight:
    """An observer of a NodeSet, over stores that a test fills."""

    def __init__(self, of: NodeSet) -> None:
        owned = {indexes.BY_OWNER: indexes.owner, indexes.BY_INSTANCE: indexes.instance}
        self.caches = Caches(cast("Client", None))
        self.pods = self.caches.follow(PODS, indexers={**owned, indexes.BY_CLUSTER: indexes.cluster})
        self.nodes = self.caches.follow(NODES)
        self.caches.follow(CONTROLLER_REVISIONS, indexers=owned)
        self.caches.follow(PERSISTENT_VOLUME_CLAIMS, indexers=owned)
        self.caches.follow(NODESETS, indexers={indexes.BY_CONTROLLER: indexes.controller}).upsert(stored(of))
        clock = SystemClock()
        self.observe = Observer(self.caches, References(self.caches), SlurmViews(clock), clock, domain="cluster.local")
        self.memory = Memory()

    def world(self) -> World:
        found = self.observe(KEY, self.memory)
        assert found is not None
        return found


def silent(name: str) -> Node:
    lost = Condition(type="Ready", status="Unknown")
    found = node(name)
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=(lost,)))


@pytest.mark.parametrize(
    ("owner", "seen"),
    [("uid-nodeset", {}), ("uid-of-an-earlier-one", {"gpu-0": "Pod gpu-0 of NodeSet gpu"})],
    ids=["ours", "of an earlier NodeSet"],
)
def test_pods_of_an_earlier_nodeset_of_the_same_name_keep_their_names(owner: str, seen: dict[str, str]) -> None:
    """Until the garbage collector has taken the old owner off, they are neither ours nor to be adopted."""
    sight = Sight(nodeset(2))
    controller = OwnerReference(kind="NodeSet", name="gpu", uid=owner, controller=True)
    sight.pods.upsert(pod("gpu-0", labels=CLUSTER, owner=controller))
    world = sight.world()
    assert world.neighbours == seen
    assert len(world.pods) == (0 if seen else 1)


@pytest.mark.parametrize(
    ("home", "known"), [(node("k8s-1"), True), (silent("k8s-1"), False)], ids=["answers", "silent"]
)
def test_a_pod_that_is_gone_is_remembered_if_its_kubelet_answers(home: Node, known: bool) -> None:
    sight = Sight(nodeset(2))
    sight.nodes.upsert(stored(home))
    ending = pod("gpu-1", ip="10.0.0.7", labels=CLUSTER)
    sight.pods.upsert(ending)
    assert sight.world().ended == {}
    sight.pods.remove(ending)
    assert sight.world().ended == ({"10.0.0.7": "gpu-1"} if known else {})
    sight.pods.upsert(pod("gpu-0", ip="10.0.0.7", labels=CLUSTER))
    assert sight.world().ended == {}


def test_the_name_of_a_worker_that_is_gone_may_have_been_taken_by_another_nodeset() -> None:
    """With hostNetwork it even has the same address: its record must not be taken for that of the worker before."""
    sight = Sight(nodeset(0))
    sight.nodes.upsert(stored(node("k8s-1")))
    ending = pod("gpu-0", ip="10.0.0.7", labels=CLUSTER)
    sight.pods.upsert(ending)
    sight.world()
    sight.pods.remove(ending)
    other = OwnerReference(kind="NodeSet", name="cpu", uid="uid-cpu", controller=True)
    sight.pods.upsert(pod("cpu-0", ip="10.0.0.7", nodeset="cpu", owner=other, labels=CLUSTER | TAKEN))
    seen = replace(sight.world(), slurm=known(record("gpu-0", "IDLE", "NOT_RESPONDING", ip="10.0.0.7")))
    assert left_behind(seen) == set()

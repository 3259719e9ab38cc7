"""Whom to ask about a cluster, and what its NodeSets share."""

from typing import Any

import msgspec
import pytest

from slurm_operator.api import RestApi
from slurm_operator.cluster import (
    UNREADABLE_SECONDS,
    ClusterReconciler,
    Need,
    choose_restapi,
    in_cluster,
    shared_objects,
)
from slurm_operator.kube import Client, KubeConfig
from slurm_operator.kube.custom import NODESETS, RESTAPIS
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.indexes import BY_CLUSTER, BY_CONTROLLER, cluster, controller
from slurm_operator.kube.kinds import POD_DISRUPTION_BUDGETS, PODS, SERVICES, PodDisruptionBudget, Service
from slurm_operator.kube.model import ChildMeta
from slurm_operator.runtime.actions import Kube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import Children
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.references import LOADING, REFUSED, References, Refs
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.views import SlurmViews
from tests.unit.controller.make import applied, deleted, deleting
from tests.unit.desired import examples


def restapi(name: str, created: str = "2027-01-15T08:00:00Z", *, gone: bool = False) -> RestApi:
    found = examples.restapi()
    meta = msgspec.structs.replace(found.metadata, name=name, creation_timestamp=created)
    found = msgspec.structs.replace(found, metadata=meta)
    return deleting(found) if gone else found


OLDER = "2027-01-15T07:00:00Z"


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        ([], ""),
        ([restapi("a")], "a"),
        ([restapi("a"), restapi("b", OLDER)], "b"),
        ([restapi("b"), restapi("a")], "a"),
        ([restapi("a", OLDER, gone=True), restapi("b")], "b"),
        ([restapi("a", gone=True)], ""),
    ],
)
def test_which_rest_api_is_asked(candidates: list[RestApi], chosen: str) -> None:
    """scenario 160: the oldest, then the first by name; one on its way out never"""
    found = choose_restapi(candidates)
    assert (found.metadata.name if found else "") == chosen


KEY = ("slurm", "slurm")
SHARED = ["Service/slurm-workers-slurm", "PodDisruptionBudget/slurm-workers-pdb-slurm"]


def made(**meta: Any) -> Children:
    """The shared objects as they exist."""
    about = ChildMeta(namespace="slurm", uid="uid", **meta)
    service = Service(metadata=msgspec.structs.replace(about, name="slurm-workers-slurm"))
    budget = PodDisruptionBudget(metadata=msgspec.structs.replace(about, name="slurm-workers-pdb-slurm"))
    return (SERVICES, service), (POD_DISRUPTION_BUDGETS, budget)


def test_what_node_sets_share_is_made_while_one_exists() -> None:
    assert list(applied(shared_objects(KEY, Need.NODESETS, ()))) == SHARED
    assert deleted(shared_objects(KEY, Need.NODESETS, made())) == []


@pytest.mark.parametrize("need", [Need.WORKERS, Need.UNREADABLE])
def test_what_node_sets_share_is_neither_made_nor_deleted_for_workers_that_are_left(need: Need) -> None:
    assert shared_objects(KEY, need, made()).actions == ()


def test_an_object_that_cannot_be_read_is_looked_at_again() -> None:
    """Its changes wake no reconciler."""
    assert shared_objects(KEY, Need.UNREADABLE, made()).after == UNREADABLE_SECONDS
    assert shared_objects(KEY, Need.UNREADABLE, ()).after is None


def test_what_node_sets_share_is_deleted_after_the_last_worker() -> None:
    assert deleted(shared_objects(KEY, Need.NONE, made())) == SHARED
    assert shared_objects(KEY, Need.NONE, made(deletion_timestamp="2027-01-15T08:00:00Z")).actions == ()
    assert shared_objects(KEY, Need.NONE, ()).actions == ()


def test_where_slurmrestd_is_within_the_cluster() -> None:
    assert in_cluster(examples.restapi()) == "http://slurm-restapi.slurm:6820"
    assert in_cluster(examples.restapi("service: {port: 80}\n")) == "http://slurm-restapi.slurm:80"


@pytest.mark.parametrize(
    ("refs", "after"),
    [
        (Refs({}, {}, loading=True), LOADING),
        (Refs({}, {}, loading=True, refused=Trouble("Forbidden", "not allowed")), REFUSED),
    ],
    ids=["not yet known", "refused"],
)
async def test_a_key_that_may_not_be_read_is_seldom_asked_for(refs: Refs, after: float) -> None:
    """What is watched already is not given up: nothing says that the key has gone."""

    class Keys(References):
        def read(self, *args: Any, **names: Any) -> Refs:
            return refs

    async with Client(KubeConfig("http://127.0.0.1:1")) as client:
        caches, views = Caches(client), SlurmViews(SystemClock())
        caches.follow(NODESETS, indexers={BY_CONTROLLER: controller})
        caches.follow(RESTAPIS, indexers={BY_CONTROLLER: controller})
        caches.follow(PODS, indexers={BY_CLUSTER: cluster})
        kube = Kube(client, Recorder(client, "test"), caches.stores, manager="test")
        views.set(KEY, "http://127.0.0.1:1", b"k" * 32)
        reconcile = ClusterReconciler(caches, Keys(caches), views, kube, in_cluster, lambda key, refusals: None)
        assert (await reconcile(KEY)).after == after
        assert KEY in views
        await views.close()

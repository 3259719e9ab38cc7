"""The shell around `decide`: what others may know of a pass that is under way."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.kinds import NAMESPACES, PODS, Pod
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.hands import Memory
from slurm_operator.nodeset.observe import Observer
from slurm_operator.nodeset.reconcile import CROWD, NodeSetReconciler
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import Kube
from slurm_operator.runtime.execute import PlanError
from slurm_operator.slurm.views import SlurmViews
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock
from tests.unit.nodeset.make import nodeset, world

KEY = ("slurm", "gpu")


class Sight:
    """An observer that shows a given world."""

    def __init__(self, found: World | None) -> None:
        self.found = found

    def __call__(self, key: Key, memory: Memory) -> World | None:
        return replace(self.found, refused=memory.refused) if self.found is not None else None


@pytest.mark.parametrize(("workers", "growing"), [(CROWD, {True}), (CROWD - 1, {False})])
async def test_whoever_makes_a_crowd_says_so_for_as_long_as_it_takes(workers: int, growing: set[bool]) -> None:
    clock, seen = FakeClock(), set()
    async with FakeApiServer() as server, Client(KubeConfig(server.url)) as client:
        await client.create(NAMESPACES, {"metadata": {"name": KEY[0]}})
        kube = Kube(client, Recorder(client, "test", clock=clock), {}, manager="test")
        sight = cast("Observer", Sight(world(nodeset(workers))))
        reconcile = NodeSetReconciler(sight, kube, SlurmViews(clock), clock)

        def made(old: Pod | None, new: Pod | None) -> None:
            seen.add(reconcile.is_growing(KEY))
            assert reconcile.rested(KEY) == 0.0

        kube.store(PODS).subscribe(made)
        assert not reconcile.is_growing(KEY)
        assert reconcile.rested(KEY) == float("inf")
        await asyncio.wait_for(reconcile(KEY), 30)
        assert seen == growing
        assert not reconcile.is_growing(KEY)
        assert len(server.log("create", "pods")) == workers


async def test_pods_that_are_refused_stop_no_other_pod() -> None:
    """The first three pods of a lane that are refused end it; in the next pass they come last."""
    clock, pods = FakeClock(), [f"gpu-{number}" for number in range(12)]
    taken = pods[:4]
    async with FakeApiServer() as server, Client(KubeConfig(server.url)) as client:
        await client.create(NAMESPACES, {"metadata": {"name": KEY[0]}})
        for name in taken:
            await client.create(
                PODS, {"metadata": {"name": name, "namespace": KEY[0]}, "spec": {"containers": [{"name": "c"}]}}
            )
        kube = Kube(client, Recorder(client, "test", clock=clock), {}, manager="test")
        sight = Sight(world(nodeset(len(pods))))
        reconcile = NodeSetReconciler(cast("Observer", sight), kube, SlurmViews(clock), clock)
        for _ in range(2):
            with pytest.raises(PlanError):
                await reconcile(KEY)
        assert [line.code for line in server.log("create", "pods")].count(201) == len(pods)

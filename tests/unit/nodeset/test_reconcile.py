"""The shell around `decide`: what others may know of a pass that is under way."""

import asyncio
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
        return self.found


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

"""The shell around `decide`: what others may know of a pass that is under way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest

from slurm_operator.api.nodeset import Drain, NodeSetStatus
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.kinds import NAMESPACES, PODS, Pod
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.hands import Memory
from slurm_operator.nodeset.observe import Observer
from slurm_operator.nodeset.partition import CLOSED_SECONDS
from slurm_operator.nodeset.reconcile import CROWD, NodeSetReconciler
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import Kube
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.execute import PlanError
from slurm_operator.slurm.views import SlurmViews
from tests.fakes import slurmrestd as fake
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock
from tests.fakes.slurmrestd import FakeSlurm, FakeTransport
from tests.simulation.sizes import grown, sizes
from tests.unit.nodeset.make import at, known, nodeset, record, revision, world
from tests.unit.nodeset.plans import BUSY, OURS, pods, records, told

KEY, CLUSTER = ("slurm", "gpu"), ("slurm", "slurm")


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


@asynccontextmanager
async def asking(seen: World, slurm: FakeSlurm) -> AsyncIterator[NodeSetReconciler]:
    """A reconciler that sees this world and can ask this Slurm."""
    clock = SystemClock()
    views = SlurmViews(clock, transport=lambda: FakeTransport(slurm))
    views.set(CLUSTER, "http://slurm", slurm.key)
    async with FakeApiServer() as server, Client(KubeConfig(server.url)) as client:
        await client.create(NAMESPACES, {"metadata": {"name": KEY[0]}})
        spec = {"controllerRef": {"name": CLUSTER[1]}}
        await client.create(NODESETS, {"metadata": {"name": KEY[1], "namespace": KEY[0]}, "spec": spec})
        kube = Kube(client, Recorder(client, "test", clock=clock), {}, manager="test")
        try:
            yield NodeSetReconciler(cast("Observer", Sight(seen)), kube, views, clock)
        finally:
            await views.close()


@pytest.mark.parametrize("fault", [fake.hang(), fake.refuse(500)], ids=["hangs", "fails"])
async def test_a_list_of_jobs_that_cannot_be_read_holds_up_no_drain(fault: fake.Fault) -> None:
    """`jobs/` hangs or fails while `nodes/` answers: after two seconds the pass goes on without the list."""
    wanted, slurm = nodeset(1), FakeSlurm(SystemClock().now)
    slurm.add_nodes("gpu-[0-1]")
    seen = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=known(*records(0, 1, state=BUSY)), jobs=None)
    only = replace(fault, only=lambda call: call.startswith("GET jobs/"))
    async with asking(seen, slurm) as reconcile:
        with slurm.failing(only):
            await asyncio.wait_for(reconcile(KEY), 10)
    assert slurm.count("GET jobs") == 1
    assert sum("DRAIN" in node.flags for node in slurm.nodes.values()) == 1


@pytest.mark.parametrize(("state", "after"), [("DRAIN", CLOSED_SECONDS), ("UP", None)])
async def test_a_partition_is_asked_about_before_its_workers_are_ready(state: str, after: float | None) -> None:
    wanted, slurm = nodeset(1, partition={"enabled": True}), FakeSlurm(SystemClock().now)
    slurm.reconfigure({"gpu": state})
    idle = known(record("gpu-0", "IDLE", partitions=("gpu",)))
    async with asking(world(wanted, *pods(0, rev=revision(wanted)), slurm=idle), slurm) as reconcile:
        assert (await reconcile(KEY)).after == after
    assert slurm.count("GET partitions") == 1


async def test_the_jobs_are_listed_for_a_worker_whose_node_is_gone() -> None:
    """Otherwise nothing shows that Slurm has given them up, and the worker is never replaced."""
    wanted, slurm = nodeset(1, status=NodeSetStatus(updated_replicas=1)), FakeSlurm(SystemClock().now)
    down = known(*records(0, state=("DOWN", "NOT_RESPONDING"), reason="Not responding"))
    seen = world(wanted, *pods(0, rev=revision(wanted)), slurm=down, jobs=None)
    async with asking(seen, slurm) as reconcile:
        await reconcile(KEY)
        assert slurm.count("GET jobs") == 0
    async with asking(replace(seen, nodes={}), slurm) as reconcile:
        await reconcile(KEY)
        assert slurm.count("GET jobs") == 1


@pytest.mark.parametrize("successor", [False, True])
async def test_the_nodes_of_a_deleted_nodeset_are_not_read_any_more(successor: bool) -> None:
    """Not even if one of the same name in another cluster takes its place between two passes."""
    clock, slurm = FakeClock(), FakeSlurm(SystemClock().now)
    views = SlurmViews(SystemClock(), transport=lambda: FakeTransport(slurm))
    view = views.set(CLUSTER, "http://slurm", slurm.key)
    status = NodeSetStatus(drains=(Drain(cause="delete", nodes="gpu-[0-9]", since=at(0)),))
    async with FakeApiServer() as server, Client(KubeConfig(server.url)) as client:
        await client.create(NAMESPACES, {"metadata": {"name": KEY[0]}})
        kube = Kube(client, Recorder(client, "test", clock=clock), {}, manager="test")
        sight = Sight(world(nodeset(0, status=status)))
        reconcile = NodeSetReconciler(cast("Observer", sight), kube, views, SystemClock())
        await reconcile(KEY)
        assert view.watched == {f"gpu-{number}" for number in range(10)}
        sight.found = world(nodeset(0, status=status, controllerRef={"name": "other"})) if successor else None
        await reconcile(KEY)
        assert view.watched == frozenset()
        assert (reconcile.rested(KEY) == float("inf")) is not successor
    await views.close()


async def test_nothing_is_remembered_of_a_nodeset_that_is_gone() -> None:
    """Not even of one that has just waited for a job, which its report names."""
    wanted, slurm = nodeset(0, status=told("gpu-0")), FakeSlurm(SystemClock().now)
    slurm.add_nodes("gpu-0")
    slurm.start_job(7, "gpu-0")
    busy = known(*records(0, state=(*BUSY, "DRAIN"), reason=OURS))
    late = world(wanted, *pods(0, rev=revision(wanted)), slurm=busy, report_waiting_after=0.0)

    def remembered() -> dict[str, int]:
        return {way: size for way, size in sizes(reconcile).items() if "_kube" not in way and "_views" not in way}

    async with asking(late, slurm) as reconcile:
        before = remembered()
        await reconcile(KEY)
        found = " ".join(grown(before, remembered()))
        assert all(part in found for part in ("_memories", "_details", "_ended", "_watching"))
        reconcile._growing.add(KEY)  # as if its last pass had been cut short while it made a crowd
        cast("Sight", reconcile._observe).found = None
        await reconcile(KEY)
        assert grown(before, remembered()) == {}

"""Slurm clusters that answer late or not at all: their own drains make progress, and no other cluster waits for them.

In virtual time, with the queue, the workers and the reconciler of the operator.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from slurm_operator.api import NodeSet
from slurm_operator.api.nodeset import Drain, NodeSetStatus
from slurm_operator.controller.partitions import ClosedPartitions, LookAtPartitions
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset import partition
from slurm_operator.nodeset.hands import Memory
from slurm_operator.nodeset.observe import Observer
from slurm_operator.nodeset.reconcile import DEADLINE_SECONDS, NodeSetReconciler
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import Kube
from slurm_operator.runtime.controller import Controller as Workers
from slurm_operator.runtime.execute import execute
from slurm_operator.runtime.plan import Result
from slurm_operator.runtime.queue import Backoff, Queue
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.views import SlurmViews
from tests.fakes import slurmrestd as fake
from tests.fakes.clock import FakeClock, run_virtual
from tests.fakes.slurmrestd import KEY, FakeSlurm, FakeTransport
from tests.unit.nodeset.make import node, nodeset, pod, revision, world

SICK, WELL = 30, ("well", "gpu")
NODESETS = 2
"""Of each sick cluster."""


async def _accepted(*_: object, **__: object) -> None:
    return None


def _nodeset(key: Key) -> NodeSet:
    wanted = nodeset(0)
    return msgspec.structs.replace(
        wanted, metadata=msgspec.structs.replace(wanted.metadata, namespace=key[0], name=key[1])
    )


class Clusters:
    """NodeSets of several clusters that are scaled to zero while jobs run on all workers."""

    def __init__(self, *namespaces: str, workers: int = 4) -> None:
        self.clock = FakeClock()
        self.size = workers
        self.slurms = {namespace: FakeSlurm(self.clock.now) for namespace in namespaces}
        for slurm in self.slurms.values():
            slurm.add_nodes(f"gpu-[0-{workers - 1}]")
            slurm.start_job(1, f"gpu-[0-{workers - 1}]")
        transports = iter(self.slurms.values())
        self.views = SlurmViews(self.clock, transport=lambda: FakeTransport(next(transports)))
        for namespace in namespaces:
            self.views.set((namespace, "slurm"), f"http://{namespace}", KEY)
        calls = dict.fromkeys(("apply", "create", "patch", "delete", "get"), _accepted)
        kube = SimpleNamespace(client=SimpleNamespace(**calls), saw=lambda *_: None, status_manager="status")
        kube.recorder = SimpleNamespace(record=lambda *_, **__: None)
        kube.store = lambda resource: SimpleNamespace(get=lambda namespace, name: _nodeset((namespace, name)))
        self._reconcile = NodeSetReconciler(cast("Observer", self._observe), cast("Kube", kube), self.views, self.clock)
        self.queue = Queue("nodeset", clock=self.clock, backoff=Backoff(longest=30.0))
        self.workers = Workers("nodeset", self.queue, self._pass, deadline=DEADLINE_SECONDS, clock=self.clock)
        self.began: list[Key] = []
        self.done: dict[Key, asyncio.Event] = {}
        self.status = NodeSetStatus()

    def _observe(self, key: Key, memory: Memory) -> World:
        wanted = msgspec.structs.replace(_nodeset(key), status=self.status)
        mine = [pod(f"gpu-{n}", ip="10.0.0.1", revision=revision(wanted), created=-1000) for n in range(self.size)]
        view = self.views.get((key[0], "slurm"))
        assert view is not None
        seen = world(wanted, *mine, slurm=view.state, jobs=view.jobs)
        return replace(seen, nodes={"k8s-1": node("k8s-1")}, now=self.clock.now())

    async def _pass(self, key: Key) -> Result:
        self.began.append(key)
        try:
            return await self._reconcile(key)
        finally:
            self.done.setdefault(key, asyncio.Event()).set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """With a view of every cluster."""
        await asyncio.sleep(5)
        assert all(isinstance(view.state, Known) for view in self.views.clusters.values())
        working = asyncio.create_task(self.workers.run())
        yield
        working.cancel()
        await asyncio.wait([working])
        await self.views.close()

    async def seconds_until_done(self, key: Key) -> float:
        """Have a key looked at; return after how many seconds that is over."""
        self.done[key] = asyncio.Event()
        began = self.clock.monotonic()
        self.queue.add(key)
        await self.done[key].wait()
        return self.clock.monotonic() - began

    def drained(self, namespace: str) -> int:
        return sum("DRAIN" in found.flags for found in self.slurms[namespace].nodes.values())


def only(fault: fake.Fault, concerns: Callable[[str], bool]) -> fake.Fault:
    return replace(fault, only=concerns)


@pytest.mark.parametrize(
    "fault",
    [
        fake.slow(12),
        fake.hang(),
        only(fake.hang(), lambda call: call.startswith("GET jobs/")),
        only(fake.hang(), lambda call: call.startswith("GET node/")),
        only(fake.slow(40), lambda call: call.startswith("POST")),
        fake.killed(),
    ],
    ids=["slow", "hang", "jobs hang", "looks hang", "writes are slow", "killed"],
)
def test_sick_clusters_hold_up_no_other(fault: fake.Fault) -> None:
    """There are more of them than workers of the queue."""

    async def main() -> None:
        sick = [f"sick-{number}" for number in range(SICK)]
        clusters = Clusters(*sick, WELL[0])
        async with clusters.running():
            for namespace in sick:
                clusters.slurms[namespace].fault = fault
            for namespace in sick:
                for number in range(NODESETS):
                    clusters.queue.add((namespace, f"gpu{number}"))
            waited = []
            for _ in range(60):
                waited.append(await clusters.seconds_until_done(WELL))
                await asyncio.sleep(1)
        assert {key[0] for key in clusters.began} == {*sick, WELL[0]}
        assert max(waited) < 0.1
        assert clusters.drained(WELL[0]) == clusters.size

    run_virtual(main())


@pytest.mark.parametrize("call", ["GET job/", "GET partitions/"])
def test_what_only_a_report_needs_holds_up_no_other_cluster(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs the jobs that are waited for for long, and whether a partition is open."""
    monkeypatch.setattr(partition, "is_asked", lambda world: True)

    async def main() -> None:
        sick = [(f"sick-{number}", "gpu") for number in range(SICK)]
        clusters = Clusters(*(namespace for namespace, _ in sick), WELL[0])
        drained = Drain(cause="scale-in", nodes="gpu-[0-3]", since="2020-01-01T00:00:00Z")
        clusters.status = NodeSetStatus(drains=(drained,))
        async with clusters.running():
            for namespace, _ in sick:
                clusters.slurms[namespace].fault = only(fake.hang(), lambda asked: asked.startswith(call))
            passes = asyncio.gather(*map(clusters.seconds_until_done, sick))
            await asyncio.sleep(0.1)
            waited = [await clusters.seconds_until_done(WELL) for _ in range(10)]
            assert max(waited) < 0.1
            assert min(await passes) >= partition.ANSWER_SECONDS, "each has waited for an answer"
            assert all(clusters.slurms[namespace].count(call) for namespace, _ in sick)

    run_virtual(main())


@pytest.mark.parametrize("workers", [1, 4, 10, 16, 17, 40])
@pytest.mark.parametrize("seconds", [12.0, 25.0])
def test_the_workers_of_a_slow_cluster_are_drained(workers: int, seconds: float) -> None:
    """With its polls and its lists of jobs under way, as every day on a busy slurmctld."""

    async def main() -> None:
        clusters = Clusters("slow", workers=workers)
        async with clusters.running():
            clusters.slurms["slow"].fault = fake.slow(seconds)
            await asyncio.sleep(2 * seconds)
            await clusters.seconds_until_done(("slow", "gpu"))
        assert clusters.drained("slow") == workers
        assert clusters.workers.stats.results["error"] == 0

    run_virtual(main())


def test_two_nodesets_of_a_slow_cluster_are_drained_side_by_side() -> None:
    async def main() -> Any:
        clusters = Clusters("slow", workers=16)
        keys = [("slow", f"gpu{number}") for number in range(6)]
        async with clusters.running():
            clusters.slurms["slow"].fault = fake.slow(12)
            await asyncio.gather(*map(clusters.seconds_until_done, keys))
        assert clusters.drained("slow") == 16
        return clusters.workers.stats

    stats = run_virtual(main())
    assert (stats.timeouts, stats.results["error"]) == (0, 0)


@pytest.mark.parametrize("nodesets", [4, 12])
def test_a_drain_does_not_wait_for_the_looks_of_other_nodesets(nodesets: int) -> None:
    """slurmctld answers so late that the looks of all NodeSets take longer than an action has time.

    No pass is cut off: what it could not do is reported.
    """

    async def main() -> None:
        clusters = Clusters("slow")
        keys = [("slow", f"gpu{number}") for number in range(nodesets)]
        async with clusters.running():
            clusters.slurms["slow"].fault = fake.slow(28)
            await asyncio.gather(*map(clusters.seconds_until_done, keys))
            assert clusters.drained("slow") == clusters.size
            assert clusters.workers.stats.timeouts == 0

    run_virtual(main())


@pytest.mark.parametrize("fault", [fake.slow(12), fake.hang()], ids=["slow", "hang"])
def test_controllers_of_sick_clusters_hold_up_no_other(fault: fake.Fault) -> None:
    """They ask slurmctld whether a partition is closed, and a slow one is heard."""

    async def main() -> None:
        sick = [(f"sick-{number}", "slurm") for number in range(SICK)]
        well = "well", "slurm"
        clusters = Clusters(*(namespace for namespace, _ in sick), well[0])
        for slurm in clusters.slurms.values():
            slurm.partitions["small"] = "DRAIN"
        closed = ClosedPartitions(clusters.views, clusters.clock)
        done: list[tuple[Key, float]] = []

        async def reconcile(key: Key) -> Result:
            await execute([LookAtPartitions(key, ("small",))], SimpleNamespace(partitions=closed), clock=clusters.clock)
            done.append((key, clusters.clock.monotonic()))
            return Result()

        queue = Queue("controller", clock=clusters.clock)
        clusters.workers = Workers("controller", queue, reconcile, clock=clusters.clock)
        async with clusters.running():
            for namespace, _ in sick:
                clusters.slurms[namespace].fault = fault
            for key in (*sick, well):
                queue.add(key)
            began = clusters.clock.monotonic()
            await queue.idle()
            assert done[0] == (well, began)
            heard = {key for key in sick if closed.closed_at(key, ("small",))}
            assert heard == ({*sick} if fault.delay == 12 else set())

    run_virtual(main())

"""A pass that waits for its Slurm holds no worker of the queue: NodeSets of other clusters are looked at meanwhile."""

import asyncio
from dataclasses import replace

import pytest

from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.plan import Result
from slurm_operator.runtime.queue import Queue
from tests.fakes import slurmrestd as fake
from tests.fakes.slurmrestd import FakeSlurm
from tests.unit.nodeset.make import known, nodeset, record, revision, world
from tests.unit.nodeset.plans import BUSY, DRAINED, OURS, pods, records, told
from tests.unit.nodeset.test_reconcile import KEY, asking

OTHERS = [("elsewhere", f"gpu-{number}") for number in range(3)]
"""One would not do: a worker that stood in for the pass a moment ago takes a last key before it leaves."""


def ready() -> World:
    wanted = nodeset(1, partition={"enabled": True})
    return world(wanted, *pods(0, rev=revision(wanted)), slurm=known(record("gpu-0", "IDLE", partitions=("gpu",))))


def leaving(*state: str, status: NodeSetStatus | None = None) -> World:
    wanted = nodeset(0, status=status)
    drained = known(*records(0, state=state, reason=OURS if "DRAIN" in state else ""))
    return world(wanted, *pods(0, rev=revision(wanted)), slurm=drained)


def wanted_again() -> World:
    wanted = nodeset(1)
    return world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0, state=DRAINED, reason=OURS)))


WAITS = {
    "for a last look": ("GET node/", leaving(*BUSY)),
    "for a drain": ("POST node", leaving(*BUSY)),
    "for the end of a drain": ("POST node", wanted_again()),
    "for the deletion of a record": ("DELETE node", leaving(*DRAINED, status=told("gpu-0"))),
    "for the details of a job": (
        "GET job/",
        replace(leaving(*BUSY, "DRAIN", status=told("gpu-0")), report_waiting_after=0.0),
    ),
    "to hear whether a partition is closed": ("GET partitions", ready()),
}


@pytest.mark.parametrize(("call", "seen"), WAITS.values(), ids=WAITS)
async def test_a_pass_that_waits_holds_up_no_other_nodeset(call: str, seen: World) -> None:
    slurm, asked, served = FakeSlurm(SystemClock().now), asyncio.Event(), asyncio.Event()
    done: list[Key] = []
    slurm.add_nodes("gpu-0")
    (worker,) = seen.workers
    if "DRAIN" in worker.state:
        slurm.nodes["gpu-0"].flags.append("DRAIN")
        slurm.nodes["gpu-0"].reason = OURS
    if "MIXED" in worker.state:
        slurm.start_job(7, "gpu-0")

    def hangs(found: str) -> bool:
        if found.startswith(call):
            asked.set()
        return found.startswith(call)

    async with asking(seen, slurm) as reconcile:

        async def look(key: Key) -> Result:
            if key == KEY:
                await reconcile(key)
            done.append(key)
            if len(done) == len(OTHERS):
                served.set()
            return Result()

        queue = Queue("nodeset")
        working = asyncio.create_task(Controller("nodeset", queue, look, workers=1).run())
        with slurm.failing(replace(fake.hang(), only=hangs)):
            queue.add(KEY)
            await asyncio.wait_for(asked.wait(), 10)
            for key in OTHERS:
                queue.add(key)
            await asyncio.wait_for(served.wait(), 10)
            assert done == OTHERS
        working.cancel()
        await asyncio.wait([working])

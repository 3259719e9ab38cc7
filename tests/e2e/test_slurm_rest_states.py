"""Node and job states as a real Slurm shows them, and what we make of them."""

import math
import shlex
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from slurm_local.lab import SlurmLab
from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain as RecordedDrain
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.nodeset.choose import choose
from slurm_operator.nodeset.job_details import JobDetails
from slurm_operator.nodeset.overdue import waiting_for_jobs
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.runtime.times import rfc3339
from slurm_operator.slurm import rest
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.hostlist import compress, expand, natural_sorted
from slurm_operator.slurm.jobs import JobListBuilder, is_running, job_end
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.model import Node, NodeUpdate, Number
from slurm_operator.slurm.states import (
    DrainOwner,
    claim_owner,
    drain_owner,
    is_busy,
    is_down,
    is_drained,
    is_draining,
    is_responding,
    pod_conditions,
)
from tests.e2e.slurm_rest import cancel, client_of, in_state, run_external, submit, until, until_state
from tests.unit.nodeset import make

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

HOLD = "/tmp/hold-epilog"
EPILOG = f"#!/bin/sh\nwhile [ -e {HOLD} ]; do sleep 0.1; done\n"
DRAIN = NodeUpdate(state=("DRAIN",), reason="slurm-operator: test")
UNDRAIN = NodeUpdate(state=("UNDRAIN",), reason="")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[SlurmLab]:
    conf = "Epilog=/etc/slurm/epilog.sh\nSlurmdTimeout=10\nKillWait=1"
    async with SlurmLab(nodes=2, conf=conf, files={"epilog.sh": EPILOG}) as running:
        running.config("epilog.sh").chmod(0o755)
        await running.start_slurmds(2)
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(lab: SlurmLab) -> AsyncIterator[SlurmClient]:
    async with client_of(lab, user="root") as connected:
        yield connected


@pytest_asyncio.fixture(loop_scope="module")
async def idle(client: SlurmClient) -> Node:
    return await until_state(client, "w-0", "IDLE", without="COMPLETING")


async def run(client: SlurmClient, tasks: int, seconds: int = 600, **fields: object) -> int:
    job_id = await submit(
        client, script=f"#!/bin/sh\nsleep {seconds}\n", tasks=tasks, required_nodes=["w-0"], nodes="1", **fields
    )
    await until(lambda: in_state(client, job_id, "RUNNING"))
    return job_id


async def end(client: SlurmClient, job_id: int) -> None:
    await cancel(client, job_id)
    await until_state(client, "w-0", "IDLE", without="COMPLETING")


def suffixes(node: Node) -> set[str]:
    return {condition.removeprefix("SlurmNodeState") for condition in pod_conditions(node.state)}


async def test_idle(lab: SlurmLab, idle: Node) -> None:
    assert idle.state == ("IDLE", "DYNAMIC_NORM")
    assert not is_busy(idle.state)
    assert (idle.address, idle.cpus) == (lab.box.address, 2)
    assert time.time() - 600 < (idle.slurmd_start_time.value or 0) <= time.time()


async def test_some_and_all_cpus_used(client: SlurmClient, idle: Node) -> None:
    one = await run(client, 1)
    node = await until_state(client, "w-0", "MIXED")
    assert is_busy(node.state)
    assert node.alloc_cpus == 1
    two = await run(client, 1)
    node = await until_state(client, "w-0", "ALLOCATED")
    assert is_busy(node.state)
    assert node.alloc_cpus == 2
    await cancel(client, one)
    await end(client, two)


async def test_draining_and_drained(client: SlurmClient, idle: Node) -> None:
    job_id = await run(client, 1)
    await client.update_nodes(["w-0"], DRAIN)
    node = await until_state(client, "w-0", "MIXED", "DRAIN")
    assert is_draining(node.state)
    assert suffixes(node) == {"Mixed", "Drain"}
    await end(client, job_id)
    node = await client.node("w-0")
    assert set(node.state) == {"IDLE", "DRAIN", "DYNAMIC_NORM"}
    assert is_drained(node.state)
    assert drain_owner(node.state, node.reason) is DrainOwner.OURS
    assert node.reason == DRAIN.reason
    await client.update_nodes(["w-0"], UNDRAIN)
    node = await client.node("w-0")
    assert not is_down(node.state)
    node = await until_state(client, "w-0", "IDLE", without="NOT_RESPONDING")
    assert drain_owner(node.state, node.reason) is DrainOwner.NOBODY


async def test_a_drain_by_an_administrator_is_foreign(lab: SlurmLab, client: SlurmClient, idle: Node) -> None:
    await lab.scontrol("update nodename=w-0 state=drain reason=disk")
    node = await client.node("w-0")
    assert drain_owner(node.state, node.reason) is DrainOwner.FOREIGN
    await client.update_nodes(["w-0"], NodeUpdate(state=("RESUME",)))
    await until_state(client, "w-0", "IDLE", without="DRAIN")


async def test_drain_without_a_reason_is_accepted_and_foreign(client: SlurmClient, idle: Node) -> None:
    await client.update_nodes(["w-0"], NodeUpdate(state=("DRAIN",)))
    node = await client.node("w-0")
    assert drain_owner(node.state, node.reason) is DrainOwner.FOREIGN
    await client.update_nodes(["w-0"], UNDRAIN)
    await until_state(client, "w-0", "IDLE", without="DRAIN")


async def test_while_the_epilog_runs_the_node_is_busy(lab: SlurmLab, client: SlurmClient, idle: Node) -> None:
    await lab.run(f"touch {HOLD}")
    try:
        job_id = await run(client, 1)
        await cancel(client, job_id)
        node = await until_state(client, "w-0", "IDLE", "COMPLETING")
        assert is_busy(node.state)
        job = await client.job(job_id)
        assert set(job.job_state) == {"CANCELLED", "COMPLETING"}
        assert not is_running(job)
        await client.update_nodes(["w-0"], DRAIN)
        node = await until_state(client, "w-0", "IDLE", "DRAIN", "COMPLETING")
        assert not is_drained(node.state)
        assert suffixes(node) == {"Idle", "Drain", "Completing"}
    finally:
        await lab.run(f"rm {HOLD}")
    node = await until_state(client, "w-0", "IDLE", without="COMPLETING")
    assert is_drained(node.state)
    await client.update_nodes(["w-0"], UNDRAIN)
    await until_state(client, "w-0", "IDLE", without="DRAIN")


async def test_dead_slurmds_and_their_return(lab: SlurmLab, client: SlurmClient) -> None:
    """One of them is drained without a reason: slurmctld gives it its own words, and the drain stays."""
    before = await until_state(client, "w-1", "IDLE", without="NOT_RESPONDING")
    await client.update_nodes(["w-0"], NodeUpdate(state=("DRAIN",)))
    await lab.slurmds[0].kill()
    await lab.slurmds[1].kill()
    node = await until_state(client, "w-1", "DOWN", "NOT_RESPONDING", within=90)
    assert is_down(node.state)
    assert not is_responding(node.state)
    assert "Not responding" in node.reason
    assert claim_owner(node.state, node.reason, node.reason_set_by_user) is DrainOwner.NOBODY
    assert suffixes(node) == {"Down", "NotResponding"}
    drained = await until_state(client, "w-0", "DOWN", "DRAIN", within=90)
    assert drained.reason == node.reason
    assert claim_owner(drained.state, drained.reason, drained.reason_set_by_user) is DrainOwner.FOREIGN
    await lab.slurmds[0].start()
    await lab.slurmds[1].start()
    node = await until_state(client, "w-1", "IDLE", without="NOT_RESPONDING")
    assert (node.slurmd_start_time.value or 0) > (before.slurmd_start_time.value or 0)
    drained = await until_state(client, "w-0", "IDLE", "DRAIN")
    assert drain_owner(drained.state, drained.reason) is DrainOwner.FOREIGN
    await client.update_nodes(["w-0"], UNDRAIN)
    await until_state(client, "w-0", "IDLE", without="DRAIN")


async def test_set_down_by_hand_and_resumed(client: SlurmClient, idle: Node) -> None:
    await client.update_nodes(["w-0"], NodeUpdate(state=("DOWN",), reason="slurm-operator: gone"))
    assert is_down((await client.node("w-0")).state)
    await client.update_nodes(["w-0"], NodeUpdate(state=("RESUME",)))
    node = await until_state(client, "w-0", "IDLE", without="NOT_RESPONDING")
    assert is_responding(node.state)


async def test_external_nodes(client: SlurmClient) -> None:
    node = await client.node("n-1")
    assert node.state == ("IDLE", "EXTERNAL", "DYNAMIC_NORM")
    job_id = await run_external(client, "n-1", tasks=16)
    assert is_busy((await client.node("n-1")).state)
    await cancel(client, job_id)


async def test_end_of_a_limited_and_of_an_unlimited_job(client: SlurmClient, idle: Node) -> None:
    """scenario 151"""
    limited = await run(client, 1, time_limit=Number(set=True, number=7))
    unlimited = await run(client, 1, time_limit=Number(infinite=True))
    seven_minutes = await client.job(limited)
    assert job_end(seven_minutes) == (seven_minutes.start_time.value or 0) + 420
    for_ever = await client.job(unlimited)
    assert job_end(for_ever) == math.inf
    assert (for_ever.end_time.value or 0) - (for_ever.start_time.value or 0) == 365 * 86400
    builder = JobListBuilder(0.0)
    await client.jobs(builder.add)
    assert builder.build().latest == {"w-0": math.inf}
    await cancel(client, unlimited)
    await end(client, limited)


async def test_a_pending_job_has_no_end(client: SlurmClient) -> None:
    job_id = await submit(client, script="#!/bin/sh\ntrue\n", tasks=1, nodes="1", required_nodes=["w-0"], hold=True)
    job = await client.job(job_id)
    assert job.job_state == ("PENDING",)
    assert not is_running(job)
    await cancel(client, job_id)


async def test_hostlists_are_slurms(lab: SlurmLab) -> None:
    """What we make of a hostlist is what Slurm makes of it."""
    for hostlist in ("a", "w-[0-2],x", "w-[08-11,020]", "r[1-2]n[3-4]", "w[1-2]-ib", "b10,b9,b[1-2]", "p[001-003,5]"):
        shown = await lab.scontrol(f"show hostnames {shlex.quote(hostlist)}")
        assert natural_sorted(shown.split()) == natural_sorted(expand(hostlist))
        again = await lab.scontrol(f"show hostnames {shlex.quote(compress(expand(hostlist)))}")
        assert natural_sorted(again.split()) == natural_sorted(shown.split())


async def test_a_report_names_user_start_and_end_of_a_job_and_how_to_end_it(
    lab: SlurmLab, client: SlurmClient, idle: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every data parser of slurmrestd."""
    job = await run(client, tasks=1)
    listed = JobListBuilder(time.monotonic())
    await client.jobs(listed.add)
    busy = await client.node("w-0")
    now = time.time()
    drain = RecordedDrain(cause="scale-in", nodes="w-0", since=rfc3339(now - 3601))
    pod = make.pod("gpu-0", ip=busy.address, labels={names.LABEL_POD_HOSTNAME: "w-0"}, created=now - 7200 - make.NOW)
    seen = make.world(
        make.nodeset(0, status=NodeSetStatus(drains=(drain,))),
        pod,
        slurm=Known({"w-0": busy}, time.monotonic(), now, 1, 1, {}, frozenset()),
        jobs=listed.build(),
    )
    for version in rest.VERSIONS:
        with monkeypatch.context() as patched:
            patched.setattr(rest, "VERSIONS", (version,))
            async with client_of(lab) as asking:
                facts = await JobDetails(SystemClock()).read(("slurm", "gpu"), asking, [job])
                assert asking.version == version
        world = replace(seen, job_facts=facts, now=now)
        (told,) = waiting_for_jobs(world, choose(world, "revision"))
        started = facts[job].start_time.value or 0
        assert started == pytest.approx(now, abs=60)
        times = f"started {minute(started)}; ends by {minute(started + 600 * 60)} at the latest"
        assert f"job {job} of user root on w-0 ({times}; `scancel {job}` ends it)" in told.message
    await lab.run(f"scancel {job}")
    await until(lambda: in_state(client, job, "CANCELLED"))


def minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"

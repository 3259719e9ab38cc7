"""Removals and writes of the operator on a real Slurm: no job, no reservation and no administrator's word is lost."""

import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
import pytest_asyncio

from slurm_local.lab import SlurmLab
from slurm_operator.api.common import Condition
from slurm_operator.api.nodeset import NodeSet
from slurm_operator.kube.kinds import PODS, Pod
from slurm_operator.nodeset.choose import choose
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.slurm_actions import (
    Drain,
    Forget,
    RemoveDrained,
    RemoveUnregistered,
    Resume,
    Undrain,
)
from slurm_operator.nodeset.world import Standing
from slurm_operator.runtime.actions import ApplyStatus, Create
from slurm_operator.runtime.times import rfc3339
from slurm_operator.slurm import rest
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.jobs import JobList, JobListBuilder
from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.reasons import our_reason
from slurm_operator.slurm.states import is_down, is_drain, is_drained
from slurm_operator.slurm.views import SlurmViews
from tests.e2e.slurm_hands import OTHER_ADDRESS, SCALED_IN, Cluster, nodeset, put_back, worker
from tests.e2e.slurm_rest import Clock, client_of, until, until_state
from tests.unit.nodeset import make
from tests.unit.nodeset.plans import flat

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTER = ("slurm", "slurm")
GOING = our_reason("worker pod is going away")
CORES_ONLY = "SelectTypeParameters=CR_Core\nDefMemPerCPU=0\n"
"""With memory as a resource, the node of a suspended job shows as busy."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Cluster]:
    views = SlurmViews(Clock())
    async with SlurmLab(nodes=17, slurmds=4, conf=CORES_ONLY) as lab, client_of(lab) as client:
        view = views.set(CLUSTER, lab.url, lab.jwt_key)
        try:
            yield Cluster(lab, view, client)
        finally:
            await views.close()


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(running: Cluster) -> Cluster:
    await running.seen(lambda state: len(state.nodes) == 21)
    running.kept.clear()
    running.deleted.clear()
    return running


# --- jobs and reservations that name a record ---------------------------------------------------------------------


async def test_a_record_stays_while_a_job_or_a_reservation_names_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = cluster.gate()
    both = await cluster.submit("-N1 -n1 -w w-[0-1]", gate)
    await cluster.reaches(both, "RUNNING")
    here = (await cluster.client.job(both)).nodes
    idle = "w-1" if here == "w-0" else "w-0"
    without = await cluster.submit(f"-N1 -n1 -w {here} --exclude={idle},n-[01-17]", gate)
    await cluster.reaches(without, "RUNNING")
    pending = await cluster.submit("-N1 -n1 -w w-[0-1] --begin=now+1hour", gate)
    excluding = await cluster.submit(f"-N1 -n1 --exclude={idle} --begin=now+1hour", gate)
    when = "users=root starttime=now+2hours duration=60"
    await cluster.lab.scontrol(f"create reservation reservationname=exam {when} nodes=w-[0-1]")
    exam = await cluster.client.reservation("exam")

    for version in rest.VERSIONS:
        with monkeypatch.context() as patched:
            patched.setattr(rest, "VERSIONS", (version,))
            async with client_of(cluster.lab) as client:
                jobs = await read(client)
                assert client.version == version
        assert jobs.holding == {here: (both, without)}
        assert (jobs.naming[here], jobs.naming[idle]) == ((pending,), (both, without, pending, excluding))
        assert jobs.naming.keys() == {here, idle, *(f"n-{number:02}" for number in range(1, 18))}
        assert jobs.reserved == {"w-0": ("exam",), "w-1": ("exam",)}
        assert (jobs.skipped, jobs.odd_reservations) == ((), ())

    await cluster.drain(idle)
    state = await cluster.seen(lambda state: is_drained(state.nodes[idle].state))
    pod = worker(int(idle[-1]), state.nodes[idle].address)
    world = await cluster.world(nodeset(0, idle), pod)
    assert world.workers[0].standing is Standing.DRAINED
    plan = decide(world).actions
    assert [action for action in plan if isinstance(action, Forget | RemoveDrained)] == [RemoveDrained(pod, idle)]

    async def reconfigured_without_loss() -> None:
        await cluster.lab.reconfigure()
        await cluster.lab.ready()
        await cluster.client.recount()
        assert await cluster.node(idle) is not None

    await forget(cluster, idle, kept=True)
    await reconfigured_without_loss()
    for job, expected in ((both, "RUNNING"), (without, "RUNNING"), (pending, "PENDING"), (excluding, "PENDING")):
        assert (await cluster.client.job(job)).job_state == (expected,)
    assert await cluster.client.reservation("exam") == exam

    cluster.open(gate)
    await cluster.reaches(both, "COMPLETED")
    await cluster.reaches(without, "COMPLETED")
    await cluster.lab.run(f"scancel {pending}")
    await forget(cluster, idle, kept=True)  # one job excludes it, and the reservation names it
    await cluster.lab.run(f"scancel {excluding}")
    await forget(cluster, idle, kept=True)
    await reconfigured_without_loss()
    assert await cluster.client.reservation("exam") == exam
    await cluster.client.delete_reservation("exam")
    await forget(cluster, idle, kept=False)
    await put_back(cluster, int(idle[-1]))


async def read(client: SlurmClient) -> JobList:
    builder = JobListBuilder(0.0)
    await client.jobs(builder.add)
    return builder.build(await client.reservations())


async def forget(cluster: Cluster, name: str, *, kept: bool) -> None:
    cluster.kept.clear()
    await cluster.slurm.read_jobs(0.0)
    done = await Forget((name,)).run(cluster)
    assert (done.wrote, cluster.kept) == (not kept, {name} if kept else set())
    assert (await cluster.node(name) is not None) == kept


async def test_a_suspended_job_keeps_its_worker(cluster: Cluster) -> None:
    gate = cluster.gate()
    job = await cluster.submit("-N1 -n1 --exclude=n-[01-17],w-[0-1,3]", gate)
    await cluster.reaches(job, "RUNNING")
    await cluster.lab.scontrol(f"suspend {job}")
    await cluster.reaches(job, "SUSPENDED")
    await cluster.drain("w-2")
    state = await cluster.seen(lambda state: is_drained(state.nodes["w-2"].state))
    record = state.nodes["w-2"]
    assert record.state == ("IDLE", "DRAIN", "DYNAMIC_NORM")

    pod = worker(2, record.address)
    world = await cluster.world(nodeset(0, "w-2"), pod)
    assert world.workers[0].standing is Standing.BUSY
    removals = Forget | RemoveDrained | RemoveUnregistered
    assert not [action for action in decide(world).actions if isinstance(action, removals)]
    await forget(cluster, "w-2", kept=True)

    await cluster.lab.scontrol(f"resume {job}")
    cluster.open(gate)
    await cluster.reaches(job, "COMPLETED")
    assert (await cluster.client.job(job)).nodes == "w-2"

    async def free() -> bool:
        return (await cluster.world(nodeset(0, "w-2"), pod)).workers[0].standing is Standing.DRAINED

    await until(free)
    await put_back(cluster, 2)


# --- records that come and go -------------------------------------------------------------------------------------


async def hang_up(cluster: Cluster) -> None:
    """What a new key makes slurmd do."""
    cluster.lab.slurmds[3].send_signal(signal.SIGHUP)


async def restart(cluster: Cluster) -> None:
    await cluster.lab.slurmds[3].restart()


@pytest.mark.parametrize("registers_again", [hang_up, restart])
async def test_a_worker_that_registered_again_is_not_removed(
    cluster: Cluster, registers_again: Callable[[Cluster], Awaitable[None]]
) -> None:
    await cluster.drain("w-3")
    await forget(cluster, "w-3", kept=False)
    await cluster.seen(lambda state: "w-3" not in state.nodes)
    pod = worker(3, OTHER_ADDRESS)
    plan = decide(await cluster.world(nodeset(0, "w-3"), pod)).actions
    removal = RemoveUnregistered(pod, "w-3")
    assert removal in plan

    await registers_again(cluster)

    async def registered() -> bool:
        return await cluster.node("w-3") is not None

    await until(registered)
    assert not (await removal.run(cluster)).wrote
    assert cluster.deleted == []
    found = await cluster.node("w-3")
    assert found is not None
    assert not is_drain(found.state)
    await put_back(cluster, 3)


async def test_a_worker_without_a_record_is_removed(cluster: Cluster) -> None:
    await cluster.drain("w-3")
    await forget(cluster, "w-3", kept=False)
    pod = worker(3, OTHER_ADDRESS)
    assert (await RemoveUnregistered(pod, "w-3").run(cluster)).wrote
    assert cluster.deleted == ["gpu-3"]
    await put_back(cluster, 3)


async def test_a_worker_whose_drain_was_lifted_is_not_removed(cluster: Cluster) -> None:
    await cluster.drain("w-3")
    removal = RemoveDrained(worker(3, OTHER_ADDRESS), "w-3")
    await cluster.lab.scontrol("update nodename=w-3 state=undrain")
    assert not (await removal.run(cluster)).wrote
    assert cluster.deleted == []
    await put_back(cluster, 3)


async def test_a_name_that_lives_elsewhere_is_neither_taken_nor_forgotten(cluster: Cluster) -> None:
    """A second slurmd of one name would end the jobs of the first."""
    gate = cluster.gate()
    job = await cluster.submit("-N1 -n1 -w w-0", gate)
    await cluster.reaches(job, "RUNNING")
    state = await cluster.seen(lambda state: state.nodes["w-0"].state[0] in ("MIXED", "ALLOCATED"))
    twins = nodeset(5)
    world = await cluster.world(twins)
    choice = choose(world, make.revision(twins))
    assert [slot.hostname for slot in choice.create] == ["w-4"]
    assert {pod: (holder.name, holder.is_worker) for pod, holder in choice.held.items()} == {
        f"gpu-{number}": (f"w-{number}", False) for number in range(4)
    }
    assert state.nodes["w-0"].address in choice.held["gpu-0"].where
    plan = decide(world).actions
    created = [action.manifest for action in plan if isinstance(action, Create) and action.resource is PODS]
    assert [manifest["spec"]["hostname"] for manifest in created] == ["w-4"]
    assert not [action for action in plan if isinstance(action, Forget)]
    cluster.open(gate)
    await cluster.reaches(job, "COMPLETED")


# --- workers that stay away ---------------------------------------------------------------------------------------


def stays_unready(of: NodeSet) -> NodeSet:
    """The NodeSet as it is some minutes after it turned unready."""
    since = rfc3339(time.time() - 600)
    unready = Condition(type="Ready", status="False", reason="NotRegistered", message="", last_transition_time=since)
    return msgspec.structs.replace(of, status=msgspec.structs.replace(of.status, conditions=(unready,)))


async def degraded(cluster: Cluster, pod: Pod) -> tuple[str, str, float | None]:
    """Return reason and message of the condition, and when the operator looks again."""
    world = await cluster.world(stays_unready(nodeset(4)), pod)
    plan = decide(world)
    (status,) = [action.manifest["status"] for action in plan.actions if isinstance(action, ApplyStatus)]
    found = next(found for found in status["conditions"] if found["type"] == "Degraded")
    return found["reason"], found["message"], plan.after


async def test_a_worker_whose_record_was_deleted_by_hand_is_reported(cluster: Cluster) -> None:
    """Its slurmd runs on and does not register again."""
    await cluster.lab.scontrol("delete nodename=w-3")
    await cluster.seen(lambda state: "w-3" not in state.nodes)
    reason, message, after = await degraded(cluster, worker(3, OTHER_ADDRESS))
    assert reason == "SlurmNodeNotRegistered"
    assert "no record of worker w-3" in message
    assert after is not None

    await cluster.lab.slurmds[3].restart()  # what a new pod does, and what the message asks for
    state = await cluster.seen(lambda state: "w-3" in state.nodes)
    reason, _, _ = await degraded(cluster, worker(3, state.nodes["w-3"].address))
    assert reason != "SlurmNodeNotRegistered"
    await put_back(cluster, 3)


async def test_the_successor_of_a_silent_worker_is_put_back_into_service(cluster: Cluster) -> None:
    """slurmctld has taken the worker down when it is scaled in; its record outlives its pod."""
    await cluster.lab.slurmds[2].kill()
    await cluster.lab.scontrol("update nodename=w-2 state=down reason='Not responding'")
    state = await cluster.seen(lambda state: is_down(state.nodes["w-2"].state))
    pod = worker(2, state.nodes["w-2"].address)
    (drain,) = [part for part in flat(decide(await cluster.world(nodeset(0), pod))) if isinstance(part, Drain)]
    await drain.run(cluster)
    left = await until_state(cluster.client, "w-2", "DOWN", "DRAIN")
    assert left.reason == SCALED_IN

    await cluster.lab.slurmds[2].start()
    await cluster.seen(lambda state: "DOWN" not in state.nodes["w-2"].state)
    world = await cluster.world(nodeset(4, "w-2"), pod)
    (undrain,) = [part for part in flat(decide(world)) if isinstance(part, Undrain)]
    await undrain.run(cluster)
    found = await until_state(cluster.client, "w-2", "IDLE", without="DRAIN")
    assert found.reason == ""
    await put_back(cluster, 2)


# --- an administrator acts between our read and our write ---------------------------------------------------------

ALL = tuple(f"n-{number:02}" for number in range(1, 18))
OUR_DRAIN = NodeUpdate(state=("DRAIN",), reason=SCALED_IN)
OUR_DOWN = NodeUpdate(state=("DOWN",), reason=GOING)
NEWER = our_reason("NodeSet slurm/gpu is being deleted")


@pytest.mark.parametrize("count", [1, 17], ids=["few", "many"])
@pytest.mark.parametrize("claim", ["drain", "down", "fail"])
@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        (OUR_DRAIN, lambda nodes: Undrain(nodes), ("IDLE", "")),
        (OUR_DOWN, lambda nodes: Resume(nodes), ("IDLE", "")),
        (None, lambda nodes: Drain(nodes, NEWER), ("DRAIN", NEWER)),
        (OUR_DRAIN, lambda nodes: Drain(nodes, NEWER), ("DRAIN", NEWER)),
    ],
    ids=["undrain", "resume", "drain", "drain-again"],
)
async def test_a_claim_of_an_administrator_stays(
    cluster: Cluster,
    before: NodeUpdate | None,
    action: Callable[[tuple[str, ...]], Drain | Undrain | Resume],
    after: tuple[str, str],
    claim: str,
    count: int,
) -> None:
    """The nodes beside the claimed one are written to as planned."""
    nodes = ALL[:count]
    await cluster.slurm.update(ALL, OUR_DOWN)  # Slurm refuses to resume what is idle
    await cluster.slurm.update(ALL, NodeUpdate(state=("RESUME",), reason=""))
    if before is not None:
        await cluster.slurm.update(nodes, before)
    await cluster.lab.scontrol(f"update nodename={nodes[0]} state={claim} reason='bad disk'")
    claimed = await cluster.node(nodes[0])
    assert claimed is not None
    assert (claim.upper() in claimed.state, claimed.reason) == (True, "bad disk")

    assert (await action(nodes).run(cluster)).wrote == (count > 1)
    seen = await cluster.slurm.look(nodes)
    assert seen.pop(nodes[0]) == claimed
    assert all(after[0] in node.state and node.reason == after[1] for node in seen.values())
    assert len(seen) == count - 1

"""The safety rules as properties: thousands of random histories, in each of which no job may be lost.

A deliberately unsafe `decide` must not survive the same histories, or the suite would prove nothing.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_operator.kube.kinds import PODS
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.slurm_actions import Undrain
from slurm_operator.nodeset.world import Standing, World
from slurm_operator.runtime.children import delete
from slurm_operator.runtime.plan import Plan
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.states import is_drain
from tests.simulation.nodeset_world import STEP, ForeignDrainError, JobLostError, Simulation

EVENTS = (
    "read", "read", "tick", "tick", "reconcile", "reconcile", "crash", "job starts", "job starts", "job ends",
    "jobs suspend", "jobs resume", "job names", "names go",
    "scale", "update", "cordon", "uncordon", "admin drains", "admin drains", "admin undrains", "slurm down", "slurm up",
    "pod fails", "recreated",
)  # fmt: skip


def live(history: Simulation, event: str, rng: random.Random) -> None:  # noqa: C901 - a list of what can happen
    """One thing happens."""
    names = sorted(history.slurm) or ["gpu-0"]
    match event:
        case "read":
            history.read()
        case "tick":
            history.tick()
        case "reconcile":
            history.reconcile()
        case "crash":
            history.reconcile(crash_after=rng.randrange(4), rng=rng)
        case "job starts":
            history.start_job(rng)
        case "job ends":
            history.end_job(rng)
        case "jobs suspend":
            history.suspend_jobs(rng)
        case "jobs resume":
            history.resume_jobs()
        case "job names":
            history.name_node(rng)
        case "names go":
            history.named.clear()
        case "scale":
            history.scale(rng.randrange(6))
        case "update":
            history.update_template(f"slurmd:{rng.randrange(3)}")
        case "cordon" | "uncordon":
            history.cordon(rng.choice(sorted(history.nodes)), event == "cordon")
        case "admin drains":
            history.admin_drains(rng.choice(names), rng.choice(("bad disk", "")))
        case "admin undrains":
            history.admin_undrains(rng.choice(names))
        case "pod fails":
            history.fail_pod(rng)
        case "recreated":
            history.recreate()
        case "slurm down":
            history.reachable = False
        case "slurm up":
            history.reachable = True
            history.read()
        case _:
            raise AssertionError(f"what is {event}?")


def settle(history: Simulation, steps: int = 60) -> int:
    """Faults are over, jobs end, nodes are uncordoned: how many passes until there is nothing to do or to wait for."""
    history.reachable = True
    for node in history.nodes:
        history.cordon(node, False)
    for truth in history.slurm.values():
        truth.jobs = truth.suspended = 0
    history.named.clear()
    for name in list(history.slurm):
        history.admin_undrains(name)
    for passed in range(steps):
        history.read()
        up = all(pod.status.phase == "Running" and not pod.metadata.terminating for pod in history.pods.values())
        if history.reconcile() == 0 and up and decide(history.world()).after is None:
            return passed
        history.tick()
    raise AssertionError(f"not at rest after {steps} passes: {decide(history.world())}")


def run(choose: Callable[[World], Plan[Any]], seed: int, length: int = 120) -> Simulation:
    rng = random.Random(seed)
    history = Simulation(choose)
    history.scale(rng.randrange(1, 5))
    for _ in range(length):
        live(history, rng.choice(EVENTS), rng)
    return history


@settings(max_examples=300)
@given(st.integers(0, 10**9))
def test_no_job_is_lost_and_it_always_comes_to_rest(seed: int) -> None:
    """Rules 1, 2, 4, 5 and 7; scenario 193: whatever happens in whatever order, with crashes in between."""
    history = run(decide, seed)
    settle(history)
    assert len(history.pods) == history.nodeset.spec.replicas
    assert history.in_service() == history.nodeset.spec.replicas
    before = history.writes
    history.read()
    assert history.reconcile() == 0, decide(history.world())
    assert history.writes == before
    leftovers = set(history.slurm) - set(history.pods) - history.unowned
    assert not leftovers, f"records without a worker: {leftovers}"


@settings(max_examples=100)
@given(st.integers(0, 10**9), st.integers(1, 4))
def test_a_rolling_update_never_takes_more_than_allowed(seed: int, limit: int) -> None:
    """Rule 3: healthy workers in service never fall below the wanted number less maxUnavailable."""
    rng = random.Random(seed)
    history = Simulation(decide)
    history.scale(5)
    settle(history)
    strategy = history.nodeset.spec.update_strategy
    rolling = msgspec.structs.replace(strategy.rolling_update, max_unavailable=limit)
    history._respec(update_strategy=msgspec.structs.replace(strategy, rolling_update=rolling))
    history.update_template("slurmd:new")
    for _ in range(80):
        live(
            history,
            rng.choice(("read", "tick", "reconcile", "crash", "job starts", "job ends", "slurm down", "slurm up")),
            rng,
        )
        assert history.in_service() >= 5 - limit


def hasty(world: World) -> Plan[Any]:
    """Takes pods away although nobody knows what runs on them."""
    plan = decide(world)
    unsure = [w for w in world.workers if w.standing is Standing.UNSURE and w.live]
    surplus = len([w for w in world.workers if w.live]) - world.nodeset.spec.replicas
    return replace(plan, actions=(*plan.actions, *(delete(PODS, w.pod) for w in unsure[: max(0, surplus)])))


def impatient(world: World) -> Plan[Any]:
    """Takes surplus pods at once instead of draining them first."""
    plan = decide(world)
    surplus = len([w for w in world.workers if w.live]) - world.nodeset.spec.replicas
    idle = [w for w in world.workers if w.live and w.standing is Standing.IN_SERVICE]
    return replace(plan, actions=(*plan.actions, *(delete(PODS, w.pod) for w in idle[: max(0, surplus)])))


def meddling(world: World) -> Plan[Any]:
    """Lifts drains of others."""
    plan = decide(world)
    drained = tuple(worker.name for worker in world.workers if worker.live and is_drain(worker.state))
    return replace(plan, actions=(*plan.actions, *([Undrain(drained)] if drained else [])))


def forgetful(world: World) -> Plan[Any]:
    """Deletes records by the state of the node alone, as Slurm itself would allow."""
    return decide(replace(world, jobs=JobList(world.now)))


@pytest.mark.parametrize(
    ("unsafe", "crime"),
    [(hasty, JobLostError), (impatient, JobLostError), (meddling, ForeignDrainError), (forgetful, JobLostError)],
)
def test_an_unsafe_decision_is_caught(unsafe: Callable[[World], Plan[Any]], crime: type[AssertionError]) -> None:
    def caught() -> bool:
        for seed in range(400):
            try:
                run(unsafe, seed)
            except crime:
                return True
        return False

    assert caught()


def test_the_world_of_the_simulation_moves() -> None:
    """A history in which nothing ever happens would pass every property."""
    history = run(decide, seed=1, length=400)
    assert history.writes > 50
    assert history.now > STEP * 10

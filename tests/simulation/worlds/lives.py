"""Random histories: `live` runs one from its seed, and says how to run it again if a rule is broken."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tests.simulation.worlds import events, rest
from tests.simulation.worlds.events import Event
from tests.simulation.worlds.history import STEP_SECONDS, History
from tests.simulation.worlds.operator import run
from tests.simulation.worlds.rules import Rule, RuleBrokenError

HOUR = 3600.0
WIDTH = 12
"""Kinds of events in one history: a few that happen often find more than all of them now and then."""


@dataclass(frozen=True)
class Life:
    """What a kind of history is made of."""

    name: str
    begin: Callable[[History], Awaitable[None]]
    allowed: Sequence[Event]
    end: Callable[[History], Awaitable[None]]
    length: int = 60
    after_each: Callable[[History], None] = lambda history: None


async def _live(life: Life, history: History) -> None:
    rng = history.rng
    kinds = rng.sample(life.allowed, min(WIDTH, len(life.allowed)))
    history.chance.faults = rng.choice((0.0, 0.0, 0.05, 0.15))
    history.kube.lagging = rng.random() < 0.3
    outside = [event for event in kinds if event in events.OUTSIDE]
    await life.begin(history)
    history.chance.meanwhile = lambda: _meanwhile(history, outside)
    for _ in range(life.length):
        await _step(history, kinds, rng)
        life.after_each(history)
    await life.end(history)


async def _step(history: History, kinds: Sequence[Event], rng: random.Random) -> None:
    """One event, then a part of what goes on all the time: reads, the operator's work, the passing of time."""
    event = rng.choice(kinds)
    history.happens(_spoken(event), lambda: event(history))
    if rng.random() < 0.5:
        rng.choice((history.view.read, history.view.begin_read, history.view.end_read))()
    if rng.random() < 0.3:
        history.kube.catch_up()
    if rng.random() < 0.7:
        history.chance.dies_after = rng.randrange(6) if rng.random() < 0.1 else None
        await history.operate()
        history.chance.dies_after = None
    if rng.random() < 0.5:
        history.pass_time(STEP_SECONDS)


def _spoken(event: Event) -> str:
    return event.__name__.replace("_", " ")


def _meanwhile(history: History, outside: Sequence[Event]) -> None:
    while outside and history.chance.rng.random() < 0.25:
        event = history.chance.rng.choice(outside)
        history.happens(f"    meanwhile {_spoken(event)}", partial(event, history))


def live(life: Life, seed: int) -> History:
    """Run a history to its end; raises RuleBrokenError, with the way to run it again."""
    history = History(seed)
    try:
        run(_live(life, history))
    except Exception as error:
        error.add_note(f"replay: python -m tests.simulation.worlds {life.name} {seed}\n{history.tell()}")
        raise
    return history


# The kinds of histories


async def _begin_anything(history: History) -> None:
    mode = history.rng.choice(("StatefulSet", "StatefulSet", "DaemonSet"))
    history.create_nodeset(history.rng.randrange(1, 6), scalingMode=mode)


async def _end_anything(history: History) -> None:
    await rest.settle(history)
    rest.check_arrived(history)
    await rest.check_quiet(history)


ANYTHING = Life("anything", _begin_anything, events.ANY, _end_anything)
"""Rules 1, 2, 4 and 5."""

ADMINISTRATORS = Life(
    "administrators",
    _begin_anything,
    (
        events.administrator_drains,
        events.administrator_drains,
        events.administrator_resumes,
        events.administrator_resumes,
        events.administrator_takes_down,
        events.administrator_suspends,
        events.administrator_reserves,
        events.administrator_frees,
        events.job_starts,
        events.job_ends,
        events.job_names_a_node,
        events.scaled,
        events.scaled,
        events.updated,
    ),
    _end_anything,
)
"""The same rules, with administrators who act more often than the operator reads."""

REGISTRATIONS = Life(
    "registrations",
    _begin_anything,
    (
        events.administrator_deletes_a_record,
        events.registration_in_flight,
        events.registration_in_flight,
        events.pod_is_deleted,
        events.scaled,
        events.scaled,
        events.job_starts,
        events.job_ends,
        events.slurmctld_is_killed,
    ),
    _end_anything,
)
"""The same rules, with records that vanish and come back."""


WORKERS = 5


async def _begin_updates(history: History) -> None:
    """All workers are in service before the first update."""
    limit = history.rng.choice((1, 2, 3))
    history.create_nodeset(WORKERS, updateStrategy={"rollingUpdate": {"maxUnavailable": limit}})
    faults, history.chance.faults = history.chance.faults, 0.0
    await rest.settle(history)
    history.chance.faults = faults
    history.kube.lagging = history.rng.random() < 0.3


def _check_capacity(history: History) -> None:
    """Rule 3: nothing but the update takes workers away in these histories."""
    limit = int(history.nodeset.spec.update_strategy.rolling_update.max_unavailable)
    serving = [pod.spec.hostname for pod in history.machines.pods() if history.machines.is_up(pod)]
    serving = [name for name in serving if name in history.slurm.records]
    serving = [name for name in serving if not history.slurm.records[name].out_of_service]
    if len(serving) < WORKERS - limit:
        raise RuleBrokenError(Rule.UPDATES_KEEP_CAPACITY, f"{serving} serve, {limit} of {WORKERS} may be away")


async def _end_updates(history: History) -> None:
    history.change_nodeset(slurmd={"image": "slurmd:final"})
    await rest.settle(history)
    rest.check_arrived(history)


UPDATES = Life(
    "updates",
    _begin_updates,
    (
        events.updated,
        events.updated_badly,
        events.job_starts,
        events.job_ends,
        events.job_names_a_node,
        events.slurm_away,
        events.slurm_back,
        events.slurmctld_restarts,
    ),
    _end_updates,
    after_each=_check_capacity,
)
"""Rule 3, with templates that cannot start, and changes before the last one is through."""


def hours_pass(history: History) -> None:
    history.pass_time(HOUR)


async def _begin_patience(history: History) -> None:
    history.create_nodeset(WORKERS)
    faults, history.chance.faults = history.chance.faults, 0.0
    await rest.settle(history)
    history.chance.faults = faults
    for _ in range(3):
        events.job_starts(history)


async def _end_patience(history: History) -> None:
    """Jobs go on for hours."""
    for _ in range(3):
        await rest.settle(history, jobs_end=False, quiet_steps=12)
        rest.check_patience(history)
        hours_pass(history)


PATIENCE = Life(
    "patience",
    _begin_patience,
    (
        events.job_starts,
        events.administrator_suspends,
        events.scaled,
        events.updated,
        events.nodeset_is_deleted,
        events.slurm_away,
        events.slurm_back,
        events.slurmctld_restarts,
        events.node_is_cordoned,
        events.mode_changes,
        hours_pass,
    ),
    _end_patience,
    length=20,
)
"""Rule 7."""

LIVES = {life.name: life for life in (ANYTHING, ADMINISTRATORS, REGISTRATIONS, UPDATES, PATIENCE)}

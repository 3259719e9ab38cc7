"""The seven safety rules as properties of random histories: `worlds.rules` has the rules, `worlds.lives` the histories.

A failure says how to replay it: `python -m tests.simulation.worlds KIND SEED`.
"""

import random

import pytest

from tests.simulation.worlds import events
from tests.simulation.worlds.lives import ADMINISTRATORS, ANYTHING, PATIENCE, REGISTRATIONS, UPDATES, Life, live
from tests.simulation.worlds.neighbours import ILLNESSES, live_beside

BATCH = 10
LIVES = (ANYTHING, ADMINISTRATORS, REGISTRATIONS, UPDATES, PATIENCE)
HISTORIES = {
    ANYTHING.name: 120,
    ADMINISTRATORS.name: 60,
    REGISTRATIONS.name: 40,
    UPDATES.name: 30,
    PATIENCE.name: 30,
}
LONG_HISTORIES = 5000
KEPT = (
    (ADMINISTRATORS, 920214),
    (ANYTHING, 30523),
    (ANYTHING, 920241),
)
"""Histories that once broke a rule; `tests/unit/nodeset` has the decisions that were wrong in them."""
PAIRS = 12
"""Histories of two clusters."""


def _batches(life: Life) -> list[tuple[Life, int]]:
    return [(life, first) for first in range(0, HISTORIES[life.name], BATCH)]


def _named(value: Life | int) -> str:
    return value.name if isinstance(value, Life) else str(value)


@pytest.mark.parametrize(
    ("life", "first"),
    [batch for life in LIVES for batch in _batches(life)],
    ids=_named,
)
def test_every_rule_holds(life: Life, first: int) -> None:
    """Rules 1 to 5 and 7; scenario 193: whatever happens in whatever order, with crashes and faults in between."""
    for seed in range(first, first + BATCH):
        live(life, seed)


@pytest.mark.parametrize(("life", "seed"), KEPT, ids=_named)
def test_every_rule_holds_in_histories_that_once_broke_one(life: Life, seed: int) -> None:
    live(life, seed)


@pytest.mark.parametrize("seed", range(PAIRS))
def test_a_sick_cluster_stops_no_other(seed: int) -> None:
    """Rule 6."""
    live_beside(ILLNESSES[seed % len(ILLNESSES)], seed)


def test_everything_happens_in_these_histories() -> None:
    """Histories in which nothing happens would pass every rule."""
    histories = [live(ANYTHING, seed) for seed in range(60)]
    stories = "\n".join(line for history in histories for line in history.story)
    silent = [event.__name__ for event in events.ANY if event.__name__.replace("_", " ") not in stories]
    assert not silent
    writes = "\n".join(write for history in histories for write in history.writes)
    for write in ("create Pod", "delete Pod", "DRAIN", "UNDRAIN", "RESUME", "DELETE", "patch NodeSet gpu status"):
        assert write in writes
    assert "the operator crashed" in stories
    assert "meanwhile" in stories


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
def test_every_rule_holds_in_thousands_of_new_histories(life: Life) -> None:
    """Seeds that no run has tried before."""
    first = random.SystemRandom().randrange(10**9)
    for done, seed in enumerate(range(first, first + LONG_HISTORIES)):
        if done % 500 == 0:
            print(f"{life.name}: {done} of {LONG_HISTORIES} histories, from seed {seed}", flush=True)
        live(life, seed)

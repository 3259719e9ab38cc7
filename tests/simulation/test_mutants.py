"""Unsafe changes of the operator are found by the same histories that the operator itself passes (`test_worlds`)."""

from collections import Counter

import pytest

from tests.simulation.test_worlds import HISTORIES, PAIRS
from tests.simulation.worlds.mutants import MUTANTS, Mutant
from tests.simulation.worlds.neighbours import CALM, live_beside
from tests.simulation.worlds.rules import Rule, RuleBrokenError

MOST_HISTORIES = 80


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.name} -> {mutant.rule.name.lower()}")
def test_an_unsafe_change_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rule that a history finds broken is the one that the change breaks."""
    mutant.change(monkeypatch)
    seeds = min(MOST_HISTORIES, HISTORIES[mutant.life.name]) if mutant.life is not None else PAIRS
    for seed in range(seeds):
        if found := _broken(mutant, seed):
            assert found.rule is mutant.rule, found
            print(f"{mutant.name}: found by history {seed}: {found}")
            return
    pytest.fail(f"{mutant.name} passes {seeds} histories, although it breaks {mutant.rule.name.lower()}")


def _broken(mutant: Mutant, seed: int) -> RuleBrokenError | None:
    try:
        mutant.live(seed)
    except RuleBrokenError as found:
        return found
    return None


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.life is None], ids=lambda mutant: mutant.name)
def test_it_does_no_harm_while_no_cluster_is_sick(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found is the harm that a sick cluster does, not a change that breaks everything."""
    mutant.change(monkeypatch)
    live_beside(CALM, 0)


def test_every_rule_has_mutants() -> None:
    found = Counter(mutant.rule for mutant in MUTANTS)
    assert all(found[rule] >= 2 for rule in Rule)
    assert found.total() >= 14

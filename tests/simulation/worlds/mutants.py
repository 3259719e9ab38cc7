"""Unsafe changes of the operator, each plausible and small, and the rule that each of them breaks.

The histories must find every one of them, or they would prove nothing about the operator as it is.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec import UNSET

from slurm_operator.api.nodeset import RollingUpdate
from slurm_operator.kube.errors import ApiError
from slurm_operator.kube.kinds import PODS
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset import choose as choices
from slurm_operator.nodeset import decide as decision
from slurm_operator.nodeset import hands, reconcile, slurm_actions, status
from slurm_operator.nodeset.choose import Cause, Choice
from slurm_operator.nodeset.hands import Memory
from slurm_operator.nodeset.slurm_actions import Drain, Forget, RemoveDrained, RemoveUnregistered
from slurm_operator.nodeset.world import Standing, World
from slurm_operator.runtime.children import delete
from slurm_operator.runtime.conditions import Verdict
from slurm_operator.runtime.controller import Controller as Workers
from slurm_operator.runtime.plan import Done, Result
from slurm_operator.runtime.times import seconds_of
from slurm_operator.slurm import states
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.hostlist import members
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.overlay import Overlay
from slurm_operator.slurm.states import is_busy
from tests.simulation.worlds.lives import ADMINISTRATORS, ANYTHING, HOUR, PATIENCE, REGISTRATIONS, UPDATES, Life, live
from tests.simulation.worlds.neighbours import ILLNESSES, live_beside
from tests.simulation.worlds.rules import Rule

Change = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    change: Change
    rule: Rule
    """The rule that a history finds broken first."""
    life: Life | None
    """The kind of histories; None: those of two clusters."""

    @property
    def name(self) -> str:
        return self.change.__name__

    def live(self, seed: int) -> None:
        """Run one history; raises RuleBrokenError."""
        if self.life is None:
            live_beside(ILLNESSES[seed % len(ILLNESSES)], seed)
        else:
            live(self.life, seed)


# Rule 1: no job is ended


def takes_pods_of_unknown_state(patch: pytest.MonkeyPatch) -> None:
    """ "It is not known" counts as "nothing runs there"."""
    free = (Standing.NEVER_STARTED, Standing.UNREGISTERED, Standing.DRAINED, Standing.UNSURE)
    patch.setattr(Standing, "may_go", property(lambda standing: standing in free))


def takes_surplus_pods_without_a_drain(patch: pytest.MonkeyPatch) -> None:
    def remove(world: World, choice: Choice) -> Iterator[Any]:
        return (delete(PODS, worker.pod) for worker in choice.going(world) if not is_busy(worker.state))

    patch.setattr(decision, "remove", remove)


def takes_drained_pods_without_a_last_look(patch: pytest.MonkeyPatch) -> None:
    async def run(self: RemoveDrained, given: Any) -> Done:
        return await delete(PODS, self.pod).run(given)

    patch.setattr(RemoveDrained, "run", run)


def takes_unregistered_pods_without_a_last_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoveUnregistered, "allows", lambda self, node: True)


def forgets_records_by_an_old_list_of_jobs(patch: pytest.MonkeyPatch) -> None:
    async def run(self: Forget, given: Any) -> Done:
        nodes = await slurm_actions._still(given.slurm, self.nodes, slurm_actions._may_be_forgotten)
        await given.slurm.delete(nodes)
        return Done()

    patch.setattr(Forget, "run", run)


def lets_a_deleted_nodeset_go_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decision, "may_let_go", lambda world, choice: True)


# Rule 2: administrators decide


def lifts_drains_without_a_last_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slurm_actions, "_is_our_drain", lambda node: True)


def drains_without_a_last_look(patch: pytest.MonkeyPatch) -> None:
    async def run(self: Drain, given: Any) -> Done:
        await given.slurm.update(self.nodes, NodeUpdate(state=("DRAIN",), reason=self.reason or UNSET))
        return Done()

    patch.setattr(Drain, "run", run)


def takes_every_reason_for_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(states, "is_ours", lambda reason: bool(reason))


def drains_before_the_cause_is_written_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decision, "unrecorded", lambda world, choice, wanted: False)


# Rule 3: updates keep capacity


def takes_one_worker_more_than_allowed(patch: pytest.MonkeyPatch) -> None:
    limit = RollingUpdate.limit
    patch.setattr(RollingUpdate, "limit", lambda self, workers: limit(self, workers) + 1)


def replaces_all_idle_workers_at_once(patch: pytest.MonkeyPatch) -> None:
    """An idle worker seems to cost nothing."""
    choose = choices.choose

    def eager(world: World, revision: str) -> Choice:
        choice = choose(world, revision)
        old = [w for w in world.workers if w.live and w.revision != revision and w.standing is Standing.IN_SERVICE]
        return replace(choice, condemned={**{w.pod_name: Cause.UPDATE for w in old}, **choice.condemned})

    patch.setattr(decision, "choose", eager)


# Rule 4: rest is quiet


def sends_every_drain_in_every_pass(patch: pytest.MonkeyPatch) -> None:
    def drain_actions(world: World, wanted: Any) -> list[Drain]:
        if not isinstance(world.slurm, Known):
            return []
        ours = [w for w in world.workers if w.name in wanted and w.record is not None and not w.claimed_by_others]
        return [Drain((worker.name,), wanted[worker.name].reason) for worker in ours]

    patch.setattr(decision, "drain_actions", drain_actions)


def forgets_what_it_wrote_until_the_next_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Overlay, "wrote", lambda self, names, effect, acked: None)


def takes_a_read_from_before_a_write_for_news(patch: pytest.MonkeyPatch) -> None:
    settle = Overlay.settle
    patch.setattr(Overlay, "settle", lambda self, began, names=None: settle(self, 10**9, names))


def reports_in_every_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decision, "same", lambda status, reported: False)


# Rule 5: always arrives


def sets_no_timer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decision, "look_again", lambda world, choice: None)


def never_lifts_a_drain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decision, "undrain_actions", lambda world, wanted: [])


def never_forgets_a_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decision, "forget", lambda world, choice: ())


def keeps_no_list_of_records_that_are_left(patch: pytest.MonkeyPatch) -> None:
    for module in [found for name, found in sys.modules.items() if name.startswith("slurm_operator.nodeset.")]:
        if hasattr(module, "left_behind"):
            patch.setattr(module, "left_behind", lambda world: set())


# Rule 6: clusters are apart


def holds_its_worker_while_slurm_does_not_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hands, "without_worker", nullcontext)


def ends_a_worker_by_an_unforeseen_error(patch: pytest.MonkeyPatch) -> None:
    """The worker of the queue survives the failures that it expects."""

    async def process(self: Workers, key: Key) -> None:
        try:
            self._succeed(key, await self._reconcile(key))
        except (ApiError, SlurmError) as error:
            self._fail(key, error)

    patch.setattr(Workers, "_process", process)


def remembers_failures_by_the_name_of_a_nodeset(patch: pytest.MonkeyPatch) -> None:
    """Two NodeSets of one name in two namespaces share what is remembered of them."""
    call = reconcile.NodeSetReconciler.__call__

    async def shared(self: reconcile.NodeSetReconciler, key: Key) -> Result:
        memory = next((m for (_, name), m in self._memories.items() if name == key[1]), Memory())
        self._memories[key] = memory
        return await call(self, key)

    patch.setattr(reconcile.NodeSetReconciler, "__call__", shared)


# Rule 7: deadlines kill nothing


def takes_busy_pods_after_an_hour(patch: pytest.MonkeyPatch) -> None:
    remove = decision.remove

    def impatient(world: World, choice: Choice) -> Iterator[Any]:
        yield from remove(world, choice)
        for drain in world.nodeset.status.drains:
            late = members(drain.nodes) if world.now - seconds_of(drain.since, absent=world.now) > HOUR else ()
            yield from (delete(PODS, worker.pod) for worker in choice.going(world) if worker.name in late)

    patch.setattr(decision, "remove", impatient)


def lets_a_deleted_nodeset_go_after_an_hour(patch: pytest.MonkeyPatch) -> None:
    may_let_go = decision.may_let_go

    def impatient(world: World, choice: Choice) -> bool:
        deleted = seconds_of(world.nodeset.metadata.deletion_timestamp, absent=world.now)
        return may_let_go(world, choice) or world.now - deleted > HOUR

    patch.setattr(decision, "may_let_go", impatient)


def removes_all_workers_or_none(patch: pytest.MonkeyPatch) -> None:
    """One busy worker holds up all others."""
    remove, forget = decision.remove, decision.forget

    def is_held_up(world: World, choice: Choice) -> bool:
        return any(worker.standing is Standing.BUSY for worker in choice.going(world))

    patch.setattr(decision, "remove", lambda world, choice: () if is_held_up(world, choice) else remove(world, choice))
    patch.setattr(decision, "forget", lambda world, choice: () if is_held_up(world, choice) else forget(world, choice))


def says_nothing_of_what_it_waits_for(patch: pytest.MonkeyPatch) -> None:
    settled = Verdict.of("Progressing", False, "Settled", "")
    patch.setattr(status, "progressing", lambda *observed: settled)


MUTANTS = (
    Mutant(takes_pods_of_unknown_state, Rule.NO_JOB_IS_ENDED, ANYTHING),
    Mutant(takes_surplus_pods_without_a_drain, Rule.NO_JOB_IS_ENDED, ANYTHING),
    Mutant(takes_drained_pods_without_a_last_look, Rule.NO_JOB_IS_ENDED, ADMINISTRATORS),
    Mutant(takes_unregistered_pods_without_a_last_look, Rule.NO_JOB_IS_ENDED, REGISTRATIONS),
    Mutant(forgets_records_by_an_old_list_of_jobs, Rule.NO_JOB_IS_ENDED, ADMINISTRATORS),
    Mutant(lets_a_deleted_nodeset_go_at_once, Rule.NO_JOB_IS_ENDED, ANYTHING),
    Mutant(lifts_drains_without_a_last_look, Rule.ADMINISTRATORS_DECIDE, ADMINISTRATORS),
    Mutant(drains_without_a_last_look, Rule.ADMINISTRATORS_DECIDE, ADMINISTRATORS),
    Mutant(takes_every_reason_for_its_own, Rule.ADMINISTRATORS_DECIDE, ANYTHING),
    Mutant(drains_before_the_cause_is_written_down, Rule.ADMINISTRATORS_DECIDE, ANYTHING),
    Mutant(takes_one_worker_more_than_allowed, Rule.UPDATES_KEEP_CAPACITY, UPDATES),
    Mutant(replaces_all_idle_workers_at_once, Rule.UPDATES_KEEP_CAPACITY, UPDATES),
    Mutant(sends_every_drain_in_every_pass, Rule.REST_IS_QUIET, ANYTHING),
    Mutant(forgets_what_it_wrote_until_the_next_read, Rule.REST_IS_QUIET, ANYTHING),
    Mutant(takes_a_read_from_before_a_write_for_news, Rule.REST_IS_QUIET, ANYTHING),
    Mutant(reports_in_every_pass, Rule.REST_IS_QUIET, ANYTHING),
    Mutant(sets_no_timer, Rule.ALWAYS_ARRIVES, ANYTHING),
    Mutant(never_lifts_a_drain, Rule.ALWAYS_ARRIVES, ANYTHING),
    Mutant(never_forgets_a_record, Rule.ALWAYS_ARRIVES, ANYTHING),
    Mutant(keeps_no_list_of_records_that_are_left, Rule.ALWAYS_ARRIVES, ANYTHING),
    Mutant(holds_its_worker_while_slurm_does_not_answer, Rule.CLUSTERS_ARE_APART, None),
    Mutant(ends_a_worker_by_an_unforeseen_error, Rule.CLUSTERS_ARE_APART, None),
    Mutant(remembers_failures_by_the_name_of_a_nodeset, Rule.CLUSTERS_ARE_APART, None),
    Mutant(takes_busy_pods_after_an_hour, Rule.DEADLINES_KILL_NOTHING, PATIENCE),
    Mutant(lets_a_deleted_nodeset_go_after_an_hour, Rule.DEADLINES_KILL_NOTHING, PATIENCE),
    Mutant(removes_all_workers_or_none, Rule.DEADLINES_KILL_NOTHING, PATIENCE),
    Mutant(says_nothing_of_what_it_waits_for, Rule.DEADLINES_KILL_NOTHING, PATIENCE),
)

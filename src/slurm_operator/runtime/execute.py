"""The only place where a plan meets the world: bounded parallelism, errors kept per action, time in slices.

An action that fails stops no other action, except those of its own lane: where one refusal means that all would be
refused (a quota on pods), trying the other thousand is only noise. So a lane begins with one action, then two, then
four, and ends with the first batch that has a failure.

A refusal that concerns one object only (its content is invalid, its name is taken) does not end the lane. But if the
first actions of a lane are all refused in this way, the cause is most likely what they have in common (a template), and
the lane ends after `MOST_REFUSED` of them.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Generic, TypeVar

from slurm_operator.kube.errors import AlreadyExists, Invalid
from slurm_operator.runtime.clock import Clock, SystemClock
from slurm_operator.runtime.plan import Action, Done, Result, Urgency, soonest, summary

Hands = TypeVar("Hands")

MOST_REFUSED = 3
"""Objects of a lane that are refused, each for its own content, before one is accepted."""
_UNPROCESSABLE = 422


@dataclass(frozen=True, slots=True)
class Failure:
    action: object
    error: Exception

    def __str__(self) -> str:
        return f"{self.action}: {str(self.error) or type(self.error).__name__}"


class PlanError(Exception):
    """Some actions failed; the others were done."""

    def __init__(self, failures: Sequence[Failure], total: int) -> None:
        super().__init__(f"{len(failures)} of {total} actions failed: {summary(failures)}")
        self.failures = tuple(failures)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan. `left` actions were not tried: the slice was over, or their lane had a failure."""

    done: int
    wrote: tuple[object, ...]
    """The actions that changed something, in the order of the plan."""
    failures: tuple[Failure, ...]
    left: int
    after: float | None = None
    """The soonest wish of an action to be looked at again; at once if something is left."""
    notes: tuple[str, ...] = ()
    """The actions that changed something as the log names them, with what changed where they say so."""

    def result(self, after: float | None = None) -> Result:
        """How a reconcile ends that executed a plan with the wish `after`; raises PlanError if anything failed."""
        if self.failures:
            raise PlanError(self.failures, self.done + len(self.failures) + self.left)
        return Result(after=soonest(after, self.after), note=summary(self.notes))


async def execute(
    actions: Iterable[Action[Hands]],
    hands: Hands,
    *,
    parallel: int = 16,
    seconds: float = 5.0,
    patience: float = 30.0,
    clock: Clock | None = None,
) -> Outcome:
    """Runs actions by urgency, at most `parallel` at once, each for at most `patience` seconds.

    After `seconds` no further normal action is begun: the caller observes again, since the world moved on meanwhile.
    """
    run = _Run(hands, parallel, patience, clock or SystemClock(), seconds)
    ordered = sorted(enumerate(actions), key=lambda item: item[1].urgency)
    for urgency, group in groupby(ordered, key=lambda item: item[1].urgency):
        run.sliced = urgency is Urgency.NORMAL
        for lane, members in _lanes(group).items():
            await (run.ramp(members) if lane else run.window(iter(members), parallel))
    failures = tuple(failure for _, failure in sorted(run.failures.items()))
    wrote = tuple(action for _, action in sorted(run.wrote.items()))
    notes = tuple(note for _, note in sorted(run.notes.items()))
    left = len(ordered) - run.done - len(failures)
    return Outcome(run.done, wrote, failures, left, after=0.0 if left else run.after, notes=notes)


_Numbered = tuple[int, Action[Hands]]


def _lanes(group: Iterable[_Numbered[Hands]]) -> dict[str, list[_Numbered[Hands]]]:
    lanes: dict[str, list[_Numbered[Hands]]] = {"": []}
    for number, action in group:
        lanes.setdefault(action.lane, []).append((number, action))
    return lanes


def _concerns_one_object(error: Exception) -> bool:
    """Tell a refusal of one object's content or name from one that the next object would meet as well."""
    return isinstance(error, AlreadyExists) or (isinstance(error, Invalid) and error.status == _UNPROCESSABLE)


class _Lane:
    """Actions that likely fail for the same reason: whether it is worth to try the next."""

    def __init__(self) -> None:
        self._succeeded = False
        self._refused = 0
        self._failed = False

    def note(self, error: Exception | None) -> None:
        if error is None:
            self._succeeded = True
        elif _concerns_one_object(error):
            self._refused += 1
        else:
            self._failed = True

    @property
    def ended(self) -> bool:
        return self._failed or (self._refused >= MOST_REFUSED and not self._succeeded)


class _Run(Generic[Hands]):
    """One execution: how far it got."""

    def __init__(self, hands: Hands, parallel: int, patience: float, clock: Clock, seconds: float) -> None:
        self.done = 0
        self.wrote: dict[int, object] = {}
        self.notes: dict[int, str] = {}
        self.failures: dict[int, Failure] = {}
        self.after: float | None = None
        self.sliced = False
        self._hands = hands
        self._parallel = parallel
        self._patience = patience
        self._clock = clock
        self._until = clock.monotonic() + seconds

    async def window(self, actions: Iterator[_Numbered[Hands]], width: int, lane: _Lane | None = None) -> None:
        """Keeps `width` actions under way until none is left or their lane has ended."""

        async def one_by_one() -> None:
            for number, action in actions:
                error = await self._one(number, action)
                if lane is not None:
                    lane.note(error)
                if self._over() or (lane is not None and lane.ended):
                    return

        if not self._over():
            async with asyncio.TaskGroup() as tasks:
                for _ in range(width):
                    tasks.create_task(one_by_one())

    async def ramp(self, actions: Sequence[_Numbered[Hands]]) -> None:
        """Batches of 1, 2, 4 ... up to the full width, which then slides."""
        waiting, lane = iter(actions), _Lane()
        width = 1
        while width < self._parallel and (batch := tuple(islice(waiting, width))):
            await self.window(iter(batch), width, lane)
            if lane.ended:
                return
            width *= 2
        await self.window(waiting, self._parallel, lane)

    def _over(self) -> bool:
        return self.sliced and self._clock.monotonic() >= self._until

    async def _one(self, number: int, action: Action[Hands]) -> Exception | None:
        """Run an action and return its failure, if any."""
        try:
            async with asyncio.timeout(self._patience) as scope:
                done = await action.run(self._hands) or Done()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Something that the action waited for was cancelled, and not the action itself.
            failure = self.failures[number] = Failure(action, RuntimeError("what it waited for was cancelled"))
            return failure.error
        except Exception as error:  # collected: one failing action never stops the others
            late = TimeoutError(f"no answer within {self._patience:g} s") if scope.expired() else None
            failure = self.failures[number] = Failure(action, late or error)
            return failure.error
        self.done += 1
        self.after = soonest(self.after, done.after)
        if done.wrote:
            self.wrote[number] = action
            self.notes[number] = f"{action} ({done.note})" if done.note else str(action)
        return None

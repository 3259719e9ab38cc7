"""A plan: what to do next, as data. It can be compared in a test, printed for a dry run, or executed."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, Protocol, TypeVar


class Urgency(IntEnum):
    """The order of execution: everything of one urgency is over before the next begins."""

    SAFETY = 0
    """Protects running jobs (drain, undrain, cancel). First, and never cut short by a time slice."""
    NORMAL = 1
    STATUS = 2
    """The report. Last, and never cut short: it says what was seen, also when little could be done."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of an action that did not fail."""

    wrote: bool = True
    """False if there was nothing to do after all."""
    after: float | None = None
    """A wish to be looked at again after so many seconds."""
    note: str = ""
    """What changed, for the log."""


Hands_contra = TypeVar("Hands_contra", contravariant=True)


class Action(Protocol[Hands_contra]):
    """One write. A frozen dataclass whose `str` is one line for a person.

    `hands` are whatever the action needs to run: an action asks for the least (a Kubernetes client, a Slurm client),
    a controller's hands offer all of it, and the type checker sees that they fit.
    """

    @property
    def urgency(self) -> Urgency: ...

    @property
    def lane(self) -> str:
        """Actions of the same, not empty lane begin one by one and end when the next would fail too (see `execute`)."""
        ...

    def describe(self) -> dict[str, Any]:
        """Everything about the action in plain types, with secrets left out."""
        ...

    async def run(self, hands: Hands_contra) -> Done | None:
        """None is the plain case: something was written, and nothing more is to be said."""
        ...


@dataclass(frozen=True)
class InOrder(Generic[Hands_contra]):
    """Actions that only make sense one after the other; the first failure ends them."""

    actions: tuple[Action[Hands_contra], ...]
    lane: str = ""

    @property
    def urgency(self) -> Urgency:
        return min(action.urgency for action in self.actions)

    def __str__(self) -> str:
        return ", then ".join(map(str, self.actions))

    def describe(self) -> dict[str, Any]:
        return {"in order": [action.describe() for action in self.actions]}

    async def run(self, hands: Hands_contra) -> Done:
        done = [await action.run(hands) or Done() for action in self.actions]
        note = ", ".join(each.note for each in done if each.note)
        return Done(wrote=any(each.wrote for each in done), after=soonest(*(each.after for each in done)), note=note)


@dataclass(frozen=True)
class Plan(Generic[Hands_contra]):
    actions: tuple[Action[Hands_contra], ...] = ()
    after: float | None = None
    """Seconds after which to look again even if nothing changes."""

    def __bool__(self) -> bool:
        return bool(self.actions)

    def __str__(self) -> str:
        return "; ".join(map(str, self.actions)) or "nothing to do"

    def describe(self) -> list[dict[str, Any]]:
        return [action.describe() for action in self.actions]


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile that did not fail wants next."""

    after: float | None = None
    """Seconds after which to look again even if nothing changes; None: only when something changes."""
    note: str = ""
    """What was decided, for the log; empty when there was nothing to do."""


class TerminalError(Exception):
    """Trying again cannot help; only a change of the object can."""


def soonest(*hints: float | None) -> float | None:
    """The smallest of several "look again in ..."; None means no wish."""
    return min((hint for hint in hints if hint is not None), default=None)


def summary(actions: Iterable[object], most: int = 3) -> str:
    """One line however many there are."""
    lines = [str(action) for action in actions]
    rest = f" and {len(lines) - most} more" if len(lines) > most else ""
    return "; ".join(lines[:most]) + rest

"""The loop that all kinds share: observe, decide, execute, and remember what was refused."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from slurm_operator.errors import UserError
from slurm_operator.kube.apply import NotOurs
from slurm_operator.kube.errors import AlreadyExists, Forbidden, Invalid
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.execute import Failure, execute
from slurm_operator.runtime.plan import Plan, Result
from slurm_operator.runtime.trouble import Trouble

SeenT = TypeVar("SeenT")
HandsT = TypeVar("HandsT")

Refusals = tuple[Trouble, ...]
"""What could not be done the last time, and why: part of what the next decision looks at."""

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (NotOurs, "NameTaken"),
    (AlreadyExists, "NameTaken"),
    (Forbidden, "Forbidden"),
    (Invalid, "Invalid"),
)
_PATIENCE = 2
"""A conflict or a server that is busy is not worth a word the first time."""


class Reconciler(Generic[SeenT, HandsT]):
    """Reconciles keys of one kind."""

    def __init__(
        self,
        observe: Callable[[Key, Refusals], SeenT | None],
        decide: Callable[[SeenT], Plan[HandsT]],
        hands: HandsT,
    ) -> None:
        self._observe = observe
        self._decide = decide
        self._hands = hands
        self._failed: dict[Key, dict[str, int]] = {}
        self._refusals: dict[Key, Refusals] = {}

    async def __call__(self, key: Key) -> Result:
        refusals = self._refusals.get(key, ())
        seen = self._observe(key, refusals)
        if seen is None:
            self._remember(key, ())
            return Result()
        plan = self._decide(seen)
        outcome = await execute(plan.actions, self._hands)
        self._remember(key, outcome.failures)
        result = outcome.result(plan.after)
        # What was just reported as refused has worked after all: look again, and say so.
        return replace(result, after=0.0) if refusals else result

    def _remember(self, key: Key, failures: Iterable[Failure]) -> None:
        before = self._failed.pop(key, {})
        self._refusals.pop(key, None)
        failed = {str(failure.action): before.get(str(failure.action), 0) + 1 for failure in failures}
        refusals = tuple(
            refusal(found) for found in failures if lasting(found) or failed[str(found.action)] >= _PATIENCE
        )
        if failed:
            self._failed[key] = failed
        if refusals:
            self._refusals[key] = refusals


def refusal(failure: Failure) -> Trouble:
    """A failure in the words of a condition."""
    error = failure.error
    reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), "Refused")
    if not isinstance(error, UserError):
        return Trouble(reason, str(failure))
    return Trouble(reason, f"{error.message}; {error.hint}" if error.hint else error.message)


def lasting(failure: Failure) -> bool:
    """Whether trying again alone cannot help."""
    return isinstance(failure.error, tuple(kind for kind, _ in _REASONS))

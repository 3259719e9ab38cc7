"""What could not be done about a NodeSet, for as long as that is so: what `Degraded` reports as refused.

A request that fails once and then succeeds is not worth a report, unless only a change of an object can help. A record
that Slurm refused to delete is left alone for a while: its refusal stands until it is tried again.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from slurm_operator.kube.apply import NotOurs
from slurm_operator.kube.errors import Forbidden, Invalid
from slurm_operator.nodeset.slurm_actions import Forget
from slurm_operator.runtime.execute import Failure

PATIENCE_TRIES = 2
"""Number of failures in a row that make a report of a cause that may end by itself."""
LASTING = (NotOurs, Forbidden, Invalid)
"""Refusals that are reported at once."""


@dataclass(frozen=True, slots=True)
class Refused:
    failure: Failure
    count: int

    @property
    def is_told(self) -> bool:
        return self.count >= PATIENCE_TRIES or isinstance(self.failure.error, LASTING)

    @property
    def records(self) -> Collection[str]:
        return self.failure.action.nodes if isinstance(self.failure.action, Forget) else ()


@dataclass(slots=True)
class Refusals:
    _standing: dict[str, Refused] = field(default_factory=dict)

    @property
    def told(self) -> tuple[str, ...]:
        return tuple(str(refused.failure) for refused in self._standing.values() if refused.is_told)

    def note(self, actions: Iterable[object], failures: Iterable[Failure], kept: Collection[str]) -> None:
        """Take up the outcome of a pass: what was tried, what of it failed, and which records are left alone."""
        tried = {str(action) for action in actions}
        standing = {
            text: refused
            for text, refused in self._standing.items()
            if text not in tried and not set(refused.records).isdisjoint(kept)
        }
        for failure in failures:
            text = str(failure.action)
            before = self._standing.get(text)
            standing[text] = Refused(failure, before.count + 1 if before is not None else 1)
        self._standing = standing

"""What is known of a cluster at one moment, as values: `Known`, or `Unknown` with the reason.

There is no third way to read it, so a decision cannot forget that Slurm may not have answered.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.model import Node


@dataclass(frozen=True, slots=True)
class Seen:
    """One node as a read showed it, and when that read began."""

    node: Node | None
    """None: slurmctld has no record of that name."""
    began_at: float
    """Monotonic second at which the read began; its address and slurmd start tell whose record it is."""
    confirmed: bool
    """False while no read has shown a write of ours: `node` includes it, unless its answer was lost."""
    drained_since: float | None = None
    """Monotonic second at which the first of the unbroken reads had ended that show it drained."""


@dataclass(frozen=True, slots=True)
class Known:
    nodes: Mapping[str, Node]
    began_at: float
    """Monotonic second at which the last read of all nodes began: how old this is."""
    at: float
    """The same moment in seconds since 1970, for people."""
    boot: int
    """Second since 1970 at which slurmctld started, or last reset its counters."""
    epoch: int
    """Goes up whenever slurmctld was found to have started anew."""
    later: Mapping[str, float]
    """Nodes that were read singly after that: when each of those reads began."""
    pending: frozenset[str]
    """Nodes with a write of ours that no later read has shown yet."""
    drained: Mapping[str, float] = field(default_factory=dict)
    """Drained nodes: monotonic second at which the first of the unbroken reads had ended that show it.

    No job starts on a drained node, so a job list that began later shows every job on it.
    """

    def wall(self, monotonic: float) -> float:
        """Return a monotonic second of this view in seconds since 1970."""
        return self.at + monotonic - self.began_at

    def seen(self, name: str) -> Seen:
        return Seen(
            self.nodes.get(name),
            self.later.get(name, self.began_at),
            name not in self.pending,
            self.drained.get(name),
        )


@dataclass(frozen=True, slots=True)
class Unknown:
    since: float
    """Second since 1970."""
    why: str
    """One sentence for people."""
    error: SlurmError | None = None
    last: Known | None = None
    """What was known before: to be shown, never to be acted on."""


State = Known | Unknown

FIRST_ANSWER_SECONDS = 10.0
"""Seconds in which slurmrestd should have answered for the first time."""


def still_asking(state: State, now: float) -> float:
    """Seconds for which a new process may still say what the last one said of Slurm: it has only just asked."""
    if not isinstance(state, Unknown) or state.error is not None:
        return 0.0
    return max(0.0, state.since + FIRST_ANSWER_SECONDS - now)


@dataclass(frozen=True, slots=True)
class Change:
    names: frozenset[str]
    """Nodes that differ, and nodes whose pending write was confirmed; empty if only the knowing changed."""
    old: State
    new: State
    jobs: bool = False
    """The list of jobs and reservations was read anew."""


Subscriber = Callable[[Change], None]

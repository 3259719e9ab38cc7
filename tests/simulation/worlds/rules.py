"""The seven safety rules, and how a breach of one is reported."""

from dataclasses import dataclass, field
from enum import IntEnum


class Rule(IntEnum):
    """What must hold in every history."""

    NO_JOB_IS_ENDED = 1
    """A pod goes only if its node is drained and free of jobs, a record only if no job and no reservation needs it."""
    ADMINISTRATORS_DECIDE = 2
    """A drain or DOWN of an administrator stays as it is; the cause of our own is written down before Slurm is told."""
    UPDATES_KEEP_CAPACITY = 3
    """An update never takes more workers out of service than maxUnavailable."""
    REST_IS_QUIET = 4
    """Nothing is sent twice, and nothing is written when nothing changed, also after a restart."""
    ALWAYS_ARRIVES = 5
    """With faults over, the desired state is reached, whatever happened before."""
    CLUSTERS_ARE_APART = 6
    """Nothing in one cluster stops another."""
    DEADLINES_KILL_NOTHING = 7
    """However long a job takes it is waited for; the report says so, and other work goes on."""


class RuleBrokenError(AssertionError):
    """A rule does not hold."""

    def __init__(self, rule: Rule, what: str) -> None:
        super().__init__(f"rule {rule.value}, {rule.name.lower()}: {what}")
        self.rule = rule


@dataclass
class Breaches:
    """What was found inside of the operator's own calls, where an exception would count as a failed write."""

    found: list[RuleBrokenError] = field(default_factory=list)

    def note(self, rule: Rule, what: str) -> None:
        self.found.append(RuleBrokenError(rule, what))

    def check(self) -> None:
        if self.found:
            raise self.found[0]

"""What Slurm's node state words mean: one base state and any number of flags, as REST lists them.

COMPLETING shows IDLE as its base already, so no base state alone says that a node is free.
"""

import re
from collections.abc import Collection
from enum import Enum

from slurm_operator.api.names import POD_BASE_STATES, POD_CONDITION_PREFIX, POD_FLAG_STATES, SLURM_USER
from slurm_operator.slurm.reasons import is_ours

State = Collection[str]

BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_BASES = {name.upper(): name for name in POD_BASE_STATES}
_FLAGS = {
    "COMPLETING": "Completing",
    "DRAIN": "Drain",
    "FAIL": "Fail",
    "INVALID": "Invalid",
    "INVALID_REG": "InvalidReg",
    "MAINTENANCE": "Maintenance",
    "NOT_RESPONDING": "NotResponding",
    "UNDRAIN": "Undrain",
}


REJECTED = frozenset({"INVALID", "INVALID_REG"})
"""Flags of a node that slurmctld rejected when it registered."""
REJECTION_REASON = re.compile(r"^(Low |gres/|CoreSpec differ)|topology", re.IGNORECASE)
"""What slurmctld itself writes then; an administrator in its container writes under the same user name."""
NOT_RESPONDING_REASON = "Not responding"
"""What slurmctld itself writes when it takes a node down that does not answer."""


class DrainOwner(Enum):
    """Who took a node out of service: only our own drains may ever be changed or lifted."""

    NOBODY = "nobody"
    OURS = "ours"
    FOREIGN = "foreign"


def is_busy(state: State) -> bool:
    """Work is on the node, or its remains are still being cleaned up."""
    return not BUSY.isdisjoint(state)


def is_drain(state: State) -> bool:
    """No new work starts on the node."""
    return "DRAIN" in state and "UNDRAIN" not in state


def is_drained(state: State) -> bool:
    """No work is on the node and none will start: safe to remove."""
    return is_drain(state) and not is_busy(state)


def is_draining(state: State) -> bool:
    return is_drain(state) and is_busy(state)


def is_down(state: State) -> bool:
    return "DOWN" in state


def is_responding(state: State) -> bool:
    """False also for about a second after an undrain or resume, which is no failure."""
    return "NOT_RESPONDING" not in state


def drain_owner(state: State, reason: str) -> DrainOwner:
    """Return who drained a node. A drain without a reason of ours is foreign, also one without any reason."""
    if not is_drain(state):
        return DrainOwner.NOBODY
    return DrainOwner.OURS if is_ours(reason) else DrainOwner.FOREIGN


def claim_owner(state: State, reason: str, reason_set_by: str = "") -> DrainOwner:
    """Return who took a node out of service, by a drain, DOWN or FAIL.

    A node that slurmctld took down because it does not answer, or drained because it registered as something else than
    Slurm has on record, is in no administrator's hands. slurmctld appends its words to a reason that is there: a drain
    beside these words alone was set without a reason, by an administrator.
    """
    if not (is_drain(state) or is_down(state) or "FAIL" in state):
        return DrainOwner.NOBODY
    if is_ours(reason):
        return DrainOwner.OURS
    if REJECTED & {*state} and reason_set_by == SLURM_USER and REJECTION_REASON.search(reason):
        return DrainOwner.NOBODY
    if not is_down(state) or "FAIL" in state:
        return DrainOwner.FOREIGN
    unanswered = reason == NOT_RESPONDING_REASON or (not reason and not is_responding(state))
    return DrainOwner.NOBODY if unanswered and not is_drain(state) else DrainOwner.FOREIGN


def base_state(state: State) -> str | None:
    """The base state as conditions spell it, the first of their fixed order that is present."""
    return next((name for word, name in _BASES.items() if word in state), None)


def flag_states(state: State) -> tuple[str, ...]:
    return tuple(name for word, name in _FLAGS.items() if word in state)


def pod_conditions(state: State) -> tuple[str, ...]:
    """Types of the conditions that are True on the pod of a node in this state; all others are absent."""
    base = base_state(state)
    return tuple(POD_CONDITION_PREFIX + name for name in ((base,) if base else ()) + flag_states(state))


def known_conditions() -> frozenset[str]:
    """Every condition type that a Slurm state may put on a pod."""
    return frozenset(POD_CONDITION_PREFIX + name for name in POD_BASE_STATES + POD_FLAG_STATES)

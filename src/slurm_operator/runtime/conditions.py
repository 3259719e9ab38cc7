"""Conditions of our kinds: Ready, Progressing, Degraded and a few more, in the form that `kubectl wait` reads."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from slurm_operator.api import names
from slurm_operator.api.common import Condition
from slurm_operator.kube.kinds import Deployment, StatefulSet
from slurm_operator.runtime.times import rfc3339
from slurm_operator.runtime.trouble import Trouble

LONGEST_MESSAGE = 4096
LONGEST_REASON = 256
_NOT_IN_REASONS = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition before it is known since when it holds. Its reason is one that the API accepts."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", reason_of(self.reason))

    @classmethod
    def of(cls, kind: str, holds: bool, reason: str, message: str) -> "Verdict":
        return cls(kind, "True" if holds else "False", reason, message)


def reason_of(text: str) -> str:
    """Return the text as the API accepts it for a reason. The kubelet's own may name a resource: example.com/gpu."""
    reason = _NOT_IN_REASONS.sub("_", text)
    if not reason:
        return "Unknown"
    return (reason if reason[0].isalpha() else f"Reason_{reason}")[:LONGEST_REASON]


def stated(
    verdicts: Iterable[Verdict], before: Sequence[Condition], generation: int, now: float
) -> list[dict[str, Any]]:
    """The conditions to report: the time moves only when a status flips."""
    old = {condition.type: condition for condition in before}
    conditions = []
    for verdict in verdicts:
        previous = old.get(verdict.type)
        unchanged = previous is not None and previous.status == verdict.status
        since = (previous.last_transition_time if previous is not None and unchanged else None) or rfc3339(now)
        conditions.append(
            {
                "type": verdict.type,
                "status": verdict.status,
                "reason": verdict.reason,
                "message": verdict.message[:LONGEST_MESSAGE],
                "lastTransitionTime": since,
                "observedGeneration": generation,
            }
        )
    return conditions


def flipped(verdicts: Iterable[Verdict], before: Sequence[Condition]) -> list[Verdict]:
    """The verdicts that say something else than before, for events on transitions only."""
    old = {condition.type: (condition.status, condition.reason) for condition in before}
    return [verdict for verdict in verdicts if old.get(verdict.type) != (verdict.status, verdict.reason)]


def changes(before: object, status: Mapping[str, Any]) -> str:
    """Say in one line how a status to report differs from the one before: conditions first, then other fields."""
    was: dict[str, Any] = msgspec.to_builtins(before) if isinstance(before, msgspec.Struct) else {}
    old = {condition["type"]: condition for condition in was.get("conditions", ())}
    told = [text for condition in status.get("conditions", ()) if (text := _change(old, condition))]
    for name, value in status.items():
        if name != "conditions" and (was.get(name) or None) != (value or None):
            told.append(f"{name} {value}" if isinstance(value, int) else name)
    return ", ".join(told)


def _change(old: Mapping[str, Mapping[str, Any]], condition: Mapping[str, Any]) -> str:
    kind, reason = condition["type"], condition.get("reason", "")
    previous = old.get(kind, {})
    if (previous.get("status"), previous.get("reason", "")) != (condition["status"], reason):
        return f"{kind} {condition['status']} {reason}".rstrip()
    return f"{kind} message" if previous.get("message", "") != condition.get("message", "") else ""


def fields_ignored(fields: Sequence[object]) -> list[Verdict]:
    """Return a condition that names fields without effect; none if every field has its effect."""
    message = "; ".join(map(str, fields))
    return [Verdict.of(names.CONDITION_FIELDS_IGNORED, True, "NotImplemented", message)] if fields else []


def summed_up(
    *,
    waiting: str,
    done: str,
    blocked: Trouble | None = None,
    refusals: Sequence[Trouble] = (),
    noticed: Trouble | None = None,
) -> list[Verdict]:
    """Ready, Progressing and Degraded.

    What is `blocked` or refused is not as the spec asks. Something `noticed` may be wrong beside a daemon that works.
    """
    found = next(iter(refusals), None) if blocked is None else blocked
    ready = not waiting and found is None
    told = waiting or (found.message if found is not None else "")
    found = found or noticed
    on_its_way = not ready and found is None
    return [
        Verdict.of(names.CONDITION_READY, ready, "Ready" if ready else "NotReady", done if ready else told),
        Verdict.of(
            names.CONDITION_PROGRESSING,
            on_its_way,
            "Working" if on_its_way else "Settled" if ready else "Blocked",
            "" if ready else told,
        ),
        Verdict.of(
            names.CONDITION_DEGRADED,
            found is not None,
            found.reason if found else "Healthy",
            found.message if found else "",
        ),
    ]


def rollout_of(workload: StatefulSet | Deployment | None, what: str, ready: int | None = None) -> str:
    """What a rollout still waits for; empty as soon as every pod is new and enough of them, else all, are ready."""
    if workload is None:
        return f"waiting for {what} to be created"
    status, wanted = workload.status, workload.spec.replicas
    enough = wanted if ready is None else ready
    if status.observed_generation < workload.metadata.generation:
        return f"waiting for Kubernetes to take up the change of {what}"
    if status.replicas < wanted:
        return f"waiting for {what} to be created: {status.replicas} of {wanted} pods exist"
    if status.updated_replicas < wanted:
        return f"waiting for {what} to be replaced: {status.updated_replicas} of {wanted} done"
    if status.ready_replicas < enough:
        return f"waiting for {what} to be ready: {status.ready_replicas} of {enough} are"
    return ""

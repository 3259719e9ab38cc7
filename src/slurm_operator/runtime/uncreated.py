"""Why a StatefulSet or a Deployment does not create its pods: a quota, a policy or a webhook refuses them.

A Deployment says so in a condition. A StatefulSet has none, so that its events are read while pods are missing.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from slurm_operator.api import names
from slurm_operator.api.common import Status
from slurm_operator.kube.client import Client
from slurm_operator.kube.errors import ApiError
from slurm_operator.kube.kinds import EVENTS, Deployment, Event, StatefulSet
from slurm_operator.kube.model import find_condition
from slurm_operator.runtime.actions import HasKube
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.plan import Done, Urgency
from slurm_operator.runtime.times import seconds_of
from slurm_operator.runtime.trouble import Trouble

PATIENCE_SECONDS = 3.0
"""How long pods may be missing before the events are read."""
AGAIN_SECONDS = 10.0
"""Between two looks at the events while pods are missing."""
RECENT_SECONDS = 1800.0
"""Age of the last refusal beyond which it does not explain the missing pods: Kubernetes tries again within 17 min."""
FORGET_SECONDS = 600.0
"""Without a look after which a StatefulSet without pods counts as gone."""
ANSWER_SECONDS = 5.0
_CURES = (
    (
        "podsecurity",
        "let the labels pod-security.kubernetes.io of the namespace allow the pod, or change template.spec",
    ),
    ("quota", "raise the ResourceQuota of the namespace, or lower the resources of the containers"),
    ("limitrange", "change the LimitRange of the namespace, or the resources of the containers"),
    ("maximum", "change the LimitRange of the namespace, or the resources of the containers"),
    ("webhook", "change the pod as the webhook asks, or the rules of the webhook"),
)
_OTHER_CURE = "remove what forbids the pod, or change template.spec"


def is_short(workload: StatefulSet | Deployment | None) -> bool:
    """Return whether pods are missing although Kubernetes knows how many there should be."""
    if workload is None or workload.metadata.terminating:
        return False
    status = workload.status
    return status.observed_generation >= workload.metadata.generation and status.replicas < workload.spec.replicas


def uncreated(workload: StatefulSet | Deployment | None, refusal: str = "") -> Trouble | None:
    """Say why pods are missing. `refusal` is what the events of a StatefulSet say."""
    if workload is None:
        return None
    if isinstance(workload, Deployment):
        failure = find_condition(workload.status.conditions, "ReplicaFailure")
        refusal = failure.message if failure is not None and failure.is_true else ""
    elif not is_short(workload):
        return None
    if not refusal:
        return None
    cure = next((cure for word, cure in _CURES if word in refusal.lower()), _OTHER_CURE)
    meta = workload.metadata
    about = f"{type(workload).__name__} {meta.namespace}/{meta.name} may not create its pods"
    return Trouble(names.EVENT_FAILED_CREATE, f"{about}: {refusal}; {cure}")


class Refusals:
    """Since when the StatefulSets lack pods, and what their events say against them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._looked: dict[str, float] = {}
        self._words: dict[str, str] = {}

    def missing_for(self, workload: StatefulSet | None) -> float | None:
        """Return the seconds for which pods have been missing; None if none is."""
        if workload is None:
            return None
        uid = workload.metadata.uid
        if not is_short(workload):
            self._forget(uid)
            return None
        now = self._clock.monotonic()
        self._looked[uid] = now
        for gone in [other for other, at in self._looked.items() if now - at > FORGET_SECONDS]:
            self._forget(gone)
        return now - self._since.setdefault(uid, now)

    @property
    def remembered(self) -> int:
        """How many StatefulSets are remembered."""
        return len(self._looked)

    def _forget(self, uid: str) -> None:
        for known in (self._since, self._looked, self._words):
            known.pop(uid, None)

    def words(self, workload: StatefulSet | None) -> str:
        """Return what the last event said."""
        return self._words.get(workload.metadata.uid, "") if workload is not None else ""

    def is_read(self, workload: StatefulSet | None) -> bool:
        """Return whether its events were read since pods are missing."""
        return workload is not None and workload.metadata.uid in self._words

    async def look(self, client: Client, namespace: str, uid: str) -> bool:
        """Read the events of a StatefulSet; return whether they say something new. No answer changes nothing."""
        selected = f"regarding.uid={uid},reason={names.EVENT_FAILED_CREATE}"
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await client.list(EVENTS, namespace, fields=selected)
        except (ApiError, TimeoutError):
            return False
        last = max(found.items, key=_seen_at, default=None)
        recent = last is not None and self._clock.now() - _seen_at(last) < RECENT_SECONDS
        words = last.note if last is not None and recent else ""
        before = self._words.get(uid, "")
        if uid in self._since:
            self._words[uid] = words
        return words != before


def unheard(owner: object, workload: StatefulSet | None, refusals: Refusals) -> Trouble | None:
    """Return what was reported of missing pods, until a new process has read the events itself."""
    status = getattr(owner, "status", None)
    before = status.condition(names.CONDITION_DEGRADED) if isinstance(status, Status) else None
    if before is None or before.reason != names.EVENT_FAILED_CREATE or not before.is_true:
        return None
    return Trouble(before.reason, before.message) if is_short(workload) and not refusals.is_read(workload) else None


def _seen_at(event: Event) -> float:
    last = event.deprecated_last_timestamp or event.event_time or event.metadata.creation_timestamp
    return seconds_of(last, absent=0.0)


class KnowsRefusals(HasKube, Protocol):
    @property
    def refused_pods(self) -> Refusals: ...


@dataclass(frozen=True, slots=True)
class Explain:
    """Read the events of a StatefulSet that lacks pods."""

    namespace: str
    name: str
    uid: str
    urgency: Urgency = Urgency.NORMAL
    lane: str = ""

    def __str__(self) -> str:
        return f"read the events of StatefulSet {self.namespace}/{self.name}"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self)}

    async def run(self, hands: KnowsRefusals) -> Done:
        news = await hands.refused_pods.look(hands.kube.client, self.namespace, self.uid)
        return Done(wrote=False, after=0.0 if news else None)


def explained(workload: StatefulSet | None, missing_for: float | None) -> Iterator[Explain]:
    """Read the events once pods have been missing for some seconds."""
    if workload is not None and missing_for is not None and missing_for >= PATIENCE_SECONDS:
        meta = workload.metadata
        yield Explain(meta.namespace, meta.name, meta.uid)


def look_in(missing_for: float | None) -> float | None:
    """Return the seconds until the events of a StatefulSet without pods are worth a look."""
    if missing_for is None:
        return None
    return AGAIN_SECONDS if missing_for >= PATIENCE_SECONDS else PATIENCE_SECONDS - missing_for + 0.1

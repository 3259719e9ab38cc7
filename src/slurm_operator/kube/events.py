"""Events for people (`kubectl describe`): recorded at once, sent when there is time, never a burden.

Recording neither waits nor fails. The same event again becomes a count on the first one; an object that has too much
to say is cut short, and when the server is slow the oldest are dropped.
"""

import asyncio
import itertools
import logging
import socket
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, TypeVar

from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock, SystemClock, timestamp
from slurm_operator.kube.errors import ApiError
from slurm_operator.kube.kinds import EVENTS
from slurm_operator.kube.resource import Key, Manifest, Resource, T

log = logging.getLogger(__name__)

NOTE_BYTES = 1024
REASON_CHARACTERS = 128
PENDING = 1000
REMEMBERED = 4096
SERIES_SECONDS = 60.0
"""A repeated event is brought up to date this often."""
FORGET_SECONDS = 360.0
"""After that long a silence it is a new event."""
BURST, REFILL_SECONDS = 20, 15.0
"""Different events that one object may have at once, and how long until it may have one more."""
FULL_SECONDS = BURST * REFILL_SECONDS
"""Seconds after which an object may have as many events as one that was never heard of."""

Identity = tuple[str, ...]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Entry:
    key: Key
    manifest: Manifest
    last: float
    due: float
    count: int = 1
    created: bool = False


class Recorder:
    def __init__(self, client: Client, controller: str, *, clock: Clock | None = None) -> None:
        self.dropped = 0
        self._client = client
        self._controller = controller
        self._instance = socket.gethostname()
        self._clock = clock or SystemClock()
        self._serial = itertools.count()
        self._known: OrderedDict[Identity, _Entry] = OrderedDict()
        self._pending: OrderedDict[Identity, _Entry] = OrderedDict()
        self._budget: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._news = asyncio.Event()

    def record(
        self,
        res: Resource[T],
        obj: T,
        reason: str,
        note: str,
        *,
        type: Literal["Normal", "Warning"] = "Normal",  # noqa: A002 - the field's name
        action: str = "Reconcile",
    ) -> None:
        reason = reason[:REASON_CHARACTERS]
        note = note.encode()[:NOTE_BYTES].decode(errors="ignore")
        identity = (obj.metadata.uid, type, reason, action, note)
        now = self._clock.monotonic()
        entry = self._known.get(identity)
        if entry and now - entry.last < FORGET_SECONDS:
            entry.count += 1
            entry.last = now
        elif self._afford(obj.metadata.uid, now):
            manifest = self._manifest(res, obj, reason, note, type, action)
            meta = manifest["metadata"]
            entry = _Entry((meta["namespace"], meta["name"]), manifest, last=now, due=now)
        else:
            self.dropped += 1
            return
        self._known[identity] = self._pending[identity] = entry
        self._known.move_to_end(identity)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        if len(self._pending) > PENDING:
            self._pending.popitem(last=False)
            self.dropped += 1
        self._news.set()

    @property
    def remembered(self) -> int:
        """How many events and objects are remembered."""
        return len(self._known) + len(self._budget)

    async def run(self) -> None:
        while True:
            self._news.clear()
            now = self._clock.monotonic()
            self._forget(now)
            due = [identity for identity, entry in self._pending.items() if entry.due <= now]
            for identity in due:
                entry = self._pending.pop(identity, None)
                if entry:
                    await self._send(identity, entry)
            if due:
                continue
            next_due = min((entry.due for entry in self._pending.values()), default=self._forget_at())
            try:
                async with asyncio.timeout(None if next_due is None else next_due - now):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _forget(self, now: float) -> None:
        """Drop what is too long ago to count; the longest silent come first."""
        while self._known and now - _first(self._known).last >= FORGET_SECONDS:
            self._known.popitem(last=False)
        while self._budget and now - _first(self._budget)[1] >= FULL_SECONDS:
            self._budget.popitem(last=False)

    def _forget_at(self) -> float | None:
        """Return the next second at which something can be dropped."""
        known = [_first(self._known).last + FORGET_SECONDS] if self._known else []
        budget = [_first(self._budget)[1] + FULL_SECONDS] if self._budget else []
        return min(known + budget, default=None)

    async def _send(self, identity: Identity, entry: _Entry) -> None:
        namespace, name = entry.key
        entry.due = self._clock.monotonic() + SERIES_SECONDS
        try:
            if not entry.created:
                await self._client.create(EVENTS, entry.manifest)
                entry.created = True
                entry.manifest = {}
            if entry.count > 1:
                series = {"count": entry.count, "lastObservedTime": timestamp(self._clock.now())}
                await self._client.patch(EVENTS, name, {"series": series}, namespace)
        except ApiError as error:
            # Expired on the server, or its namespace is going away; should it happen again it is a new event.
            self.dropped += 1
            self._known.pop(identity, None)
            log.debug("event not recorded", extra={"event": entry.key, "error": error.message})

    def _afford(self, uid: str, now: float) -> bool:
        left, since = self._budget.pop(uid, (float(BURST), now))
        left = min(float(BURST), left + (now - since) / REFILL_SECONDS)
        affordable = left >= 1.0
        self._budget[uid] = (left - 1.0 if affordable else left, now)
        if len(self._budget) > REMEMBERED:
            self._budget.popitem(last=False)
        return affordable

    def _manifest(self, res: Resource[T], obj: T, reason: str, note: str, type_: str, action: str) -> Manifest:
        meta, now = obj.metadata, self._clock.now()
        serial = f"{int(now * 1e6):x}{next(self._serial):04x}"
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{meta.name[:200]}.{serial}", "namespace": meta.namespace or "default"},
            "eventTime": timestamp(now),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "type": type_,
            "reason": reason,
            "action": action,
            "note": note,
            "regarding": {
                "apiVersion": res.api_version,
                "kind": res.kind,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            },
        }


def _first(found: OrderedDict[K, V]) -> V:
    return next(iter(found.values()))

"""What etcd and the watch cache are to the real server: objects, versions, a history to watch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.apiserver.kinds import Kind
from tests.fakes.apiserver.selectors import Predicate
from tests.fakes.apiserver.status import bad_request, expired_continue, too_old

Json = dict[str, Any]
Key = tuple[str, str]

FIRST_VERSION = 95
"""Just below a new digit, so that whoever compares versions as text is found out."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write: what was there before and after; `old` of a deletion carries the version of the deletion."""

    version: int
    kind: Kind
    old: Json | None
    new: Json | None

    def seen_through(self, matches: Predicate) -> tuple[str, Json] | None:
        """The event for a watcher who sees only what matches, or None."""
        was = self.old if self.old is not None and matches(self.old) else None
        if self.new is not None and matches(self.new):
            return ("MODIFIED" if was else "ADDED", self.new)
        return ("DELETED", with_version(was, self.version)) if was is not None else None


@dataclass(eq=False)
class Watch:
    """One watcher's place in the stream of changes."""

    kind: Kind
    namespace: str
    matches: Predicate
    start: int = 0
    pending: deque[tuple[str, Json]] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, change: Change) -> None:
        if change.kind != self.kind or change.version <= self.start:
            return
        if event := change.seen_through(self.sees):
            self.pending.append(event)
            self.woken.set()

    def sees(self, obj: Json) -> bool:
        return (not self.namespace or obj["metadata"].get("namespace") == self.namespace) and self.matches(obj)

    def wake(self) -> None:
        self.woken.set()

    async def wait(self, timeout: float) -> None:
        """Return when something is pending or somebody woke us, at the latest after the timeout."""
        if not self.pending:
            try:
                async with asyncio.timeout(timeout):
                    await self.woken.wait()
            except TimeoutError:
                return
        self.woken.clear()


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Json]
    version: int
    token: str = ""
    remaining: int = 0


class Storage:
    """Stored objects are never changed in place: a write replaces them."""

    def __init__(self) -> None:
        self.version = FIRST_VERSION
        self.oldest = FIRST_VERSION
        self._objects: dict[Kind, dict[Key, Json]] = {}
        self._history: list[Change] = []
        self._watches: set[Watch] = set()
        self._pages: dict[str, Page] = {}
        self._by_uid: dict[str, tuple[Kind, Key]] = {}
        self._dependents: dict[str, set[tuple[Kind, Key]]] = {}
        self._changes: list[Change] = []

    def get(self, kind: Kind, key: Key) -> Json | None:
        return self._objects.get(kind, {}).get(key)

    def all(self, kind: Kind, namespace: str = "") -> list[Json]:
        """In the server's order: by namespace, then name."""
        stored = sorted(self._objects.get(kind, {}).items())
        return [obj for key, obj in stored if not namespace or key[0] == namespace]

    def everything(self) -> Iterator[tuple[Kind, Json]]:
        for kind, objects in list(self._objects.items()):
            for obj in list(objects.values()):
                yield kind, obj

    def by_uid(self, uid: str) -> tuple[Kind, Json] | None:
        if (address := self._by_uid.get(uid)) is None:
            return None
        kind, key = address
        return kind, self._objects[kind][key]

    def dependents(self, uid: str) -> list[tuple[Kind, Json]]:
        """Objects with an owner reference to this uid."""
        return [(kind, self._objects[kind][key]) for kind, key in self._dependents.get(uid, ())]

    def take_changes(self) -> list[Change]:
        """What was written since the last call: the controllers' work."""
        changes, self._changes = self._changes, []
        return changes

    def put(self, kind: Kind, obj: Json) -> Json:
        old = self.get(kind, key_of(obj))
        self.version += 1
        new = with_version(obj, self.version)
        self._objects.setdefault(kind, {})[key_of(new)] = new
        self._record(Change(self.version, kind, old, new))
        return new

    def remove(self, kind: Kind, key: Key) -> Json:
        old = self._objects[kind].pop(key)
        self.version += 1
        self._record(Change(self.version, kind, old, None))
        return with_version(old, self.version)

    def _record(self, change: Change) -> None:
        self._history.append(change)
        self._changes.append(change)
        self._index(change)
        for watch in self._watches:
            watch.offer(change)

    def _index(self, change: Change) -> None:
        for obj, keep in ((change.old, False), (change.new, True)):
            if obj is None:
                continue
            address, metadata = (change.kind, key_of(obj)), obj["metadata"]
            if keep:
                self._by_uid[metadata["uid"]] = address
            else:
                self._by_uid.pop(metadata["uid"], None)
            for reference in metadata.get("ownerReferences") or ():
                dependents = self._dependents.setdefault(reference["uid"], set())
                (dependents.add if keep else dependents.discard)(address)

    def compact(self) -> None:
        """Forget all history: watches and pages that started before now are answered with 410."""
        self.oldest = self.version
        self._history.clear()
        self._pages.clear()

    def watch(self, kind: Kind, namespace: str, matches: Predicate, start: int, *, initial: bool) -> Watch:
        """From the given version on; with `initial` (or from 0) the present state comes first, as ADDED."""
        watch = Watch(kind, namespace, matches, start)
        if initial or start == 0:
            watch.pending.extend(("ADDED", obj) for obj in self.all(kind, namespace) if watch.sees(obj))
        elif start < self.oldest:
            raise too_old(start, self.oldest)
        else:
            for change in self._history:
                watch.offer(change)
        self._watches.add(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        self._watches.discard(watch)

    def page(self, kind: Kind, namespace: str, matches: Predicate, limit: int, token: str) -> Page:
        if token:
            whole = self._rest_of(token)
        else:
            whole = Page([obj for obj in self.all(kind, namespace) if matches(obj)], self.version)
        if not limit or len(whole.items) <= limit:
            return whole
        rest = Page(whole.items[limit:], whole.version)
        following = f"page-{whole.version}-{len(self._pages)}"
        self._pages[following] = rest
        return Page(whole.items[:limit], whole.version, following, len(rest.items))

    def _rest_of(self, token: str) -> Page:
        if not token.startswith("page-"):
            raise bad_request("continue key is not valid: encoded start key is malformed")
        if token not in self._pages:
            raise expired_continue("")
        return self._pages[token]


def key_of(obj: Json) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def with_version(obj: Json, version: int) -> Json:
    return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(version)}}

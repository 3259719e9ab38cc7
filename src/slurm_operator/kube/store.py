"""Store: what we know of one kind, in memory, indexed, always answering at once.

Three writers feed it and any order of theirs ends in the same state, because resource versions decide: listings
(`replace`), watch events (`upsert`, `remove`, then `advance`) and the answers to our own writes (`upsert`). An answer
is stale if we hold something newer, or if all up to its version was told and the object is not there: it was deleted.

An object that does not fit its type keeps its last readable state and is listed in `unreadable` until a readable
version, its deletion or a listing without it arrives. It may be in `unreadable` alone if it was never readable.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic

from slurm_operator.kube.model import ObjectMeta
from slurm_operator.kube.resource import Key, Object, T, key_of, version_of

log = logging.getLogger(__name__)

Indexer = Callable[[T], Iterable[str]]
Handler = Callable[[T | None, T | None], None]


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a kind that one reflector is responsible for: all of it, a namespace, or one object."""

    namespace: str | None = None
    name: str | None = None

    def __contains__(self, key: Key) -> bool:
        return self.namespace in (None, key[0]) and self.name in (None, key[1])


class Store(Generic[T]):
    def __init__(self, indexers: Mapping[str, Indexer[T]] | None = None) -> None:
        self.synced = asyncio.Event()
        """Set once every scope was listed; until then handlers are hearing the initial state."""
        self._objects: dict[Key, T] = {}
        self._unreadable: dict[Key, ObjectMeta] = {}
        self._indexers = dict(indexers or {})
        self._indexes: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in self._indexers}
        self._handlers: list[Handler[T]] = []
        self._told: dict[Scope, int | None] = {}
        """Up to which version each scope is known; None before its first listing."""

    # Reading

    def get(self, namespace: str, name: str) -> T | None:
        return self._objects.get((namespace, name))

    def all(self, namespace: str | None = None) -> list[T]:
        if namespace is None:
            return list(self._objects.values())
        return [obj for key, obj in self._objects.items() if key[0] == namespace]

    @property
    def unreadable(self) -> Mapping[Key, ObjectMeta]:
        """Objects that exist and whose newest version does not fit their type, by their metadata.

        Handlers are not told of changes here: a caller that holds an action back because of an entry looks again later.
        """
        return self._unreadable

    def by_index(self, index: str, key: str) -> list[T]:
        return list(self._indexes[index].get(key, {}).values())

    def subscribe(self, handler: Handler[T]) -> None:
        """`handler(old, new)` is called after each change; what is already here is told at once."""
        self._handlers.append(handler)
        for obj in self.all():
            self._tell(handler, None, obj)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self.all())

    # Writing

    def upsert(self, obj: T) -> bool:
        """Take the object over unless something newer is known; tells whether it was news."""
        key = key_of(obj)
        newest = self._newest(key)
        if version_of(obj) <= (self._told_about(key) if newest is None else newest):
            return False
        self._put(key, obj)
        return True

    def remove(self, obj: Object) -> None:
        """The object is gone as of its resource version."""
        key = key_of(obj)
        newest = self._newest(key)
        if newest is not None and newest <= version_of(obj):
            self._drop(key)

    def mark_unreadable(self, meta: ObjectMeta) -> None:
        """The object's version in `meta` does not fit its type; ignored if something newer is known."""
        key = meta.namespace, meta.name
        newest = self._newest(key)
        if newest is None or newest < int(meta.resource_version):
            self._unreadable[key] = meta

    def advance(self, scope: Scope, resource_version: str) -> None:
        """Everything in the scope up to this version has been told."""
        self._told[scope] = int(resource_version)

    def replace(
        self,
        scope: Scope,
        listed: Mapping[Key, T],
        resource_version: str,
        *,
        unreadable: Mapping[Key, ObjectMeta] | None = None,
        reset: bool = False,
    ) -> None:
        """A complete listing: what it lacks is gone, unless it was written after the listing was made.

        What is `unreadable` exists, so its last readable state stays. `reset` says that the server's history went back
        (a restored backup): then the listing wins over everything.
        """
        version = int(resource_version)
        unreadable = unreadable or {}
        for key, obj in listed.items():
            newest = self._newest(key)
            if newest is None or reset or newest < version_of(obj):
                self._put(key, obj)
        for key, meta in unreadable.items():
            if reset:
                self._unreadable[key] = meta
            else:
                self.mark_unreadable(meta)
        for key in list({**self._objects, **self._unreadable}):
            lacking = key in scope and key not in listed and key not in unreadable
            if lacking and (reset or (self._newest(key) or 0) <= version):
                self._drop(key)
        self._told[scope] = version
        self._check_synced()

    # Scopes

    def expect(self, scope: Scope) -> None:
        """A reflector announces itself, so that `synced` waits for it."""
        self._told.setdefault(scope, None)
        self.synced.clear()

    def has_synced(self, scope: Scope) -> bool:
        return self._told.get(scope) is not None

    def forget(self, scope: Scope) -> None:
        """Nobody watches this scope any more: drop what it brought, without a word to handlers."""
        self._told.pop(scope, None)
        for key in [key for key in self._objects if key in scope]:
            self._unindex(key, self._objects.pop(key))
        for key in [key for key in self._unreadable if key in scope]:
            del self._unreadable[key]
        self._check_synced()

    def _check_synced(self) -> None:
        if None not in self._told.values():
            self.synced.set()

    def _told_about(self, key: Key) -> int:
        namespace, name = key
        for scope in (Scope(), Scope(namespace), Scope(namespace, name)):
            told = self._told.get(scope)
            if told is not None:
                return told
        return -1

    def _newest(self, key: Key) -> int | None:
        """Return the newest version that is known of an object, None if it is not known at all."""
        meta = self._unreadable.get(key)
        if meta is not None:
            return int(meta.resource_version)
        held = self._objects.get(key)
        return None if held is None else version_of(held)

    def _drop(self, key: Key) -> None:
        self._unreadable.pop(key, None)
        obj = self._objects.pop(key, None)
        if obj is not None:
            self._unindex(key, obj)
            self._notify(obj, None)

    def _put(self, key: Key, new: T) -> None:
        self._unreadable.pop(key, None)
        old = self._objects.get(key)
        if old is not None:
            self._unindex(key, old)
        self._objects[key] = new
        for name, indexer in self._indexers.items():
            for value in indexer(new):
                self._indexes[name].setdefault(value, {})[key] = new
        self._notify(old, new)

    def _unindex(self, key: Key, obj: T) -> None:
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            for value in indexer(obj):
                entries = index.get(value)
                if entries is not None:
                    entries.pop(key, None)
                    if not entries:
                        del index[value]

    def _notify(self, old: T | None, new: T | None) -> None:
        for handler in self._handlers:
            self._tell(handler, old, new)

    def _tell(self, handler: Handler[T], old: T | None, new: T | None) -> None:
        try:
            handler(old, new)
        except Exception:
            # One object that a handler stumbles over must not end the watch for all the others.
            obj = new or old
            log.exception("handler failed", extra={"object": key_of(obj) if obj is not None else None})

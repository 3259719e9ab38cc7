"""Reflector: keeps a Store equal to what the server holds, through every way a watch can end.

List once (streamed as events where the server can), then follow. A clean end or a broken connection resumes at the
last version seen; a version the server no longer knows means listing again, and whatever that lacks is deleted.
"""

import logging
import random
from contextlib import aclosing
from typing import Generic

from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock, SystemClock
from slurm_operator.kube.errors import (
    ApiError,
    Call,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unauthorized,
    Unreachable,
    from_status,
)
from slurm_operator.kube.model import ObjectMeta
from slurm_operator.kube.resource import Key, Object, Resource, T, key_of
from slurm_operator.kube.store import Scope, Store
from slurm_operator.kube.watch import Added, Bookmark, Deleted, Failed, Modified, Unreadable, WatchEvent

log = logging.getLogger(__name__)

INACTIVITY_SECONDS = 130.0
"""A server sends a bookmark about every minute once its kind has seen an event: after two of them missed, ask anew."""
SERVER_SECONDS = (300, 600)
BACKOFF_SECONDS = (0.2, 15.0)
TOO_SHORT_SECONDS = 1.0
"""A watch that lived longer than that worked; whatever ended it is no reason to wait longer each time."""
WORTH_A_WARNING = 3


class Reflector(Generic[T]):
    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        store: Store[T],
        *,
        namespace: str | None = None,
        name: str | None = None,
        labels: str = "",
        clock: Clock | None = None,
        inactivity: float = INACTIVITY_SECONDS,
        fail_fast: bool = True,
    ) -> None:
        """`fail_fast`: a refusal before the first listing is raised, because waiting would not cure it."""
        self.resource = resource
        self.scope = Scope(namespace, name)
        self.connected = False
        self.last_error: ApiError | None = None
        self._client = client
        self._store = store
        self._labels = labels
        self._fields = f"metadata.name={name}" if name else ""
        self._clock = clock or SystemClock()
        self._inactivity = inactivity
        self._fail_fast = fail_fast
        self._call = Call.on(resource, "watch", namespace)
        self._version = ""
        self._stale = True
        self._failures = 0
        self._opened_at = self.last_contact = self.last_attempt = self._clock.monotonic()
        store.expect(self.scope)

    async def run(self) -> None:
        while True:
            self.last_attempt = self._clock.monotonic()
            try:
                if self._stale and not self._client.streams_lists:
                    await self._list()
                await self._watch()
            except ApiError as error:
                await self._cope(error)
            finally:
                self.connected = False

    async def _list(self) -> None:
        listing, version = _Listing[T](), ""
        pages = self._client.pages(self.resource, self.scope.namespace, labels=self._labels, fields=self._fields)
        async with aclosing(pages):
            async for page in pages:
                self._heard()
                version = version or page.resource_version
                for obj in page.items:
                    self._put(obj, listing)
                for entry in page.unreadable:
                    self._skip(entry, listing)
        self._settle(listing, version)

    async def _watch(self) -> None:
        """One watch from start to end. It begins with the whole state if ours is stale."""
        started, version = self._clock.monotonic(), self._version
        listing = _Listing[T]() if self._stale else None
        events = self._client.watch(
            self.resource,
            self.scope.namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version="" if listing else version,
            initial_events=listing is not None,
            server_seconds=random.randint(*SERVER_SECONDS),
            inactivity=self._inactivity,
            on_open=self._opened,
        )
        async with aclosing(events):
            async for event in events:
                self._heard()
                listing = self._take(event, listing)
        if version == self._version and self._clock.monotonic() - started < TOO_SHORT_SECONDS:
            raise Unreachable(self._call, "the server ends the watch as soon as it begins")

    def _take(self, event: WatchEvent[T], listing: "_Listing[T] | None") -> "_Listing[T] | None":
        match event:
            case Added(obj) | Modified(obj):
                self._put(obj, listing)
                version = obj.metadata.resource_version
            case Deleted(obj):
                self._drop(obj, listing)
                version = obj.metadata.resource_version
            case Bookmark():
                version = event.resource_version
                if listing and event.ends_initial_events:
                    self._settle(listing, version)
                    listing = None
            case Unreadable(meta, _, "DELETED"):
                self._drop(event, listing)
                version = meta.resource_version
            case Unreadable(meta):
                self._skip(event, listing)
                version = meta.resource_version
            case Failed(status):
                raise from_status(self._call, status)
        self._progressed()
        if listing is None:
            # While a listing comes in, its objects are in no order: only its end has a version to resume at.
            self._version = version
            self._store.advance(self.scope, version)
        return listing

    def _put(self, obj: T, listing: "_Listing[T] | None") -> None:
        if listing:
            listing.objects[key_of(obj)] = obj
            listing.unreadable.pop(key_of(obj), None)
        self._store.upsert(obj)

    def _drop(self, obj: Object, listing: "_Listing[T] | None") -> None:
        if listing:
            listing.objects.pop(key_of(obj), None)
            listing.unreadable.pop(key_of(obj), None)
        self._store.remove(obj)

    def _skip(self, entry: Unreadable, listing: "_Listing[T] | None") -> None:
        log.warning(
            "object does not fit its type, keeping its last good state",
            extra={"kind": self.resource.kind, "object": key_of(entry), "error": entry.error},
        )
        if listing:
            listing.objects.pop(key_of(entry), None)
            listing.unreadable[key_of(entry)] = entry.metadata
        self._store.mark_unreadable(entry.metadata)

    def _settle(self, listing: "_Listing[T]", version: str) -> None:
        went_back = bool(self._version) and int(version) < int(self._version)
        self._store.replace(self.scope, listing.objects, version, unreadable=listing.unreadable, reset=went_back)
        self._version = version
        self._stale = False
        self._progressed()

    def _opened(self) -> None:
        self.connected = True
        self._opened_at = self._clock.monotonic()
        self.last_error = None
        self._heard()

    def _heard(self) -> None:
        self.last_contact = self._clock.monotonic()

    def _progressed(self) -> None:
        if self._failures >= WORTH_A_WARNING:
            log.info("watch works again", extra=self._about())
        self._failures = 0
        self.last_error = None

    async def _cope(self, error: ApiError) -> None:
        if self.connected and self._clock.monotonic() - self._opened_at > TOO_SHORT_SECONDS:
            self._failures = 0
        self.connected = False
        self._failures += 1
        self.last_error = error
        if not isinstance(error, Unreachable):
            # A refusal is an answer: the server is there, and a new process would be refused too.
            self._heard()
        if isinstance(error, Gone) or "Too large resource version" in error.message:
            log.info("the server forgot our version, listing again", extra=self._about())
            self._stale = True
        elif self._stale and self._client.streams_lists and isinstance(error, Invalid):
            self._client.streams_lists = False
            return
        elif self._fail_fast and self._stale and not self._store.has_synced(self.scope) and self._hopeless(error):
            raise error
        if self._failures == WORTH_A_WARNING:
            log.warning("watch fails, trying on", extra=self._about())
        await self._clock.sleep(self._pause(error))

    @property
    def refusal(self) -> ApiError | None:
        """Why the server does not let us read this, which waiting alone does not cure."""
        return self.last_error if isinstance(self.last_error, Forbidden | Invalid) else None

    def _hopeless(self, error: ApiError) -> bool:
        # A first 401 makes the client read its credentials anew; the second is an answer.
        return isinstance(error, Forbidden | NotFound | Invalid) or (
            isinstance(error, Unauthorized) and self._failures > 1
        )

    def _pause(self, error: ApiError) -> float:
        first, longest = BACKOFF_SECONDS
        spread = random.uniform(1.0, 1.5)
        return max(error.retry_after or 0.0, min(first * 2.0 ** (self._failures - 1), longest)) * spread

    def _about(self) -> dict[str, object]:
        return {
            "resource": self.resource.label,
            "namespace": self.scope.namespace,
            "error": self.last_error.message if self.last_error else None,
        }


class _Listing(Generic[T]):
    """What a listing under way has brought so far."""

    def __init__(self) -> None:
        self.objects: dict[Key, T] = {}
        self.unreadable: dict[Key, ObjectMeta] = {}

"""One open watch: initial events, changes, bookmarks, its end, and the faults that strike it on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.apiserver.cluster import Cluster
from tests.fakes.apiserver.faults import Action, CutStream, FailStream, SilenceStream
from tests.fakes.apiserver.routes import TRUE, Target
from tests.fakes.apiserver.selectors import selector
from tests.fakes.apiserver.status import REASONS, Refusal, invalid_options
from tests.fakes.apiserver.storage import Watch

Json = dict[str, Any]
Send = Callable[[Json], Awaitable[None]]

LONGEST = 1800.0
"""Seconds after which a watch ends whose client asked for no other end."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    watch_list: bool = True
    """Offer streaming lists; without it the server behaves as one older than they are."""
    bookmark_interval: float = 60.0


@dataclass(eq=False)
class Stream:
    watch: Watch
    cluster: Cluster
    options: StreamOptions
    action: Action | None
    failure: Refusal | None
    wants_bookmarks: bool
    wants_initial_end: bool
    seconds: float
    sent: int = 0

    @classmethod
    def open(
        cls,
        cluster: Cluster,
        target: Target,
        query: Mapping[str, str],
        options: StreamOptions,
        action: Action | None,
    ) -> Stream:
        initial = query.get("sendInitialEvents", "").lower() in TRUE
        bookmarks = query.get("allowWatchBookmarks", "").lower() in TRUE
        _check_options(query, options)
        fields = ",".join(filter(None, (query.get("fieldSelector"), _name_selector(target))))
        matches = selector(target.kind, query.get("labelSelector", ""), fields)
        start, failure = _version(query), None
        try:
            watch = cluster.storage.watch(target.kind, target.namespace, matches, start, initial=initial)
        except Refusal as refusal:
            # The real watch cache, too, says so inside a stream that began well.
            watch, failure = Watch(target.kind, target.namespace, matches), refusal
        seconds = float(query.get("timeoutSeconds") or LONGEST)
        return cls(watch, cluster, options, action, failure, bookmarks, initial and bookmarks, seconds)

    async def run(self, send: Send, abort: Callable[[], Awaitable[None]]) -> None:
        if self.failure is not None:
            await send({"type": "ERROR", "object": self.failure.body})
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + self.seconds
        next_bookmark = loop.time() + self.options.bookmark_interval
        while not await self._struck(send, abort):
            if self.watch.pending:
                await self._send_next(send)
            elif self.wants_initial_end:
                self.wants_initial_end = False
                await send(self._bookmark(ends_initial_events=True))
            elif loop.time() >= end:
                if self.wants_bookmarks:
                    await send(self._bookmark())
                return
            elif self.wants_bookmarks and loop.time() >= next_bookmark:
                next_bookmark = loop.time() + self.options.bookmark_interval
                await send(self._bookmark())
            else:
                await self.watch.wait(min(end, next_bookmark) - loop.time())

    async def _send_next(self, send: Send) -> None:
        kind, obj = self.watch.pending.popleft()
        self.sent += 1
        await send({"type": kind, "object": obj})

    async def _struck(self, send: Send, abort: Callable[[], Awaitable[None]]) -> bool:
        """Carry out a fault whose time has come; True when the stream is over."""
        match self.action:
            case CutStream(after) if self.sent >= after:
                await abort()
            case SilenceStream(after) if self.sent >= after:
                await asyncio.Event().wait()
            case FailStream(code, after) if self.sent >= after:
                refusal = Refusal(code, f"injected: {REASONS.get(code, code)}")
                await send({"type": "ERROR", "object": refusal.body})
                return True
        return False

    def _bookmark(self, *, ends_initial_events: bool = False) -> Json:
        kind = self.watch.kind
        metadata: Json = {"resourceVersion": str(self.cluster.storage.version), "creationTimestamp": None}
        if ends_initial_events:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return {"type": "BOOKMARK", "object": {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}}


def _name_selector(target: Target) -> str:
    return f"metadata.name={target.name}" if target.name else ""


def _version(query: Mapping[str, str]) -> int:
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise Refusal(500, f'resourceVersion: Invalid value: "{text}"', reason="")
    return int(text)


def _check_options(query: Mapping[str, str], options: StreamOptions) -> None:
    if "sendInitialEvents" not in query:
        if query.get("resourceVersionMatch"):
            why = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise invalid_options("ListOptions", "resourceVersionMatch", why)
        return
    if not options.watch_list:
        why = "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        raise invalid_options("ListOptions", "sendInitialEvents", why)
    if query.get("resourceVersionMatch") != "NotOlderThan":
        why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise invalid_options("ListOptions", "resourceVersionMatch", why)

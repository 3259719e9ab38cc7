"""Kinds that a cluster may or may not know (those of Prometheus' operator): followed as long as they are served."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock
from slurm_operator.kube.errors import ApiError, NotFound
from slurm_operator.kube.reflector import Reflector
from slurm_operator.kube.resource import Resource
from slurm_operator.kube.store import Store

log = logging.getLogger(__name__)

DISCOVERY_SECONDS = 30.0
"""Between two questions whether the kind is served."""
CHECK_SECONDS = 2.0
"""Between two looks whether its watches have found the kind gone."""
FIRST_LISTING_SECONDS = 10.0
"""How long the start of the process waits for the first listing of a kind that is served."""


class OptionalKind:
    def __init__(
        self,
        client: Client,
        resource: Resource[Any],
        store: Store[Any],
        reflectors: Callable[[], Sequence[Reflector[Any]]],
        changed: Callable[[bool], None],
        clock: Clock,
    ) -> None:
        """`changed` hears when the kind has been listed, and when it is no longer served."""
        self.looked = asyncio.Event()
        """Set once it is known whether the kind is served, or that this cannot be told now."""
        self.reflectors: Sequence[Reflector[Any]] = ()
        self._client = client
        self._resource = resource
        self._store = store
        self._make = reflectors
        self._changed = changed
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                served = await self._is_served()
                if served and not self._tasks:
                    await self._start(group)
                elif served is False and self._tasks:
                    self._stop()
                self.looked.set()
                await self._rest()

    async def _is_served(self) -> bool | None:
        """None if the server does not say."""
        try:
            return self._resource.kind in await self._client.kinds(self._resource.api_version)
        except NotFound:
            return False
        except ApiError as error:
            log.warning("cannot discover a kind", extra={"kind": self._resource.kind, "error": error.message})
            return None

    async def _start(self, group: asyncio.TaskGroup) -> None:
        self.reflectors = self._make()
        self._tasks = [
            group.create_task(found.run(), name=f"watch {found.resource.label}") for found in self.reflectors
        ]
        self._tasks.append(group.create_task(self._announce()))
        try:
            async with asyncio.timeout(FIRST_LISTING_SECONDS):
                await self._store.synced.wait()
        except TimeoutError:
            log.warning("a kind is served and cannot be listed", extra={"kind": self._resource.kind})

    async def _announce(self) -> None:
        await self._store.synced.wait()
        log.info("following a kind that the cluster serves", extra={"kind": self._resource.kind})
        self._changed(True)

    def _stop(self) -> None:
        log.info("a kind is no longer served", extra={"kind": self._resource.kind})
        for task in self._tasks:
            task.cancel()
        for reflector in self.reflectors:
            self._store.forget(reflector.scope)
        self._tasks, self.reflectors = [], ()
        self._changed(False)

    async def _rest(self) -> None:
        """Until the next question is due, or a watch finds the kind gone."""
        until = self._clock.monotonic() + DISCOVERY_SECONDS
        while self._clock.monotonic() < until:
            await self._clock.sleep(CHECK_SECONDS)
            if any(isinstance(reflector.last_error, NotFound) for reflector in self.reflectors):
                return

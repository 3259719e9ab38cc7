"""Watches of single objects by name: the Secrets and ConfigMaps that others refer to, and never all of them."""

import asyncio
from collections.abc import Hashable, Iterable
from typing import Generic

from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock, SystemClock
from slurm_operator.kube.errors import ApiError
from slurm_operator.kube.reflector import Reflector
from slurm_operator.kube.resource import Key, Resource, T
from slurm_operator.kube.store import Scope, Store


class NamedWatches(Generic[T]):
    """Each owner says which objects it needs; what nobody needs any more is no longer watched."""

    def __init__(self, client: Client, resource: Resource[T], *, clock: Clock | None = None) -> None:
        self.store: Store[T] = Store()
        self._client = client
        self._resource = resource
        self._clock = clock or SystemClock()
        self._needs: dict[Hashable, frozenset[Key]] = {}
        self._running: dict[Key, tuple[Reflector[T], asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()

    def ensure(self, owner: Hashable, keys: Iterable[Key]) -> None:
        """From now on `owner` needs exactly these; none at all once it is gone."""
        wanted = frozenset(keys)
        if wanted == self._needs.get(owner, frozenset()):
            return
        if wanted:
            self._needs[owner] = wanted
        else:
            del self._needs[owner]
        self._changed.set()

    def known(self, namespace: str, name: str) -> bool:
        """Whether `store` can tell if this object exists: not before its watch has answered."""
        return self.store.has_synced(Scope(namespace, name))

    def refusal(self, namespace: str, name: str) -> ApiError | None:
        """Why this object may not be read, None if it may, or if that is not known yet."""
        running = self._running.get((namespace, name))
        return running[0].refusal if running is not None else None

    @property
    def reflectors(self) -> list[Reflector[T]]:
        return [reflector for reflector, _ in self._running.values()]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._adjust(group)

    def _adjust(self, group: asyncio.TaskGroup) -> None:
        wanted = frozenset[Key]().union(*self._needs.values())
        for key in self._running.keys() - wanted:
            _, task = self._running.pop(key)
            task.cancel()
            self.store.forget(Scope(*key))
        for key in wanted - self._running.keys():
            namespace, name = key
            reflector = Reflector(
                self._client,
                self._resource,
                self.store,
                namespace=namespace,
                name=name,
                clock=self._clock,
                fail_fast=False,
            )
            self._running[key] = reflector, group.create_task(reflector.run())

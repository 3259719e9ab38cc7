"""Every store that the operator keeps, and the watches that fill them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock, SystemClock
from slurm_operator.kube.named import NamedWatches
from slurm_operator.kube.reflector import Reflector
from slurm_operator.kube.resource import Resource, T
from slurm_operator.kube.store import Indexer, Store


class Caches:
    """Which kinds are followed is said once at start; which single objects, as references come and go."""

    def __init__(self, client: Client, *, namespaces: Sequence[str] = (), clock: Clock | None = None) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._clock = clock or SystemClock()
        self.stores: dict[Resource[Any], Store[Any]] = {}
        self._named: dict[Resource[Any], NamedWatches[Any]] = {}
        self.followed: set[Resource[Any]] = set()
        self._reflectors: list[Reflector[Any]] = []

    def follow(
        self, resource: Resource[T], *, labels: str = "", indexers: Mapping[str, Indexer[T]] | None = None
    ) -> Store[T]:
        """Keep a kind in memory: all of it or what the labels select, everywhere or in our namespaces alone."""
        store: Store[T] = Store(indexers)
        scopes = self._namespaces if resource.namespaced and self._namespaces else (None,)
        for namespace in scopes:
            reflector = Reflector(self._client, resource, store, namespace=namespace, labels=labels, clock=self._clock)
            self._reflectors.append(reflector)
        self.stores[resource] = store
        self.followed.add(resource)
        return store

    def store(self, resource: Resource[T]) -> Store[T]:
        """The store of a kind; for a kind that is not followed, one that remembers our own writes alone."""
        found: Store[T] = self.stores.setdefault(resource, Store())
        return found

    def named(self, resource: Resource[T]) -> NamedWatches[T]:
        """Single objects of a kind that others refer to by name."""
        found: NamedWatches[T] = self._named.setdefault(
            resource, NamedWatches(self._client, resource, clock=self._clock)
        )
        return found

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        return [*self._reflectors, *(one for watches in self._named.values() for one in watches.reflectors)]

    async def synced(self) -> None:
        """Returns when every followed kind has been listed."""
        for resource in self.followed:
            await self.stores[resource].synced.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.label}")
            for resource, watches in self._named.items():
                group.create_task(watches.run(), name=f"watch single {resource.label}")

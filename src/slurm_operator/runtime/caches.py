"""Every store that the operator keeps, and the watches that fill them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock, SystemClock
from slurm_operator.kube.named import NamedWatches
from slurm_operator.kube.reflector import Reflector
from slurm_operator.kube.resource import Resource, T
from slurm_operator.kube.store import Indexer, Store
from slurm_operator.runtime.optional import OptionalKind


class Caches:
    """Which kinds are followed is said once at start; which single objects, as references come and go.

    A kind that the cluster may not know is followed while it is served.
    """

    def __init__(self, client: Client, *, namespaces: Sequence[str] = (), clock: Clock | None = None) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._clock = clock or SystemClock()
        self.stores: dict[Resource[Any], Store[Any]] = {}
        self._named: dict[Resource[Any], NamedWatches[Any]] = {}
        self.followed: set[Resource[Any]] = set()
        """Kinds that are kept in memory now."""
        self._reflectors: list[Reflector[Any]] = []
        self._optional: dict[Resource[Any], OptionalKind] = {}
        self._serving: list[Callable[[Resource[Any]], None]] = []

    def follow(
        self, resource: Resource[T], *, labels: str = "", indexers: Mapping[str, Indexer[T]] | None = None
    ) -> Store[T]:
        """Keep a kind in memory: all of it or what the labels select, everywhere or in our namespaces alone."""
        store: Store[T] = Store(indexers)
        self._reflectors += self._make(resource, store, labels)
        self.stores[resource] = store
        self.followed.add(resource)
        return store

    def follow_if_served(
        self, resource: Resource[T], *, labels: str = "", indexers: Mapping[str, Indexer[T]] | None = None
    ) -> Store[T]:
        """Keep a kind in memory whenever the cluster knows it; it is among `followed` then."""
        store: Store[T] = Store(indexers)

        def changed(served: bool) -> None:
            (self.followed.add if served else self.followed.discard)(resource)
            for tell in self._serving:
                tell(resource)

        make = partial(self._make, resource, store, labels, fail_fast=False)
        self._optional[resource] = OptionalKind(self._client, resource, store, make, changed, self._clock)
        self.stores[resource] = store
        return store

    def when_served(self, tell: Callable[[Resource[Any]], None]) -> None:
        """`tell` hears of kinds that the cluster begins or ceases to know."""
        self._serving.append(tell)

    def _make(
        self, resource: Resource[T], store: Store[T], labels: str, *, fail_fast: bool = True
    ) -> list[Reflector[T]]:
        scopes = self._namespaces if resource.namespaced and self._namespaces else (None,)
        return [
            Reflector(
                self._client,
                resource,
                store,
                namespace=namespace,
                labels=labels,
                clock=self._clock,
                fail_fast=fail_fast,
            )
            for namespace in scopes
        ]

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
        optional = (one for kind in self._optional.values() for one in kind.reflectors)
        return [*self._reflectors, *optional, *(one for watches in self._named.values() for one in watches.reflectors)]

    async def synced(self) -> None:
        """Returns when every followed kind has been listed, and it is known which others are served."""
        for optional in self._optional.values():
            await optional.looked.wait()
        for resource in list(self.followed):
            await self.stores[resource].synced.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.label}")
            for resource, optional in self._optional.items():
                group.create_task(optional.run(), name=f"discover {resource.label}")
            for resource, watches in self._named.items():
                group.create_task(watches.run(), name=f"watch single {resource.label}")

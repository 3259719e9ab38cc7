"""A reflector under observation, and proof that it missed nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from slurm_operator.kube.client import Client
from slurm_operator.kube.kinds import CONFIG_MAPS, ConfigMap
from slurm_operator.kube.reflector import Reflector
from slurm_operator.kube.resource import Manifest
from slurm_operator.kube.store import Store

PATIENCE = 45.0


async def until(met: Callable[[], object], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not met():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.05)


class Follower:
    """Follows the config maps of one namespace and books every call its handler gets."""

    def __init__(self, client: Client, namespace: str, inactivity: float = 120.0) -> None:
        self.namespace = namespace
        self.store: Store[ConfigMap] = Store()
        self.arrivals: Counter[str] = Counter()
        self.departures: Counter[str] = Counter()
        self.updates: Counter[str] = Counter()
        self.store.subscribe(self._told)
        self.reflector = Reflector(client, CONFIG_MAPS, self.store, namespace=namespace, inactivity=inactivity)

    def _told(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        if old and new and old.metadata.uid == new.metadata.uid:
            self.updates[new.metadata.name] += 1
            return
        if old:
            self.departures[old.metadata.uid] += 1
        if new:
            self.arrivals[new.metadata.uid] += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Follower]:
        task = asyncio.ensure_future(self.reflector.run())
        try:
            async with asyncio.timeout(PATIENCE):
                await self.store.synced.wait()
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def caught_up(self, admin: Client) -> None:
        """Wait until the store holds what a fresh list holds; then each coming and going must have been told once."""
        truth = await self._truth(admin)
        async with asyncio.timeout(PATIENCE):
            while self.held() != truth:
                await asyncio.sleep(0.1)
                truth = await self._truth(admin)
        present = {uid for uid, _ in truth.values()}
        assert set(self.arrivals) == present | set(self.departures)
        assert not present & set(self.departures)
        assert all(count == 1 for count in (*self.arrivals.values(), *self.departures.values()))

    def held(self) -> dict[str, tuple[str, str]]:
        return {item.metadata.name: (item.metadata.uid, item.metadata.resource_version) for item in self.store}

    async def _truth(self, admin: Client) -> dict[str, tuple[str, str]]:
        listing = await admin.list(CONFIG_MAPS, self.namespace)
        return {item.metadata.name: (item.metadata.uid, item.metadata.resource_version) for item in listing.items}


class Editor:
    """Somebody else who changes config maps, by the book."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def _manifest(self, name: str, value: str) -> Manifest:
        return {"metadata": {"name": name, "namespace": self._namespace}, "data": {"v": value}}

    async def create(self, *names: str) -> None:
        for name in names:
            await self._client.create(CONFIG_MAPS, self._manifest(name, "0"))

    async def change(self, *names: str, value: str = "1") -> None:
        for name in names:
            await self._client.patch(CONFIG_MAPS, name, {"data": {"v": value}}, self._namespace)

    async def delete(self, *names: str) -> None:
        for name in names:
            await self._client.delete(CONFIG_MAPS, name, self._namespace)

    async def busy_hour(self, tag: str) -> None:
        """A bit of everything on the maps that `begin` made."""
        await self.create(f"{tag}-new", f"{tag}-brief")
        await self.change("stays")
        await self.delete(f"{tag}-brief", f"{tag}-goes")
        await self.delete(f"{tag}-returns")
        await self.create(f"{tag}-returns")

    async def begin(self, *tags: str) -> None:
        await self.create("stays", *(f"{tag}-{name}" for tag in tags for name in ("goes", "returns")))

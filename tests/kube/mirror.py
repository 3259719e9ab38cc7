"""A small but whole controller: each config map labelled `mirror=source` gets a copy that it owns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from slurm_operator.kube.apply import Applier
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.kinds import CONFIG_MAPS, NODES, ConfigMap, Node
from slurm_operator.kube.lease import Elector, Timing
from slurm_operator.kube.resource import Key, Manifest, version_of
from slurm_operator.kube.store import Store
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.controller import Controller
from slurm_operator.runtime.manager import Addresses, Manager
from slurm_operator.runtime.plan import Result
from slurm_operator.runtime.queue import Queue
from slurm_operator.runtime.sources import feed

NOWHERE = Addresses("0", "0")
BRISK = Timing(lease_seconds=8, renew_seconds=6.0, retry_seconds=0.5)
RULES = {
    "configmaps": ["get", "list", "watch", "create", "patch", "delete"],
    "leases.coordination.k8s.io": ["get", "create", "patch", "update"],
}


def source(name: str, namespace: str, value: str = "1") -> Manifest:
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"mirror": "source"}}, "data": {"v": value}}


class Mirror:
    """One replica of the operator."""

    def __init__(
        self,
        client: Client,
        identity: str,
        lease_namespace: str,
        *,
        namespaces: Sequence[str] = (),
        nodes: bool = False,
    ) -> None:
        self.reconciled: list[Key] = []
        self.caches = Caches(client, namespaces=namespaces)
        self.maps: Store[ConfigMap] = self.caches.follow(CONFIG_MAPS, labels="mirror")
        self.nodes: Store[Node] | None = self.caches.follow(NODES) if nodes else None
        self.queue = Queue("mirror")
        self.elector = Elector(client, lease_namespace, "mirror", identity, timing=BRISK)
        self._home = lease_namespace
        self._applier = Applier(client, "mirror")
        feed(self.queue, self.maps, self._keys)
        controller = Controller("mirror", self.queue, self._reconcile)
        self.manager = Manager(self.caches, [controller], elector=self.elector, addresses=NOWHERE)

    def _keys(self, found: ConfigMap) -> list[Key]:
        return [(found.metadata.namespace, found.metadata.name.removesuffix("-copy"))]

    async def _reconcile(self, key: Key) -> Result:
        self.reconciled.append(key)
        if found := self.maps.get(*key):
            await self._applier.apply(CONFIG_MAPS, self._copy(found), self.maps)
        return Result()

    def _copy(self, found: ConfigMap) -> Manifest:
        meta = found.metadata
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta.name, "uid": meta.uid, "controller": True}
        metadata = {"name": f"{meta.name}-copy", "namespace": meta.namespace, "labels": {"mirror": "copy"}}
        return {"metadata": metadata | {"ownerReferences": [owner]}, "data": found.data}

    def version(self, name: str) -> int:
        """Return the version of a map in the test's own namespace that was last seen."""
        found = self.maps.get(self._home, name)
        return version_of(found) if found else 0

    def copies(self) -> dict[str, str]:
        """In the test's own namespace: others stay behind with what earlier tests left in them."""
        found = self.maps.all(self._home)
        return {one.metadata.name: one.data["v"] for one in found if one.metadata.name.endswith("-copy")}


@asynccontextmanager
async def running(
    config: KubeConfig,
    identity: str,
    lease_namespace: str,
    *,
    namespaces: Sequence[str] = (),
    nodes: bool = False,
) -> AsyncIterator[tuple[Mirror, asyncio.Task[int]]]:
    """A replica in its own right; stopped in an orderly way at the end, unless it has ended by itself."""
    async with Client(config) as client:
        mirror = Mirror(client, identity, lease_namespace, namespaces=namespaces, nodes=nodes)
        task = asyncio.ensure_future(mirror.manager.run())
        try:
            yield mirror, task
        finally:
            mirror.manager.stop()
            async with asyncio.timeout(30):
                await asyncio.gather(task, return_exceptions=True)

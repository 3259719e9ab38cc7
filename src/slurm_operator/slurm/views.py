"""The views of all clusters, by the Controller they belong to. A sick cluster never holds up another."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.clock import Clock
from slurm_operator.slurm.known import Change, State, Unknown
from slurm_operator.slurm.pace import Pace
from slurm_operator.slurm.rest import Cost
from slurm_operator.slurm.transport import HttpTransport, Transport
from slurm_operator.slurm.view import SlurmView

log = logging.getLogger(__name__)

ClusterKey = tuple[str, str]
"""Namespace and name of the Controller."""

_AFTER_A_CRASH = 5.0


class _Cluster:
    def __init__(self, url: str, client: SlurmClient, view: SlurmView, task: asyncio.Task[None]) -> None:
        self.url = url
        self.client = client
        self.view = view
        self.task = task


class SlurmViews:
    """Lives as long as the program; every cluster has its own connections, poller and circuit breaker."""

    def __init__(
        self,
        clock: Clock,
        *,
        pace: Pace | None = None,
        transport: Callable[[], Transport] = HttpTransport,
        observe: Callable[[ClusterKey, Cost], None] = lambda cluster, cost: None,
        forget: Callable[[ClusterKey], None] = lambda cluster: None,
    ) -> None:
        self._clock = clock
        self._pace = pace
        self._transport = transport
        self._observe = observe
        self._forget = forget
        self._clusters: dict[ClusterKey, _Cluster] = {}
        self._subscribers: list[Callable[[ClusterKey, Change], None]] = []
        self._no_view = Unknown(clock.now(), "no RestApi of this cluster is known")

    def subscribe(self, subscriber: Callable[[ClusterKey, Change], None]) -> None:
        """Be told of every change in any cluster, present or future."""
        self._subscribers.append(subscriber)

    def __contains__(self, cluster: ClusterKey) -> bool:
        return cluster in self._clusters

    @property
    def clusters(self) -> Mapping[ClusterKey, SlurmView]:
        return {key: cluster.view for key, cluster in self._clusters.items()}

    def get(self, cluster: ClusterKey) -> SlurmView | None:
        found = self._clusters.get(cluster)
        return found.view if found else None

    def client(self, cluster: ClusterKey) -> SlurmClient | None:
        """For what the view does not cover: reservations, reconfigure, accounting."""
        found = self._clusters.get(cluster)
        return found.client if found else None

    def state(self, cluster: ClusterKey) -> State:
        found = self._clusters.get(cluster)
        return found.view.state if found else self._no_view

    def set(self, cluster: ClusterKey, url: str, key: bytes) -> SlurmView:
        """Watch a cluster, or go on watching it with another key or address; nothing happens if both are the same."""
        found = self._clusters.get(cluster)
        if found is None:
            return self._start(cluster, url, key)
        found.view.set_key(key)
        if found.url != url:
            found.url = url
            found.view.set_url(url)
        return found.view

    async def remove(self, cluster: ClusterKey) -> None:
        found = self._clusters.pop(cluster, None)
        if found is None:
            return
        found.task.cancel()
        await asyncio.wait([found.task])
        await found.client.close()
        if cluster not in self._clusters:
            self._forget(cluster)
        self._tell(cluster, Change(frozenset(), found.view.state, self._no_view))

    async def close(self) -> None:
        for cluster in list(self._clusters):
            await self.remove(cluster)

    def _start(self, cluster: ClusterKey, url: str, key: bytes) -> SlurmView:
        client = SlurmClient(
            url,
            key,
            self._clock,
            transport=self._transport(),
            observe=lambda cost: self._spent(cluster, client, cost),
        )
        view = SlurmView(client, self._clock, self._pace)
        view.subscribe(lambda change: self._tell(cluster, change))
        task = asyncio.create_task(_keep_running(view), name=f"slurm view {'/'.join(cluster)}")
        self._clusters[cluster] = _Cluster(url, client, view, task)
        return view

    def _spent(self, cluster: ClusterKey, client: SlurmClient, cost: Cost) -> None:
        """Pass on what a call cost, unless its cluster was removed meanwhile."""
        found = self._clusters.get(cluster)
        if found is not None and found.client is client:
            self._observe(cluster, cost)

    def _tell(self, cluster: ClusterKey, change: Change) -> None:
        for subscriber in list(self._subscribers):
            subscriber(cluster, change)


async def _keep_running(view: SlurmView) -> None:
    while True:
        try:
            await view.run()
        except Exception:
            log.exception("the poller of a Slurm cluster crashed; it starts again in %g s", _AFTER_A_CRASH)
            view.crashed("the poller crashed and starts again in a moment")
        await asyncio.sleep(_AFTER_A_CRASH)

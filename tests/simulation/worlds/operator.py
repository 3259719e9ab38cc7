"""The operator's process in a world: the project's own observer, decision, actions and executor, on doubles.

A pass happens when something changed that the operator can see, or when its own timer is due, as the queue does it.
"""

import asyncio
import dataclasses
import random
from dataclasses import dataclass, field
from typing import Any, cast

from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.kinds import PODS
from slurm_operator.kube.resource import Key, Resource
from slurm_operator.kube.store import Store
from slurm_operator.nodeset import decide as decision
from slurm_operator.nodeset import reconcile
from slurm_operator.nodeset.observe import Observer
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import Kube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.execute import PlanError
from slurm_operator.runtime.plan import Plan
from slurm_operator.runtime.references import References, Refs
from slurm_operator.slurm.views import SlurmViews
from tests.simulation.worlds.chance import Chance, Crashed
from tests.simulation.worlds.kube import ClientDouble, KubeTruth, empty_store
from tests.simulation.worlds.view import Views

RETRY_SECONDS = 30.0
"""The longest back-off of a pass that failed."""


@dataclass
class CachesDouble:
    stores: dict[Resource[Any], Store[Any]]

    def store(self, resource: Resource[Any]) -> Store[Any]:
        return self.stores.setdefault(resource, empty_store())


class ReferencesDouble:
    """The NodeSets of these worlds refer to no Secret."""

    def read(self, owner: object, namespace: str, **wanted: object) -> Refs:
        return Refs({}, {}, loading=False)

    def drop(self, owner: object) -> None: ...


@dataclass
class RecorderDouble:
    told: list[str] = field(default_factory=list)

    def record(self, resource: Resource[Any], about: Any, reason: str, note: str, *, type: str = "Normal") -> None:  # noqa: A002 - as in Recorder.record
        self.told.append(f"{about.metadata.name}: {reason}: {note}")


@dataclass
class Process:
    """What a restart loses: the stores, what is known of Slurm, the memory of the reconcilers and the timers."""

    truth: KubeTruth
    client: ClientDouble
    views: Views
    clock: Clock
    chance: Chance
    recorder: RecorderDouble
    rng: random.Random
    changed: set[str] = field(default_factory=set)
    """Namespaces in which something happened that the operator can see."""
    due: dict[Key, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        caches = cast("Caches", CachesDouble(self.truth.stores))
        views = cast("SlurmViews", self.views)
        recorder = cast("Recorder", self.recorder)
        kube = Kube(
            cast("Client", self.client), recorder, self.truth.stores, manager="slurm-operator", clock=self.clock
        )
        see = Observer(caches, cast("References", ReferencesDouble()), views, self.clock, domain="cluster.local")
        self.nodesets = reconcile.NodeSetReconciler(see, kube, views, self.clock)
        self.pods = reconcile.PodStateReconciler(caches, kube, views, self.clock)
        for store in self.truth.stores.values():
            store.subscribe(self._notice)

    def _notice(self, old: Any, new: Any) -> None:
        namespace = (new or old).metadata.namespace
        self.changed |= {namespace} if namespace else {key[0] for key in self.views.by_cluster}

    def is_due(self, key: Key) -> bool:
        return key[0] in self.changed or self.due.get(key, float("inf")) <= self.clock.now()

    def wants(self) -> list[Key]:
        """The NodeSets that the queue would hand out now."""
        keys = [*self.truth.all(NODESETS), *(key for key in self.due if key not in self.truth.all(NODESETS))]
        return [key for key in keys if self.is_due(key)]

    async def reconcile(self, key: Key) -> None:
        """One pass over a NodeSet; a failure is tried again later."""
        self.changed.discard(key[0])
        self.due.pop(key, None)
        try:
            after = (await self.nodesets(key)).after
        except PlanError:
            after = RETRY_SECONDS
        if after is not None:
            self.due[key] = self.clock.now() + after

    async def report_on_pods(self, namespace: str) -> None:
        """What each pod says of its Slurm node; also woken by every change."""
        for key in [key for key in self.truth.all(PODS) if key[0] == namespace]:
            try:
                await self.pods(key)
            except Crashed:
                raise
            except Exception:  # the queue tries it again
                self.changed.add(namespace)


def shuffled(world: World, rng: random.Random) -> Plan[Any]:
    """Actions of one urgency have no order of their own: the executor runs them at the same time."""
    plan = decision.decide(world)
    actions = list(plan.actions)
    rng.shuffle(actions)
    return dataclasses.replace(plan, actions=tuple(actions))


def run(main: Any) -> Any:
    """Run a history that never waits for anything but its own steps."""
    with asyncio.Runner() as runner:
        return runner.run(main)

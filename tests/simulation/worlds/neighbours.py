"""Two clusters and one operator with its real queue and workers, in virtual time: one is sick, the other is not."""

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slurm_operator.api import Controller, NodeSet, names
from slurm_operator.api.kind import UserMeta
from slurm_operator.api.nodeset import NodeSetSpec
from slurm_operator.kube.custom import CONTROLLERS, NODESETS
from slurm_operator.kube.kinds import POD_DISRUPTION_BUDGETS, Pod, PodDisruptionBudget
from slurm_operator.kube.model import ChildMeta
from slurm_operator.kube.resource import Key, Manifest, Resource
from slurm_operator.runtime.controller import Controller as Workers
from slurm_operator.runtime.queue import Backoff, Queue
from slurm_operator.slurm.errors import DeadlineExceeded
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.model import Node, NodeUpdate
from tests.fakes.clock import FakeClock, run_virtual
from tests.simulation.worlds.chance import Chance
from tests.simulation.worlds.kube import ClientDouble, KubeTruth
from tests.simulation.worlds.machines import POOL, Machines
from tests.simulation.worlds.operator import Process, RecorderDouble
from tests.simulation.worlds.rules import Breaches, Rule, RuleBrokenError
from tests.simulation.worlds.slurm import SlurmTruth
from tests.simulation.worlds.view import View, Views

SICK, WELL = "east", "west"
CALM = ""
"""No illness."""
ILLNESSES = ("slurm hangs", "slurm answers nonsense", "writes are refused", "pods fail")
NODESETS_OF_THE_SICK = 6
"""More than the operator has workers."""
ARRIVAL_SECONDS = 60.0
"""Seconds in which the other cluster must follow a change."""
BEFORE_SECONDS = 150.0
"""Seconds for which one is sick before the other is changed: back-offs are long by then."""
FOR_EVER = 1e9


@dataclass
class SickView(View):
    """A slurmrestd that does not answer, or whose answers nobody foresaw."""

    illness: str = ""

    async def look(self, names: Collection[str]) -> dict[str, Node]:
        await self._suffer(None)
        return await View.look(self, names)

    async def update(self, names: Collection[str], update: NodeUpdate) -> None:
        await self._suffer(None)
        await View.update(self, names, update)

    async def read_jobs(self, max_age: float, patience: float | None = None) -> JobList:
        await self._suffer(patience)
        return await View.read_jobs(self, max_age, patience)

    async def _suffer(self, patience: float | None) -> None:
        if self.illness == "slurm hangs":
            await asyncio.sleep(FOR_EVER if patience is None else patience)
            raise DeadlineExceeded("GET node/", "no answer")
        if self.illness == "slurm answers nonsense":
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


@dataclass
class SickClient(ClientDouble):
    illness: str = ""

    async def create(self, res: Resource[Any], manifest: Manifest) -> Any:
        self._suffer(manifest["metadata"]["namespace"])
        return await ClientDouble.create(self, res, manifest)

    async def apply(self, res: Resource[Any], manifest: Manifest, **options: Any) -> Any:
        self._suffer(manifest["metadata"]["namespace"])
        return await ClientDouble.apply(self, res, manifest, **options)

    def _suffer(self, namespace: str) -> None:
        if self.illness == "writes are refused" and namespace == SICK:
            raise RuntimeError("a proxy on the way to the API server answers nonsense")


@dataclass
class Cluster:
    slurm: SlurmTruth
    machines: Machines
    view: View


@dataclass
class Neighbours:
    """Built inside of the virtual loop."""

    seed: int
    illness: str
    clock: FakeClock = field(default_factory=FakeClock)
    breaches: Breaches = field(default_factory=Breaches)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.kube = KubeTruth(self.clock)
        chance = Chance(random.Random(self.seed))
        client = SickClient(self.kube, chance, self._about_to_delete, illness=self.illness)
        self.queue = Queue("nodeset", clock=self.clock, backoff=Backoff(longest=30.0))
        self.clusters = {namespace: self._cluster(namespace, chance) for namespace in (SICK, WELL)}
        for number in range(NODESETS_OF_THE_SICK):
            self._create(SICK, "gpu" if number == 0 else f"gpu{number}", 2)
        self._create(WELL, "gpu", 2)
        views = Views({(namespace, "slurm"): cluster.view for namespace, cluster in self.clusters.items()})
        process = Process(self.kube, client, views, self.clock, chance, RecorderDouble(), self.rng)
        self.workers = Workers("nodeset", self.queue, process.nodesets, workers=4, clock=self.clock)
        for store in self.kube.stores.values():
            store.subscribe(self._notice)

    def _cluster(self, namespace: str, chance: Chance) -> Cluster:
        slurm = SlurmTruth(self.clock.now)
        machines = Machines(namespace, self.kube, slurm, self.clock, random.Random(f"{self.seed} {namespace}"))
        for number in range(2 * NODESETS_OF_THE_SICK):
            machines.add_node(number)
        self.kube.put(CONTROLLERS, Controller(metadata=UserMeta(name="slurm", namespace=namespace)))
        budget = ChildMeta(name=names.workers_budget("slurm"), namespace=namespace)
        self.kube.put(POD_DISRUPTION_BUDGETS, PodDisruptionBudget(metadata=budget))
        view = SickView(
            slurm,
            self.clock,
            chance,
            self.breaches,
            lambda name: self.clock.now(),
            lambda: self._wake(namespace),
            illness=self.illness if namespace == SICK else "",
        )
        return Cluster(slurm, machines, view)

    def _about_to_delete(self, pod: Pod) -> None:
        self.clusters[pod.metadata.namespace].view.check_removal(pod.spec.hostname, pod.status.pod_ip)

    def _create(self, namespace: str, name: str, replicas: int) -> None:
        given = {
            "controllerRef": {"name": "slurm"},
            "slurmd": {"image": "slurmd:0"},
            "logfile": {"image": "log"},
            "template": {"spec": {"nodeSelector": {POOL: namespace}}},
            "replicas": replicas,
        }
        meta = UserMeta(name=name, namespace=namespace, generation=1)
        self.kube.put(NODESETS, NodeSet(metadata=meta, spec=msgspec.convert(given, NodeSetSpec)))

    def _notice(self, old: Any, new: Any) -> None:
        self._wake((new or old).metadata.namespace)

    def _wake(self, namespace: str) -> None:
        for key in self.kube.all(NODESETS):
            if namespace in ("", key[0]):
                self.queue.add(key)

    # The course of things

    async def live(self) -> None:
        """Both are changed again and again; the well one must follow each time."""
        running = [asyncio.create_task(self.workers.run()), asyncio.create_task(self._world())]
        try:
            await asyncio.sleep(BEFORE_SECONDS)
            for turn, replicas in enumerate((2, self.rng.randrange(1, 4), 0, self.rng.randrange(1, 4))):
                for key in list(self.kube.all(NODESETS)):
                    self._scale(key, replicas if key[0] == WELL else 1 + turn % 2)
                await self._wait_for(replicas)
            if any(task.done() for task in running):
                raise RuleBrokenError(Rule.CLUSTERS_ARE_APART, "the operator's workers have ended")
            self._check_report()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        self.breaches.check()

    async def _world(self) -> None:
        """Pollers, kubelets and slurmds."""
        while True:
            for cluster in self.clusters.values():
                cluster.view.read()
                cluster.machines.pass_time()
            if self.illness == "pods fail":
                for pod in self.clusters[SICK].machines.pods():
                    self.clusters[SICK].machines.fail(pod)
            await asyncio.sleep(2.0)

    def _scale(self, key: Key, replicas: int) -> None:
        found = self.kube.all(NODESETS)[key]
        spec = msgspec.structs.replace(found.spec, replicas=replicas)
        meta = msgspec.structs.replace(found.metadata, generation=found.metadata.generation + 1)
        self.kube.put(NODESETS, msgspec.structs.replace(found, metadata=meta, spec=spec))

    async def _wait_for(self, replicas: int) -> None:
        slurm, machines = self.clusters[WELL].slurm, self.clusters[WELL].machines
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS):
                while True:
                    serving = [name for name in slurm.records if slurm.takes_jobs(name)]
                    if len(serving) == len(slurm.records) == len(machines.pods()) == replicas:
                        return
                    await asyncio.sleep(1.0)
        except TimeoutError:
            told = f"{WELL} has {sorted(slurm.records)} instead of {replicas} workers while in {SICK} {self.illness}"
            raise RuleBrokenError(Rule.CLUSTERS_ARE_APART, told) from None

    def _check_report(self) -> None:
        status = self.kube.all(NODESETS)[WELL, "gpu"].status
        degraded = status.condition(names.CONDITION_DEGRADED)
        if degraded is not None and degraded.status == "True":
            raise RuleBrokenError(
                Rule.CLUSTERS_ARE_APART, f"{WELL} says {degraded.message} while in {SICK} {self.illness}"
            )


def live_beside(illness: str, seed: int) -> None:
    """Run a history of two clusters; raises RuleBrokenError if the well one notices the sick one."""

    async def both() -> None:
        await Neighbours(seed, illness).live()

    run_virtual(both())

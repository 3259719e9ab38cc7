"""A cluster with one NodeSet and everything that can happen to it, step by step."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import msgspec

from slurm_operator.api import Controller, NodeSet, names
from slurm_operator.api.kind import UserMeta
from slurm_operator.api.nodeset import NodeSetSpec
from slurm_operator.kube.custom import CONTROLLERS, NODESETS
from slurm_operator.kube.kinds import POD_DISRUPTION_BUDGETS, Pod, PodDisruptionBudget
from slurm_operator.kube.model import ChildMeta
from slurm_operator.nodeset import reconcile
from slurm_operator.runtime.times import seconds_of
from slurm_operator.slurm.hostlist import members
from slurm_operator.slurm.known import Unknown, still_asking
from tests.simulation.worlds.chance import Chance, Crashed
from tests.simulation.worlds.clock import ManualClock
from tests.simulation.worlds.kube import ClientDouble, KubeTruth
from tests.simulation.worlds.machines import POOL, Machines
from tests.simulation.worlds.operator import Process, RecorderDouble, shuffled
from tests.simulation.worlds.rules import Breaches
from tests.simulation.worlds.slurm import SlurmTruth
from tests.simulation.worlds.view import View, Views

STEP_SECONDS = 10.0
EVENT_SECONDS = 1.5
"""Seconds that an event takes: a last look may use a list of jobs that is a second old."""
NAMESPACE = "slurm"
NAME = "gpu"
NODES = 8
KEY = (NAMESPACE, NAME)


@dataclass(frozen=True)
class Decision:
    """What an administrator said of a Slurm node, and has not taken back."""

    drain: bool
    reason: str


class History:
    """One cluster, one NodeSet, one operator. `meanwhile` is called between the operator's look and its writes."""

    def __init__(self, seed: int, *, namespace: str = NAMESPACE) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.key = (namespace, NAME)
        self.clock = ManualClock()
        self.chance = Chance(random.Random(f"chance {seed}"))
        self.breaches = Breaches()
        self.kube = KubeTruth(self.clock)
        self.slurm = SlurmTruth(self.clock.now)
        self.machines = Machines(namespace, self.kube, self.slurm, self.clock, random.Random(f"machines {seed}"))
        self.writes: list[str] = []
        """Everything that the operator wrote, to whom ever."""
        self.client = ClientDouble(self.kube, self.chance, self._about_to_delete, self.writes)
        self.recorder = RecorderDouble(self.writes)
        self.story: list[str] = []
        self.decisions: dict[str, Decision] = {}
        self.deleted_records: set[str] = set()
        """Nodes whose record an administrator deleted: slurmd does not register again by itself."""
        self.restarts = 0
        for number in range(NODES):
            self.machines.add_node(number)
        cluster = UserMeta(name="slurm", namespace=namespace)
        self.kube.put(CONTROLLERS, Controller(metadata=cluster))
        budget = ChildMeta(name=names.workers_budget("slurm"), namespace=namespace)
        self.kube.put(POD_DISRUPTION_BUDGETS, PodDisruptionBudget(metadata=budget))
        self.start_operator()

    def start_operator(self) -> None:
        """A new process: it knows nothing before its first reads."""
        self.chance.dead, self.chance.dies_after = False, None
        self.view = View(
            self.slurm, self.clock, self.chance, self.breaches, self._written_down_at, lambda: self._changed()
        )
        self.view.writes = self.writes
        self.kube.restart_watches()
        views = Views({(self.key[0], "slurm"): self.view})
        rng = random.Random(f"process {self.seed} {self.restarts}")
        self.process = Process(self.kube, self.client, views, self.clock, self.chance, self.recorder, rng)
        self._changed()
        self.restarts += 1

    def _changed(self) -> None:
        self.process.changed.add(self.key[0])

    def _written_down_at(self, name: str) -> float | None:
        drains = self.nodeset.status.drains if self.exists else ()
        return min(
            (seconds_of(drain.since, absent=0.0) for drain in drains if name in members(drain.nodes)), default=None
        )

    def _about_to_delete(self, pod: Pod) -> None:
        if self.machines.is_up(pod):
            self.view.check_removal(pod.spec.hostname, pod.status.pod_ip)

    # The NodeSet

    @property
    def exists(self) -> bool:
        return self.key in self.kube.all(NODESETS)

    @property
    def nodeset(self) -> NodeSet:
        found: NodeSet = self.kube.all(NODESETS)[self.key]
        return found

    def create_nodeset(self, replicas: int, **spec: Any) -> None:
        given = {
            "controllerRef": {"name": "slurm"},
            "slurmd": {"image": "slurmd:0"},
            "logfile": {"image": "log"},
            "template": {"spec": {"nodeSelector": {POOL: self.key[0]}}},
            "replicas": replicas,
            **spec,
        }
        meta = UserMeta(name=NAME, namespace=self.key[0], generation=1)
        self.kube.put(NODESETS, NodeSet(metadata=meta, spec=msgspec.convert(given, NodeSetSpec)))

    def change_nodeset(self, **spec: Any) -> None:
        if not self.exists or self.nodeset.metadata.deletion_timestamp is not None:
            return
        nodeset = self.nodeset
        changed = msgspec.structs.replace(nodeset.spec, **spec)
        if changed == nodeset.spec:
            return
        meta = msgspec.structs.replace(nodeset.metadata, generation=nodeset.metadata.generation + 1)
        self.kube.put(NODESETS, msgspec.structs.replace(nodeset, metadata=meta, spec=changed))

    def delete_nodeset(self) -> None:
        if self.exists:
            self.kube.begin_deletion(NODESETS, self.key)

    # Steps

    def happens(self, what: str, event: Callable[[], None]) -> None:
        """Something happens; breaches inside of it are the operator's."""
        self.clock.seconds += EVENT_SECONDS
        self.story.append(f"{self.clock.seconds:6.0f} s  {what}")
        event()

    async def operate(self) -> None:
        """The operator does what it wants to do now; a crash is followed by a new process."""
        self._answer_first_read()
        try:
            with patch.object(reconcile, "decide", lambda world: shuffled(world, self.process.rng)):
                for key in self.process.wants():
                    before = len(self.writes)
                    await self.process.reconcile(key)
                    self.story += [f"{self.clock.seconds:6.0f} s      {write}" for write in self.writes[before:]]
                await self.process.report_on_pods(self.key[0])
        except (Crashed, BaseExceptionGroup):
            if not self.chance.dead:
                raise
            self.start_operator()
            self.story.append(f"{self.clock.seconds:6.0f} s      the operator crashed and is started again")
        self.breaches.check()

    def _answer_first_read(self) -> None:
        """A new process reads Slurm at once, and gets its first answer in time if Slurm can be reached."""
        state = self.view.state
        unread = isinstance(state, Unknown) and state.last is None and state.error is None
        if unread and self.slurm.reachable and not still_asking(state, self.clock.now()):
            self.view.read()

    def pass_time(self, seconds: float = STEP_SECONDS) -> None:
        self.clock.seconds += seconds
        self.machines.pass_time()

    def tell(self) -> str:
        return "\n".join(self.story[-60:])

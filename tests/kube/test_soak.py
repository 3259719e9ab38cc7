"""Half an hour of NodeSets that come and go, with jobs on them: the operator ends as big as it was after ten minutes.

Kubernetes is real but for its kubelets, and slurmrestd is simulated. SOAK_MINUTES=3 tries the test itself, which proves
nothing of the operator: only the full half hour counts.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import aiohttp
import pytest
from bench.process import resident_mb

from slurm_local.apiserver import ApiServer, free_ports
from slurm_local.processes import Background
from slurm_local.simulation import SimulatedNodes
from slurm_operator.api import names
from slurm_operator.cli.keys import key_secret
from slurm_operator.runtime.clock import SystemClock
from tests.fakes.slurmrestd import KEY
from tests.kube.control_plane import Place, example, place, until
from tests.kube.workers import CLUSTER, _encoded, gone, nodeset_of, prepare, workers

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
WARM_PART = 1 / 3
"""Part of the time after which the operator has its final size."""
NODESETS, JOBS = round(500 * MINUTES / 30), round(5000 * MINUTES / 30)
GROWTH_MB = 2.0
OF_THE_MOMENT = (
    "slurm.transport.HttpTransport._idle",
    "runtime.queue._Timers._heap",
    "runtime.metrics.",
    "runtime.stats.",
)
"""Idle connections to slurmrestd; replaced timers, which leave the heap in time (`_due`, one for each key, counts);
numbers for each kind of answer that was ever seen."""
OF_SIX_MINUTES = ("kube.events.Recorder._known", "kube.events.Recorder._budget")
"""Events that are remembered for six minutes: about as many at any time, as NodeSets come and go at the same pace."""
PACE_VARIES = 1.25
LANES = 8
"""NodeSets that exist at the same time."""
PERIOD_SECONDS = 2.5
"""From one new NodeSet to the next: 720 in half an hour."""
REST_SECONDS = 20.0
"""Seconds in which the operator notices that nothing is left to do."""
JOBS_EACH = 10
JOB_SECONDS = 0.15
POOL = "soak"


@dataclass(frozen=True)
class Size:
    """The operator at a moment when no NodeSet exists."""

    resident_mb: float
    files: int
    tasks: int
    remembered: dict[str, int]

    def __str__(self) -> str:
        return f"{self.resident_mb:.1f} MB, {self.files} files, {self.tasks} tasks"

    def growth_of(self, before: "Size") -> dict[str, tuple[int, int]]:
        """Return what is remembered more, or less, than before."""
        keys = {**before.remembered, **self.remembered}
        pairs = {key: (before.remembered.get(key, 0), self.remembered.get(key, 0)) for key in keys}
        return {key: pair for key, pair in pairs.items() if not _same(key, *pair)}


def _same(key: str, before: int, after: int) -> bool:
    if key in OF_SIX_MINUTES:
        return after <= before * PACE_VARIES
    return before == after or key.startswith(OF_THE_MOMENT)


class Operator:
    """The operator as a process of its own."""

    def __init__(self, here: Place, folder: Path) -> None:
        health = f"127.0.0.1:{free_ports(1)[0]}"
        self._ready = f"http://{health}/readyz"
        self._told = folder / "told.json"
        command = [sys.executable, "-m", "tests.kube.operator_probe", str(self._told), "run"]
        options = [
            f"--kubeconfig={here.kubeconfig}",
            f"--namespaces={here.namespace}",
            f"--health-addr={health}",
            "--metrics-addr=0",
            f"--slurm-url={here.namespace}/{CLUSTER}={here.slurm_url}",
        ]
        self.process = Background("slurm-operator", [*command, *options], folder / "operator.log")

    @asynccontextmanager
    async def run(self) -> AsyncIterator["Operator"]:
        self.process.start()
        try:
            await until(self._answers)
            yield self
        finally:
            self.process.stop(patience=20)

    async def _answers(self) -> bool:
        self.process.check()
        try:
            async with aiohttp.ClientSession() as session, session.get(self._ready) as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False

    async def size(self) -> Size:
        pid = self.process.pid
        assert pid is not None
        resident = resident_mb(pid)
        self._told.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)

        async def told() -> bool:
            self.process.check()
            return self._told.exists()

        await until(told)
        found = json.loads(self._told.read_text())
        return Size(resident, found["files"], found["tasks"], found["remembered"])


@dataclass
class Churn:
    """NodeSets that come, run jobs and go."""

    here: Place
    began: float = field(default_factory=time.monotonic)
    made: int = 0
    jobs: int = 0
    _names: Iterator[int] = field(default_factory=count)
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    async def go_on(self, until_second: float) -> None:
        """Return when the time has come and the last NodeSet is gone."""
        async with asyncio.TaskGroup() as lanes:
            for lane in range(LANES):
                lanes.create_task(self._lane(lane, until_second))

    async def _lane(self, lane: int, until_second: float) -> None:
        await asyncio.sleep(lane * PERIOD_SECONDS)
        while time.monotonic() - self.began < until_second:
            began = time.monotonic()
            await self._live(f"soak{next(self._names)}", 1 + lane % 2)
            rest = began + LANES * PERIOD_SECONDS - time.monotonic()
            await asyncio.sleep(max(0.0, min(rest, until_second - (time.monotonic() - self.began))))

    async def _live(self, name: str, replicas: int) -> None:
        manifest = nodeset_of(POOL, replicas=replicas)
        manifest["metadata"]["name"] = name
        await self.here.apply(manifest)
        await until(partial(self._registered, name, replicas))
        for number in range(JOBS_EACH):
            await self._run_job(f"{name}-{number % replicas}")
        await self.here.delete("NodeSet", name)
        await until(partial(gone, self.here, "NodeSet", name))
        self.made += 1

    async def _registered(self, name: str, replicas: int) -> bool:
        return all(f"{name}-{number}" in self.here.slurm.nodes for number in range(replicas))

    async def _run_job(self, node: str) -> None:
        number, slurm = next(self._ids), self.here.slurm
        slurm.start_job(number, node)
        self.jobs += 1
        await asyncio.sleep(JOB_SECONDS)
        slurm.end_job(number)
        await asyncio.sleep(JOB_SECONDS)
        del slurm.jobs[number]  # as slurmctld after MinJobAge

    async def tell(self, operator: Operator) -> None:
        """Progress, once a minute."""
        while True:
            await asyncio.sleep(min(60.0, MINUTES * 10))
            minutes, size = (time.monotonic() - self.began) / 60, resident_mb(operator.process.pid or 0)
            print(f"{minutes:5.1f} min: {self.made} NodeSets, {self.jobs} jobs, {size:.1f} MB", flush=True)
            self.here.slurm.calls.clear()
            self.here.slurm.tokens.clear()


@asynccontextmanager
async def _cluster(server: ApiServer, namespace: str) -> AsyncIterator[Place]:
    async with place(server, namespace) as here:
        secret = key_secret("slurm-keys")
        secret["data"]["jwt.key"] = _encoded(KEY)
        (controller,) = example("Controller")
        del controller["spec"]["accountingRef"]
        await here.apply(secret, *example("Secret", "ConfigMap"), controller, *example("RestApi"))
        registering = asyncio.create_task(_register(here))
        try:
            yield here
        finally:
            registering.cancel()


async def _register(here: Place) -> None:
    """Each slurmd registers once, when it starts: a record that is deleted later does not come back."""
    seen: set[str] = set()
    while True:
        pods = [pod for pod in (await workers(here)).values() if pod.status.phase == "Running"]
        for pod in pods:
            if pod.metadata.uid not in seen:
                feature, started = pod.metadata.labels[names.LABEL_INSTANCE], int(SystemClock().now())
                here.slurm.add_nodes(
                    pod.metadata.name, address=pod.status.pod_ip, slurmd_start=started, features=[feature]
                )
        seen = {pod.metadata.uid for pod in pods}
        await asyncio.sleep(0.2)


async def _empty(here: Place) -> bool:
    return not await workers(here) and not here.slurm.nodes


async def _at_rest(here: Place, operator: Operator) -> Size:
    """Measure when nothing of a NodeSet is left and the operator has had time to notice."""
    await until(partial(_empty, here))
    await asyncio.sleep(REST_SECONDS)
    return await operator.size()


@pytest.fixture(scope="module")
def nodes(simulated_nodes: SimulatedNodes) -> SimulatedNodes:
    """As many Nodes as workers may exist: two workers never share one, and old ones take a moment to go."""
    prepare(simulated_nodes, POOL, LANES * 3)
    return simulated_nodes


@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 900)
async def test_half_an_hour_of_nodesets_and_jobs_leaves_nothing_behind(
    nodes: SimulatedNodes, namespace: str, tmp_path: Path
) -> None:
    async with _cluster(nodes.server, namespace) as here, Operator(here, tmp_path).run() as operator:
        await here.all_ready(("Controller", CLUSTER), ("RestApi", CLUSTER))
        churn = Churn(here)
        telling = asyncio.create_task(churn.tell(operator))
        try:
            await churn.go_on(MINUTES * 60 * WARM_PART)
            warm = await _at_rest(here, operator)
            await churn.go_on(MINUTES * 60)
            last = await _at_rest(here, operator)
        finally:
            telling.cancel()
    print(f"{churn.made} NodeSets, {churn.jobs} jobs; {warm}, then {last}; {last.growth_of(warm)}")
    assert (churn.made >= NODESETS, churn.jobs >= JOBS) == (True, True), (churn.made, churn.jobs)
    assert last.growth_of(warm) == {}
    assert (last.tasks, last.files) == (warm.tasks, warm.files)
    assert last.resident_mb <= warm.resident_mb + GROWTH_MB

"""The hands that the operator's Slurm actions need, on a real Slurm, and the pods of its workers."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from slurm_local.lab import SlurmLab
from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain as RecordedDrain
from slurm_operator.api.nodeset import NodeSet, NodeSetStatus
from slurm_operator.kube.kinds import PODS, Pod
from slurm_operator.nodeset.slurm_actions import KEPT_SECONDS, Drain, Undrain
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import Kube
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.model import Node
from slurm_operator.slurm.reasons import our_reason
from slurm_operator.slurm.view import SlurmView
from tests.e2e.slurm_rest import Clock, in_state, until, until_state
from tests.unit.nodeset import make

SCALED_IN = our_reason("NodeSet slurm/gpu is scaled in")
OTHER_ADDRESS = "192.0.2.1"
"""All workers of the lab share one address."""


class Cluster:
    """Real workers w-0 to w-3, records n-01 to n-17 without slurmd, and the hands that the operator's actions need."""

    def __init__(self, lab: SlurmLab, view: SlurmView, client: SlurmClient) -> None:
        self.lab = lab
        self.slurm = view
        self.client = client
        self.kept: set[str] = set()
        self.deleted: list[str] = []
        self.kube = cast("Kube", SimpleNamespace(client=SimpleNamespace(delete=self._delete)))
        self._gates = 0

    # --- hands ----------------------------------------------------------------------------------------------------

    async def _delete(self, resource: object, name: str, *_: object, **__: object) -> None:
        assert resource is PODS
        self.deleted.append(name)

    def note_kept(self, names: Iterable[str], seconds: float = KEPT_SECONDS) -> None:
        self.kept.update(names)

    def monotonic(self) -> float:
        return Clock.monotonic()

    # --- what tests do --------------------------------------------------------------------------------------------

    def gate(self) -> str:
        """Return a new file that a job may wait for."""
        self._gates += 1
        return f"/tmp/gate-{self._gates}"

    def open(self, gate: str) -> None:
        self.lab.box.path(gate).touch()

    async def submit(self, options: str, gate: str) -> int:
        wait = f"until [ -e {gate} ]; do sleep 0.2; done"
        return int(await self.lab.run(f"sbatch --parsable -t 30 -o /dev/null {options} --wrap '{wait}'"))

    async def reaches(self, job: int, state: str) -> None:
        await until(lambda: in_state(self.client, job, state))

    async def drain(self, name: str) -> Node:
        await Drain((name,), SCALED_IN).run(self)
        return await until_state(self.client, name, "DRAIN")

    async def node(self, name: str) -> Node | None:
        return (await self.slurm.look((name,))).get(name)

    async def seen(self, holds: Callable[[Known], bool]) -> Known:
        """Return what the view knows once a read after our writes shows this."""

        async def there() -> bool:
            state = self.slurm.state
            return isinstance(state, Known) and not state.pending and holds(state)

        await until(there)
        assert isinstance(self.slurm.state, Known)
        return self.slurm.state

    async def world(self, nodeset: NodeSet, *pods: Pod) -> World:
        """What the operator would decide on right now."""
        assert isinstance(self.slurm.state, Known)
        world = make.world(nodeset, *pods, slurm=self.slurm.state, jobs=await self.slurm.read_jobs(0.0))
        return replace(world, now=time.time())


def nodeset(replicas: int, *going: str) -> NodeSet:
    """A NodeSet with the lab's workers, of which some are written down as going."""
    drains = tuple(RecordedDrain(cause="scale-in", nodes=name) for name in going)
    return make.nodeset(
        replicas, status=NodeSetStatus(drains=drains), template={"spec": {"hostname": "w-"}}, scalingMode="StatefulSet"
    )


def worker(number: int, address: str) -> Pod:
    """The pod of w-`number`, an hour old."""
    ago = time.time() - 3600 - make.NOW
    return make.pod(
        f"gpu-{number}",
        ip=address,
        labels={names.LABEL_POD_HOSTNAME: f"w-{number}"},
        created=ago,
        ready_at=ago,
        revision=make.revision(nodeset(1)),
    )


async def put_back(cluster: Cluster, number: int) -> None:
    """Have a worker without a record, or a drained one, in service again."""
    if await cluster.node(f"w-{number}") is None:
        await cluster.lab.slurmds[number].restart()
    else:
        await Undrain((f"w-{number}",)).run(cluster)

    async def idle() -> bool:
        found = await cluster.node(f"w-{number}")
        return found is not None and found.state[0] == "IDLE" and not {"DRAIN", "NOT_RESPONDING"} & set(found.state)

    await until(idle)

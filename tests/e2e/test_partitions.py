"""A partition that is to leave slurm.conf, on real Slurm: closed it keeps its jobs, taken away it ends them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from slurm_local.lab import SlurmLab
from slurm_operator.controller.partitions import ClosedPartitions, Evidence, Retired, retired
from slurm_operator.desired.config import ControllerFacts, generated_files
from slurm_operator.errors import UserError
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.slurm.conf.writer import NodeGroup
from slurm_operator.slurm.view import SlurmView
from slurm_operator.slurm.views import SlurmViews
from tests.unit.desired import examples

CLUSTER = ("slurm", "slurm")
SMALL = NodeGroup("small", "Default=YES State=UP MaxTime=UNLIMITED")
OTHER = NodeGroup("other", "MaxTime=UNLIMITED")
WAITS = "--wrap 'until [ -e {go} ]; do sleep 0.2; done'"


def lines(*groups: NodeGroup) -> str:
    """The NodeSet and partition lines of the slurm.conf that the operator generates."""
    conf = generated_files(examples.controller("extraConf: ''\n"), ControllerFacts(retired=groups))["slurm.conf"]
    return "".join(f"{line}\n" for line in conf.splitlines() if line.startswith(("NodeSet=", "PartitionName=")))


class Cluster:
    """Slurm with groups that come and go, seen as the operator sees it."""

    def __init__(self, lab: SlurmLab, view: SlurmView, closed: ClosedPartitions) -> None:
        self.lab = lab
        self._view = view
        self._closed = closed
        self._base = lab.config("slurm.conf").read_text()

    async def configure(self, *groups: NodeGroup) -> None:
        """Have slurmctld read these groups anew."""
        self.lab.config("slurm.conf").write_text(self._base + lines(*groups))
        await self.lab.reconfigure()
        await self.lab.ready()

    async def submit(self, options: str, go: str) -> int:
        return int(await self.lab.run(f"sbatch --parsable -o /dev/null {options} {WAITS.format(go=go)}"))

    async def state(self, job: int) -> str:
        return (await self.lab.scontrol(f"-o show job {job}")).split("JobState=")[1].split()[0]

    async def reaches(self, job: int, state: str) -> None:
        async with asyncio.timeout(60):
            while await self.state(job) != state:  # noqa: ASYNC110 - Slurm has no event for it
                await asyncio.sleep(0.2)

    def go(self, name: str) -> None:
        self.lab.box.path(name).touch()

    async def kept(self, group: NodeGroup) -> tuple[Retired, ...]:
        """What the operator keeps after a look at slurmctld and a list of jobs."""
        await self._closed.look(CLUSTER, [group.name])
        jobs = await self._view.read_jobs(max_age=0.0)
        closed_at = self._closed.closed_at(CLUSTER, [group.name])
        return retired([group], Evidence(known=True, jobs=jobs, closed_at=closed_at))


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    clock = SystemClock()
    views = SlurmViews(clock)
    async with SlurmLab(slurmds=1, slurmd_conf="CPUs=2 RealMemory=800 Feature=small,other") as lab:
        view = views.set(CLUSTER, lab.url, lab.jwt_key)
        try:
            yield Cluster(lab, view, ClosedPartitions(views, clock))
        finally:
            await views.close()


async def test_jobs_of_a_closed_partition_end_by_themselves() -> None:
    """One runs, one waits for it, through a reconfigure and a restart; new jobs are refused meanwhile."""
    async with cluster() as slurm:
        await slurm.configure(SMALL, OTHER)
        running = await slurm.submit("-p small -n2", "/tmp/small")
        await slurm.reaches(running, "RUNNING")
        waiting = await slurm.submit("-p small -n2", "/tmp/small")
        (found,) = await slurm.kept(SMALL)
        shut = found.group
        assert (shut.name, found.ask, found.confirmed) == ("small", False, False)
        assert "State=DRAIN" in (shut.partition or "")
        assert "State=UP" not in (shut.partition or "")

        await slurm.configure(shut, OTHER)
        with pytest.raises(UserError, match="artition"):
            await slurm.submit("-p small", "/tmp/never")
        (found,) = await slurm.kept(shut)
        assert found.confirmed
        assert f"jobs {running} and {waiting} name it" in found.why
        await slurm.lab.slurmctld.kill()
        await slurm.lab.slurmctld.start()
        await slurm.lab.ready()
        assert [await slurm.state(job) for job in (running, waiting)] == ["RUNNING", "PENDING"]

        slurm.go("/tmp/small")
        await slurm.reaches(running, "COMPLETED")
        await slurm.reaches(waiting, "COMPLETED")
        async with asyncio.timeout(60):
            while await slurm.kept(shut):  # noqa: ASYNC110 - as the operator does
                await asyncio.sleep(0.5)
        await slurm.configure(OTHER)
        assert [await slurm.state(job) for job in (running, waiting)] == ["COMPLETED", "COMPLETED"]


async def test_jobs_of_a_partition_that_is_taken_away_are_lost() -> None:
    """Why a partition is kept: slurmctld ends its jobs as soon as slurm.conf lacks it."""
    async with cluster() as slurm:
        await slurm.configure(SMALL)
        job = await slurm.submit("-p small", "/tmp/never")
        await slurm.reaches(job, "RUNNING")
        await slurm.configure()
        await slurm.reaches(job, "NODE_FAIL")
        assert "Requeue=0" in await slurm.lab.scontrol(f"-o show job {job}")


@pytest.mark.parametrize(
    "options",
    [
        "partitionname=small nodecnt=1",
        "nodes=ALL AllowedPartitions=small",
        "nodes=ALL AllowedPartitions=small,other",
        "nodes=ALL AllowedPartitions=-small",
    ],
    ids=["partition", "allowed", "allowed with another", "denied"],
)
async def test_a_reservation_of_a_partition_that_is_taken_away_is_lost(options: str) -> None:
    """Why a partition is kept for reservations too; the operator says which one names it, or may name it."""
    async with cluster() as slurm:
        await slurm.configure(SMALL, OTHER)
        when = "users=root starttime=tomorrow duration=60"
        await slurm.lab.run(f"scontrol create reservation reservationname=course {when} {options}")
        shut = NodeGroup("small", "State=DRAIN")
        await slurm.configure(shut, OTHER)
        says = "reservation course names it" if "partitionname" in options else "reservation course may name it"

        async def named() -> bool:
            return any(says in one.why for one in await slurm.kept(shut))

        async with asyncio.timeout(60):
            while not await named():  # noqa: ASYNC110 - as the operator does
                await asyncio.sleep(0.5)
        await slurm.configure(OTHER)
        assert "course" not in await slurm.lab.run("scontrol -o show reservation")

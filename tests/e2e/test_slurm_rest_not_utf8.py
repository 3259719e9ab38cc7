"""A real slurmrestd sends the bytes that users wrote, also those that are not UTF-8: the answer is still read."""

import shlex
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from slurm_local.lab import SlurmLab
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.states import DrainOwner, drain_owner
from slurm_operator.slurm.views import SlurmViews
from tests.e2e.slurm_rest import Clock, all_jobs, all_nodes, client_of, run_external, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTER = ("slurm", "slurm")
BUSY, DRAINED = "n-1", "n-2"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[SlurmLab]:
    async with SlurmLab(nodes=2) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(lab: SlurmLab) -> AsyncIterator[SlurmClient]:
    async with client_of(lab) as connected:
        yield connected


async def shell(lab: SlurmLab, command: str) -> str:
    return await lab.run(f"sh -c {shlex.quote(command)}")


async def name_job(lab: SlurmLab, job_id: int, octal: str) -> None:
    await shell(lab, f"scontrol update jobid={job_id} jobname=\"$(printf '{octal}')\"")


async def drain(lab: SlurmLab, node: str, octal: str) -> None:
    await shell(lab, f"scontrol update nodename={node} state=drain reason=\"$(printf '{octal}')\"")


@pytest.mark.parametrize(
    ("octal", "name"),
    [
        (r"j\377b", "j\ufffdb"),
        (r"cut\303", "cut\ufffd"),
        (r"caf\303\251", "caf\u00e9"),
        (r"red\033[31m\001", "red\x1b[31m\x01"),
    ],
)
async def test_the_name_of_a_job(lab: SlurmLab, client: SlurmClient, octal: str, name: str) -> None:
    output = await shell(lab, f"sbatch --parsable -H -J \"$(printf '{octal}')\" -o /dev/null --wrap true")
    job_id = int(output)
    assert (await client.job(job_id)).name == name
    assert (await all_jobs(client))[job_id].name == name


async def test_the_view_stays_known(lab: SlurmLab, client: SlurmClient) -> None:
    job_id = await run_external(client, BUSY)
    await name_job(lab, job_id, r"j\377b")
    await drain(lab, DRAINED, r"slurm-operator: d\351faut")
    record = (await all_nodes(client))[DRAINED]
    assert record == await client.node(DRAINED)
    assert record.reason == "slurm-operator: d\ufffdfaut"
    assert drain_owner(record.state, record.reason) is DrainOwner.FOREIGN
    views = SlurmViews(Clock())
    view = views.set(CLUSTER, lab.url, lab.jwt_key)

    async def known() -> bool:
        return isinstance(view.state, Known)

    try:
        await until(known)
        assert isinstance(view.state, Known)
        assert view.state.nodes[DRAINED].reason == record.reason
        assert (await view.read_jobs(0)).holding == {BUSY: (job_id,)}
        assert isinstance(view.state, Known)
    finally:
        await views.close()

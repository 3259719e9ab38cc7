"""What slurmdbd recorded, read through a real slurmrestd with accounting."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from slurm_local.lab import SlurmLab
from slurm_operator.slurm.client import SlurmClient
from tests.e2e.slurm_rest import cancel, client_of, run_external, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[SlurmClient]:
    async with SlurmLab(nodes=2, accounting=True) as lab, client_of(lab) as connected:
        yield connected


async def test_clusters(client: SlurmClient) -> None:
    async def registered() -> bool:
        return [cluster.name for cluster in await client.accounting_clusters()] == ["lab"]

    await until(registered)


async def test_a_job_and_its_end(client: SlurmClient) -> None:
    job_id = await run_external(client, "n-1", tasks=1)

    async def recorded(state: str) -> bool:
        return any(state in job.state.current for job in await client.accounting_job(job_id))

    await until(lambda: recorded("RUNNING"))
    await cancel(client, job_id)
    await until(lambda: recorded("CANCELLED"))
    (job,) = await client.accounting_job(job_id)
    assert (job.job_id, job.nodes) == (job_id, "n-1")
    assert job.time.end >= job.time.start > 0


async def test_a_job_that_never_was(client: SlurmClient) -> None:
    assert await client.accounting_job(999_999) == ()

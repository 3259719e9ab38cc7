"""What the tests on a real slurmrestd share: a clock, clients, and jobs."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from slurm_local.lab import SlurmLab
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.model import Answer, Job, Node, Number
from slurm_operator.slurm.rest import Call, WholeBody


class Clock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class Submitted(Answer, frozen=True):
    job_id: int = 0


SUBMITTED = msgspec.json.Decoder(Submitted)
DONE = msgspec.json.Decoder(Answer)


def client_of(lab: SlurmLab, *, user: str = "slurm", **options: Any) -> SlurmClient:
    return SlurmClient(lab.url, lab.jwt_key, options.pop("clock", Clock()), user=user, **options)


async def submit(client: SlurmClient, **fields: Any) -> int:
    """A job; with `flags=["EXTERNAL_JOB"]` one that runs on a node without slurmd, otherwise a script."""
    job = {
        "name": "test",
        "current_working_directory": "/tmp",
        "environment": ["PATH=/usr/bin:/bin"],
        "time_limit": Number(set=True, number=600),
        **fields,
    }
    call = Call(method="POST", path="job/submit", body={"job": job})
    reply = await client.rest.send(call, WholeBody(SUBMITTED))
    assert reply.answer
    return reply.answer.job_id


async def run_external(client: SlurmClient, node: str, **fields: Any) -> int:
    """Occupies a node record that has no slurmd."""
    job_id = await submit(client, flags=["EXTERNAL_JOB"], required_nodes=[node], **fields)
    await until(lambda: in_state(client, job_id, "RUNNING"))
    return job_id


async def cancel(client: SlurmClient, job_id: int) -> None:
    await client.rest.send(Call(method="DELETE", path=f"job/{job_id}"), WholeBody(DONE))


async def in_state(client: SlurmClient, job_id: int, state: str) -> bool:
    return state in (await client.job(job_id)).job_state


async def all_nodes(client: SlurmClient) -> dict[str, Node]:
    nodes: list[Node] = []
    await client.nodes(nodes.extend)
    return {node.name: node for node in nodes}


async def all_jobs(client: SlurmClient) -> dict[int, Job]:
    jobs: list[Job] = []
    await client.jobs(jobs.extend)
    return {job.job_id: job for job in jobs}


async def until(holds: Callable[[], Awaitable[bool]], within: float = 30.0) -> None:
    async with asyncio.timeout(within):
        while not await holds():  # noqa: ASYNC110 - Slurm sends no events
            await asyncio.sleep(0.1)


async def until_state(client: SlurmClient, name: str, *words: str, without: str = "", within: float = 30.0) -> Node:
    """The node once its state has all these words."""

    async def there() -> bool:
        await client.recount()
        state = (await client.node(name)).state
        return set(words) <= set(state) and without not in state

    await until(there, within)
    return await client.node(name)

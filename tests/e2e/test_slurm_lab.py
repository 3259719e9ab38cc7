"""The Slurm of tests and benchmarks: real daemons without Kubernetes, killed and hung at will, leaving nothing."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from slurm_local.lab import SlurmLab
from slurm_operator.errors import UserError
from tests.e2e.stage import eventually


async def rest(lab: SlurmLab, path: str) -> int:
    headers = {"X-SLURM-USER-TOKEN": await lab.token()}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{lab.url}/slurm/v0.0.45/{path}", headers=headers) as got,
    ):
        return got.status


async def test_jobs_run_and_are_accounted_for() -> None:
    async with SlurmLab(nodes=3, slurmds=2, accounting=True) as lab:
        assert await rest(lab, "nodes/") == 200
        assert len((await lab.run("srun -N2 -w w-[0-1] hostname")).split()) == 2
        assert "COMPLETED" in await lab.run("sacct --allusers -X --noheader --format=State")


async def test_several_labs_side_by_side_do_not_meet() -> None:
    async with SlurmLab(nodes=1) as one, SlurmLab(nodes=2) as two:
        assert one.url != two.url
        assert (await one.run("sinfo --noheader --format=%D")).strip() == "1"
        assert (await two.run("sinfo --noheader --format=%D")).strip() == "2"


async def test_a_hung_controller_answers_again_when_resumed_and_after_a_kill() -> None:
    async with SlurmLab(nodes=1) as lab:
        lab.slurmctld.hang()
        with pytest.raises(UserError, match="did not end"):
            await lab.scontrol("show nodes", timeout=1)
        lab.slurmctld.resume()
        assert "NodeName=n-1" in await lab.scontrol("show nodes")

        await lab.slurmctld.kill()
        assert not lab.slurmctld.running
        await lab.slurmctld.start()
        await lab.ready()
        assert "NodeName=n-1" in await lab.scontrol("show nodes")


async def test_a_wiped_controller_knows_no_node() -> None:
    async with SlurmLab(nodes=1) as lab:
        await lab.wipe_state()
        assert "NodeName" not in await lab.scontrol("show nodes")


async def test_a_daemon_that_cannot_start_says_why() -> None:
    with pytest.raises(UserError, match="NoSuchKey"):
        async with SlurmLab(conf="NoSuchKey=1"):
            pass


def test_nothing_outlives_the_process_that_made_it(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from slurm_local.lab import SlurmLab
async def main():
    async with SlurmLab(slurmds=1) as lab:
        print(lab.slurmctld.pid, lab.slurmds[0].pid, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        daemons = [int(word) for word in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)

    assert len(daemons) == 2
    eventually("both daemons are gone", lambda: not any(alive(pid) for pid in daemons), timeout=10)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_ten_thousand_nodes_are_quickly_there() -> None:
    async with asyncio.timeout(60), SlurmLab(nodes=10_000) as lab:
        assert (await lab.run("sinfo --noheader --format=%D")).strip() == "10000"

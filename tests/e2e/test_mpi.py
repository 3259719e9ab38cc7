"""Parallel jobs on the example cluster: ranks that find each other, arrays, and nodes that are asked for by name."""

import re
from pathlib import Path

import pytest

from tests.e2e.slurm import Slurm
from tests.e2e.stage import eventually

pytestmark = pytest.mark.timeout(300)

WORKERS = ["big-0", "small-0", "small-1"]
HELLO = Path(__file__).parent / "files/pmi2-hello.pl"


@pytest.fixture(scope="module")
def hello(slurm: Slurm) -> str:
    """The program's path in /home, which every worker sees."""
    path = "/home/pmi2-hello.pl"
    slurm.login("sh", "-c", f'printf %s "$1" > {path}', "sh", HELLO.read_text())
    return path


def test_ranks_on_three_workers_find_each_other_by_pmi2(slurm: Slurm, hello: str) -> None:
    said = slurm.login("srun", "--mpi=pmi2", "-N3", "-n3", "perl", hello, timeout=90).splitlines()

    found = [re.fullmatch(r"rank (\d) of 3 on (\S+) sees (.*)", line) for line in said]
    assert all(found), said
    ranks = {match[1]: match[2] for match in found if match}
    assert sorted(ranks.values()) == WORKERS
    in_order = " ".join(ranks[rank] for rank in sorted(ranks))
    assert {match[3] for match in found if match} == {in_order}


def test_ranks_of_a_batch_job_with_two_on_one_worker(slurm: Slurm, hello: str) -> None:
    job = slurm.login(
        *("sbatch", "--parsable", "--wait", "-N2", "-n3", "-o", "/home/pmi2-%j.txt"),
        *("-w", "big-0,small-0", "--wrap", f"srun --mpi=pmi2 perl {hello}"),
        timeout=120,
    )
    said = slurm.login("cat", f"/home/pmi2-{job}.txt").splitlines()

    assert len(said) == 3
    assert {re.sub(r"rank . ", "", line).split(" on ")[0] for line in said} == {"of 3"}
    assert sorted(line.split()[5] for line in said) == ["big-0", "big-0", "small-0"]


def test_a_job_on_two_workers_by_their_names(slurm: Slurm) -> None:
    assert sorted(slurm.login("srun", "-w", "small-1,big-0", "hostname").split()) == ["big-0", "small-1"]
    assert sorted(slurm.login("srun", "-w", "small-[0-1]", "hostname").split()) == ["small-0", "small-1"]


def test_workers_reach_each_other_by_their_hostnames(slurm: Slurm) -> None:
    seen = slurm.login("srun", "-N1", "-w", "small-0", "getent", "hosts", "big-0")
    pod = slurm.get("pod", "big-0")

    assert seen.split()[0] == pod["status"]["podIP"]


def test_every_task_of_an_array_runs_once(slurm: Slurm) -> None:
    job = slurm.login(
        *("sbatch", "--parsable", "--array=0-11%4", "-o", "/home/array-%A-%a.txt"),
        *("--wrap", "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"),
    )

    def states() -> list[str]:
        return slurm.login("sacct", "-n", "-X", "-P", "-j", job, "-o", "State").split()

    eventually("all twelve tasks are COMPLETED", lambda: states() == ["COMPLETED"] * 12, timeout=120, pause=1)
    said = slurm.login("sh", "-c", f"cat /home/array-{job}-*.txt").splitlines()
    assert sorted(said, key=lambda line: int(line.split()[0])) == [f"{task} of 12" for task in range(12)]


def test_a_part_of_an_array_can_be_cancelled(slurm: Slurm) -> None:
    job = slurm.submit("--array=0-3", "--begin=now+1hour", wrap="true")
    slurm.cancel(f"{job}_[1-3]")
    try:
        left = slurm.login("squeue", "-h", "-r", "-j", job, "-o", "%i").split()
        assert left == [f"{job}_0"]
    finally:
        slurm.cancel(job)

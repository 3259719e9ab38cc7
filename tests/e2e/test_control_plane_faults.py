"""Daemons of the control plane die under load on the real stage: they come back, and no job is lost."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.e2e.slurm import Slurm
from tests.e2e.small import answers, kill_daemon, stopwatch
from tests.e2e.stage import eventually

pytestmark = [pytest.mark.timeout(420), pytest.mark.trial]

RUNNING = 4
QUEUED = 20
RELEASE = "/home/release"
WORK = f"echo once >> /home/$SLURM_JOB_ID.ran; until [ -e {RELEASE} ]; do sleep 0.2; done"


@pytest.fixture
def jobs(slurm: Slurm) -> Iterator[list[str]]:
    """Four jobs that run until they are released, and twenty that wait for their turn."""
    slurm.login("rm", "-f", RELEASE)
    submit = f"sbatch --parsable -p all -n1 -o /dev/null --wrap '{WORK}'"
    found = slurm.login("bash", "-c", f"for i in $(seq {RUNNING + QUEUED}); do {submit}; done").split()
    eventually("all workers are busy", lambda: states(slurm, found).count("RUNNING") == RUNNING, timeout=60)
    now = time.time()
    # slurmctld writes its state behind, every five seconds: what it did last is lost with it.
    eventually("slurmctld has written its state", lambda: state_written(slurm) > now, timeout=30)
    yield found
    slurm.login("scancel", *found)
    slurm.login("bash", "-c", f"rm -f {RELEASE} /home/*.ran")


def states(slurm: Slurm, jobs: list[str]) -> list[str]:
    return slurm.login("squeue", "-h", "-j", ",".join(jobs), "-o", "%T").split()


def state_written(slurm: Slurm) -> float:
    """When slurmctld last wrote the state of its jobs."""
    state = f"/var/spool/slurmctld/{slurm.namespace}_slurm/job_state"
    command = ("stat", "-c", "%Y", state)
    return float(slurm.kubectl("exec", "slurm-controller-0", "-c", "slurmctld", "--", *command)) + 1


def delete_slurmctld_pod(slurm: Slurm) -> None:
    slurm.kubectl("delete", "pod", "slurm-controller-0", timeout=90)


def slurmctld_answers(slurm: Slurm) -> bool:
    return answers(slurm, "squeue", "-h")


def accounting_answers(slurm: Slurm) -> bool:
    return answers(slurm, "sacctmgr", "-n", "show", "cluster")


def restarted(slurm: Slurm, pod: str, container: str) -> bool:
    """The killed container runs again."""
    statuses = slurm.get("pod", pod)["status"]["containerStatuses"]
    return any(s["name"] == container and s["ready"] and s["restartCount"] for s in statuses)


def restapi_pod(slurm: Slurm) -> str:
    return slurm.kubectl("get", "pods", "-l", "app.kubernetes.io/name=slurmrestd", "-o", "name").split("/")[1].strip()


Fault = tuple[str, Callable[[Slurm], None], Callable[[Slurm], bool]]
FAULTS: list[Fault] = [
    (
        "slurmctld, kill -9",
        lambda slurm: kill_daemon(slurm, "slurm-controller-0", "slurmctld", "slurmctld"),
        slurmctld_answers,
    ),
    ("slurmctld, pod deleted", delete_slurmctld_pod, slurmctld_answers),
    (
        "slurmdbd, kill -9",
        lambda slurm: kill_daemon(slurm, "slurm-accounting-0", "slurmdbd", "slurmdbd"),
        accounting_answers,
    ),
    (
        "MariaDB, kill -9",
        lambda slurm: kill_daemon(slurm, "slurm-mariadb-0", "mariadb", "mariadbd"),
        lambda slurm: restarted(slurm, "slurm-mariadb-0", "mariadb") and accounting_answers(slurm),
    ),
    (
        "slurmrestd, kill -9",
        lambda slurm: kill_daemon(slurm, restapi_pod(slurm), "slurmrestd", "slurmrestd"),
        lambda slurm: restarted(slurm, restapi_pod(slurm), "slurmrestd"),
    ),
]


def test_whatever_is_killed_every_job_runs_once_and_is_accounted_for(slurm: Slurm, jobs: list[str]) -> None:
    for name, strike, recovered in FAULTS:
        strike(slurm)
        with stopwatch(f"back again after {name}"):
            eventually(f"recovery from {name}", partial(recovered, slurm), timeout=90)
        assert sorted(states(slurm, jobs)) == ["PENDING"] * QUEUED + ["RUNNING"] * RUNNING, name
    slurm.login("touch", RELEASE)
    with stopwatch(f"{len(jobs)} jobs finished"):
        eventually("every job is over", lambda: states(slurm, jobs) == [], timeout=120, pause=1)
    eventually(
        "the accounting knows every one of them",
        lambda: (
            slurm.login("sacct", "-n", "-X", "-P", "-j", ",".join(jobs), "-o", "JobID,State").split()
            == [f"{job}|COMPLETED" for job in jobs]
        ),
        timeout=60,
    )
    ran = slurm.login("bash", "-c", "cat " + " ".join(f"/home/{job}.ran" for job in jobs)).split()
    assert ran == ["once"] * len(jobs), "no job was started a second time"
    for kind in ("controller/slurm", "accounting/slurm", "restapi/slurm", "nodeset/small", "nodeset/big"):
        slurm.wait_ready(kind, timeout=60)

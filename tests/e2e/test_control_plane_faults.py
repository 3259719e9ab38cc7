"""Daemons of the control plane die under load on the real stage: they come back, and no job is lost."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.e2e.job import Job
from tests.e2e.slurm import Slurm
from tests.e2e.small import answers, extra_conf, kill_daemon, save_state, stopwatch, wait_degraded
from tests.e2e.stage import eventually

pytestmark = pytest.mark.timeout(600)

RUNNING = 4
QUEUED = 200
RELEASE = "/home/release"
AT_ONCE = "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0\n"
WORK = f"echo once >> /home/$SLURM_JOB_ID.ran; until [ -e {RELEASE} ]; do sleep 0.2; done"


@pytest.fixture
def sturdy(slurm: Slurm) -> Iterator[str]:
    """Four workers, none of them on the Kubernetes node that slurmctld runs on."""
    slurm.apply(workers_beside(slurm, node_of(slurm, "slurm-controller-0")))
    slurm.wait_ready("nodeset/sturdy")
    yield "sturdy"
    slurm.kubectl("delete", "nodeset", "sturdy", timeout=120)


def workers_beside(slurm: Slurm, node: str) -> dict[str, Any]:
    elsewhere = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
    found = slurm.nodeset("sturdy", RUNNING)
    found["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }
    return found


def node_of(slurm: Slurm, pod: str) -> str:
    return str(slurm.get("pod", pod)["spec"]["nodeName"])


@pytest.fixture
def jobs(slurm: Slurm, sturdy: str) -> Iterator[list[str]]:
    """Four jobs that run until they are released, and two hundred that wait for their turn."""
    slurm.login("rm", "-f", RELEASE)
    submit = f"sbatch --parsable -p {sturdy} -n1 -o /dev/null --wrap '{WORK}'"
    loop = f"for i in $(seq {RUNNING + QUEUED}); do {submit}; done"
    found = slurm.login("bash", "-c", loop, timeout=120).split()
    eventually("all workers are busy", lambda: states(slurm, found).count("RUNNING") == RUNNING, timeout=60)
    save_state(slurm, found[-1])
    yield found
    slurm.login("scancel", "-p", sturdy)
    slurm.login("bash", "-c", f"rm -f {RELEASE} /home/*.ran")


def states(slurm: Slurm, jobs: list[str]) -> list[str]:
    """Of those that are not over yet."""
    lines = slurm.login("squeue", "-h", "-o", "%i %T").splitlines()
    found = dict(line.split() for line in lines)
    return [found[job] for job in jobs if job in found]


def delete_slurmctld_pod(slurm: Slurm) -> None:
    slurm.kubectl("delete", "pod", "slurm-controller-0", timeout=90)


def restart_node(slurm: Slurm) -> None:
    """As if somebody had pulled the plug, and put it back."""
    node = node_of(slurm, "slurm-controller-0")
    slurm.cluster.cli("node", "kill", node)
    slurm.cluster.cli("node", "start", node)


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
    (
        "the Kubernetes node of slurmctld, killed and started",
        restart_node,
        lambda slurm: slurmctld_answers(slurm) and accounting_answers(slurm),
    ),
]


def test_a_database_that_is_away_is_reported_until_it_is_back(slurm: Slurm) -> None:
    slurm.kubectl("scale", "statefulset", "slurm-mariadb", "--replicas=0")
    words = ("slurm-mariadb:3306", "check that it runs")
    try:
        with stopwatch("a lost database is reported"):
            wait_degraded(slurm, "accounting", "slurm", "DatabaseLost", *words, timeout=60)
        assert slurm.condition("controller", "slurm", "Ready")["status"] == "True"
    finally:
        slurm.kubectl("scale", "statefulset", "slurm-mariadb", "--replicas=1")
    slurm.wait_ready("accounting/slurm", timeout=90)
    assert slurm.condition("accounting", "slurm", "Degraded")["status"] == "False"


def test_whatever_is_killed_every_job_runs_once_and_is_accounted_for(slurm: Slurm, jobs: list[str]) -> None:
    running = [Job(slurm, number).wait_running() for number in jobs[:RUNNING]]
    for name, strike, recovered in FAULTS:
        with stopwatch(f"back again after {name}"):
            strike(slurm)
            eventually(f"recovery from {name}", partial(recovered, slurm), timeout=120)
        assert sorted(states(slurm, jobs)) == ["PENDING"] * QUEUED + ["RUNNING"] * RUNNING, name
    slurm.login("touch", RELEASE)
    with extra_conf(slurm, AT_ONCE), stopwatch(f"{len(jobs)} jobs finished"):
        eventually("every job is over", lambda: states(slurm, jobs) == [], timeout=240, pause=1)
    expected = [f"{job}|COMPLETED" for job in jobs]
    query = ("sacct", "-D", "-n", "-X", "-P", "-j", ",".join(jobs), "-o", "JobID,State")
    eventually(
        "the accounting knows every one of them",
        lambda: slurm.login(*query).split() == expected,
        timeout=60,
    )
    for job in running:
        job.assert_undisturbed()
    ran = slurm.login("bash", "-c", "cat " + " ".join(f"/home/{job}.ran" for job in jobs)).split()
    assert ran == ["once"] * len(jobs), "no job was started a second time"
    for kind in ("controller/slurm", "accounting/slurm", "restapi/slurm", "nodeset/small", "nodeset/big"):
        slurm.wait_ready(kind, timeout=60)

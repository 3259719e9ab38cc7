"""Two slurmctld on one state, on the real stage: when the first is lost the second goes on, and hands back."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.small import Small, answers, part, stopwatch
from tests.e2e.stage import Cluster, claim, eventually

pytestmark = pytest.mark.timeout(300)

TAINT = "e2e/no-new-pods"
QUICK = "SlurmctldTimeout=10\n"


@pytest.fixture
def pair(operator: Cluster, namespace: str) -> Small:
    """A primary and a backup, and one worker with a job."""
    small = Small(operator, namespace)
    small.start(
        claim("state", "shared", "ReadWriteMany"),
        ha={"enabled": True, "backups": 1},
        persistence={"enabled": True, "existingClaim": "state"},
        extraConf=part("Controller")["spec"]["extraConf"] + QUICK,
    )
    return small


@contextmanager
def no_new_pods(cluster: Cluster) -> Iterator[None]:
    """What runs goes on; what is deleted does not come back."""
    cluster.kubectl("taint", "nodes", "--all", f"{TAINT}=:NoSchedule")
    try:
        yield
    finally:
        cluster.kubectl("taint", "nodes", "--all", f"{TAINT}:NoSchedule-")


def active(slurm: Small) -> str:
    """The pod that the Service leads to."""
    slices = slurm.cluster.kubectl.json(
        "get", "endpointslices", "-n", slurm.namespace, "-l", "kubernetes.io/service-name=slurm-controller"
    )
    endpoints = [endpoint for part in slices["items"] for endpoint in part["endpoints"] or []]
    ready = [endpoint["targetRef"]["name"] for endpoint in endpoints if endpoint["conditions"]["ready"]]
    return ",".join(sorted(ready))


def test_the_backup_takes_over_and_hands_back(pair: Small) -> None:
    """scenario 176"""
    eventually("the primary is active", lambda: active(pair) == "slurm-controller-0")
    job = pair.submit(wrap="sleep 1000")
    queued = pair.submit("--hold", wrap="true")
    pair.wait_job(job, "RUNNING")
    with no_new_pods(pair.cluster):
        pair.kubectl("delete", "pod", "slurm-controller-0", timeout=90)
        with stopwatch("clients reach the backup"):
            eventually("the backup answers", lambda: active(pair) == "slurm-controller-1", timeout=90)
            eventually("clients reach it", lambda: answers(pair, "squeue"), timeout=60)
        assert pair.job_state(job) == "RUNNING"
        assert pair.job_state(queued) == "PENDING"
        pair.cancel(queued)
        assert pair.login("srun", "--overlap", f"--jobid={job}", "hostname") == "work-0", "a new step of a running job"
    with stopwatch("clients reach the primary again"):
        eventually("the primary is back", lambda: active(pair) == "slurm-controller-0", timeout=90)
        eventually("clients reach it", lambda: answers(pair, "squeue"), timeout=60)
    assert pair.job_state(job) == "RUNNING"
    pair.cancel(job)
    pair.wait_ready("controller/slurm")
    assert answers(pair, "srun", "true")

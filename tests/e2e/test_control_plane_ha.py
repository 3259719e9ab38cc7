"""Two slurmctld on one state, on the real stage: when the first is lost the second goes on, and hands back."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.job import start_job
from tests.e2e.small import Small, answers, part, save_state, stopwatch
from tests.e2e.stage import Cluster, claim, eventually

pytestmark = pytest.mark.timeout(300)

TAINT = "e2e/no-new-pods"
BESIDE_SLURMCTLD = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "slurmctld"}},
}
QUICK = "SlurmctldTimeout=10\n"


@pytest.fixture
def pair(operator: Cluster, namespace: str) -> Small:
    """A primary and a backup, two workers for four jobs, and a login pod that is not on the node of the primary."""
    small = Small(operator, namespace)
    workers = small.nodeset("work", 2)
    workers["spec"]["slurmd"]["resources"]["limits"] = {"cpu": "2", "memory": "512Mi"}
    login = part("LoginSet")
    login["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [BESIDE_SLURMCTLD]}
    }
    small.start(
        claim("state", "shared", "ReadWriteMany"),
        workers,
        login,
        login=False,
        workers=0,
        ha={"enabled": True, "backups": 1},
        persistence={"enabled": True, "existingClaim": "state"},
        extraConf=part("Controller")["spec"]["extraConf"] + QUICK,
    )
    for kind in ("loginset/login", "nodeset/work"):
        small.wait_ready(kind)
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


def kill_for_good(slurm: Small, pod: str) -> None:
    """kill -9 of the slurmctld of a pod, whose kubelet neither starts it again nor ends it in order."""
    found = slurm.get("pod", pod)
    node, uid = found["spec"]["nodeName"], found["metadata"]["uid"]
    kill = (
        f"for pid in $(pidof slurmctld); do ! grep -q {uid} /proc/$pid/cgroup || {{ kill -9 $pid; echo $pid; }}; done"
    )
    with slurm.cluster.paused_kubelet(node):
        assert slurm.cluster.on_machine(node, kill).split(), f"no slurmctld of {pod} on {node}"
        slurm.kubectl("delete", "pod", pod, "--force", "--grace-period=0")


def test_the_backup_takes_over_and_hands_back(pair: Small) -> None:
    """scenario 176"""
    eventually("the primary is active", lambda: active(pair) == "slurm-controller-0")
    jobs = [start_job(pair, "-n1") for _ in range(4)]
    cancelled, *others = jobs
    save_state(pair, str(cancelled))
    with no_new_pods(pair.cluster):
        kill_for_good(pair, "slurm-controller-0")
        with stopwatch("clients reach the backup"):
            eventually("the backup answers", lambda: active(pair) == "slurm-controller-1", timeout=90)
            eventually("clients reach it", lambda: answers(pair, "squeue"), timeout=60)
        for job in jobs:
            job.assert_running()
        pair.cancel(str(cancelled))
        pair.wait_job(str(cancelled), "CANCELLED")
        for job in others:
            assert pair.login("srun", "--overlap", f"--jobid={job}", "hostname") == job.nodes, "a new step of a job"
        others[0].finish()
    with stopwatch("clients reach the primary again"):
        eventually("the primary is back", lambda: active(pair) == "slurm-controller-0", timeout=90)
        eventually("clients reach it", lambda: answers(pair, "squeue"), timeout=60)
    for job in others[1:]:
        job.assert_running()
        job.finish()
    pair.wait_ready("controller/slurm")
    assert answers(pair, "srun", "true")

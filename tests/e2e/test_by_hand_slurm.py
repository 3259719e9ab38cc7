"""Slurm in hand-written manifests: the images alone, without the operator, run jobs across nodes."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_local.recipes import project
from tests.e2e.stage import Cluster, eventually

NAMESPACE = "by-hand"


@pytest.fixture(scope="module")
def slurm(cluster: Cluster, images: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of examples/by-hand, every pod ready."""
    folder = tmp_path_factory.mktemp("manifests") / "by-hand"
    shutil.copytree(project() / "examples/by-hand", folder)
    subprocess.run([folder / "make-keys.sh"], check=True)
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("apply", "-n", NAMESPACE, "-k", str(folder))
    for workload in ("statefulset/slurm-controller", "statefulset/slurm-worker", "deployment/slurm-login"):
        cluster.kubectl("rollout", "status", workload, "-n", NAMESPACE, "--timeout=180s", timeout=200)
    eventually("both workers are idle", lambda: idle_workers(cluster) == 2, timeout=60)
    yield cluster
    assert_every_job_ran_once(cluster)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def in_login(cluster: Cluster, *command: str) -> str:
    return cluster.kubectl("exec", "deploy/slurm-login", "-n", NAMESPACE, "--", *command, timeout=60).strip()


def jobs(cluster: Cluster) -> list[str]:
    """Number and state of every start of every job."""
    return in_login(cluster, "sacct", "-a", "-D", "-X", "-n", "-P", "-o", "JobID,State").splitlines()


def assert_every_job_ran_once(cluster: Cluster) -> None:
    eventually("every job has ended", lambda: not any("ING" in job for job in jobs(cluster)), timeout=30)
    starts = [job.split("|") for job in jobs(cluster)]
    assert {state for _, state in starts} == {"COMPLETED"}
    assert len({number for number, _ in starts}) == len(starts)


def idle_workers(cluster: Cluster) -> int:
    return len(in_login(cluster, "sinfo", "--Node", "--noheader", "--states=idle", "--format=%N").split())


@pytest.mark.timeout(400)
def test_a_job_runs_on_two_workers_of_different_nodes(slurm: Cluster) -> None:
    hosts = in_login(slurm, "srun", "-N2", "hostname").split()
    pods = slurm.kubectl.json("get", "pods", "-n", NAMESPACE, "-l", "app=slurm-worker")["items"]

    assert sorted(hosts) == ["slurm-worker-0", "slurm-worker-1"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2


@pytest.mark.timeout(400)
def test_workers_have_the_size_of_their_pods(slurm: Cluster) -> None:
    sizes = in_login(slurm, "sinfo", "--Node", "--noheader", "--format=%c %m").splitlines()

    assert sizes == ["1 512", "1 512"]


@pytest.mark.timeout(400)
def test_finished_jobs_are_in_the_accounting(slurm: Cluster) -> None:
    in_login(slurm, "srun", "--job-name=counted", "true")

    def recorded() -> bool:
        return "counted|COMPLETED" in in_login(slurm, "sacct", "-X", "--parsable2", "--format=JobName,State")

    eventually("the job is in sacct", recorded, timeout=30)


@pytest.mark.timeout(400)
def test_the_controller_remembers_its_nodes_and_jobs_after_a_restart(slurm: Cluster) -> None:
    job = in_login(slurm, "sbatch", "--parsable", "-N2", "-o", "/dev/null", "--wrap", "sleep 15")
    query = ("squeue", "-h", "-j", job, "-o", "%T %N")
    eventually("the job runs", lambda: in_login(slurm, *query).startswith("RUNNING"))
    slurm.kubectl("delete", "pod", "slurm-controller-0", "-n", NAMESPACE, timeout=90)
    slurm.kubectl("rollout", "status", "statefulset/slurm-controller", "-n", NAMESPACE, "--timeout=120s", timeout=150)
    record = ("sacct", "-D", "-X", "-n", "-P", "-j", job, "-o", "State,NNodes")
    eventually("the job ended undisturbed", lambda: in_login(slurm, *record) == "COMPLETED|2", timeout=60)
    eventually("both workers are idle again", lambda: idle_workers(slurm) == 2, timeout=60)

    assert len(in_login(slurm, "srun", "-N2", "hostname").split()) == 2


@pytest.mark.timeout(400)
def test_the_manifests_name_no_image_outside_the_kustomization() -> None:
    named = [
        line.split("image:")[1].strip()
        for path in Path(project() / "examples/by-hand").glob("*.yaml")
        for line in path.read_text().splitlines()
        if line.strip().startswith("image:")
    ]
    assert sorted(named) == ["login", "mariadb", "slurmctld", "slurmd", "slurmdbd", "slurmrestd"]

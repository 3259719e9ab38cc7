"""Everything around the workers fails while jobs run on them: no job is lost, and nothing needs hands afterwards."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.deadly import Deadly
from tests.e2e.slurm import Slurm
from tests.e2e.stage import eventually

pytestmark = pytest.mark.timeout(900)

AWAY = float(os.environ.get("SLURMRESTD_AWAY", "45"))
"""Seconds for which slurmrestd stays away."""
OPERATOR = ("-n", "slurm-operator")


@pytest.fixture
def deadly(slurm: Slurm, tmp_path: Path) -> Iterator[Deadly]:
    """In place of the operator in the cluster, one that dies after each write."""
    kubectl = slurm.cluster.kubectl
    kubectl("scale", "deployment/slurm-operator", *OPERATOR, "--replicas=0")
    kubectl("wait", "pods", *OPERATOR, "-l", "app.kubernetes.io/name=slurm-operator", "--for=delete", "--timeout=60s")
    try:
        with Deadly(slurm, tmp_path).running() as operator:
            yield operator
    finally:
        kubectl("scale", "deployment/slurm-operator", *OPERATOR, "--replicas=1")
        kubectl("rollout", "status", "deployment/slurm-operator", *OPERATOR, "--timeout=90s", timeout=100)


def ready(slurm: Slurm, nodeset: str) -> bool:
    generation = slurm.get("nodeset", nodeset)["metadata"]["generation"]
    found = slurm.condition("nodeset", nodeset, "Ready")
    return found.get("status") == "True" and found.get("observedGeneration") == generation


def test_the_operator_dies_after_each_write_of_a_scale_in(slurm: Slurm, flex: str, deadly: Deadly) -> None:
    """scenario 193"""
    slurm.scale(flex, 4)
    deadly.until(lambda: ready(slurm, flex))
    job = slurm.submit("-p", flex, "-w", "flex-1")
    slurm.wait_job(job, "RUNNING")
    slurm.scale(flex, 1)
    deadly.until(lambda: set(slurm.pods(flex)) <= {"flex-0", "flex-1"} and "flex-1" in slurm.pods(flex))
    assert slurm.job_state(job) == "RUNNING"
    slurm.cancel(job)
    deadly.until(lambda: ready(slurm, flex) and len(slurm.pods(flex)) == 1)
    deadly.until(lambda: slurm.nodes(flex) == list(slurm.pods(flex)))
    steps = {write.split()[0] + " " + ("slurm" if "/slurm/v0" in write else "kubernetes") for write in deadly.writes}
    assert steps >= {"POST slurm", "DELETE slurm", "DELETE kubernetes", "PATCH kubernetes"}


def test_the_operator_dies_after_each_write_of_a_rolling_update(slurm: Slurm, flex: str, deadly: Deadly) -> None:
    """scenario 193"""
    slurm.scale(flex, 3)
    deadly.until(lambda: ready(slurm, flex))
    jobs = [slurm.submit("-p", flex, "-w", f"flex-{index}", wrap="sleep 25") for index in (0, 2)]
    for job in jobs:
        slurm.wait_job(job, "RUNNING")
    slurm.patch("nodeset", flex, {"spec": {"extraConf": "Features=shiny"}})
    deadly.until(lambda: ready(slurm, flex))
    assert [slurm.job_state(job) for job in jobs] == ["COMPLETED", "COMPLETED"]
    for name in ("flex-0", "flex-1", "flex-2"):
        slurm.wait_state(name, "IDLE")
        assert set(slurm.node(name)["features"]) == {"flex", "shiny"}


def test_slurmrestd_is_away_for_minutes_in_the_middle_of_a_scale_in(slurm: Slurm, flex: str) -> None:
    """scenario 55, scenario 169"""
    slurm.scale(flex, 3)
    slurm.wait_ready("nodeset/flex")
    job = slurm.submit("-p", flex, "-w", "flex-2")
    slurm.wait_job(job, "RUNNING")
    slurm.scale(flex, 0)
    slurm.wait_state("flex-2", "DRAINING")
    slurm.patch("restapi", "slurm", {"spec": {"replicas": 0}})
    try:
        eventually(
            "the operator notices",
            lambda: slurm.condition("nodeset", flex, "SlurmReachable").get("status") == "False",
            timeout=60,
        )
        eventually(
            "it says that it waits for Slurm",
            lambda: "Slurm to say" in slurm.condition("nodeset", flex, "Progressing").get("message", ""),
            timeout=30,
        )
        left = set(slurm.pods(flex))
        assert "flex-2" in left
        with pytest.raises(AssertionError, match="not after"):
            eventually("something is taken away on unknown", lambda: set(slurm.pods(flex)) != left, timeout=AWAY)
        assert slurm.job_state(job) == "RUNNING"
    finally:
        slurm.patch("restapi", "slurm", {"spec": {"replicas": 1}})
    slurm.cancel(job)
    eventually("every worker has left", lambda: slurm.pods(flex) == {}, timeout=120)
    eventually("and its record", lambda: slurm.nodes(flex) == [], timeout=30)


def test_slurmctld_is_deleted_under_running_jobs(slurm: Slurm, flex: str) -> None:
    """scenario 171"""
    job = slurm.submit("-p", flex, wrap="sleep 15")
    slurm.wait_job(job, "RUNNING")
    before = slurm.get("pod", "flex-0")["metadata"]["uid"]
    slurm.kubectl("delete", "pod", "slurm-controller-0", timeout=90)
    slurm.wait_ready("controller/slurm")
    slurm.wait_job(job, "COMPLETED", timeout=90)
    slurm.wait_ready("nodeset/flex")
    assert slurm.get("pod", "flex-0")["metadata"]["uid"] == before


@pytest.fixture
def spare(slurm: Slurm) -> str:
    """One more Kubernetes node, which only workers that ask for it run on."""
    kubectl = slurm.cluster.kubectl
    if not kubectl("get", "nodes", "-l", "spare=yes", "-o", "name"):
        slurm.cluster.cli("node", "add", "--label", "spare=yes", "--taint", "spare=yes:NoSchedule")
    (name,) = kubectl("get", "nodes", "-l", "spare=yes", "-o", "name").split()
    kubectl("wait", name, "--for=condition=Ready", "--timeout=60s", timeout=90)
    return name.removeprefix("node/")


def test_a_kubernetes_node_stops_under_a_worker(slurm: Slurm, spare: str) -> None:
    """A condition names it, jobs elsewhere go on, and the worker comes back with its node. scenario 98"""
    tolerations = [{"key": "spare", "operator": "Exists"}]
    place = {"nodeSelector": {"spare": "yes"}, "tolerations": tolerations, "terminationGracePeriodSeconds": 5}
    slurm.apply(slurm.nodeset("edge", 1, template={"spec": place}))
    slurm.wait_ready("nodeset/edge")
    job = slurm.submit("-w", "small-0")
    slurm.wait_job(job, "RUNNING")
    try:
        slurm.cluster.cli("node", "stop", spare)
        try:
            eventually(
                "the condition names the node",
                lambda: (
                    f"its node {spare} does not answer" in slurm.condition("nodeset", "edge", "Degraded")["message"]
                ),
                timeout=120,
            )
            assert slurm.job_state(job) == "RUNNING"
        finally:
            slurm.cluster.cli("node", "start", spare)
        slurm.wait_ready("nodeset/edge")
        slurm.wait_state("edge-0", "IDLE")
        assert slurm.login("srun", "-w", "edge-0", "hostname") == "edge-0"
        assert slurm.job_state(job) == "RUNNING"
    finally:
        slurm.cancel(job)
        slurm.kubectl("delete", "nodeset", "edge", timeout=120)

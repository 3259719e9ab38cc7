"""Everything around the workers fails while jobs run on them: no job is lost, and nothing needs hands afterwards."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.deadly import Deadly
from tests.e2e.job import start_job
from tests.e2e.slurm import Slurm
from tests.e2e.stage import eventually, never

pytestmark = pytest.mark.timeout(900)

KUBELET_AWAY_SECONDS = 360
"""Longer than Kubernetes lets pods without a toleration stay on a node that does not answer."""
OPERATOR = ("-n", "slurm-operator")
PROGRAM = str(Path(sys.executable).parent / "slurm-operator")


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
    job = start_job(slurm, "-p", flex, "-w", "flex-1")
    slurm.scale(flex, 1)
    deadly.until(lambda: set(slurm.pods(flex)) <= {"flex-0", "flex-1"} and "flex-1" in slurm.pods(flex))
    job.assert_running()
    job.finish()
    deadly.until(lambda: ready(slurm, flex) and len(slurm.pods(flex)) == 1)
    deadly.until(lambda: slurm.nodes(flex) == list(slurm.pods(flex)))
    steps = {write.split()[0] + " " + ("slurm" if "/slurm/v0" in write else "kubernetes") for write in deadly.writes}
    assert steps >= {"POST slurm", "DELETE slurm", "DELETE kubernetes", "PATCH kubernetes"}


def test_the_operator_dies_after_each_write_of_a_rolling_update(slurm: Slurm, flex: str, deadly: Deadly) -> None:
    """scenario 193"""
    slurm.scale(flex, 3)
    deadly.until(lambda: ready(slurm, flex))
    jobs = [start_job(slurm, "-p", flex, "-w", f"flex-{index}", wrap="sleep 25") for index in (0, 2)]
    slurm.patch("nodeset", flex, {"spec": {"extraConf": "Features=shiny"}})
    deadly.until(lambda: ready(slurm, flex))
    for job in jobs:
        job.assert_undisturbed()
    for name in ("flex-0", "flex-1", "flex-2"):
        slurm.wait_state(name, "IDLE")
        assert set(slurm.node(name)["features"]) == {"flex", "shiny"}


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(15, id="15 seconds"), pytest.param(180, id="3 minutes", marks=pytest.mark.long)],
)
def test_slurmrestd_is_away_in_the_middle_of_a_scale_in(slurm: Slurm, flex: str, seconds: float) -> None:
    """scenario 55, scenario 169"""
    slurm.scale(flex, 3)
    slurm.wait_ready("nodeset/flex")
    job = start_job(slurm, "-p", flex, "-w", "flex-2")
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
        assert "Slurm nodes of slurm (stale: no answer for " in shown_status(slurm)
        never("a worker is deleted while Slurm is unknown", lambda: set(slurm.pods(flex)) != left, seconds)
        job.assert_running()
    finally:
        slurm.patch("restapi", "slurm", {"spec": {"replicas": 1}})
    slurm.wait_ready("restapi/slurm")
    job.finish()
    eventually("every worker has left", lambda: slurm.pods(flex) == {}, timeout=120)
    eventually("and its record", lambda: slurm.nodes(flex) == [], timeout=30)


def shown_status(slurm: Slurm) -> str:
    command = [PROGRAM, "status", "-n", slurm.namespace, "--kubeconfig", str(slurm.cluster.kubeconfig)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60).stdout


def test_slurmctld_is_deleted_under_running_jobs(slurm: Slurm, flex: str) -> None:
    job = start_job(slurm, "-p", flex)
    before = slurm.get("pod", "flex-0")["metadata"]["uid"]
    slurm.kubectl("delete", "pod", "slurm-controller-0", timeout=90)
    slurm.wait_ready("controller/slurm")
    job.finish(timeout=90)
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


@pytest.fixture
def edge(slurm: Slurm, spare: str) -> Iterator[str]:
    """The name of a worker that runs on the spare node."""
    manifest = slurm.nodeset("edge", 1)
    tolerations = [{"key": "spare", "operator": "Exists"}]
    manifest["spec"]["template"]["spec"] |= {"nodeSelector": {"spare": "yes"}, "tolerations": tolerations}
    slurm.apply(manifest)
    slurm.wait_ready("nodeset/edge")
    assert slurm.get("pod", "edge-0")["spec"]["nodeName"] == spare
    yield "edge-0"
    slurm.login("scancel", "--partition=edge")
    slurm.kubectl("delete", "nodeset", "edge", timeout=120)


def wait_named(slurm: Slurm, node: str) -> None:
    """Wait until the NodeSet says that a Kubernetes node does not answer."""

    def named() -> bool:
        return f"its node {node} does not answer" in slurm.condition("nodeset", "edge", "Degraded")["message"]

    eventually("the condition names the node", named, timeout=120)


def test_a_kubernetes_node_stops_under_a_worker(slurm: Slurm, spare: str, edge: str) -> None:
    """A condition names it, jobs elsewhere go on, and the worker comes back with its node."""
    job = start_job(slurm, "-w", "small-0")
    slurm.cluster.cli("node", "stop", spare)
    try:
        wait_named(slurm, spare)
        job.assert_running()
    finally:
        slurm.cluster.cli("node", "start", spare)
    slurm.wait_ready("nodeset/edge")
    slurm.wait_state(edge, "IDLE")
    assert slurm.login("srun", "-w", edge, "hostname") == edge
    job.assert_running()
    job.finish()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_kubelet_is_away_for_six_minutes_under_a_job(slurm: Slurm, spare: str, edge: str) -> None:
    job = start_job(slurm, "-w", edge)
    before = slurm.get("pod", edge)["metadata"]["uid"]
    with slurm.cluster.paused_kubelet(spare):
        wait_named(slurm, spare)
        never("the worker is deleted", lambda: edge not in slurm.pods("edge"), KUBELET_AWAY_SECONDS, pause=2)
        job.assert_running()
    slurm.cluster.wait(slurm.namespace, f"pod/{edge}", "condition=Ready")
    slurm.wait_ready("nodeset/edge")
    job.finish()
    assert slurm.get("pod", edge)["metadata"]["uid"] == before
    slurm.wait_state(edge, "IDLE")

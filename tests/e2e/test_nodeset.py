"""Workers on the real stage, with real jobs that must all survive."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.slurm import Slurm
from tests.e2e.stage import eventually

pytestmark = pytest.mark.timeout(420)

PROGRAM = str(Path(sys.executable).parent / "slurm-operator")


def test_a_job_runs_across_two_kubernetes_nodes(slurm: Slurm) -> None:
    """scenario 197, scenario 198"""
    hosts = slurm.login("srun", "-p", "small", "-N2", "hostname").split()
    assert sorted(hosts) == ["small-0", "small-1"]
    homes = {pod["spec"]["nodeName"] for pod in slurm.pods("small").values()}
    assert len(homes) == 2


def test_output_on_the_shared_home_and_a_line_in_the_accounting(slurm: Slurm) -> None:
    job = slurm.login("sbatch", "--parsable", "--wait", "-N2", "-o", "/home/%j.out", "--wrap", "srun hostname")
    assert len(slurm.login("cat", f"/home/{job}.out").split()) == 2
    assert slurm.login("sacct", "-n", "-X", "-P", "-j", job, "-o", "State,NNodes") == "COMPLETED|2"


def test_an_array_and_a_job_by_host_name(slurm: Slurm) -> None:
    job = slurm.login("sbatch", "--parsable", "--wait", "--array=1-4", "-o", "/home/%A_%a.out", "--wrap", "hostname")
    states = slurm.login("sacct", "-n", "-X", "-P", "-j", job, "-o", "State").split()
    assert states == ["COMPLETED"] * 4
    assert sorted(slurm.login("srun", "-w", "small-1,big-0", "-N2", "hostname").split()) == ["big-0", "small-1"]
    names = slurm.login("srun", "-w", "small-0", "getent", "hosts", "small-1", "big-0")
    assert "small-1" in names
    assert "big-0" in names


def test_status_shows_nodes_and_jobs(slurm: Slurm) -> None:
    job = slurm.submit("-p", "small", "-N1")
    waiting = slurm.submit("-p", "small", "--hold")
    slurm.wait_job(job, "RUNNING")
    command = [PROGRAM, "status", "-n", slurm.namespace, "--kubeconfig", str(slurm.cluster.kubeconfig)]
    eventually(
        "the nodes of that moment",
        lambda: "1 allocated" in subprocess.run(command, check=True, capture_output=True, text=True).stdout,
        timeout=15,
    )
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    slurm.cancel(job)
    slurm.cancel(waiting)
    assert "Jobs of slurm: 1 running, 1 pending" in shown
    assert "NodeSet/small           yes" in shown


def test_registered_size_equals_the_limits(slurm: Slurm) -> None:
    node = slurm.node("big-0")
    assert (node["cpus"], node["real_memory"]) == (2, 1024)
    assert set(node["features"]) == {"big", "bigmem"}


def test_the_slurm_state_shows_on_the_pod_and_a_busy_worker_is_not_evicted(slurm: Slurm) -> None:
    """scenario 99, scenario 168"""
    job = slurm.submit("-w", "big-0")
    slurm.wait_job(job, "RUNNING")

    def says(*kinds: str) -> bool:
        pod = slurm.get("pod", "big-0")
        found = {c["type"] for c in pod["status"]["conditions"] if c["type"].startswith("SlurmNodeState")}
        protected = "nodeset.slinky.slurm.net/pod-protect" in pod["metadata"]["labels"]
        return found == {f"SlurmNodeState{kind}" for kind in kinds} and protected == (kinds != ("Idle",))

    eventually("the pod says that it is busy", lambda: says("Mixed") or says("Allocated"), timeout=15)
    refused = evict(slurm, "big-0")
    assert "disruption budget" in refused
    slurm.cancel(job)
    eventually("the pod says that it is idle", lambda: says("Idle"), timeout=30)


def evict(slurm: Slurm, pod: str) -> str:
    """What the eviction API answers to a dry run."""
    options = {"deleteOptions": {"dryRun": ["All"]}}
    body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}, **options})
    path = f"/api/v1/namespaces/{slurm.namespace}/pods/{pod}/eviction"
    command = slurm.cluster.kubectl.command("create", "--raw", path, "-f", "-")
    done = subprocess.run(command, input=body, capture_output=True, text=True, timeout=30)
    return done.stderr + done.stdout


def test_scale_out_and_in_with_jobs_running(slurm: Slurm, flex: str) -> None:
    """scenario 50, scenario 51, scenario 61, scenario 150"""
    slurm.scale(flex, 4)
    slurm.wait_ready("nodeset/flex")
    assert slurm.nodes(flex) == ["flex-0", "flex-1", "flex-2", "flex-3"]
    job = slurm.submit("-p", flex, "-w", "flex-3")
    slurm.wait_job(job, "RUNNING")
    slurm.scale(flex, 2)
    eventually("idle workers go, the busy one stays", lambda: set(slurm.pods(flex)) == {"flex-0", "flex-3"}, timeout=60)
    assert slurm.job_state(job) == "RUNNING"
    slurm.scale(flex, 0)
    eventually("only the busy one is left", lambda: set(slurm.pods(flex)) == {"flex-3"}, timeout=60)
    eventually(
        "it says for which job it waits",
        lambda: f"job {job} on flex-3" in slurm.condition("nodeset", flex, "Progressing")["message"],
        timeout=60,
    )
    assert slurm.job_state(job) == "RUNNING"
    slurm.cancel(job)
    eventually("no worker is left", lambda: slurm.pods(flex) == {}, timeout=60)
    eventually("and no record either", lambda: slurm.nodes(flex) == [], timeout=30)
    slurm.scale(flex, 3)
    slurm.wait_ready("nodeset/flex")
    assert slurm.nodes(flex) == ["flex-0", "flex-1", "flex-2"]


def test_a_cancelled_scale_in_is_undone(slurm: Slurm, flex: str) -> None:
    """scenario 52"""
    job = slurm.submit("-p", flex)
    slurm.wait_job(job, "RUNNING")
    slurm.scale(flex, 0)
    slurm.wait_state("flex-0", "DRAINING")
    slurm.scale(flex, 1)
    slurm.wait_state("flex-0", "ALLOCATED", "MIXED")
    assert slurm.job_state(job) == "RUNNING"
    slurm.cancel(job)


def test_a_rolling_update_brings_new_features_and_sizes_and_loses_no_job(slurm: Slurm, flex: str) -> None:
    """scenario 116, scenario 127"""
    slurm.scale(flex, 3)
    slurm.wait_ready("nodeset/flex")
    job = slurm.submit("-p", flex, "-w", "flex-0", wrap="sleep 20")
    slurm.wait_job(job, "RUNNING")
    limits = {"slurmd": {"resources": {"limits": {"cpu": "2", "memory": "384Mi"}}}}
    slurm.patch("nodeset", flex, {"spec": {"extraConf": "Features=shiny", **limits}})
    slurm.wait_ready("nodeset/flex", timeout=240)
    assert slurm.job_state(job) == "COMPLETED"
    for name in ("flex-0", "flex-1", "flex-2"):
        node = slurm.node(name)
        assert set(node["features"]) == {"flex", "shiny"}
        assert (node["cpus"], node["real_memory"]) == (2, 384)
        slurm.wait_state(name, "IDLE")


def test_an_unpullable_image_stops_the_update_and_says_why(slurm: Slurm, flex: str) -> None:
    """scenario 118"""
    slurm.scale(flex, 2)
    slurm.wait_ready("nodeset/flex")
    budget = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}}
    slurm.patch("nodeset", flex, {"spec": {"slurmd": {"image": "localhost/no/such:image"}, **budget}})
    eventually(
        "the condition names the pod and the cure",
        lambda: "check the image's name" in slurm.condition("nodeset", flex, "Degraded").get("message", ""),
        timeout=90,
    )
    assert len(slurm.nodes(flex)) == 1, "the other worker keeps serving"
    assert slurm.login("srun", "-p", flex, "-N1", "hostname").startswith("flex-")
    slurm.patch("nodeset", flex, {"spec": {"slurmd": {"image": "localhost/slurm-operator/slurmd:26.05"}}})
    slurm.wait_ready("nodeset/flex")


def test_an_idle_worker_pod_that_is_deleted_comes_back_to_idle(slurm: Slurm, flex: str) -> None:
    """scenario 62, scenario 97"""
    before = slurm.get("pod", "flex-0")["metadata"]["uid"]
    slurm.kubectl("delete", "pod", "flex-0", timeout=60)
    eventually(
        "a new pod", lambda: slurm.pods(flex).get("flex-0", {}).get("metadata", {}).get("uid") not in (None, before)
    )
    slurm.wait_ready("nodeset/flex")
    slurm.wait_state("flex-0", "IDLE")


def test_cordon_and_uncordon_of_a_kubernetes_node(slurm: Slurm) -> None:
    """scenario 81, scenario 82"""
    home = slurm.get("pod", "big-0")["spec"]["nodeName"]
    slurm.cluster.kubectl("annotate", "node", home, "nodeset.slinky.slurm.net/node-cordon-reason=fan 3 is loud")
    slurm.cluster.kubectl("cordon", home)
    try:
        slurm.wait_state("big-0", "DRAINED")
        assert slurm.node("big-0")["reason"] == "slurm-operator: fan 3 is loud"
    finally:
        slurm.cluster.kubectl("uncordon", home)
        slurm.cluster.kubectl("annotate", "node", home, "nodeset.slinky.slurm.net/node-cordon-reason-")
    slurm.wait_state("big-0", "IDLE")


def test_an_administrators_drain_is_left_alone(slurm: Slurm) -> None:
    """scenario 85"""
    home = slurm.get("pod", "big-0")["spec"]["nodeName"]
    slurm.login("scontrol", "update", "nodename=big-0", "state=drain", "reason=my own business")
    slurm.cluster.kubectl("cordon", home)
    slurm.cluster.kubectl("uncordon", home)
    eventually("the pod shows it", lambda: _drained(slurm, "big-0"), timeout=60)
    assert slurm.node("big-0")["reason"] == "my own business"
    slurm.login("scontrol", "update", "nodename=big-0", "state=resume")
    slurm.wait_state("big-0", "IDLE")


def _drained(slurm: Slurm, pod: str) -> bool:
    return any(c["type"] == "SlurmNodeStateDrain" for c in slurm.get("pod", pod)["status"]["conditions"])


def test_a_deleted_nodeset_waits_for_its_job(slurm: Slurm, flex: str) -> None:
    job = slurm.submit("-p", flex)
    slurm.wait_job(job, "RUNNING")
    slurm.kubectl("delete", "nodeset", flex, "--wait=false")
    eventually(
        "it says for which job it waits",
        lambda: f"job {job} on flex-0" in slurm.condition("nodeset", flex, "Progressing").get("message", ""),
        timeout=60,
    )
    assert slurm.job_state(job) == "RUNNING"
    slurm.cancel(job)
    slurm.kubectl("wait", "nodeset/flex", "--for=delete", "--timeout=60s", timeout=90)


def test_wrong_controller_is_named(slurm: Slurm) -> None:
    """scenario 42"""
    wrong = slurm.nodeset("lost", 1, controllerRef={"name": "nowhere"})
    slurm.apply(wrong)
    try:
        eventually(
            "the condition names it",
            lambda: (
                f"Controller {slurm.namespace}/nowhere does not exist"
                in slurm.condition("nodeset", "lost", "Degraded").get("message", "")
            ),
        )
        eventually(
            "so does an event",
            lambda: any(e["reason"] == "ControllerRefFailed" for e in slurm.events("NodeSet", "lost")),
        )
    finally:
        slurm.kubectl("delete", "nodeset", "lost", timeout=60)


def test_a_worker_on_every_kubernetes_node(slurm: Slurm) -> None:
    """scenario 67"""
    slurm.apply(slurm.nodeset("every", 0, scalingMode="DaemonSet"))
    slurm.wait_ready("nodeset/every")
    workers = slurm.pods("every")
    found = slurm.cluster.kubectl.json("get", "nodes")["items"]
    nodes = [node["metadata"]["name"] for node in found if "taints" not in node["spec"]]
    assert sorted(pod["spec"]["nodeName"] for pod in workers.values()) == sorted(nodes)
    ran_on = slurm.login("srun", "-p", "every", f"-N{len(nodes)}", "hostname").split()
    assert sorted(ran_on) == slurm.nodes("every")
    slurm.kubectl("delete", "nodeset", "every", timeout=120)
    assert slurm.pods("every") == {}
    known = slurm.login("sinfo", "-h", "-N", "-o", "%N").split()
    assert not set(known) & set(ran_on), "no record is left behind"

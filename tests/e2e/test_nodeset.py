"""Workers on the real stage, with real jobs that must all survive."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.job import run_job, start_job
from tests.e2e.slurm import Slurm
from tests.e2e.stage import eventually, never

pytestmark = pytest.mark.timeout(420)

PROGRAM = str(Path(sys.executable).parent / "slurm-operator")


def test_a_job_runs_across_two_kubernetes_nodes(slurm: Slurm) -> None:
    """scenario 197, scenario 198"""
    hosts = slurm.login("srun", "-p", "small", "-N2", "hostname").split()
    assert sorted(hosts) == ["small-0", "small-1"]
    homes = {pod["spec"]["nodeName"] for pod in slurm.pods("small").values()}
    assert len(homes) == 2


def test_output_on_the_shared_home_and_a_line_in_the_accounting(slurm: Slurm) -> None:
    job = run_job(slurm, "-N2", "-o", "/home/%j.out", wrap="srun hostname")
    assert len(slurm.login("cat", f"/home/{job}.out").split()) == 2
    assert slurm.login("sacct", "-n", "-X", "-P", "-j", str(job), "-o", "NNodes") == "2"


def test_an_array_and_a_job_by_host_name(slurm: Slurm) -> None:
    job = slurm.login("sbatch", "--parsable", "--wait", "--array=1-4", "-o", "/home/%A_%a.out", "--wrap", "hostname")
    states = slurm.login("sacct", "-n", "-X", "-P", "-j", job, "-o", "State").split()
    assert states == ["COMPLETED"] * 4
    assert sorted(slurm.login("srun", "-w", "small-1,big-0", "-N2", "hostname").split()) == ["big-0", "small-1"]
    names = slurm.login("srun", "-w", "small-0", "getent", "hosts", "small-1", "big-0")
    assert "small-1" in names
    assert "big-0" in names


def test_status_shows_nodes_and_jobs(slurm: Slurm) -> None:
    job = start_job(slurm, "-p", "small", "-N1")
    waiting = slurm.submit("-p", "small", "--hold")
    command = [PROGRAM, "status", "-n", slurm.namespace, "--kubeconfig", str(slurm.cluster.kubeconfig)]
    eventually(
        "the nodes of that moment",
        lambda: "1 allocated" in subprocess.run(command, check=True, capture_output=True, text=True).stdout,
        timeout=15,
    )
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    slurm.cancel(waiting)
    job.finish()
    assert "Jobs of slurm: 1 running, 1 pending" in shown
    assert "NodeSet/small           yes" in shown


def test_registered_size_equals_the_limits(slurm: Slurm) -> None:
    node = slurm.node("big-0")
    assert (node["cpus"], node["real_memory"]) == (2, 1024)
    assert set(node["features"]) == {"big", "bigmem"}


def test_a_worker_is_evicted_only_after_its_job(slurm: Slurm, flex: str) -> None:
    """scenario 99"""
    job = start_job(slurm, "-p", flex)
    before = uid(slurm, "flex-0")

    def says(*kinds: str) -> bool:
        pod = slurm.get("pod", "flex-0")
        found = {c["type"] for c in pod["status"]["conditions"] if c["type"].startswith("SlurmNodeState")}
        protected = "nodeset.slinky.slurm.net/pod-protect" in pod["metadata"]["labels"]
        return found == {f"SlurmNodeState{kind}" for kind in kinds} and protected == (kinds != ("Idle",))

    eventually("the pod says that it is busy", lambda: says("Mixed") or says("Allocated"), timeout=15)
    assert "disruption budget" in evict(slurm, "flex-0")
    assert uid(slurm, "flex-0") == before
    job.finish()
    eventually("the pod says that it is idle", lambda: says("Idle"), timeout=30)
    eventually("it may be evicted", lambda: '"status":"Success"' in evict(slurm, "flex-0"), timeout=30)
    eventually("a new pod", lambda: uid(slurm, "flex-0") not in ("", before), timeout=60)
    slurm.wait_ready("nodeset/flex")
    slurm.wait_state("flex-0", "IDLE")


def test_a_busy_worker_that_scale_in_chose_is_not_evicted(slurm: Slurm, flex: str) -> None:
    """The budget counts every busy worker, not as many as the NodeSet shall have."""
    slurm.scale(flex, 2)
    slurm.wait_ready("nodeset/flex")
    stays, leaves = (start_job(slurm, "-p", flex, "-w", name) for name in ("flex-0", "flex-1"))
    slurm.scale(flex, 1)
    eventually("scale-in has chosen", lambda: "DRAINING" in states(slurm, "flex-0", "flex-1"))
    eventually("a pod shows it", lambda: _drained(slurm, "flex-0") or _drained(slurm, "flex-1"))
    for name in ("flex-0", "flex-1"):
        never(f"{name} is evicted", partial(evicted, slurm, name), seconds=3)
    stays.finish()
    leaves.finish()
    eventually("one worker is left", lambda: len(slurm.pods(flex)) == 1, timeout=60)


def evicted(slurm: Slurm, pod: str) -> bool:
    return "disruption budget" not in evict(slurm, pod)


def states(slurm: Slurm, *nodes: str) -> list[str]:
    return [slurm.node_state(node) for node in nodes]


def uid(slurm: Slurm, pod: str) -> str:
    """Return the UID of a pod, or nothing if there is none or it is being deleted."""
    form = "jsonpath={.metadata.uid} {.metadata.deletionTimestamp}"
    found, _, deleted = slurm.kubectl("get", "pod", pod, "--ignore-not-found", "-o", form).strip().partition(" ")
    return "" if deleted else found


def evict(slurm: Slurm, pod: str) -> str:
    """Evict a pod and return what the API server answers."""
    body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}})
    path = f"/api/v1/namespaces/{slurm.namespace}/pods/{pod}/eviction"
    command = slurm.cluster.kubectl.command("create", "--raw", path, "-f", "-")
    done = subprocess.run(command, input=body, capture_output=True, text=True, timeout=30)
    return done.stderr + done.stdout


def test_scale_out_and_in_with_jobs_running(slurm: Slurm, flex: str) -> None:
    """scenario 50, scenario 51, scenario 61, scenario 150"""
    slurm.scale(flex, 4)
    slurm.wait_ready("nodeset/flex")
    assert slurm.nodes(flex) == ["flex-0", "flex-1", "flex-2", "flex-3"]
    job = start_job(slurm, "-p", flex, "-w", "flex-3")
    slurm.scale(flex, 2)
    eventually("idle workers go, the busy one stays", lambda: set(slurm.pods(flex)) == {"flex-0", "flex-3"}, timeout=60)
    job.assert_running()
    slurm.scale(flex, 0)
    eventually("only the busy one is left", lambda: set(slurm.pods(flex)) == {"flex-3"}, timeout=60)
    eventually(
        "it says for which job it waits",
        lambda: f"job {job} on flex-3" in slurm.condition("nodeset", flex, "Progressing")["message"],
        timeout=60,
    )
    job.assert_running()
    job.finish()
    eventually("no worker is left", lambda: slurm.pods(flex) == {}, timeout=60)
    eventually("and no record either", lambda: slurm.nodes(flex) == [], timeout=30)
    slurm.scale(flex, 3)
    slurm.wait_ready("nodeset/flex")
    assert slurm.nodes(flex) == ["flex-0", "flex-1", "flex-2"]


def test_a_cancelled_scale_in_is_undone(slurm: Slurm, flex: str) -> None:
    """scenario 52"""
    job = start_job(slurm, "-p", flex)
    slurm.scale(flex, 0)
    slurm.wait_state("flex-0", "DRAINING")
    slurm.scale(flex, 1)
    slurm.wait_state("flex-0", "ALLOCATED", "MIXED")
    job.assert_running()
    job.finish()


def test_a_rolling_update_brings_new_features_and_sizes_and_loses_no_job(slurm: Slurm, flex: str) -> None:
    """scenario 116"""
    slurm.scale(flex, 3)
    slurm.wait_ready("nodeset/flex")
    job = start_job(slurm, "-p", flex, "-w", "flex-0", wrap="sleep 20")
    limits = {"slurmd": {"resources": {"limits": {"cpu": "2", "memory": "384Mi"}}}}
    slurm.patch("nodeset", flex, {"spec": {"extraConf": "Features=shiny", **limits}})
    slurm.wait_ready("nodeset/flex", timeout=240)
    job.assert_undisturbed()
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
    """scenario 97"""
    before = slurm.get("pod", "flex-0")["metadata"]["uid"]
    slurm.kubectl("delete", "pod", "flex-0", timeout=60)
    eventually(
        "a new pod", lambda: slurm.pods(flex).get("flex-0", {}).get("metadata", {}).get("uid") not in (None, before)
    )
    slurm.wait_ready("nodeset/flex")
    slurm.wait_state("flex-0", "IDLE")


CORDON_REASON = "nodeset.slinky.slurm.net/node-cordon-reason"


def test_cordon_and_uncordon_of_a_kubernetes_node_under_a_job(slurm: Slurm) -> None:
    """scenario 81, scenario 82"""
    home = slurm.get("pod", "big-0")["spec"]["nodeName"]
    job = start_job(slurm, "-w", "big-0")
    slurm.cluster.kubectl("annotate", "node", home, f"{CORDON_REASON}=fan 3 is loud")
    slurm.cluster.kubectl("cordon", home)
    try:
        slurm.wait_state("big-0", "DRAINING")
        assert slurm.node("big-0")["reason"] == "slurm-operator: fan 3 is loud"
        job.finish()
        slurm.wait_state("big-0", "DRAINED")
    finally:
        slurm.cluster.kubectl("uncordon", home)
        slurm.cluster.kubectl("annotate", "node", home, f"{CORDON_REASON}-")
    slurm.wait_state("big-0", "IDLE")


def test_an_administrators_drain_is_left_alone(slurm: Slurm, flex: str) -> None:
    """Neither a cordon nor an uncordon that the operator saw changes it. scenarios 85 and 168"""
    slurm.scale(flex, len(slurm.cluster.nodes) + 1)
    slurm.wait_ready("nodeset/flex")
    drained, other, home = neighbours(slurm, flex)
    slurm.login("scontrol", "update", f"nodename={drained}", "state=drain", "reason=my own business")
    eventually("the pod shows it", lambda: _drained(slurm, drained), timeout=60)
    slurm.cluster.kubectl("cordon", home)
    try:
        slurm.wait_state(other, "DRAINED")  # the operator has seen the cordon
        assert slurm.node(drained)["reason"] == "my own business"
    finally:
        slurm.cluster.kubectl("uncordon", home)
    slurm.wait_state(other, "IDLE")  # and the uncordon
    never("the drain is lifted", lambda: slurm.node_state(drained) != "DRAINED", seconds=5)
    assert slurm.node(drained)["reason"] == "my own business"
    slurm.login("scontrol", "update", f"nodename={drained}", "state=resume")
    slurm.wait_state(drained, "IDLE")


def neighbours(slurm: Slurm, nodeset: str) -> tuple[str, str, str]:
    """Return two workers that share a Kubernetes node, and that node."""
    homes: dict[str, str] = {}
    for name, pod in sorted(slurm.pods(nodeset).items()):
        home = pod["spec"]["nodeName"]
        if home in homes:
            return homes[home], name, home
        homes[home] = name
    raise AssertionError(f"no two workers share a Kubernetes node: {homes}")


def _drained(slurm: Slurm, pod: str) -> bool:
    return any(c["type"] == "SlurmNodeStateDrain" for c in slurm.get("pod", pod)["status"]["conditions"])


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_deleted_nodeset_waits_for_its_job(slurm: Slurm, flex: str, cascade: str) -> None:
    job = start_job(slurm, "-p", flex)
    slurm.kubectl("delete", "nodeset", flex, "--wait=false", f"--cascade={cascade}")
    eventually(
        "it says for which job it waits",
        lambda: f"job {job} on flex-0" in slurm.condition("nodeset", flex, "Progressing").get("message", ""),
        timeout=60,
    )
    never("the worker is deleted", lambda: set(slurm.pods(flex)) != {"flex-0"}, seconds=5)
    job.assert_running()
    job.finish()
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


def test_the_limits_of_a_limit_range_are_the_size_of_the_node(slurm: Slurm) -> None:
    """The NodeSet itself sets no limits: Slurm must not offer the whole machine."""
    defaults = {"cpu": "1", "memory": "200Mi"}
    limit = {"type": "Container", "default": defaults, "defaultRequest": {"cpu": "10m", "memory": "32Mi"}}
    slurm.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": {"limits": [limit]}})
    ranged = slurm.nodeset("ranged", 1)
    del ranged["spec"]["slurmd"]["resources"]
    try:
        slurm.apply(ranged)
        slurm.wait_ready("nodeset/ranged")
        node = slurm.node("ranged-0")
        assert (node["cpus"], node["real_memory"]) == (1, 200)
    finally:
        slurm.kubectl("delete", "limitrange", "small")
        slurm.kubectl("delete", "nodeset", "ranged", timeout=120)


def test_a_nodeset_that_is_created_again_is_ready_once_its_partition_takes_jobs(slurm: Slurm, flex: str) -> None:
    """slurmctld closed the partition of the one before, and shows its workers in it until it is open again."""
    slurm.kubectl("delete", "nodeset", flex, timeout=120)
    slurm.apply(slurm.nodeset(flex, 1))
    slurm.wait_ready(f"nodeset/{flex}")
    start_job(slurm, "-p", flex).finish()

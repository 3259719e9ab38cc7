"""Nodes that are drained, stopped and killed, and what their pods and the others' pods go through."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.stage import Cluster, claim, eventually, pod


@pytest.fixture
def uncordoned(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.kubectl("uncordon", *cluster.nodes)


def drain(cluster: Cluster, node: str, *, seconds: int) -> subprocess.CompletedProcess[str]:
    options = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={seconds}s"]
    return subprocess.run(cluster.kubectl.command("drain", node, *options), capture_output=True, text=True, timeout=120)


@pytest.mark.usefixtures("uncordoned")
def test_a_drain_waits_for_the_disruption_budget(cluster: Cluster, namespace: str) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "both"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    cluster.apply(namespace, budget, pod("guarded", nodeName="node-3"), pod("free", nodeName="node-3"))
    cluster.wait_ready(namespace, "guarded", "free")
    eventually(
        "the budget counts its pod",
        lambda: cluster.get(namespace, "pdb", "both")["status"].get("currentHealthy") == 1,
    )

    refused = drain(cluster, "node-3", seconds=8)

    assert refused.returncode != 0
    assert "disruption budget" in refused.stderr
    left = cluster.kubectl("get", "pods", "-n", namespace, "-o", "name").split()
    assert left == ["pod/guarded"]

    cluster.kubectl("delete", "pdb", "both", "-n", namespace)
    assert drain(cluster, "node-3", seconds=60).returncode == 0
    assert cluster.kubectl("get", "pods", "-n", namespace, "-o", "name") == ""


@pytest.mark.usefixtures("uncordoned")
def test_a_cordoned_node_takes_no_new_pods(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("cordon", "node-1", "node-2")
    cluster.apply(namespace, *(pod(f"pod-{index}") for index in range(3)))
    cluster.wait_ready(namespace, "pod-0", "pod-1", "pod-2")

    pods = cluster.kubectl.json("get", "pods", "-n", namespace)["items"]
    assert {item["spec"]["nodeName"] for item in pods} == {"node-3"}


def test_a_stateful_set_comes_back_with_its_volume(cluster: Cluster, namespace: str) -> None:
    container = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    template = pod("db", "date +%s%N >> /data/starts; sleep 100000", container=container)
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "replicas": 1,
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": template["spec"]},
            "volumeClaimTemplates": [claim("data", None, "ReadWriteOnce")],
        },
    }
    cluster.apply(namespace, stateful_set)
    cluster.wait(namespace, "pod/db-0", "create")
    cluster.wait_ready(namespace, "db-0")
    before = cluster.get(namespace, "pod", "db-0")["metadata"]["uid"]

    cluster.kubectl("delete", "pod", "db-0", "-n", namespace)
    eventually("another pod", lambda: uid(cluster, namespace, "db-0") not in {before, ""})
    cluster.wait_ready(namespace, "db-0")

    assert len(cluster.run(namespace, "db-0", "cat", "/data/starts").splitlines()) == 2


def uid(cluster: Cluster, namespace: str, name: str) -> str:
    return cluster.kubectl("get", "pod", name, "-n", namespace, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")


def taints(cluster: Cluster, node: str) -> set[str]:
    spec = cluster.kubectl.json("get", "node", node)["spec"]
    return {taint["key"] for taint in spec.get("taints", [])}


@pytest.mark.timeout(300)
def test_a_killed_node_is_noticed_and_comes_back_while_others_go_on(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, pod("here", nodeName="node-3"), pod("elsewhere", nodeName="node-2"))
    cluster.wait_ready(namespace, "here", "elsewhere")

    cluster.cli("node", "kill", "node-3")
    eventually("node-3 is not ready", lambda: not cluster.stage.ready_nodes()["node-3"], timeout=90, pause=1)
    eventually("it is tainted", lambda: "node.kubernetes.io/unreachable" in taints(cluster, "node-3"), timeout=30)

    cluster.cli("node", "start", "node-3")
    eventually("the taints are gone", lambda: not taints(cluster, "node-3"), timeout=30)
    eventually("its container runs again", lambda: restarts(cluster, namespace, "here") == 1, timeout=60)
    cluster.wait_ready(namespace, "here")
    assert restarts(cluster, namespace, "elsewhere") == 0
    assert cluster.run(namespace, "elsewhere", "hostname") == "elsewhere"


@pytest.mark.timeout(240)
def test_a_stopped_node_starts_again_with_its_pods_and_volumes(cluster: Cluster, namespace: str) -> None:
    volume = {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "own"}}],
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    }
    command = "echo started >> /data/starts; sleep 100000"
    cluster.apply(namespace, claim("own", None, "ReadWriteOnce"))
    cluster.apply(namespace, pod("here", command, nodeSelector={"kubernetes.io/hostname": "node-3"}, **volume))
    cluster.wait_ready(namespace, "here")

    cluster.cli("node", "stop", "node-3")
    assert "stopped" in next(line for line in cluster.status() if line.startswith("node-3"))
    cluster.cli("node", "start", "node-3")

    eventually("its container runs again", lambda: restarts(cluster, namespace, "here") == 1, timeout=60)
    cluster.wait_ready(namespace, "here")
    assert cluster.run(namespace, "here", "cat", "/data/starts").split() == ["started", "started"]


def restarts(cluster: Cluster, namespace: str, name: str) -> int:
    statuses = cluster.get(namespace, "pod", name)["status"].get("containerStatuses", [])
    return sum(status["restartCount"] for status in statuses)

"""Pods on the real stage: their life, names, volumes and the ways into them."""

import socket
import subprocess
import time

import pytest

from tests.e2e.stage import TEST_IMAGE, Cluster, claim, eventually, pod, with_volume

WEB = "while true; do httpd -f -p 8080 -h /www; done"


def web_pod(name: str, node: str) -> dict[str, object]:
    return pod(name, f"mkdir /www; hostname > /www/index.html; {WEB}", nodeName=node)


def test_all_nodes_are_ready_and_offer_devices(cluster: Cluster) -> None:
    first = ("node-1", "node-2", "node-3")  # those it started with; a test may have added one

    assert cluster.stage.ready_nodes().items() >= dict.fromkeys(first, True).items()
    eventually(
        "every node offers its GPUs",
        lambda: all(
            item["status"]["allocatable"].get("nvidia.com/gpu") == "2"
            for item in cluster.kubectl.json("get", "nodes", *first)["items"]
        ),
    )


def test_a_device_is_given_to_one_pod(cluster: Cluster, namespace: str) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    cluster.apply(namespace, pod("gpu", nodeName="node-1", container=limits))
    cluster.wait_ready(namespace, "gpu")

    assert cluster.run(namespace, "gpu", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES") in {"0", "1"}


def test_a_service_is_reached_by_name_from_another_node(cluster: Cluster, namespace: str) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": web_pod("web", "node-2")["spec"]},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    cluster.apply(namespace, deployment, service, pod("client", nodeName="node-1"))
    cluster.wait(namespace, "deployment/web", "condition=Available")
    cluster.wait_ready(namespace, "client")

    name = f"web.{namespace}.svc.cluster.local"
    eventually("the Service answers", lambda: answers(cluster, namespace, f"http://{name}/"), timeout=30)
    assert cluster.run(namespace, "client", "wget", "-qO-", "http://web/").startswith("web-")


def answers(cluster: Cluster, namespace: str, url: str) -> bool:
    command = cluster.kubectl.command("exec", "client", "-n", namespace, "--", "wget", "-T", "2", "-qO-", url)
    return subprocess.run(command, capture_output=True, timeout=30).returncode == 0


def test_names_outside_the_cluster_do_not_exist(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, pod("client"))
    cluster.wait_ready(namespace, "client")

    started = time.monotonic()
    command = cluster.kubectl.command("exec", "client", "-n", namespace, "--", "nslookup", "nowhere.invalid")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert "NXDOMAIN" in done.stdout + done.stderr
    assert time.monotonic() - started < 10


def test_a_claim_without_class_follows_its_pod_and_goes_with_it(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, claim("own", None, "ReadWriteOnce"))
    cluster.apply(namespace, pod("writer", "echo kept > /data/file; sleep 100000", **with_volume("own")))
    cluster.wait_ready(namespace, "writer")
    volume = cluster.get(namespace, "pvc", "own")["spec"]["volumeName"]

    cluster.kubectl("delete", "pod", "writer", "-n", namespace)
    cluster.apply(namespace, pod("reader", **with_volume("own")))
    cluster.wait_ready(namespace, "reader")
    assert cluster.run(namespace, "reader", "cat", "/data/file") == "kept"

    cluster.kubectl("delete", "pod/reader", "pvc/own", "-n", namespace)
    eventually("the volume is gone", lambda: volume not in cluster.kubectl("get", "pv", "-o", "name"))
    assert not list(cluster.stage.names.folder.glob(f"volumes/*/{volume}"))


def test_a_shared_claim_is_seen_on_two_nodes_at_once(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, claim("shared", "shared", "ReadWriteMany"))
    cluster.wait(namespace, "pvc/shared", "jsonpath={.status.phase}=Bound")
    cluster.apply(
        namespace,
        pod("writer", "echo both > /data/file; sleep 100000", nodeName="node-1", **with_volume("shared")),
        pod("reader", nodeName="node-2", **with_volume("shared")),
    )
    cluster.wait_ready(namespace, "writer", "reader")

    eventually("the other node reads it", lambda: cluster.run(namespace, "reader", "cat", "/data/file") == "both")


def test_files_of_a_claim_belong_to_the_group_of_the_pod(cluster: Cluster, namespace: str) -> None:
    identity = {"securityContext": {"runAsUser": 401, "runAsGroup": 401, "fsGroup": 401, "runAsNonRoot": True}}
    cluster.apply(namespace, claim("own", None, "ReadWriteOnce"))
    cluster.apply(namespace, pod("slurm", "touch /data/state; sleep 100000", **identity, **with_volume("own")))
    cluster.wait_ready(namespace, "slurm")

    assert cluster.run(namespace, "slurm", "stat", "-c", "%u %g", "/data/state") == "401 401"
    assert cluster.run(namespace, "slurm", "stat", "-c", "%g %A", "/data") == "401 drwxrwsr-x"


def test_logs_and_exec(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, pod("speaker", "echo spoken; sleep 100000"))
    cluster.wait_ready(namespace, "speaker")

    assert cluster.kubectl("logs", "speaker", "-n", namespace) == "spoken\n"
    assert cluster.run(namespace, "speaker", "hostname") == "speaker"


def test_port_forward(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, web_pod("web", "node-3"))
    cluster.wait_ready(namespace, "web")
    command = cluster.kubectl.command("port-forward", "pod/web", "-n", namespace, ":8080")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        port = int(forward.stdout.readline().split("->")[0].rsplit(":", 1)[1])
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert b"200 OK" in connection.recv(4096)
        finally:
            forward.terminate()


def test_a_failing_container_is_restarted_and_a_failing_probe_takes_a_pod_out_of_service(
    cluster: Cluster, namespace: str
) -> None:
    probes = {
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
        "livenessProbe": {"exec": {"command": ["test", "!", "-e", "/tmp/broken"]}, "periodSeconds": 1},
    }
    cluster.apply(namespace, pod("probed", container=probes))
    cluster.wait(namespace, "pod/probed", "jsonpath={.status.phase}=Running")
    assert not is_ready(cluster, namespace, "probed")

    cluster.run(namespace, "probed", "touch", "/tmp/ready")
    cluster.wait_ready(namespace, "probed")
    cluster.run(namespace, "probed", "rm", "/tmp/ready")
    eventually("it is not ready", lambda: not is_ready(cluster, namespace, "probed"))
    cluster.run(namespace, "probed", "touch", "/tmp/broken")
    eventually("it is restarted", lambda: restarts(cluster, namespace, "probed") == 1)


def is_ready(cluster: Cluster, namespace: str, name: str) -> bool:
    conditions = cluster.get(namespace, "pod", name)["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def restarts(cluster: Cluster, namespace: str, name: str) -> int:
    return sum(status["restartCount"] for status in cluster.get(namespace, "pod", name)["status"]["containerStatuses"])


def test_a_pod_that_ends_says_how(cluster: Cluster, namespace: str) -> None:
    ending = {"command": ["/bin/sh", "-c", "exit 3"], "image": TEST_IMAGE}
    cluster.apply(namespace, pod("ends", restartPolicy="Never", container=ending))
    cluster.wait(namespace, "pod/ends", "jsonpath={.status.phase}=Failed")

    state = cluster.get(namespace, "pod", "ends")["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["exitCode"] == 3


@pytest.mark.timeout(240)
def test_changes_of_a_config_map_and_a_secret_reach_a_running_pod(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "configmap", "settings", "-n", namespace, "--from-literal=word=old")
    cluster.kubectl("create", "secret", "generic", "key", "-n", namespace, "--from-literal=word=old")
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("settings", "key")]
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "key", "secret": {"secretName": "key"}},
    ]
    cluster.apply(namespace, pod("reader", volumes=volumes, container={"volumeMounts": mounts}))
    cluster.wait_ready(namespace, "reader")
    assert cluster.run(namespace, "reader", "cat", "/settings/word", "/key/word") == "oldold"

    cluster.kubectl("patch", "configmap", "settings", "-n", namespace, "-p", '{"data":{"word":"new"}}')
    cluster.kubectl("patch", "secret", "key", "-n", namespace, "-p", '{"stringData":{"word":"new"}}')

    # The kubelet looks once a minute, give or take: that is Kubernetes' default, and what users have.
    eventually(
        "both changes are there",
        lambda: cluster.run(namespace, "reader", "cat", "/settings/word", "/key/word") == "newnew",
        timeout=150,
        pause=2,
    )


def test_a_pod_has_a_token_that_the_api_accepts_and_no_more_rights_than_given(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, pod("client"))
    cluster.wait_ready(namespace, "client")
    token = cluster.run(namespace, "client", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")

    may = cluster.kubectl.command(
        "auth", "can-i", "list", "pods", "-n", namespace, f"--token={token}", "--kubeconfig=/dev/null"
    )
    server = [
        f"--server={cluster.stage.plane.url}",
        f"--certificate-authority={cluster.stage.plane.authority.pair.cert}",
    ]
    done = subprocess.run([*may, *server], capture_output=True, text=True, timeout=60)

    assert done.stdout.strip() == "no"

"""The `simulated_nodes` fixture itself."""

from slurm_local.simulation import SimulatedNodes

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {
        "replicas": 20,
        "selector": {"matchLabels": {"app": "many"}},
        "template": {
            "metadata": {"labels": {"app": "many"}},
            "spec": {
                "nodeSelector": {"type": "kwok"},
                "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
        },
    },
}


def test_pods_are_scheduled_and_run_on_nodes_in_name_only(simulated_nodes: SimulatedNodes, namespace: str) -> None:
    names = simulated_nodes.add(5, prefix="pool", gpus=4)
    simulated_nodes.kubectl.apply([{**DEPLOYMENT, "metadata": {"name": "many", "namespace": namespace}}])

    # Available is said of three quarters already.
    simulated_nodes.kubectl("rollout", "status", "deployment/many", "-n", namespace, "--timeout=60s", timeout=90)

    pods = simulated_nodes.kubectl.json("get", "pods", "-n", namespace)["items"]
    placed = [pod["spec"]["nodeName"] for pod in pods]
    assert {name: placed.count(name) for name in names} == dict.fromkeys(names, 4)

"""The topology of a Node reaches the worker as it is bound, and nobody else notices."""

from typing import Any

import pytest

from slurm_operator.admission.binding import PATH
from slurm_operator.api import names
from tests.fakes.apiserver import FakeApiServer, Fault, Hang, Refuse
from tests.unit.admission.conftest import Webhook, put, review
from tests.unit.admission.examples import Manifest

BINDING: Manifest = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "gpu-0", "namespace": "default"},
    "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
}
POD: Manifest = {"containers": [{"name": "a", "image": "a"}]}
TOPOLOGY = "topo-switch:s2,topo-block:b2"


@pytest.fixture
def cluster(server: FakeApiServer) -> FakeApiServer:
    """A worker, a pod of somebody else, and a Node that knows its place."""
    put(server, "Pod", "gpu-0", metadata={"labels": {names.LABEL_APP: names.APP_SLURMD}}, spec=POD)
    put(server, "Pod", "web-0", metadata={"labels": {names.LABEL_APP: "nginx"}}, spec=POD)
    put(server, "Node", "node-1", metadata={"annotations": {names.ANNOTATION_TOPOLOGY: TOPOLOGY}})
    put(server, "Node", "plain")
    server.requests.clear()
    return server


def topology(server: FakeApiServer, pod: str = "gpu-0") -> str | None:
    found: dict[str, Any] = server.cluster.get(server.cluster.kind("Pod"), pod, "default")
    annotation: str | None = found["metadata"].get("annotations", {}).get(names.ANNOTATION_TOPOLOGY)
    return annotation


async def bind(webhook: Webhook, pod: str = "gpu-0", node: str = "node-1", **request: Any) -> Manifest:
    binding = {**BINDING, "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    return await webhook.response(PATH, review(binding, name=pod, **request))


async def test_a_worker_learns_its_topology(cluster: FakeApiServer, webhook: Webhook) -> None:
    """scenario 155"""
    response = await bind(webhook)
    assert response["allowed"]
    assert "patch" not in response, "the binding itself stays as it is"
    assert topology(cluster) == TOPOLOGY


async def test_a_node_without_topology(cluster: FakeApiServer, webhook: Webhook) -> None:
    """scenario 155"""
    assert (await bind(webhook, node="plain"))["allowed"]
    assert topology(cluster) == ""


async def test_what_is_there_already_is_not_written_again(cluster: FakeApiServer, webhook: Webhook) -> None:
    await bind(webhook)
    await bind(webhook)
    assert [request.verb for request in cluster.requests if request.is_write] == ["patch"]


@pytest.mark.parametrize(
    ("pod", "node", "request_"),
    [("web-0", "node-1", {}), ("gpu-0", "node-1", {"dryRun": True}), ("gpu-0", "gone", {})],
    ids=["a pod of others", "dry run", "no such Node"],
)
async def test_bound_without_a_change(
    cluster: FakeApiServer, webhook: Webhook, pod: str, node: str, request_: dict[str, Any]
) -> None:
    """scenario 155"""
    assert (await bind(webhook, pod, node, **request_))["allowed"]
    assert topology(cluster, pod) is None
    assert not [request for request in cluster.requests if request.is_write]


async def test_a_dry_run_asks_nothing(cluster: FakeApiServer, webhook: Webhook) -> None:
    await bind(webhook, dryRun=True)
    assert cluster.requests == []


async def test_a_pod_that_is_gone_is_an_error(cluster: FakeApiServer, webhook: Webhook) -> None:
    """scenario 155"""
    response = await bind(webhook, "gone")
    assert (response["allowed"], response["status"]["code"]) == (False, 404)
    assert "there is no Pod gone to bind" in response["status"]["message"]


async def test_a_topology_that_cannot_be_written_is_an_error(cluster: FakeApiServer, webhook: Webhook) -> None:
    """scenario 155"""
    cluster.faults.add(Fault(Refuse(403, "Forbidden", "no"), verb="patch", resource="pods", times=None))
    response = await bind(webhook)
    assert not response["allowed"]
    assert "the topology of Node node-1 was not copied" in response["status"]["message"]


@pytest.mark.parametrize("action", [Hang(), Refuse(403), Refuse(500)], ids=str)
async def test_a_pod_that_may_be_anybodys_is_left_to_the_failure_policy(
    cluster: FakeApiServer, webhook: Webhook, action: Hang | Refuse
) -> None:
    """No verdict at all: the API server then binds the pod, as the policy is Ignore."""
    cluster.faults.add(Fault(action, verb="get", resource="pods", times=None))
    status, text = await webhook.post(PATH, review(BINDING))
    assert status == 500
    assert "cannot get pods" in text


@pytest.mark.parametrize(
    "binding", [{}, {"metadata": 7, "target": []}, {"metadata": {"name": "../nodes/a"}, "target": {"name": "a"}}]
)
async def test_bindings_that_make_no_sense(cluster: FakeApiServer, webhook: Webhook, binding: Manifest) -> None:
    assert (await webhook.response(PATH, review(binding, name="")))["allowed"]
    assert cluster.requests == []

"""Status, scale, eviction and binding."""

import pytest

from slurm_operator.kube.errors import Conflict, NotFound, TooManyRequests
from slurm_operator.kube.kinds import CONFIG_MAPS, POD_DISRUPTION_BUDGETS, PODS
from tests.contract.server import WIDGETS, ContractServer, Json

WIDGET_TYPE: Json = {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind}


class Subresources:
    async def test_status_and_spec_have_separate_doors(self, server: ContractServer) -> None:
        manifest = WIDGET_TYPE | server.named("w", spec={"replicas": 1}, status={"replicas": 7})
        made = await server.client.create(WIDGETS, manifest)
        assert made.status.replicas == 0
        both: Json = {"spec": {"replicas": 2}, "status": {"replicas": 8}}
        by_main = await server.client.patch(WIDGETS, "w", both, server.namespace)
        assert (by_main.spec.replicas, by_main.status.replicas) == (2, 0)
        both = {"spec": {"replicas": 3}, "status": {"replicas": 9}}
        by_status = await server.client.patch(WIDGETS, "w", both, server.namespace, subresource="status")
        assert (by_status.spec.replicas, by_status.status.replicas) == (2, 9)
        assert by_status.metadata.generation == by_main.metadata.generation

    async def test_kinds_without_status_have_no_such_door(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a"))
        with pytest.raises(NotFound):
            await server.client.patch(CONFIG_MAPS, "a", {"data": {}}, server.namespace, subresource="status")

    async def test_pods_begin_pending(self, server: ContractServer) -> None:
        pod = await server.client.create(PODS, server.pod("p", status={"phase": "Running"}))
        assert pod.status.phase == "Pending"
        patch = {"status": {"phase": "Running", "podIP": "10.0.0.1"}}
        pod = await server.client.patch(PODS, "p", patch, server.namespace, subresource="status")
        assert (pod.status.phase, pod.status.pod_ip) == ("Running", "10.0.0.1")

    async def test_scale(self, server: ContractServer) -> None:
        await server.client.create(WIDGETS, WIDGET_TYPE | server.named("w", spec={"replicas": 1}))
        status = {"status": {"replicas": 1, "selector": "app=w"}}
        await server.client.patch(WIDGETS, "w", status, server.namespace, subresource="status")
        path = WIDGETS.path(server.namespace, "w", "scale")
        scale = (await server.raw("GET", path)).body
        assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
        assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 1, "selector": "app=w"})
        patch = {"spec": {"replicas": 4}}
        reply = await server.raw("PATCH", path, patch, "application/merge-patch+json")
        assert (reply.code, reply.body["spec"]["replicas"]) == (200, 4)
        widget = await server.client.get(WIDGETS, "w", server.namespace)
        assert (widget.spec.replicas, widget.metadata.generation) == (4, 2)

    async def test_binding_puts_a_pod_on_a_node_once(self, server: ContractServer) -> None:
        await server.client.create(PODS, server.pod("p"))
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        binding: Json = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
        await server.client.post_subresource(PODS, "p", server.namespace, "binding", binding)
        assert (await server.client.get(PODS, "p", server.namespace)).spec.node_name == "n1"
        with pytest.raises(Conflict, match="already assigned to node"):
            await server.client.post_subresource(PODS, "p", server.namespace, "binding", binding)

    async def test_eviction_deletes_gracefully(self, server: ContractServer) -> None:
        await _running(server, "p")
        await _evict(server, "p")
        assert (await server.client.get(PODS, "p", server.namespace)).metadata.deletion_timestamp
        await server.client.delete(PODS, "p", server.namespace, grace_seconds=0)

    async def test_eviction_keeps_to_the_disruption_budget(self, server: ContractServer) -> None:
        for name in ("p", "q"):
            await _running(server, name)
        await _budget(server, max_unavailable=0, healthy=2)
        with pytest.raises(TooManyRequests, match="would violate the pod's disruption budget") as refusal:
            await _evict(server, "p")
        assert refusal.value.status == 429
        assert (await server.client.get(PODS, "p", server.namespace)).metadata.deletion_timestamp is None

    async def test_an_allowed_disruption_is_used_up(self, server: ContractServer) -> None:
        for name in ("p", "q"):
            await _running(server, name)
        await _budget(server, max_unavailable=1, healthy=2)
        await _evict(server, "p")
        with pytest.raises(TooManyRequests):
            await _evict(server, "q")
        await server.client.delete(PODS, "p", server.namespace, grace_seconds=0)

    async def test_pods_that_never_ran_are_outside_of_budgets(self, server: ContractServer) -> None:
        await server.client.create(PODS, server.pod("p", meta={"labels": {"app": "x"}}))
        await _budget(server, max_unavailable=0, healthy=0)
        await _evict(server, "p")
        with pytest.raises(NotFound):
            await server.client.get(PODS, "p", server.namespace)


async def _running(server: ContractServer, name: str) -> None:
    pod = server.pod(name, meta={"labels": {"app": "x"}}, spec={"nodeName": "n1"})
    await server.client.create(PODS, pod)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await server.client.patch(PODS, name, {"status": status}, server.namespace, subresource="status")


async def _budget(server: ContractServer, max_unavailable: int, healthy: int) -> None:
    """A budget with the status that the disruption controller would give it, where none runs."""
    spec = {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": "x"}}}
    made = await server.client.create(POD_DISRUPTION_BUDGETS, server.named("b", spec=spec))
    status = {
        "observedGeneration": made.metadata.generation,
        "currentHealthy": healthy,
        "desiredHealthy": max(0, healthy - max_unavailable),
        "expectedPods": healthy,
        "disruptionsAllowed": min(max_unavailable, healthy),
    }
    patch: Json = {"status": status}
    await server.client.patch(POD_DISRUPTION_BUDGETS, "b", patch, server.namespace, subresource="status")


async def _evict(server: ContractServer, name: str) -> None:
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await server.client.post_subresource(PODS, name, server.namespace, "eviction", body)

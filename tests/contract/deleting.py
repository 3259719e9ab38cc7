"""Delete: preconditions, finalizers, grace."""

import pytest

from slurm_operator.kube.errors import Conflict, Invalid, NotFound
from slurm_operator.kube.kinds import CONFIG_MAPS, PODS
from tests.contract.server import WIDGETS, ContractServer, Json

HOLD = "example.com/hold"


class Deleting:
    async def test_gone_means_gone(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a"))
        await server.client.delete(CONFIG_MAPS, "a", server.namespace)
        for attempt in (server.client.get, server.client.delete):
            with pytest.raises(NotFound):
                await attempt(CONFIG_MAPS, "a", server.namespace)

    async def test_the_answer_names_what_went(self, server: ContractServer) -> None:
        made = await server.client.create(CONFIG_MAPS, server.named("a"))
        reply = await server.raw("DELETE", CONFIG_MAPS.path(server.namespace, "a"))
        assert reply.body["status"] == "Success"
        assert reply.body["details"] == {"name": "a", "kind": "configmaps", "uid": made.metadata.uid}

    async def test_only_the_very_object(self, server: ContractServer) -> None:
        first = await server.client.create(CONFIG_MAPS, server.named("a"))
        await server.client.delete(CONFIG_MAPS, "a", server.namespace, uid=first.metadata.uid)
        await server.client.create(CONFIG_MAPS, server.named("a"))
        with pytest.raises(Conflict, match="the UID in the precondition"):
            await server.client.delete(CONFIG_MAPS, "a", server.namespace, uid=first.metadata.uid)

    async def test_only_the_version_that_was_seen(self, server: ContractServer) -> None:
        seen = await server.client.create(CONFIG_MAPS, server.named("a"))
        changed = await server.client.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, server.namespace)
        version = seen.metadata.resource_version
        with pytest.raises(Conflict, match="the ResourceVersion in the precondition"):
            await server.client.delete(CONFIG_MAPS, "a", server.namespace, resource_version=version)
        version = changed.metadata.resource_version
        await server.client.delete(CONFIG_MAPS, "a", server.namespace, resource_version=version)

    async def test_finalizers_hold_an_object_back(self, server: ContractServer) -> None:
        made = await server.client.create(WIDGETS, _widget(server, HOLD))
        assert made.metadata.deletion_timestamp is None
        await server.client.delete(WIDGETS, "w", server.namespace)
        waiting = await server.client.get(WIDGETS, "w", server.namespace)
        assert waiting.metadata.deletion_timestamp
        assert waiting.metadata.generation == made.metadata.generation + 1
        await server.client.delete(WIDGETS, "w", server.namespace)
        again = await server.client.get(WIDGETS, "w", server.namespace)
        assert again == waiting
        await server.client.patch(WIDGETS, "w", {"metadata": {"finalizers": None}}, server.namespace)
        with pytest.raises(NotFound):
            await server.client.get(WIDGETS, "w", server.namespace)

    async def test_finalizers_go_one_by_one_and_none_comes(self, server: ContractServer) -> None:
        await server.client.create(WIDGETS, _widget(server, HOLD, "example.com/more"))
        await server.client.delete(WIDGETS, "w", server.namespace)
        late: Json = {"metadata": {"finalizers": [HOLD, "example.com/more", "example.com/late"]}}
        with pytest.raises(Invalid, match="no new finalizers can be added if the object is being deleted"):
            await server.client.patch(WIDGETS, "w", late, server.namespace)
        one_less = await server.client.patch(WIDGETS, "w", {"metadata": {"finalizers": [HOLD]}}, server.namespace)
        assert one_less.metadata.finalizers == (HOLD,)
        await server.client.patch(WIDGETS, "w", {"metadata": {"finalizers": []}}, server.namespace)
        with pytest.raises(NotFound):
            await server.client.get(WIDGETS, "w", server.namespace)

    async def test_what_waits_for_its_end_can_still_report(self, server: ContractServer) -> None:
        await server.client.create(WIDGETS, _widget(server, HOLD))
        await server.client.delete(WIDGETS, "w", server.namespace)
        patch = {"status": {"replicas": 3}}
        after = await server.client.patch(WIDGETS, "w", patch, server.namespace, subresource="status")
        assert after.status.replicas == 3
        await server.client.patch(WIDGETS, "w", {"metadata": {"finalizers": None}}, server.namespace)

    async def test_pods_without_a_node_go_at_once(self, server: ContractServer) -> None:
        await server.client.create(PODS, server.pod("p"))
        await server.client.delete(PODS, "p", server.namespace)
        with pytest.raises(NotFound):
            await server.client.get(PODS, "p", server.namespace)

    async def test_pods_on_a_node_are_given_time(self, server: ContractServer) -> None:
        await server.client.create(PODS, server.pod("p", spec={"nodeName": "n1"}))
        await server.client.delete(PODS, "p", server.namespace)
        raw = await server.client.get_raw(PODS, "p", server.namespace)
        assert raw["metadata"]["deletionGracePeriodSeconds"] == 30
        assert raw["metadata"]["deletionTimestamp"] > raw["metadata"]["creationTimestamp"]
        await server.client.delete(PODS, "p", server.namespace, grace_seconds=5)
        raw = await server.client.get_raw(PODS, "p", server.namespace)
        assert raw["metadata"]["deletionGracePeriodSeconds"] == 5
        await server.client.delete(PODS, "p", server.namespace, grace_seconds=0)
        with pytest.raises(NotFound):
            await server.client.get(PODS, "p", server.namespace)

    async def test_the_pods_own_grace_period_is_the_default(self, server: ContractServer) -> None:
        spec = {"nodeName": "n1", "terminationGracePeriodSeconds": 7}
        await server.client.create(PODS, server.pod("p", spec=spec))
        await server.client.delete(PODS, "p", server.namespace)
        raw = await server.client.get_raw(PODS, "p", server.namespace)
        assert raw["metadata"]["deletionGracePeriodSeconds"] == 7
        await server.client.delete(PODS, "p", server.namespace, grace_seconds=0)

    async def test_finished_pods_go_at_once(self, server: ContractServer) -> None:
        await server.client.create(PODS, server.pod("p", spec={"nodeName": "n1"}))
        patch = {"status": {"phase": "Failed"}}
        await server.client.patch(PODS, "p", patch, server.namespace, subresource="status")
        await server.client.delete(PODS, "p", server.namespace)
        with pytest.raises(NotFound):
            await server.client.get(PODS, "p", server.namespace)


def _widget(server: ContractServer, *finalizers: str) -> Json:
    body: Json = {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind}
    return body | server.named("w", meta={"finalizers": list(finalizers)}, spec={"replicas": 1})

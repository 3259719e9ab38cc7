"""What kube-controller-manager does behind the server: garbage collection, namespaces, quotas, disruption budgets.

The fake does at once what the real one does soon, so every expectation here waits.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from slurm_operator.kube.errors import Forbidden, NotFound, TooManyRequests
from slurm_operator.kube.kinds import CONFIG_MAPS, NAMESPACES, POD_DISRUPTION_BUDGETS, PODS, ConfigMap, Namespace
from slurm_operator.kube.resource import Resource
from tests.contract.server import ContractServer, Json

PATIENCE = 60.0
HOLD = "example.com/hold"
QUOTAS = Resource("", "v1", "ResourceQuota", "resourcequotas", Namespace)


async def eventually(met: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await met():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.1)


class Controlling:
    async def test_children_follow_their_owner(self, server: ContractServer) -> None:
        owner = await _make(server, "owner")
        await _make(server, "child", owner)
        await _make(server, "grandchild", await _get(server, "child"))
        await _make(server, "stranger")
        await server.client.delete(CONFIG_MAPS, "owner", server.namespace)
        await eventually(lambda: _all_gone(server, "owner", "child", "grandchild"))
        assert not await _all_gone(server, "stranger")

    async def test_one_owner_that_stays_is_enough(self, server: ContractServer) -> None:
        first, second = await _make(server, "first"), await _make(server, "second")
        await _make(server, "child", first, second)
        await server.client.delete(CONFIG_MAPS, "first", server.namespace)

        async def only_the_second() -> bool:
            child = await server.client.get(CONFIG_MAPS, "child", server.namespace)
            return [owner.name for owner in child.metadata.owner_references] == ["second"]

        await eventually(only_the_second)

    async def test_an_owner_can_wait_for_its_children(self, server: ContractServer) -> None:
        owner = await _make(server, "owner")
        await _make(server, "child", owner, finalizers=[HOLD], blocks=True)
        await server.client.delete(CONFIG_MAPS, "owner", server.namespace, propagation="Foreground")

        async def child_waits() -> bool:
            raw = await server.client.get_raw(CONFIG_MAPS, "child", server.namespace)
            return "deletionTimestamp" in raw["metadata"]

        await eventually(child_waits)
        raw = await server.client.get_raw(CONFIG_MAPS, "owner", server.namespace)
        assert raw["metadata"]["finalizers"] == ["foregroundDeletion"]
        await server.client.patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": None}}, server.namespace)
        await eventually(lambda: _all_gone(server, "owner", "child"))

    async def test_a_child_with_another_owner_survives_a_foreground_deletion(self, server: ContractServer) -> None:
        first, second = await _make(server, "first"), await _make(server, "second")
        await _make(server, "child", first, second, blocks=True)
        await server.client.delete(CONFIG_MAPS, "first", server.namespace, propagation="Foreground")
        await eventually(lambda: _all_gone(server, "first"))
        child = await server.client.get(CONFIG_MAPS, "child", server.namespace)
        assert [owner.name for owner in child.metadata.owner_references] == ["second"]
        assert not child.metadata.terminating

    async def test_single_owners_change_by_strategic_merge(self, server: ContractServer) -> None:
        first, second = await _make(server, "first"), await _make(server, "second")
        await _make(server, "child", first)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "second", "uid": second.metadata.uid}
        removed = {"$patch": "delete", "uid": first.metadata.uid}
        patch: Json = {"metadata": {"ownerReferences": [reference, removed]}}
        child = await server.client.patch(CONFIG_MAPS, "child", patch, server.namespace, kind="strategic")
        assert [owner.name for owner in child.metadata.owner_references] == ["second"]

    async def test_children_can_be_left_behind(self, server: ContractServer) -> None:
        owner = await _make(server, "owner")
        await _make(server, "child", owner)
        await server.client.delete(CONFIG_MAPS, "owner", server.namespace, propagation="Orphan")
        await eventually(lambda: _all_gone(server, "owner"))
        raw = await server.client.get_raw(CONFIG_MAPS, "child", server.namespace)
        assert not raw["metadata"].get("ownerReferences")

    async def test_a_child_of_nobody_goes(self, server: ContractServer) -> None:
        owner = await _make(server, "owner")
        await server.client.delete(CONFIG_MAPS, "owner", server.namespace)
        await _make(server, "orphan", owner)
        await eventually(lambda: _all_gone(server, "orphan"))

    async def test_a_namespace_goes_with_all_that_is_in_it(self, server: ContractServer) -> None:
        await _make(server, "plain")
        await _make(server, "held", finalizers=[HOLD])
        await server.client.delete(NAMESPACES, server.namespace)
        await eventually(lambda: _all_gone(server, "plain"))
        assert (await server.client.get(NAMESPACES, server.namespace)).status.phase == "Terminating"
        await server.client.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, server.namespace)

        async def gone() -> bool:
            try:
                await server.client.get(NAMESPACES, server.namespace)
            except NotFound:
                return True
            return False

        await eventually(gone)

    async def test_a_quota_limits_pods(self, server: ContractServer) -> None:
        await server.client.create(QUOTAS, server.named("q", spec={"hard": {"pods": "1"}}))

        async def is_counted() -> bool:
            raw = await server.client.get_raw(QUOTAS, "q", server.namespace)
            return bool(raw.get("status", {}).get("hard"))

        await eventually(is_counted)
        await server.client.create(PODS, server.pod("p0"))

        async def is_full() -> bool:
            # What admits pods hears of the quota's count a little later than its readers.
            try:
                await server.client.create(PODS, server.pod("p1"), dry_run=True)
            except Forbidden:
                return True
            return False

        await eventually(is_full)
        with pytest.raises(Forbidden, match="exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"):
            await server.client.create(PODS, server.pod("p1"))

    async def test_a_budget_is_counted_from_the_pods(self, server: ContractServer) -> None:
        for name in ("p", "q"):
            await _running_pod(server, name)
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "x"}}}
        await server.client.create(POD_DISRUPTION_BUDGETS, server.named("b", spec=spec))

        async def is_counted() -> bool:
            raw = await server.client.get_raw(POD_DISRUPTION_BUDGETS, "b", server.namespace)
            return bool(raw.get("status", {}).get("observedGeneration") == 1)

        await eventually(is_counted)
        body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        with pytest.raises(TooManyRequests):
            await server.client.post_subresource(PODS, "p", server.namespace, "eviction", body)


async def _make(
    server: ContractServer, name: str, *owners: ConfigMap, finalizers: list[str] | None = None, blocks: bool = False
) -> ConfigMap:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name, "uid": owner.metadata.uid}
        | ({"blockOwnerDeletion": True} if blocks else {})
        for owner in owners
    ]
    meta = {"ownerReferences": references, "finalizers": finalizers or []}
    return await server.client.create(CONFIG_MAPS, server.named(name, meta=meta))


async def _get(server: ContractServer, name: str) -> ConfigMap:
    return await server.client.get(CONFIG_MAPS, name, server.namespace)


async def _all_gone(server: ContractServer, *names: str) -> bool:
    listing = await server.client.list(CONFIG_MAPS, server.namespace)
    return not {item.metadata.name for item in listing.items} & set(names)


async def _running_pod(server: ContractServer, name: str) -> None:
    await server.client.create(PODS, server.pod(name, meta={"labels": {"app": "x"}}, spec={"schedulerName": "none"}))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    binding: Json = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await server.client.post_subresource(PODS, name, server.namespace, "binding", binding)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await server.client.patch(PODS, name, {"status": status}, server.namespace, subresource="status")

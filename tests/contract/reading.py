"""Get, list, selectors, pages, and the words of refusals."""

from typing import Any

import pytest

from slurm_operator.kube.errors import Invalid, NotFound
from slurm_operator.kube.kinds import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS
from slurm_operator.kube.resource import Resource
from tests.contract.server import WIDGETS, ContractServer

LABELLED = {
    "a": {"tier": "gold", "size": "1"},
    "b": {"tier": "silver"},
    "c": {"size": "2", "example.com/owner": "x"},
    "d": {},
}


class Reading:
    @pytest.mark.parametrize("resource", [CONFIG_MAPS, DEPLOYMENTS, WIDGETS], ids=lambda resource: str(resource.plural))
    async def test_missing_objects_are_refused_in_kubernetes_words(
        self, server: ContractServer, resource: Resource[Any]
    ) -> None:
        reply = await server.raw("GET", resource.path(server.namespace, "nobody"))
        details = {"name": "nobody", "kind": resource.plural}
        assert reply.code == 404
        assert reply.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f'{resource.label} "nobody" not found',
            "reason": "NotFound",
            "details": details | ({"group": resource.group} if resource.group else {}),
            "code": 404,
        }

    async def test_the_server_tells_what_it_serves(self, server: ContractServer) -> None:
        core, ours = await server.client.kinds("v1"), await server.client.kinds(WIDGETS.api_version)
        assert (core["Pod"], core["Node"]) == (("pods", True), ("nodes", False))
        assert ours == {"Widget": ("widgets", True)}
        with pytest.raises(NotFound):
            await server.client.kinds("nothing.example.com/v1")

    async def test_unserved_kinds_are_not_found(self, server: ContractServer) -> None:
        nothing = Resource("nothing.example.com", "v1", "Nothing", "nothings", WIDGETS.type)
        with pytest.raises(NotFound):
            await server.client.list(nothing, server.namespace)

    async def test_listing_is_ordered_and_typed_as_a_list(self, server: ContractServer) -> None:
        for name in ("b", "a", "c"):
            await server.client.create(CONFIG_MAPS, server.named(name))
        reply = await server.raw("GET", CONFIG_MAPS.path(server.namespace))
        assert (reply.body["kind"], reply.body["apiVersion"]) == ("ConfigMapList", "v1")
        assert [item["metadata"]["name"] for item in reply.body["items"]] == ["a", "b", "c"]
        assert not any("kind" in item for item in reply.body["items"])

    async def test_items_of_a_custom_kind_carry_their_type(self, server: ContractServer) -> None:
        await server.client.create(WIDGETS, _widget(server, "w"))
        reply = await server.raw("GET", WIDGETS.path(server.namespace))
        assert reply.body["kind"] == "WidgetList"
        assert reply.body["items"][0]["kind"] == "Widget"

    @pytest.mark.parametrize(
        ("selector", "found"),
        [
            ("", "abcd"),
            ("tier=gold", "a"),
            ("tier==gold", "a"),
            ("tier!=gold", "bcd"),
            ("tier", "ab"),
            ("!tier", "cd"),
            ("tier in (gold,silver)", "ab"),
            ("tier in (gold, bronze),size", "a"),
            ("tier notin (gold)", "bcd"),
            ("size,tier=gold", "a"),
            ("example.com/owner=x", "c"),
        ],
    )
    async def test_label_selectors(self, server: ContractServer, selector: str, found: str) -> None:
        for name, labels in LABELLED.items():
            await server.client.create(CONFIG_MAPS, server.named(name, meta={"labels": labels}))
        listing = await server.client.list(CONFIG_MAPS, server.namespace, labels=selector)
        assert "".join(item.metadata.name for item in listing.items) == found

    async def test_field_selectors(self, server: ContractServer) -> None:
        await server.client.create(PODS, server.pod("here", spec={"nodeName": "n1"}))
        await server.client.create(PODS, server.pod("there"))

        async def names(fields: str) -> list[str]:
            found = await server.client.list(PODS, server.namespace, fields=fields)
            return [pod.metadata.name for pod in found.items]

        assert await names("metadata.name=here") == ["here"]
        assert await names("metadata.name!=here") == ["there"]
        assert await names("spec.nodeName=n1") == ["here"]
        assert await names("spec.nodeName=") == ["there"]
        assert await names("status.phase=Pending,spec.nodeName=n1") == ["here"]
        assert await names("status.phase=Running") == []
        assert await names(f"metadata.namespace={server.namespace}") == ["here", "there"]

    @pytest.mark.parametrize("selector", ["=x", "a in b", "a in (b", "a==b==c", "-bad-=x"])
    async def test_bad_label_selectors_are_refused(self, server: ContractServer, selector: str) -> None:
        with pytest.raises(Invalid) as refusal:
            await server.client.list(CONFIG_MAPS, server.namespace, labels=selector)
        assert refusal.value.status == 400

    async def test_unknown_fields_cannot_select(self, server: ContractServer) -> None:
        with pytest.raises(Invalid) as refusal:
            await server.client.list(CONFIG_MAPS, server.namespace, fields="spec.nodeName=n1")
        assert refusal.value.status == 400
        assert "spec.nodeName" in refusal.value.message

    async def test_pages_show_one_moment(self, server: ContractServer) -> None:
        for number in range(5):
            await server.client.create(CONFIG_MAPS, server.named(f"c{number}"))
        path = CONFIG_MAPS.path(server.namespace)
        first = await server.raw("GET", path, limit="2")
        assert first.body["metadata"]["remainingItemCount"] == 3
        await server.client.delete(CONFIG_MAPS, "c4", server.namespace)
        await server.client.create(CONFIG_MAPS, server.named("c9"))
        names = [item["metadata"]["name"] for item in first.body["items"]]
        page = first
        while token := page.body["metadata"].get("continue"):
            page = await server.raw("GET", path, limit="2", **{"continue": token})
            assert page.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
            names += [item["metadata"]["name"] for item in page.body["items"]]
        assert names == ["c0", "c1", "c2", "c3", "c4"]
        assert "remainingItemCount" not in page.body["metadata"]

    async def test_our_client_joins_the_pages(self, server: ContractServer) -> None:
        for number in range(7):
            await server.client.create(CONFIG_MAPS, server.named(f"c{number}"))
        listing = await server.client.list(CONFIG_MAPS, server.namespace, limit=3)
        assert [item.metadata.name for item in listing.items] == [f"c{number}" for number in range(7)]
        assert int(listing.resource_version) >= max(int(item.metadata.resource_version) for item in listing.items)

    async def test_garbled_continue_tokens_are_refused(self, server: ContractServer) -> None:
        reply = await server.raw("GET", CONFIG_MAPS.path(server.namespace), limit="2", **{"continue": "garbage"})
        assert (reply.code, reply.body["reason"]) == (400, "BadRequest")

    async def test_a_list_at_a_future_version_is_refused_for_now(self, server: ContractServer) -> None:
        reply = await server.raw("GET", CONFIG_MAPS.path(server.namespace), resourceVersion="999999999999")
        assert (reply.code, reply.body["reason"]) == (504, "Timeout")
        assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"

    async def test_lists_of_all_namespaces_hold_ours(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("mine"))
        listing = await server.client.list(CONFIG_MAPS)
        assert (server.namespace, "mine") in {(item.metadata.namespace, item.metadata.name) for item in listing.items}

    async def test_cluster_wide_kinds_have_no_namespace(self, server: ContractServer) -> None:
        name = server.namespace
        node = await server.client.create(NODES, {"metadata": {"name": name}, "status": {"capacity": {"cpu": "4"}}})
        try:
            assert node.metadata.namespace == ""
            assert node.status.capacity.cpu == "4"
        finally:
            await server.client.delete(NODES, name)


def _widget(server: ContractServer, name: str) -> dict[str, object]:
    return server.named(name, apiVersion=WIDGETS.api_version, kind=WIDGETS.kind, spec={"replicas": 1})

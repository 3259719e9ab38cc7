"""Server-side apply: who owns which field, and what happens to fields nobody names any more."""

from typing import Any

import pytest

from slurm_operator.kube.errors import Conflict, Invalid, NotFound
from slurm_operator.kube.kinds import CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES
from tests.contract.server import WIDGETS, ContractServer, Json

_ROOT = {"path": "/"}


async def apply_data(server: ContractServer, manager: str, data: Json | None, *, force: bool = True) -> dict[str, str]:
    manifest = server.named("a") if data is None else server.named("a", data=data)
    applied = await server.client.apply(CONFIG_MAPS, manifest, manager=manager, force=force)
    return applied.data


def entries(raw: Json) -> dict[tuple[str, str, str], Any]:
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in raw["metadata"].get("managedFields", ())
    }


class Applying:
    async def test_creates_and_then_repeats_for_nothing(self, server: ContractServer) -> None:
        path = CONFIG_MAPS.path(server.namespace, "a")
        body = {"apiVersion": "v1", "kind": "ConfigMap"} | server.named("a", data={"k": "v"})
        first = await server.raw("PATCH", path, body, "application/apply-patch+yaml", fieldManager="m")
        again = await server.raw("PATCH", path, body, "application/apply-patch+yaml", fieldManager="m")
        assert (first.code, again.code) == (201, 200)
        assert again.body == first.body

    async def test_ownership_is_written_down(self, server: ContractServer) -> None:
        manifest = server.named("a", data={"k": "v"}, meta={"labels": {"l": "1"}, "finalizers": ["example.com/f"]})
        await server.client.apply(CONFIG_MAPS, manifest, manager="m")
        raw = await server.client.get_raw(CONFIG_MAPS, "a", server.namespace)
        assert entries(raw) == {
            ("m", "Apply", ""): {
                "f:data": {"f:k": {}},
                "f:metadata": {"f:finalizers": {'v:"example.com/f"': {}}, "f:labels": {"f:l": {}}},
            }
        }

    async def test_ownership_inside_keyed_lists(self, server: ContractServer) -> None:
        await server.client.apply(DEPLOYMENTS, _deployment(server), manager="m")
        raw = await server.client.get_raw(DEPLOYMENTS, "d", server.namespace)
        container = entries(raw)["m", "Apply", ""]["f:spec"]["f:template"]["f:spec"]["f:containers"]
        assert container == {
            'k:{"name":"main"}': {
                ".": {},
                "f:name": {},
                "f:image": {},
                "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
                "f:ports": {
                    'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}},
                },
            }
        }
        assert entries(raw)["m", "Apply", ""]["f:spec"]["f:selector"] == {}

    async def test_empty_values_are_owned_too(self, server: ContractServer) -> None:
        """A map or a plain list is, a keyed list is not: it has no element that could be."""
        await server.client.apply(DEPLOYMENTS, _deployment(server, args=[], resources={}, ports=[]), manager="m")
        raw = await server.client.get_raw(DEPLOYMENTS, "d", server.namespace)
        container = entries(raw)["m", "Apply", ""]["f:spec"]["f:template"]["f:spec"]["f:containers"]
        assert {"f:args", "f:resources"} <= container['k:{"name":"main"}'].keys()
        assert "f:ports" not in container['k:{"name":"main"}']

    async def test_an_empty_map_stays_owned_when_another_adds_to_it(self, server: ContractServer) -> None:
        await _apply_widget(server, "m", settings={})
        await server.client.patch(WIDGETS, "w", {"spec": {"settings": {"theirs": "1"}}}, server.namespace)
        raw = await server.client.get_raw(WIDGETS, "w", server.namespace)
        assert entries(raw)["m", "Apply", ""] == {"f:spec": {"f:settings": {}}}

    async def test_an_empty_map_that_another_removes_is_lost(self, server: ContractServer) -> None:
        volume: Json = {"name": "v", "emptyDir": {}}
        await server.client.apply(DEPLOYMENTS, _deployment(server, volumes=[volume]), manager="m")
        other = [{"op": "replace", "path": "/spec/template/spec/volumes/0", "value": {"name": "v", "hostPath": _ROOT}}]
        await server.client.patch(DEPLOYMENTS, "d", other, server.namespace, kind="json")
        raw = await server.client.get_raw(DEPLOYMENTS, "d", server.namespace)
        volumes = entries(raw)["m", "Apply", ""]["f:spec"]["f:template"]["f:spec"]["f:volumes"]
        assert volumes == {'k:{"name":"v"}': {".": {}, "f:name": {}}}

    async def test_claims_can_be_moved_to_another_manager(self, server: ContractServer) -> None:
        """With the claim goes the right to remove the field by no longer naming it."""
        made = await server.client.create(CONFIG_MAPS, server.named("a", data={"k": "1", "l": "2"}))
        raw = await server.client.get_raw(CONFIG_MAPS, "a", server.namespace)
        moved = [entry | {"manager": "two", "operation": "Apply"} for entry in raw["metadata"]["managedFields"]]
        patch: list[Json] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": made.metadata.resource_version},
            {"op": "replace", "path": "/metadata/managedFields", "value": moved},
        ]
        await server.client.patch(CONFIG_MAPS, "a", patch, server.namespace, kind="json")
        raw = await server.client.get_raw(CONFIG_MAPS, "a", server.namespace)
        assert {(manager, operation) for manager, operation, _ in entries(raw)} == {("two", "Apply")}
        assert await apply_data(server, "two", {"k": "1"}, force=False) == {"k": "1"}
        with pytest.raises(Conflict):
            await server.client.patch(CONFIG_MAPS, "a", patch, server.namespace, kind="json")

    async def test_a_field_no_longer_named_goes(self, server: ContractServer) -> None:
        await apply_data(server, "m", {"x": "1", "y": "2"})
        assert await apply_data(server, "m", {"x": "1"}) == {"x": "1"}
        assert await apply_data(server, "m", None) == {}
        raw = await server.client.get_raw(CONFIG_MAPS, "a", server.namespace)
        assert "data" not in raw

    async def test_what_another_owns_stays(self, server: ContractServer) -> None:
        await apply_data(server, "one", {"shared": "s", "mine": "1"})
        await apply_data(server, "two", {"shared": "s", "theirs": "2"}, force=False)
        assert await apply_data(server, "one", {}) == {"shared": "s", "theirs": "2"}
        assert await apply_data(server, "two", {}) == {}

    async def test_a_foreign_value_is_a_conflict(self, server: ContractServer) -> None:
        await apply_data(server, "one", {"k": "1"})
        with pytest.raises(Conflict) as refusal:
            await apply_data(server, "two", {"k": "2"}, force=False)
        assert 'Apply failed with 1 conflict: conflict with "one": .data.k' in refusal.value.message

    async def test_conflicts_name_their_fields(self, server: ContractServer) -> None:
        await apply_data(server, "one", {"k": "1", "l": "1", "same": "s"})
        body = {"apiVersion": "v1", "kind": "ConfigMap"}
        body |= server.named("a", data={"k": "2", "l": "2", "same": "s"})
        path = CONFIG_MAPS.path(server.namespace, "a")
        reply = await server.raw("PATCH", path, body, "application/apply-patch+yaml", fieldManager="two")
        assert reply.code == 409
        assert reply.body["reason"] == "Conflict"
        assert reply.body["details"]["causes"] == [
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"},
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.l"},
        ]

    async def test_force_takes_a_field_over(self, server: ContractServer) -> None:
        await apply_data(server, "one", {"k": "1", "rest": "r"})
        assert await apply_data(server, "two", {"k": "2"}) == {"k": "2", "rest": "r"}
        assert await apply_data(server, "one", {"rest": "r"}) == {"k": "2", "rest": "r"}
        with pytest.raises(Conflict):
            await apply_data(server, "one", {"k": "1"}, force=False)

    async def test_a_patch_makes_its_sender_owner(self, server: ContractServer) -> None:
        await apply_data(server, "one", {"k": "1"})
        await server.client.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}}, server.namespace)
        with pytest.raises(Conflict, match=r'conflict with ".*" using v1: \.data\.k'):
            await apply_data(server, "one", {"k": "1"}, force=False)
        assert await apply_data(server, "one", {"k": "1"}) == {"k": "1"}
        assert await apply_data(server, "one", {}) == {}

    async def test_a_created_field_outlives_an_appliers_interest(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a", data={"k": "1"}))
        await apply_data(server, "one", {"k": "1", "l": "2"}, force=False)
        assert await apply_data(server, "one", {}) == {"k": "1"}

    async def test_items_of_keyed_lists_merge_by_key(self, server: ContractServer) -> None:
        await server.client.apply(SERVICES, _service(server, 80, 81), manager="one")
        await server.client.apply(SERVICES, _service(server, 82), manager="two", force=False)
        merged = await server.client.get(SERVICES, "s", server.namespace)
        assert sorted(port.port for port in merged.spec.ports) == [80, 81, 82]
        await server.client.apply(SERVICES, _service(server, 81), manager="one")
        merged = await server.client.get(SERVICES, "s", server.namespace)
        assert sorted(port.port for port in merged.spec.ports) == [81, 82]

    async def test_two_managers_can_share_an_item(self, server: ContractServer) -> None:
        await server.client.apply(DEPLOYMENTS, _deployment(server), manager="one")
        other: Json = {"name": "main", "env": [{"name": "B", "value": "2"}]}
        extra = server.named("d", spec={"template": {"spec": {"containers": [other]}}})
        await server.client.apply(DEPLOYMENTS, extra, manager="two", force=False)
        raw = await server.client.get_raw(DEPLOYMENTS, "d", server.namespace)
        container = raw["spec"]["template"]["spec"]["containers"][0]
        assert {entry["name"]: entry["value"] for entry in container["env"]} == {"A": "1", "B": "2"}
        await server.client.apply(DEPLOYMENTS, _deployment(server), manager="two")
        await server.client.apply(DEPLOYMENTS, _deployment(server), manager="one")
        raw = await server.client.get_raw(DEPLOYMENTS, "d", server.namespace)
        assert [entry["name"] for entry in raw["spec"]["template"]["spec"]["containers"][0]["env"]] == ["A"]

    async def test_finalizers_and_owners_are_shared(self, server: ContractServer) -> None:
        owner = await server.client.create(CONFIG_MAPS, server.named("owner"))
        reference: Json = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
        one = server.named("a", meta={"finalizers": ["example.com/one"], "ownerReferences": [reference]})
        two = server.named("a", meta={"finalizers": ["example.com/two"]})
        await server.client.apply(CONFIG_MAPS, one, manager="one")
        await server.client.apply(CONFIG_MAPS, two, manager="two", force=False)
        meta = (await server.client.get_raw(CONFIG_MAPS, "a", server.namespace))["metadata"]
        assert set(meta["finalizers"]) == {"example.com/one", "example.com/two"}
        assert [ref["uid"] for ref in meta["ownerReferences"]] == [owner.metadata.uid]
        await server.client.apply(CONFIG_MAPS, server.named("a"), manager="one")
        meta = (await server.client.get_raw(CONFIG_MAPS, "a", server.namespace))["metadata"]
        assert meta["finalizers"] == ["example.com/two"]
        assert "ownerReferences" not in meta
        await server.client.apply(CONFIG_MAPS, server.named("a"), manager="two")

    async def test_plain_lists_belong_to_one_as_a_whole(self, server: ContractServer) -> None:
        await _apply_widget(server, "one", parts=["a", "b"])
        with pytest.raises(Conflict, match=r'conflict with "one": \.spec\.parts'):
            await _apply_widget(server, "two", force=False, parts=["c"])
        assert await _apply_widget(server, "two", parts=["c"]) == ("c",)

    async def test_conditions_of_two_writers_live_side_by_side(self, server: ContractServer) -> None:
        await _apply_widget(server, "one", replicas=1)
        await _apply_condition(server, "one", "Ready", "True")
        assert await _apply_condition(server, "two", "Healthy", "False") == {"Ready": "True", "Healthy": "False"}
        assert await _apply_condition(server, "one", "Ready", "False") == {"Ready": "False", "Healthy": "False"}
        assert await _apply_condition(server, "one", "Other", "True") == {"Healthy": "False", "Other": "True"}

    async def test_pod_conditions_are_keyed_too(self, server: ContractServer) -> None:
        await server.client.create(PODS, server.pod("p"))
        for manager, kind in (("one", "example.com/A"), ("two", "example.com/B")):
            status = {"conditions": [{"type": kind, "status": "True"}]}
            await server.client.apply(PODS, server.named("p", status=status), manager=manager, subresource="status")
        pod = await server.client.get(PODS, "p", server.namespace)
        assert {condition.type for condition in pod.status.conditions} >= {"example.com/A", "example.com/B"}

    async def test_status_is_applied_by_its_own_door(self, server: ContractServer) -> None:
        manifest = server.named("w", spec={"replicas": 2}, status={"replicas": 9})
        made = await server.client.apply(WIDGETS, manifest, manager="m")
        assert (made.spec.replicas, made.status.replicas) == (2, 0)
        changed = server.named("w", spec={"replicas": 5}, status={"replicas": 9})
        after = await server.client.apply(WIDGETS, changed, manager="m", subresource="status")
        assert (after.spec.replicas, after.status.replicas, after.metadata.generation) == (2, 9, 1)
        raw = await server.client.get_raw(WIDGETS, "w", server.namespace)
        assert entries(raw) == {
            ("m", "Apply", ""): {"f:spec": {"f:replicas": {}}},
            ("m", "Apply", "status"): {"f:status": {"f:replicas": {}}},
        }

    async def test_bound_to_an_identity(self, server: ContractServer) -> None:
        made = await server.client.create(CONFIG_MAPS, server.named("a"))
        right = server.named("a", meta={"uid": made.metadata.uid}, data={"k": "v"})
        assert (await server.client.apply(CONFIG_MAPS, right, manager="m")).data == {"k": "v"}
        wrong = {"uid": "11111111-2222-3333-4444-555555555555"}
        with pytest.raises(Invalid, match=r"metadata\.uid: Invalid value: .*: field is immutable"):
            await server.client.apply(CONFIG_MAPS, server.named("a", meta=wrong), manager="m")
        with pytest.raises(Conflict, match="uid mismatch"):
            await server.client.apply(CONFIG_MAPS, server.named("absent", meta=wrong), manager="m")

    async def test_a_status_is_bound_to_a_version_and_not_to_an_identity(self, server: ContractServer) -> None:
        made = await server.client.apply(WIDGETS, server.named("w", spec={"replicas": 1}), manager="m")
        wrong = {"uid": "11111111-2222-3333-4444-555555555555"}
        other = server.named("w", meta=wrong, status={"replicas": 2})
        after = await server.client.apply(WIDGETS, other, manager="m", subresource="status")
        assert (after.status.replicas, after.metadata.uid) == (2, made.metadata.uid)
        stale = server.named("w", meta={"resourceVersion": made.metadata.resource_version}, status={"replicas": 3})
        with pytest.raises(Conflict, match="the object has been modified"):
            await server.client.apply(WIDGETS, stale, manager="m", subresource="status")
        fresh = server.named("w", meta={"resourceVersion": after.metadata.resource_version}, status={"replicas": 3})
        after = await server.client.apply(WIDGETS, fresh, manager="m", subresource="status")
        assert after.status.replicas == 3
        with pytest.raises(NotFound):
            await server.client.apply(WIDGETS, server.named("absent", status={}), manager="m", subresource="status")

    async def test_the_status_of_a_pod_is_bound_to_an_identity(self, server: ContractServer) -> None:
        made = await server.client.create(PODS, server.pod("p"))
        status = {"conditions": [{"type": "example.com/A", "status": "True"}]}
        wrong = server.named("p", meta={"uid": "11111111-2222-3333-4444-555555555555"}, status=status)
        with pytest.raises(Invalid, match=r"metadata\.uid: Invalid value: .*: field is immutable"):
            await server.client.apply(PODS, wrong, manager="m", subresource="status")
        right = server.named("p", meta={"uid": made.metadata.uid}, status=status)
        after = await server.client.apply(PODS, right, manager="m", subresource="status")
        assert "example.com/A" in {condition.type for condition in after.status.conditions}

    async def test_bound_to_a_version(self, server: ContractServer) -> None:
        made = await server.client.create(CONFIG_MAPS, server.named("a"))
        await apply_data(server, "m", {"k": "v"})
        stale = server.named("a", meta={"resourceVersion": made.metadata.resource_version}, data={"k": "w"})
        with pytest.raises(Conflict, match="the object has been modified"):
            await server.client.apply(CONFIG_MAPS, stale, manager="m")

    async def test_what_cannot_be_applied(self, server: ContractServer) -> None:
        with pytest.raises(Invalid, match="managedFields must be nil"):
            await server.client.apply(CONFIG_MAPS, server.named("a", meta={"managedFields": [{}]}), manager="m")
        body = {"apiVersion": "v1", "kind": "ConfigMap"} | server.named("a")
        path = CONFIG_MAPS.path(server.namespace, "a")
        reply = await server.raw("PATCH", path, body, "application/apply-patch+yaml")
        assert (reply.code, reply.body["reason"]) == (422, "Invalid")
        assert "fieldManager" in reply.body["message"]


def _deployment(server: ContractServer, volumes: list[Json] | None = None, **more: Any) -> Json:
    container = {
        "name": "main",
        "image": "none",
        "env": [{"name": "A", "value": "1"}],
        "ports": [{"containerPort": 80}],
        **more,
    }
    labels = {"app": "d"}
    pod: Json = {"containers": [container]} | ({"volumes": volumes} if volumes else {})
    template = {"metadata": {"labels": labels}, "spec": pod}
    return server.named("d", spec={"selector": {"matchLabels": labels}, "template": template})


def _service(server: ContractServer, *ports: int) -> Json:
    listed = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in ports]
    return server.named("s", spec={"clusterIP": "None", "ports": listed})


async def _apply_widget(server: ContractServer, manager: str, *, force: bool = True, **spec: Any) -> tuple[str, ...]:
    applied = await server.client.apply(WIDGETS, server.named("w", spec=spec), manager=manager, force=force)
    return applied.spec.parts


async def _apply_condition(server: ContractServer, manager: str, kind: str, status: str) -> dict[str, str]:
    manifest = server.named("w", status={"conditions": [{"type": kind, "status": status}]})
    applied = await server.client.apply(WIDGETS, manifest, manager=manager, subresource="status")
    return {condition.type: condition.status for condition in applied.status.conditions}

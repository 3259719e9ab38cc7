"""Create, patch and update: versions, generations, conflicts, dry runs."""

import pytest

from slurm_operator.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, ServerError
from slurm_operator.kube.kinds import CONFIG_MAPS, LEASES, NAMESPACES, PODS, SECRETS, SERVICES
from tests.contract.server import WIDGETS, ContractServer, Json

WIDGET_TYPE: Json = {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind}


class Writing:
    async def test_the_server_gives_identity(self, server: ContractServer) -> None:
        made = await server.client.create(CONFIG_MAPS, server.named("a", data={"k": "v"}))
        raw = await server.client.get_raw(CONFIG_MAPS, "a", server.namespace)
        assert made.metadata.uid == raw["metadata"]["uid"]
        assert made.metadata.resource_version == raw["metadata"]["resourceVersion"]
        assert raw["metadata"]["creationTimestamp"].endswith("Z")
        assert "generation" not in raw["metadata"]
        assert (raw["apiVersion"], raw["kind"], raw["data"]) == ("v1", "ConfigMap", {"k": "v"})

    async def test_what_only_the_server_may_set_is_ignored(self, server: ContractServer) -> None:
        meta = {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
        await server.client.create(CONFIG_MAPS, server.named("a", meta=meta))
        raw = await server.client.get_raw(CONFIG_MAPS, "a", server.namespace)
        assert raw["metadata"]["uid"] != "mine"
        assert not raw["metadata"]["creationTimestamp"].startswith("2001")

    async def test_generated_names(self, server: ContractServer) -> None:
        manifest: Json = {"metadata": {"generateName": "worker-", "namespace": server.namespace}}
        names = {(await server.client.create(CONFIG_MAPS, manifest)).metadata.name for _ in range(3)}
        assert len(names) == 3
        assert all(name.startswith("worker-") and len(name) == len("worker-") + 5 for name in names)

    async def test_a_name_can_be_taken_once(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a"))
        with pytest.raises(AlreadyExists, match='configmaps "a" already exists'):
            await server.client.create(CONFIG_MAPS, server.named("a"))

    async def test_namespaces_must_exist(self, server: ContractServer) -> None:
        with pytest.raises(NotFound, match='namespaces "no-such-place" not found'):
            await server.client.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "no-such-place"}})

    @pytest.mark.parametrize(
        ("meta", "field"),
        [
            ({"name": "Not_A_Name"}, "metadata.name"),
            ({"name": ""}, "metadata.name"),
            ({"labels": {"ok": "not ok!"}}, "metadata.labels"),
            ({"labels": {"ok": "x" * 64}}, "metadata.labels"),
            ({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]}, "uid"),
        ],
    )
    async def test_bad_metadata_is_refused(self, server: ContractServer, meta: Json, field: str) -> None:
        with pytest.raises(Invalid) as refusal:
            await server.client.create(CONFIG_MAPS, server.named("a", meta=meta))
        assert refusal.value.status == 422
        assert field in refusal.value.message

    async def test_a_new_object_has_no_version_yet(self, server: ContractServer) -> None:
        with pytest.raises(ServerError, match="resourceVersion should not be set"):
            await server.client.create(CONFIG_MAPS, server.named("a", meta={"resourceVersion": "5"}))

    async def test_body_and_address_must_agree(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a"))
        body = {"apiVersion": "v1", "kind": "ConfigMap"} | server.named("b")
        reply = await server.raw("PUT", CONFIG_MAPS.path(server.namespace, "a"), body)
        assert reply.code == 400
        body = {"apiVersion": "v1", "kind": "ConfigMap"} | server.named("c", meta={"namespace": "elsewhere"})
        reply = await server.raw("POST", CONFIG_MAPS.path(server.namespace), body)
        assert reply.code == 400

    async def test_versions_grow_and_idle_writes_change_nothing(self, server: ContractServer) -> None:
        first = await server.client.create(CONFIG_MAPS, server.named("a", data={"k": "1"}))
        second = await server.client.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}}, server.namespace)
        again = await server.client.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}}, server.namespace)
        assert int(second.metadata.resource_version) > int(first.metadata.resource_version)
        assert again.metadata.resource_version == second.metadata.resource_version

    async def test_generations_count_changes_of_the_spec(self, server: ContractServer) -> None:
        made = await server.client.create(WIDGETS, WIDGET_TYPE | server.named("w", spec={"replicas": 1}))
        assert made.metadata.generation == 1
        labelled = await server.client.patch(WIDGETS, "w", {"metadata": {"labels": {"a": "b"}}}, server.namespace)
        assert labelled.metadata.generation == 1
        scaled = await server.client.patch(WIDGETS, "w", {"spec": {"replicas": 2}}, server.namespace)
        assert scaled.metadata.generation == 2

    async def test_merge_patches(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a", data={"keep": "1", "drop": "2"}))
        patch = {"data": {"drop": None, "new": "3"}, "metadata": {"labels": {"l": "v"}}}
        patched = await server.client.patch(CONFIG_MAPS, "a", patch, server.namespace)
        assert patched.data == {"keep": "1", "new": "3"}
        patched = await server.client.patch(CONFIG_MAPS, "a", {"data": None}, server.namespace)
        assert patched.data == {}

    async def test_json_patches(self, server: ContractServer) -> None:
        meta = {"annotations": {"example.com/x": "1"}}
        await server.client.create(CONFIG_MAPS, server.named("a", meta=meta, data={"n": "0"}))
        operations: list[Json] = [
            {"op": "test", "path": "/data/n", "value": "0"},
            {"op": "replace", "path": "/metadata/annotations/example.com~1x", "value": "2"},
            {"op": "move", "from": "/data/n", "path": "/data/m"},
            {"op": "add", "path": "/metadata/labels", "value": {"l": "v"}},
            {"op": "copy", "from": "/data/m", "path": "/data/c"},
            {"op": "replace", "path": "/data/absent", "value": "1"},
            {"op": "remove", "path": "/data/m"},
        ]
        patched = await server.client.patch(CONFIG_MAPS, "a", operations, server.namespace, kind="json")
        assert patched.data == {"c": "0", "absent": "1"}
        raw = await server.client.get_raw(CONFIG_MAPS, "a", server.namespace)
        assert (raw["metadata"]["annotations"], raw["metadata"]["labels"]) == ({"example.com/x": "2"}, {"l": "v"})

    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "test", "path": "/data/n", "value": "1"},
            {"op": "remove", "path": "/data/absent"},
            {"op": "add", "path": "/metadata/labels/no-parent", "value": "1"},
        ],
    )
    async def test_json_patches_that_do_not_fit(self, server: ContractServer, operation: Json) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a", data={"n": "0"}))
        with pytest.raises(Invalid) as refusal:
            await server.client.patch(CONFIG_MAPS, "a", [operation], server.namespace, kind="json")
        assert refusal.value.status == 422

    async def test_patches_bound_to_a_version(self, server: ContractServer) -> None:
        made = await server.client.create(LEASES, server.named("l", spec={"holderIdentity": "a"}))

        async def take(holder: str, version: str) -> str:
            patch = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder}}
            taken = await server.client.patch(LEASES, "l", patch, server.namespace)
            return taken.spec.holder_identity

        assert await take("b", made.metadata.resource_version) == "b"
        with pytest.raises(Conflict, match="the object has been modified"):
            await take("c", made.metadata.resource_version)

    async def test_updates_need_the_version_they_replace(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a", data={"k": "1"}))
        path = CONFIG_MAPS.path(server.namespace, "a")
        body = (await server.raw("GET", path)).body
        body["data"]["k"] = "2"
        assert (await server.raw("PUT", path, body)).code == 200
        stale = await server.raw("PUT", path, body)
        assert (stale.code, stale.body["reason"]) == (409, "Conflict")
        assert stale.body["details"] == {"name": "a", "kind": "configmaps"}

    async def test_patching_what_is_not_there(self, server: ContractServer) -> None:
        with pytest.raises(NotFound):
            await server.client.patch(CONFIG_MAPS, "a", {"data": {}}, server.namespace)

    async def test_dry_runs_leave_no_trace(self, server: ContractServer) -> None:
        client, place = server.client, server.namespace
        tried = await client.create(CONFIG_MAPS, server.named("ghost", data={"k": "v"}), dry_run=True)
        assert tried.data == {"k": "v"}
        real = await client.create(CONFIG_MAPS, server.named("real", data={"k": "1"}))
        patched = await client.patch(CONFIG_MAPS, "real", {"data": {"k": "2"}}, place, dry_run=True)
        assert patched.data == {"k": "2"}
        await client.apply(CONFIG_MAPS, server.named("real", data={"k": "3"}), manager="m", dry_run=True)
        await client.delete(CONFIG_MAPS, "real", place, dry_run=True)
        after = await client.get(CONFIG_MAPS, "real", place)
        assert after == real
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAPS, "ghost", place)

    async def test_a_projection_is_never_written(self, server: ContractServer) -> None:
        made = await server.client.create(CONFIG_MAPS, server.named("a"))
        with pytest.raises(TypeError):
            await server.client.create(CONFIG_MAPS, made)  # type: ignore[arg-type]  # the point of the test
        with pytest.raises(TypeError):
            await server.client.patch(CONFIG_MAPS, "a", {"metadata": made.metadata}, server.namespace)

    async def test_plain_secrets_are_encoded(self, server: ContractServer) -> None:
        made = await server.client.create(SECRETS, server.named("s", stringData={"k": "geheim"}))
        assert made.data == {"k": b"geheim"}
        assert made.type == "Opaque"

    async def test_most_of_a_pod_is_fixed(self, server: ContractServer) -> None:
        await server.client.create(PODS, server.pod("p"))
        operations: list[Json] = [{"op": "add", "path": "/spec/hostname", "value": "other"}]
        with pytest.raises(Invalid, match="pod updates may not change fields other than"):
            await server.client.patch(PODS, "p", operations, server.namespace, kind="json")
        image: list[Json] = [{"op": "replace", "path": "/spec/containers/0/image", "value": "new"}]
        await server.client.patch(PODS, "p", image, server.namespace, kind="json")

    async def test_a_pod_needs_a_container(self, server: ContractServer) -> None:
        with pytest.raises(Invalid, match=r"spec\.containers"):
            await server.client.create(PODS, server.named("p", spec={"containers": []}))

    async def test_a_name_of_a_port_is_used_once(self, server: ContractServer) -> None:
        ports = [{"name": "web", "port": port} for port in (80, 81)]
        with pytest.raises(Invalid, match="Duplicate value") as refused:
            await server.client.create(SERVICES, server.named("s", spec={"ports": ports}))
        assert refused.value.fields == ("spec.ports[1].name",)

    async def test_nothing_new_in_a_namespace_that_goes(self, server: ContractServer) -> None:
        await server.client.create(CONFIG_MAPS, server.named("a", meta={"finalizers": ["example.com/hold"]}))
        await server.client.delete(NAMESPACES, server.namespace)
        namespace = await server.client.get(NAMESPACES, server.namespace)
        assert namespace.status.phase == "Terminating"
        with pytest.raises(Forbidden, match="because it is being terminated"):
            await server.client.create(CONFIG_MAPS, server.named("b"))
        await server.client.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}}, server.namespace)

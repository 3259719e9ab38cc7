"""Apply on a real server: silent at rest and after a restart, exact about drift."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from slurm_local.apiserver import ApiServer
from slurm_operator.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    Applier,
    Client,
    Conflict,
    Invalid,
    Manifest,
    NotOurs,
    Resource,
    Store,
    load,
)

MANAGER = "slurm-operator"
LABELS = {"app": "x"}
ROOT = {"path": "/"}
TEMPLATE: Manifest = {
    "metadata": {"labels": LABELS, "annotations": {"slinky.slurm.net/jwt-key-hash": "1"}},
    "spec": {
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [
            {
                "name": "main",
                "image": "image:1",
                "args": ["-v"],
                "env": [
                    {"name": "PLAIN", "value": "1"},
                    {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "ports": [{"name": "web", "containerPort": 80}],
                "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }
        ],
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "config", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
        ],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": LABELS}}
                ]
            }
        },
    },
}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
CASES: list[tuple[Resource[Any], Manifest, Manifest, str]] = [
    (
        SERVICES,
        {"spec": {"selector": LABELS, "ports": [{"name": "web", "port": 80, "targetPort": "web"}]}},
        {"spec": {"selector": {"app": "y"}}},
        "spec.selector",
    ),
    (CONFIG_MAPS, {"data": {"a": "1", "b": "2"}, "immutable": False}, {"data": {"a": None}}, "data.a"),
    (SECRETS, {"type": "Opaque", "data": {"k": "MQ=="}}, {"data": {"k": "Mg=="}}, "data"),
    (
        POD_DISRUPTION_BUDGETS,
        {"spec": {"maxUnavailable": 0, "selector": {"matchLabels": LABELS}}},
        {"spec": {"maxUnavailable": 1}},
        "spec.maxUnavailable",
    ),
    (
        STATEFUL_SETS,
        {
            "spec": {
                "replicas": 2,
                "serviceName": "s",
                "selector": {"matchLabels": LABELS},
                "template": TEMPLATE,
                "volumeClaimTemplates": [CLAIM],
            }
        },
        {"spec": {"replicas": 5}},
        "spec.replicas",
    ),
    (
        DEPLOYMENTS,
        {
            "spec": {
                "replicas": 2,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": LABELS},
                "template": TEMPLATE,
            }
        },
        {"spec": {"template": {"spec": {"tolerations": []}}}},
        "spec.template.spec.tolerations",
    ),
]


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[Client]:
    async with Client(load(str(api_server.kubeconfig))) as client:
        yield client


def whole(res: Resource[Any], namespace: str, body: Manifest) -> Manifest:
    return {"apiVersion": res.api_version, "kind": res.kind, "metadata": {"name": "x", "namespace": namespace}} | body


async def seen(client: Client, res: Resource[Any], namespace: str) -> Store[Any]:
    """The store of a process that has just started."""
    store = Store[Any]()
    store.upsert(await client.get(res, "x", namespace))
    return store


@pytest.mark.parametrize(("res", "body", "edit", "field"), CASES, ids=[case[0].kind for case in CASES])
async def test_quiet_at_rest_exact_about_drift(
    client: Client, namespace: str, res: Resource[Any], body: Manifest, edit: Manifest, field: str
) -> None:
    manifest = whole(res, namespace, body)
    assert (await Applier(client, MANAGER).apply(res, manifest, Store())).wrote
    store = await seen(client, res, namespace)
    assert not (await Applier(client, MANAGER).apply(res, manifest, store)).wrote, "a restart writes nothing"
    before = (await client.get_raw(res, "x", namespace))["metadata"]["resourceVersion"]
    await client.patch(res, "x", edit, namespace)
    store = await seen(client, res, namespace)
    applier = Applier(client, MANAGER)
    outcome = await applier.apply(res, manifest, store)
    assert (outcome.wrote, outcome.drift) == (True, (field,))
    assert not (await applier.apply(res, manifest, store)).wrote
    await client.patch(res, "x", {"metadata": {"labels": {"theirs": "1"}}}, namespace)
    store = await seen(client, res, namespace)
    assert not (await applier.apply(res, manifest, store)).wrote, "what others add is theirs"
    assert (await client.get_raw(res, "x", namespace))["metadata"]["resourceVersion"] != before


async def test_a_replaced_empty_map_is_repaired(client: Client, namespace: str) -> None:
    """The volume becomes a directory of the node; an apply alone would leave both sources, which is invalid."""
    body = {"spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}}
    manifest = whole(DEPLOYMENTS, namespace, body)
    await Applier(client, MANAGER).apply(DEPLOYMENTS, manifest, Store())
    host = [{"op": "replace", "path": "/spec/template/spec/volumes/0", "value": {"name": "scratch", "hostPath": ROOT}}]
    added = [{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "theirs", "emptyDir": {}}}]
    await client.patch(DEPLOYMENTS, "x", host + added, namespace, kind="json")
    applier, store = Applier(client, MANAGER), await seen(client, DEPLOYMENTS, namespace)
    outcome = await applier.apply(DEPLOYMENTS, manifest, store)
    assert (outcome.wrote, outcome.drift) == (True, ("spec.template.spec.volumes.0.emptyDir",))
    raw = await client.get_raw(DEPLOYMENTS, "x", namespace)
    volumes = {volume.pop("name"): volume for volume in raw["spec"]["template"]["spec"]["volumes"]}
    assert volumes["scratch"] == {"emptyDir": {}}
    assert "theirs" in volumes, "what others add is theirs"
    assert not (await applier.apply(DEPLOYMENTS, manifest, store)).wrote


async def test_a_changed_port_of_a_service_is_repaired(client: Client, namespace: str) -> None:
    """Ports are told apart by number but named once only: the changed one is in the way of ours."""
    ports = [{"name": "web", "port": 80, "targetPort": "web"}, {"name": "more", "port": 81}]
    manifest = whole(SERVICES, namespace, {"spec": {"selector": LABELS, "ports": ports}})
    await Applier(client, MANAGER).apply(SERVICES, manifest, Store())
    address = (await client.get_raw(SERVICES, "x", namespace))["spec"]["clusterIP"]
    for change in ([{"name": "web", "port": 7000}], [{"name": "web", "port": 81}, {"name": "more", "port": 80}]):
        await client.patch(SERVICES, "x", {"spec": {"ports": change}}, namespace)
        applier, store = Applier(client, MANAGER), await seen(client, SERVICES, namespace)
        assert (await applier.apply(SERVICES, manifest, store)).wrote
        raw = await client.get_raw(SERVICES, "x", namespace)
        assert {(port["name"], port["port"]) for port in raw["spec"]["ports"]} == {("web", 80), ("more", 81)}
        assert raw["spec"]["clusterIP"] == address
        assert not (await applier.apply(SERVICES, manifest, store)).wrote
    less = whole(SERVICES, namespace, {"spec": {"selector": LABELS, "ports": ports[:1]}})
    assert (await Applier(client, MANAGER).apply(SERVICES, less, store)).wrote
    raw = await client.get_raw(SERVICES, "x", namespace)
    assert [port["port"] for port in raw["spec"]["ports"]] == [80], "nothing of the repair is left behind"


async def test_empty_values_do_not_make_a_restart_write(client: Client, namespace: str) -> None:
    """An empty map or plain list is owned, an empty keyed list is not and must not look like drift."""
    container = {"name": "main", "image": "i", "args": [], "env": [{"name": "A", "value": ""}], "ports": []}
    pod = {"containers": [container], "nodeSelector": {}, "tolerations": [], "volumes": [], "hostNetwork": False}
    template = {"metadata": {"labels": LABELS, "annotations": {}}, "spec": pod | {"initContainers": [], "affinity": {}}}
    manifest = whole(DEPLOYMENTS, namespace, {"spec": {"selector": {"matchLabels": LABELS}, "template": template}})
    await Applier(client, MANAGER).apply(DEPLOYMENTS, manifest, Store())
    store = await seen(client, DEPLOYMENTS, namespace)
    assert not (await Applier(client, MANAGER).apply(DEPLOYMENTS, manifest, store)).wrote
    taint = {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}
    await client.patch(DEPLOYMENTS, "x", taint, namespace)
    store = await seen(client, DEPLOYMENTS, namespace)
    outcome = await Applier(client, MANAGER).apply(DEPLOYMENTS, manifest, store)
    assert outcome.drift == ("spec.template.spec.tolerations",)


@pytest.mark.parametrize("theirs", [{"a": "theirs"}, {"other": "theirs"}], ids=["same field", "other field"])
async def test_an_object_made_meanwhile_is_not_taken_over(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, str]
) -> None:
    """Another program creates it after we looked and before we write."""
    real = client.get
    made: list[Manifest] = []

    async def get(*args: Any) -> Any:
        try:
            return await real(*args)
        finally:
            if not made:
                await client.create(CONFIG_MAPS, whole(CONFIG_MAPS, namespace, {"data": theirs}))
                made.append(await client.get_raw(CONFIG_MAPS, "x", namespace))

    monkeypatch.setattr(client, "get", get)
    reference = {"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "u", "controller": True}
    manifest = whole(CONFIG_MAPS, namespace, {"data": {"a": "ours"}})
    manifest["metadata"]["ownerReferences"] = [reference]
    with pytest.raises(NotOurs):
        await Applier(client, MANAGER).apply(CONFIG_MAPS, manifest, Store())
    found = await client.get_raw(CONFIG_MAPS, "x", namespace)
    for raw in (found, made[0]):
        del raw["metadata"]["resourceVersion"]
    assert found == made[0]


async def test_the_object_of_another_is_not_touched(client: Client, namespace: str) -> None:
    foreign = await client.create(CONFIG_MAPS, whole(CONFIG_MAPS, namespace, {"data": {"theirs": "1"}}))
    with pytest.raises(NotOurs):
        await Applier(client, MANAGER).apply(CONFIG_MAPS, whole(CONFIG_MAPS, namespace, {"data": {}}), Store())
    assert await client.get(CONFIG_MAPS, "x", namespace) == foreign


async def test_a_successor_of_the_same_name_is_not_overwritten(client: Client, namespace: str) -> None:
    store = Store[Any]()
    applier = Applier(client, MANAGER)
    await applier.apply(CONFIG_MAPS, whole(CONFIG_MAPS, namespace, {"data": {"ours": "1"}}), store)
    await client.delete(CONFIG_MAPS, "x", namespace)
    changed = whole(CONFIG_MAPS, namespace, {"data": {"ours": "2"}})
    with pytest.raises(Conflict):
        await applier.apply(CONFIG_MAPS, changed, store)
    foreign = await client.create(CONFIG_MAPS, whole(CONFIG_MAPS, namespace, {"data": {"theirs": "1"}}))
    with pytest.raises(Invalid):
        await applier.apply(CONFIG_MAPS, changed, store)
    assert await client.get(CONFIG_MAPS, "x", namespace) == foreign

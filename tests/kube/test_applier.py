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

"""Conditions that other programs set on a real API server: it accepts any status, and the operator reads the object."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest

from slurm_local.apiserver import ApiServer
from slurm_operator.kube import NODES, PODS, Client, Node, Partial, Pod, Reflector, Resource, Store, load
from slurm_operator.kube.errors import AlreadyExists
from slurm_operator.kube.model import find_condition
from tests.kube.follower import until

SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", Partial)
GATE = "example.com/gate"


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[Client]:
    async with Client(load(str(api_server.kubeconfig))) as client:
        yield client


@asynccontextmanager
async def following(
    client: Client, resource: Resource[Any], name: str, namespace: str = ""
) -> AsyncIterator[Store[Any]]:
    store = Store[Any]()
    reflector = Reflector(client, resource, store, namespace=namespace or None, name=name)
    task = asyncio.create_task(reflector.run())
    try:
        await asyncio.wait_for(store.synced.wait(), 10)
        yield store
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def set_status(client: Client, resource: Resource[Any], name: str, status: str, namespace: str = "") -> None:
    patch = {"status": {"conditions": [{"type": GATE, "status": status}]}}
    await client.patch(resource, name, patch, namespace or None, subresource="status")


def gate(obj: Pod | Node | None) -> str | None:
    found = find_condition(obj.status.conditions, GATE) if obj is not None else None
    return found.status if found is not None else None


@pytest.mark.parametrize("status", ["true", ""])
async def test_a_pod_with_any_status_of_a_condition_is_read(client: Client, namespace: str, status: str) -> None:
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
    with suppress(AlreadyExists):  # where the controllers run, they create it
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": namespace}})
    await client.create(PODS, {"metadata": {"name": "p", "namespace": namespace}, "spec": spec})
    async with following(client, PODS, "p", namespace) as store:
        await set_status(client, PODS, "p", status, namespace)
        await until(lambda: gate(store.get(namespace, "p")) == status)
    async with following(client, PODS, "p", namespace) as store:
        assert gate(store.get(namespace, "p")) == status
        assert not store.unreadable


@pytest.mark.parametrize("status", ["true", ""])
async def test_a_cordon_of_a_node_with_any_status_of_a_condition_is_seen(client: Client, status: str) -> None:
    name = f"node-{uuid4().hex[:8]}"
    await client.create(NODES, {"metadata": {"name": name}})
    try:
        await set_status(client, NODES, name, status)
        async with following(client, NODES, name) as store:
            assert gate(store.get("", name)) == status
            await client.patch(NODES, name, {"spec": {"unschedulable": True}})
            await until(lambda: (node := store.get("", name)) and node.spec.unschedulable)
            assert not store.unreadable
    finally:
        await client.delete(NODES, name)

"""What garbage collection does not take with a NodeSet, for an uninstallation after which no operator deletes it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from slurm_operator.api import names
from slurm_operator.cli.wiring import MANAGER
from slurm_operator.desired.workers import BUDGET_KIND
from slurm_operator.kube.apply import ours
from slurm_operator.kube.client import Client
from slurm_operator.kube.errors import Conflict, NotFound
from slurm_operator.kube.kinds import POD_DISRUPTION_BUDGETS, PODS, SERVICES, Pod, PodDisruptionBudget, Service
from slurm_operator.kube.model import ObjectMeta
from slurm_operator.kube.resource import Resource

SHARED = f"{names.LABEL_APP}={names.APP_SLURMD},{names.LABEL_COMPONENT}={names.COMPONENT_WORKER},{names.LABEL_CLUSTER}"
_AT_ONCE = 16


async def delete_workers(client: Client, nodeset: ObjectMeta) -> None:
    """Delete the workers of a NodeSet that goes: their second owner, which the cluster shares, may stay."""
    await _for_each_worker(client, nodeset, lambda pod: _delete(client, PODS, pod))


async def free_workers(client: Client, nodeset: ObjectMeta) -> None:
    """Take the second owner off the workers of a NodeSet that leaves them: they must not go with it."""

    async def free(pod: Pod) -> None:
        owners = pod.metadata.owner_references
        if budgets := [{"$patch": "delete", "uid": ref.uid} for ref in owners if ref.kind == BUDGET_KIND]:
            change = {"metadata": {"uid": pod.metadata.uid, "ownerReferences": budgets}}
            with suppress(NotFound, Conflict):  # it is gone, or another one has its name
                await client.patch(PODS, pod.metadata.name, change, pod.metadata.namespace, kind="strategic")

    await _for_each_worker(client, nodeset, free)


async def _for_each_worker(client: Client, nodeset: ObjectMeta, act: Callable[[Pod], Awaitable[None]]) -> None:
    found = await client.list(PODS, nodeset.namespace, labels=names.selector_text(names.APP_SLURMD, nodeset.name))
    slots = asyncio.Semaphore(_AT_ONCE)

    async def work(pod: Pod) -> None:
        async with slots:
            await act(pod)

    async with asyncio.TaskGroup() as group:
        for pod in found.items:
            if _is_of(pod, nodeset.uid):
                group.create_task(work(pod))


def _is_of(pod: Pod, uid: str) -> bool:
    """Whether the NodeSet controls the pod, or did until the garbage collector left it to its second owner."""
    controller = pod.metadata.controller
    return controller.uid == uid if controller is not None else bool(pod.metadata.owner_references)


async def delete_shared(client: Client) -> None:
    """Delete the Services and budgets of all workers; garbage collection then takes workers without a NodeSet."""
    for budget in (await client.list(POD_DISRUPTION_BUDGETS, labels=SHARED)).items:
        if ours({"metadata": {}}, budget.metadata, MANAGER):
            await _delete(client, POD_DISRUPTION_BUDGETS, budget)
    for service in (await client.list(SERVICES, labels=SHARED)).items:
        if ours({"metadata": {}}, service.metadata, MANAGER):
            await _delete(client, SERVICES, service)


async def _delete(client: Client, kind: Resource[Any], obj: Pod | Service | PodDisruptionBudget) -> None:
    with suppress(NotFound, Conflict):  # it is gone, or another one has its name
        await client.delete(kind, obj.metadata.name, obj.metadata.namespace, uid=obj.metadata.uid)

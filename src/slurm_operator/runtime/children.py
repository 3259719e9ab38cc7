"""From what should exist to actions: apply it, delete what is ours and no longer wanted, report."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from slurm_operator.api import names
from slurm_operator.api.common import Condition, Status
from slurm_operator.api.ignored import ignored_fields
from slurm_operator.api.meta import ObjectMeta
from slurm_operator.kube.apply import APPLIED_HASH, digest_of
from slurm_operator.kube.indexes import BY_OWNER
from slurm_operator.kube.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    POD_DISRUPTION_BUDGETS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
)
from slurm_operator.kube.model import Partial
from slurm_operator.kube.resource import Manifest, Object, Resource
from slurm_operator.runtime.actions import Apply, ApplyStatus, Delete, HasKube, Patch, RecordEvent
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.conditions import Verdict, fields_ignored, flipped, stated, summed_up
from slurm_operator.runtime.plan import Action, InOrder, Plan
from slurm_operator.runtime.references import Refs

SERVICE_MONITORS = Resource("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", Partial)

CHILD_KINDS: tuple[Resource[Any], ...] = (
    SERVICES,
    ENDPOINT_SLICES,
    CONFIG_MAPS,
    SECRETS,
    STATEFUL_SETS,
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    SERVICE_MONITORS,
)
_BY_KIND = {resource.kind: resource for resource in CHILD_KINDS}
FOLLOWED: tuple[Resource[Any], ...] = CHILD_KINDS[:-1]
"""Those that every cluster knows."""

KubeAction = Action[HasKube]
Children = tuple[tuple[Resource[Any], Any], ...]


class Reported(Protocol):
    """One of our kinds, as far as reporting on it goes."""

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> Status: ...


R = TypeVar("R", bound=Reported)


def delete(
    resource: Resource[Any], obj: Object, propagation: Literal["", "Orphan"] = "", *, unchanged: bool = False
) -> Delete:
    """Delete exactly the object that was seen; its own children too, unless they are to be orphans.

    With `unchanged`, only if nothing of it has changed since.
    """
    meta = obj.metadata
    version = meta.resource_version if unchanged else ""
    return Delete(resource, meta.namespace, meta.name, meta.uid, version, propagation=propagation)


def patch(
    resource: Resource[Any], obj: Object, change: Manifest, *, kind: Literal["merge", "strategic"] = "merge"
) -> Patch:
    """Change exactly the object that was seen, not a successor of the same name."""
    meta = {**change.get("metadata", {}), "uid": obj.metadata.uid}
    return Patch(resource, obj.metadata.namespace, obj.metadata.name, {**change, "metadata": meta}, kind)


def applied(objects: Iterable[Manifest]) -> Iterator[KubeAction]:
    for manifest in objects:
        yield Apply(_BY_KIND[manifest["kind"]], manifest)


def kept(resource: Resource[R], obj: R, children: Children, objects: Sequence[Manifest]) -> Iterator[KubeAction]:
    """Apply what the object wants to exist, and tell of what is new."""
    existing = {(kind.kind, child.metadata.name) for kind, child in children}
    for action, manifest in zip(applied(objects), objects, strict=True):
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if (kind, name) in existing:
            yield action
        else:
            yield InOrder((action, RecordEvent(resource, obj, names.EVENT_CREATE_SUCCEEDED, f"created {kind} {name}")))


def owned(caches: Caches, uid: str) -> Children:
    """The children that exist, found by their owner."""
    followed = [kind for kind in CHILD_KINDS if kind in caches.followed]
    return tuple((kind, child) for kind in followed for child in caches.store(kind).by_index(BY_OWNER, uid))


def unwanted(children: Children, objects: Sequence[Manifest]) -> Iterator[KubeAction]:
    """Children that the resource no longer asks for."""
    wanted = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in objects}
    for resource, child in children:
        if (resource.kind, child.metadata.name) not in wanted and not child.metadata.terminating:
            yield delete(resource, child)


def is_changing(children: Children, objects: Sequence[Manifest]) -> bool:
    """Whether a child is not yet as it should be: how the old one does says nothing about the new one.

    Our own write has us look again, so the report is late by a moment only.
    """
    wanted = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in objects}
    for resource, child in children:
        manifest = wanted.get((resource.kind, child.metadata.name))
        made_of = child.metadata.annotations.get(APPLIED_HASH)
        if manifest is not None and made_of and made_of != digest_of(manifest) and not child.metadata.terminating:
            return True
    return False


def reported(
    resource: Resource[R], obj: R, verdicts: Sequence[Verdict], now: float, **fields: Any
) -> Iterator[KubeAction]:
    """The status if it would change, and an event for each condition that flips for the better or the worse."""
    meta = obj.metadata
    verdicts = [*verdicts, *fields_ignored(ignored_fields(obj))]
    conditions = stated(verdicts, obj.status.conditions, meta.generation, now)
    status = {**fields, "observedGeneration": meta.generation, "conditions": conditions}
    if msgspec.convert(status, type(obj.status)) != obj.status:
        yield ApplyStatus(resource, _about(resource, obj, status))
    yield from _told(resource, obj, verdicts)


def unread(resource: Resource[R], obj: R, refs: Refs, now: float) -> Plan[HasKube]:
    """Wait until everything that the object refers to is known. Only that it may not be read is reported."""
    if refs.refused is None:
        return Plan(after=refs.after)
    verdicts = summed_up(waiting="", done="", blocked=refs.refused)
    conditions = stated(verdicts, obj.status.conditions, obj.metadata.generation, now)
    actions: list[KubeAction] = []
    if any(condition not in obj.status.conditions for condition in msgspec.convert(conditions, list[Condition])):
        # What is not known now stays as it was last reported.
        actions.append(ApplyStatus(resource, _about(resource, obj, {"conditions": conditions}), part="references"))
    return Plan((*actions, *_told(resource, obj, verdicts)), after=refs.after)


def _about(resource: Resource[R], obj: R, status: Manifest) -> Manifest:
    meta = obj.metadata
    address = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": address, "status": status}


def _told(resource: Resource[R], obj: R, verdicts: Sequence[Verdict]) -> Iterator[KubeAction]:
    for verdict in flipped(verdicts, obj.status.conditions):
        if verdict.type == names.CONDITION_DEGRADED and verdict.status == "True":
            yield RecordEvent(resource, obj, verdict.reason, verdict.message, "Warning")
        elif verdict.type == names.CONDITION_READY and verdict.status == "True":
            yield RecordEvent(resource, obj, verdict.reason, verdict.message)

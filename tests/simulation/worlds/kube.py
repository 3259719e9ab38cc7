"""A Kubernetes as it really is, the stores that the operator sees it through, and the client it writes with."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slurm_operator.api import names
from slurm_operator.kube import indexes
from slurm_operator.kube.clock import Clock
from slurm_operator.kube.custom import CONTROLLERS, NODESETS
from slurm_operator.kube.errors import AlreadyExists, Call, Conflict, NotFound, ServerError
from slurm_operator.kube.kinds import (
    CONTROLLER_REVISIONS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    STATEFUL_SETS,
    Pod,
    PodStatus,
)
from slurm_operator.kube.model import Condition
from slurm_operator.kube.resource import Key, Manifest, Resource
from slurm_operator.kube.store import Scope, Store
from slurm_operator.runtime.times import rfc3339
from tests.simulation.worlds.chance import Chance

ENDED = ("Failed", "Succeeded")


OWNED: dict[str, Any] = {indexes.BY_OWNER: indexes.owner, indexes.BY_INSTANCE: indexes.instance}


def empty_store() -> Store[Any]:
    """A store of a kind that these worlds have no objects of."""
    return Store(OWNED)


def make_stores() -> dict[Resource[Any], Store[Any]]:
    pods = {**OWNED, indexes.BY_NODE: indexes.node, indexes.BY_CLUSTER: indexes.cluster}
    plain = (CONTROLLERS, NODES, POD_DISRUPTION_BUDGETS, STATEFUL_SETS)
    return {
        PODS: Store(pods),
        CONTROLLER_REVISIONS: Store(OWNED),
        NODESETS: Store({indexes.BY_CONTROLLER: indexes.controller}),
        **{resource: Store() for resource in plain},
    }


@dataclass
class KubeTruth:
    """All objects, by kind and key, and the events that the operator's watches have not brought yet."""

    clock: Clock
    objects: dict[Resource[Any], dict[Key, Any]] = field(default_factory=dict)
    stores: dict[Resource[Any], Store[Any]] = field(default_factory=make_stores)
    made_from: dict[str, Manifest] = field(default_factory=dict)
    """Uid of a pod: what it was created from, as a pod of the stores has few fields."""
    lagging: bool = False
    """Watches bring nothing until `catch_up`."""
    last: dict[tuple[Resource[Any], Key], Any] = field(default_factory=dict)
    """The newest version of every object, also of those that are gone."""
    version: int = 0
    _waiting: deque[tuple[Resource[Any], Any, bool]] = field(default_factory=deque)

    def all(self, resource: Resource[Any]) -> dict[Key, Any]:
        return self.objects.setdefault(resource, {})

    def put(self, resource: Resource[Any], obj: Any) -> Any:
        stored = self._versioned(obj)
        key = (stored.metadata.namespace, stored.metadata.name)
        self.all(resource)[key] = self.last[resource, key] = stored
        self._tell(resource, stored, gone=False)
        return stored

    def drop(self, resource: Resource[Any], key: Key) -> None:
        gone = self.all(resource).pop(key, None)
        if gone is not None:
            self._tell(resource, self._versioned(gone), gone=True)

    def _versioned(self, obj: Any) -> Any:
        self.version += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
        if not meta.uid:
            meta = msgspec.structs.replace(
                meta, uid=f"uid-{self.version}", creation_timestamp=rfc3339(self.clock.now())
            )
        return msgspec.structs.replace(obj, metadata=meta)

    def _tell(self, resource: Resource[Any], obj: Any, *, gone: bool) -> None:
        self._waiting.append((resource, obj, gone))
        if not self.lagging:
            self.catch_up()

    def catch_up(self) -> None:
        while self._waiting:
            resource, obj, gone = self._waiting.popleft()
            store = self.stores[resource]
            store.remove(obj) if gone else store.upsert(obj)
            store.advance(Scope(), obj.metadata.resource_version)

    def restart_watches(self) -> None:
        """A new process lists everything."""
        self._waiting.clear()
        self.stores = make_stores()
        for resource, store in self.stores.items():
            store.replace(Scope(), dict(self.all(resource)), str(self.version))

    # What the API server and the garbage collector do

    def begin_deletion(self, resource: Resource[Any], key: Key) -> None:
        found = self.all(resource)[key]
        meta = found.metadata
        waits = meta.finalizers if resource is NODESETS else _is_graceful(found) if resource is PODS else False
        if not waits:
            self.finish_deletion(resource, key)
        elif meta.deletion_timestamp is None:
            now = rfc3339(self.clock.now())
            meta = msgspec.structs.replace(meta, deletion_timestamp=now, generation=meta.generation + 1)
            self.put(resource, msgspec.structs.replace(found, metadata=meta))

    def finish_deletion(self, resource: Resource[Any], key: Key) -> None:
        found = self.all(resource).get(key)
        if found is None:
            return
        self.drop(resource, key)
        if resource is NODESETS:
            self._collect(found.metadata.uid)

    def _collect(self, uid: str) -> None:
        """Take what the object owned; a pod has a second owner and is only let go of."""
        for key, revision in list(self.all(CONTROLLER_REVISIONS).items()):
            if any(ref.uid == uid for ref in revision.metadata.owner_references):
                self.drop(CONTROLLER_REVISIONS, key)
        for key, pod in list(self.all(PODS).items()):
            owners = tuple(ref for ref in pod.metadata.owner_references if ref.uid != uid)
            if owners == pod.metadata.owner_references:
                continue
            if owners:
                meta = msgspec.structs.replace(pod.metadata, owner_references=owners)
                self.put(PODS, msgspec.structs.replace(pod, metadata=meta))
            else:
                self.begin_deletion(PODS, key)


def _is_graceful(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in ENDED


@dataclass
class ClientDouble:
    """Stands for `Client`: what the operator's actions call, on the truth itself."""

    kube: KubeTruth
    chance: Chance
    about_to_delete: Callable[[Pod], None]
    writes: list[str] = field(default_factory=list)
    change: str = ""
    """What the last write changed, for the story."""

    async def get(self, res: Resource[Any], name: str, namespace: str | None = None) -> Any:
        return self._found(res, "get", name, namespace)

    async def create(self, res: Resource[Any], manifest: Manifest) -> Any:
        meta = manifest["metadata"]
        call = Call.on(res, "create", meta["namespace"], meta["name"])

        def effect() -> None:
            if (meta["namespace"], meta["name"]) in self.kube.all(res):
                raise AlreadyExists(call, "it exists", status=409)
            obj = msgspec.convert(manifest, res.type)
            if res is PODS:
                status = msgspec.structs.replace(obj.status, phase="Pending")
                obj = msgspec.structs.replace(obj, status=status)
            made = self.kube.put(res, obj)
            self.kube.made_from[made.metadata.uid] = manifest

        return self._write(call, res, effect, (meta["namespace"], meta["name"]))

    async def patch(
        self, res: Resource[Any], name: str, patch: Manifest, namespace: str | None = None, **options: Any
    ) -> Any:
        call = Call.on(res, "patch", namespace, name)

        def effect() -> None:
            found = self._found(res, "patch", name, namespace)
            wanted = patch.get("metadata", {}).get("uid")
            if wanted and wanted != found.metadata.uid:
                raise Conflict(call, "another object has this name", status=409)
            self.kube.put(res, _patched(res, found, patch))
            meta = self._found(res, "patch", name, namespace).metadata
            if res is NODESETS and meta.deletion_timestamp is not None and not meta.finalizers:
                self.kube.finish_deletion(res, (namespace or "", name))

        return self._write(call, res, effect, (namespace or "", name))

    async def apply(
        self, res: Resource[Any], manifest: Manifest, *, manager: str, subresource: str = "", **options: Any
    ) -> Any:
        meta = manifest["metadata"]
        call = Call.on(res, "patch", meta["namespace"], meta["name"], subresource)

        def effect() -> None:
            found = self._found(res, "patch", meta["name"], meta["namespace"])
            if meta.get("uid", found.metadata.uid) != found.metadata.uid:
                raise Conflict(call, "another object has this name", status=409)
            status = (
                _pod_status(found, manifest) if res is PODS else msgspec.convert(manifest["status"], type(found.status))
            )
            self.kube.put(res, msgspec.structs.replace(found, status=status))
            self.change = _difference(found.status, status) if res is not PODS else ""

        return self._write(call, res, effect, (meta["namespace"], meta["name"]))

    async def delete(
        self,
        res: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        **options: Any,
    ) -> None:
        call = Call.on(res, "delete", namespace, name)

        def effect() -> None:
            found = self._found(res, "delete", name, namespace)
            if uid not in ("", found.metadata.uid) or resource_version not in ("", found.metadata.resource_version):
                raise Conflict(call, "the object is another, or has changed", status=409)
            if res is PODS and found.metadata.deletion_timestamp is None:
                self.about_to_delete(found)
            self.kube.begin_deletion(res, (namespace or "", name))

        self._write(call, res, effect, (namespace or "", name))

    def _found(self, res: Resource[Any], verb: str, name: str, namespace: str | None) -> Any:
        found = self.kube.all(res).get((namespace or "", name))
        if found is None:
            raise NotFound(Call.on(res, verb, namespace, name), "it does not exist", status=404)
        return found

    def _write(self, call: Call, res: Resource[Any], effect: Callable[[], None], key: Key) -> Any:
        def noted() -> None:
            self.change = ""
            effect()
            self.writes.append(" ".join(filter(None, (call.verb, call.kind, call.name, call.subresource, self.change))))

        self.chance.call(noted, ServerError(call, "the server is overloaded", status=500))
        return self.kube.last[res, key]


def _patched(res: Resource[Any], found: Any, patch: Manifest) -> Any:
    plain = msgspec.to_builtins(found)
    meta = plain["metadata"]
    for key, value in patch.get("metadata", {}).items():
        if key == "ownerReferences" and value is not None:
            meta[key] = _owners(meta.get(key, []), value)
        elif isinstance(value, dict):
            merged = {**meta.get(key, {}), **value}
            meta[key] = {name: item for name, item in merged.items() if item is not None}
        else:
            meta[key] = value if value is not None else []
    rest = {key: value for key, value in patch.items() if key != "metadata"}
    return msgspec.convert({**plain, **rest}, res.type)


def _owners(before: list[Manifest], change: list[Manifest]) -> list[Manifest]:
    """A strategic merge by uid; a merge patch of one owner is the same as far as the operator goes."""
    removed = {ref["uid"] for ref in change if ref.get("$patch") == "delete"}
    added = {ref["uid"]: ref for ref in change if ref.get("$patch") != "delete"}
    return [*(ref for ref in before if ref["uid"] not in removed | added.keys()), *added.values()]


def _pod_status(pod: Pod, manifest: Manifest) -> PodStatus:
    """The operator owns the conditions of Slurm's states alone."""
    others = [c for c in pod.status.conditions if not c.type.startswith(names.POD_CONDITION_PREFIX)]
    stated = msgspec.convert(manifest["status"]["conditions"], tuple[Condition, ...])
    return msgspec.structs.replace(pod.status, conditions=(*others, *stated))


def _difference(before: Any, after: Any) -> str:
    """The parts of a status that changed, in short; of a condition its status and message."""

    def parts(status: Any) -> dict[str, Any]:
        plain = msgspec.to_builtins(status)
        conditions = {
            c["type"]: f"{c.get('status', 'Unknown')} {c.get('message', '')}" for c in plain.pop("conditions", ())
        }
        return {**plain, **conditions, "drains": [f"{d['cause']} {d['nodes']}" for d in plain.get("drains", ())]}

    old, new = parts(before), parts(after)
    return "; ".join(f"{key}={value}" for key, value in new.items() if old.get(key) != value)

"""The writes to Kubernetes that a plan may hold.

Each treats as done what is already as wanted (deleting what is gone), keeps the server's answer in the store so that
the next look sees it, and leaves every other refusal to the executor.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from slurm_operator.kube.apply import Applier
from slurm_operator.kube.client import Client, JsonPatch, PatchKind
from slurm_operator.kube.errors import Conflict, Forbidden, NotFound
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.resource import Manifest, Object, Resource, T
from slurm_operator.kube.store import Store
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.conditions import changes
from slurm_operator.runtime.plan import Done, Urgency

_REPORT_ATTEMPTS = 5
"""Tries to report on an object that other programs write to at the same time."""
_NAMESPACE_ENDS = "because it is being terminated"


class Kube:
    """What actions need of Kubernetes: a client, and the stores that shall see our own writes at once."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        stores: dict[Resource[Any], Store[Any]],
        *,
        manager: str,
        clock: Clock | None = None,
    ) -> None:
        self.client = client
        self.recorder = recorder
        self.applier = Applier(client, manager, clock)
        self.status_manager = f"{manager}-status"
        self._stores = stores

    def store(self, resource: Resource[T]) -> Store[T]:
        """The store of a kind; for a kind that is not followed, one that remembers our own writes alone."""
        found: Store[T] = self._stores.setdefault(resource, Store())
        return found

    def saw(self, resource: Resource[T], obj: T) -> None:
        self.store(resource).upsert(obj)


class HasKube(Protocol):
    @property
    def kube(self) -> Kube: ...


@dataclass(frozen=True, slots=True)
class Apply:
    """Make the object so; nothing is sent when it is. Refuses an object that is not ours."""

    resource: Resource[Any]
    manifest: Manifest
    urgency: Urgency = Urgency.NORMAL
    lane: str = ""

    def __str__(self) -> str:
        return f"apply {_wanted(self.resource, self.manifest)}"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self), "manifest": without_secrets(self.manifest)}

    async def run(self, hands: HasKube) -> Done:
        kube = hands.kube
        try:
            outcome = await kube.applier.apply(self.resource, self.manifest, kube.store(self.resource))
        except Forbidden as refusal:
            return _ended_with_namespace(refusal)
        return Done(outcome.wrote, outcome.after)


@dataclass(frozen=True, slots=True)
class Create:
    """POST, for what must never be overwritten: when our view was stale the server answers AlreadyExists.

    Creations of one kind share a lane: a quota or an admission rule that refuses one refuses all, whereas an invalid
    or taken name refuses only its own object.
    """

    resource: Resource[Any]
    manifest: Manifest
    urgency: Urgency = Urgency.NORMAL

    @property
    def lane(self) -> str:
        return f"create {self.resource.kind}"

    def __str__(self) -> str:
        return f"create {_wanted(self.resource, self.manifest)}"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self), "manifest": without_secrets(self.manifest)}

    async def run(self, hands: HasKube) -> Done:
        try:
            created = await hands.kube.client.create(self.resource, self.manifest)
        except Forbidden as refusal:
            return _ended_with_namespace(refusal)
        hands.kube.saw(self.resource, created)
        return Done()


@dataclass(frozen=True, slots=True)
class Patch:
    """Change some fields of an object that exists; one that is gone needs no change."""

    resource: Resource[Any]
    namespace: str
    name: str
    patch: Manifest | JsonPatch
    kind: PatchKind = "merge"
    subresource: str = ""
    urgency: Urgency = Urgency.NORMAL
    lane: str = ""

    def __str__(self) -> str:
        part = f"{self.subresource} of " if self.subresource else ""
        return f"patch {part}{_address(self.resource, self.namespace, self.name)}"

    def describe(self) -> dict[str, Any]:
        shown = without_secrets({"kind": self.resource.kind, "patch": self.patch})
        return {"action": str(self), "patch": shown["patch"]}

    async def run(self, hands: HasKube) -> Done:
        try:
            patched = await hands.kube.client.patch(
                self.resource,
                self.name,
                self.patch,
                self.namespace or None,
                kind=self.kind,
                subresource=self.subresource,
            )
        except NotFound:
            return Done(wrote=False)
        hands.kube.saw(self.resource, patched)
        return Done()


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly this object: one of the same name made meanwhile is not touched."""

    resource: Resource[Any]
    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    """Empty: in whatever version."""
    grace_seconds: int | None = None
    propagation: Literal["", "Background", "Foreground", "Orphan"] = ""
    urgency: Urgency = Urgency.NORMAL
    lane: str = ""

    def __str__(self) -> str:
        return f"delete {_address(self.resource, self.namespace, self.name)}"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self), "uid": self.uid}

    async def run(self, hands: HasKube) -> Done:
        try:
            await hands.kube.client.delete(
                self.resource,
                self.name,
                self.namespace or None,
                uid=self.uid,
                resource_version=self.resource_version,
                grace_seconds=self.grace_seconds,
                propagation=self.propagation,
            )
        except (NotFound, Conflict):
            return Done(wrote=False)  # gone, replaced by another, or not as it was seen
        return Done()


@dataclass(frozen=True, slots=True)
class ApplyStatus:
    """Say in the object's status what was seen. `manifest` holds its address and the status alone.

    Reports have a field manager of their own, so that conditions of others stay theirs. With a uid in the address the
    report is for that object alone. The server does not compare uids of a status, so the report is bound to a version
    of which the uid is known.
    """

    resource: Resource[Any]
    manifest: Manifest
    urgency: Urgency = Urgency.STATUS
    lane: str = ""
    part: str = ""
    """Not empty: the name of a part of the status that is reported by itself, so that the rest of it stays."""

    def __str__(self) -> str:
        return f"report on {_wanted(self.resource, self.manifest)}"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self), "status": self.manifest.get("status", {})}

    async def run(self, hands: HasKube) -> Done:
        kube, meta = hands.kube, self.manifest["metadata"]
        before = kube.store(self.resource).get(meta.get("namespace", ""), meta["name"])
        for attempt in range(_REPORT_ATTEMPTS):
            try:
                bound = await self._bound(kube, meta, known=attempt == 0)
                if bound is None:
                    return Done(wrote=False)
                manifest, manager = {**self.manifest, "metadata": bound}, self._manager(kube)
                reported = await kube.client.apply(self.resource, manifest, manager=manager, subresource="status")
            except NotFound:
                return Done(wrote=False)
            except Conflict:
                if attempt == _REPORT_ATTEMPTS - 1:
                    raise
            else:
                kube.saw(self.resource, reported)
                break
        return Done(note=changes(getattr(before, "status", None), self.manifest.get("status", {})))

    def _manager(self, kube: Kube) -> str:
        return f"{kube.status_manager}-{self.part}" if self.part else kube.status_manager

    async def _bound(self, kube: Kube, meta: Manifest, known: bool) -> Manifest | None:
        """Return the address with a version of the object, None if it is not the object any more."""
        address = {key: value for key, value in meta.items() if key != "uid"}
        if "uid" not in meta:
            return address
        namespace, name = meta.get("namespace", ""), meta["name"]
        live = kube.store(self.resource).get(namespace, name) if known else None
        if live is None:
            live = await kube.client.get(self.resource, name, namespace or None)
            kube.saw(self.resource, live)
        same = live.metadata.uid == meta["uid"]
        return address | {"resourceVersion": live.metadata.resource_version} if same else None


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """An event for people, where `kubectl describe` shows it."""

    resource: Resource[Any]
    about: Object = field(repr=False)
    reason: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"
    urgency: Urgency = Urgency.STATUS
    lane: str = ""

    def __str__(self) -> str:
        meta = self.about.metadata
        return f"tell {_address(self.resource, meta.namespace, meta.name)}: {self.reason}"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self), "type": self.type, "note": self.note}

    async def run(self, hands: HasKube) -> Done:
        hands.kube.recorder.record(self.resource, self.about, self.reason, self.note, type=self.type)
        return Done()


def _ended_with_namespace(refusal: Forbidden) -> Done:
    """Nothing more can be made in a namespace that is being deleted, and nothing more is wanted there."""
    if _NAMESPACE_ENDS in refusal.message:
        return Done(wrote=False)
    raise refusal


def without_secrets(manifest: Manifest) -> Manifest:
    """A Secret's values replaced by their digests: still comparable, no longer secret."""
    if manifest.get("kind") != "Secret":
        return manifest
    hidden: Manifest = _digests(manifest)
    return hidden


def _digests(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        key: {name: _digest(content) for name, content in item.items()}
        if key in ("data", "stringData") and isinstance(item, dict)
        else _digests(item)
        for key, item in value.items()
    }


def _digest(content: object) -> str:
    return f"sha256:{hashlib.sha256(str(content).encode()).hexdigest()[:12]}"


def _wanted(resource: Resource[Any], manifest: Manifest) -> str:
    meta = manifest["metadata"]
    return _address(resource, meta.get("namespace", ""), meta.get("name") or meta.get("generateName", ""))


def _address(resource: Resource[Any], namespace: str, name: str) -> str:
    return f"{resource.kind} {namespace}/{name}" if namespace else f"{resource.kind} {name}"

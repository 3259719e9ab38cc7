"""Applier: server-side apply that sends nothing when nothing would change, and repairs what others changed.

Two questions decide, both answered by the live object alone, so a restart knows as much as a long run:

* Is what we want now what we applied last? A hash of the manifest travels with the object as an annotation.
* Do we still own all of it? When anyone else changes or removes a field of ours, the server takes that field out of
  our entry in `managedFields`. So the object is as we left it exactly if our entry still covers every field of the
  manifest; values need no comparing, and defaults, mutations and fields of others do not disturb.

The first apply of an object does not force: where another program made an object of that name meanwhile it is refused,
or changes nothing that the other program set and is taken back.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from slurm_operator.errors import UserError
from slurm_operator.kube.claims import claimed, element_of
from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock, SystemClock
from slurm_operator.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from slurm_operator.kube.model import ChildMeta
from slurm_operator.kube.resource import Manifest, Resource
from slurm_operator.kube.store import Store

log = logging.getLogger(__name__)

APPLIED_HASH = "slinky.slurm.net/applied-hash"
REPAIR_SECONDS = 10.0
"""Between two repairs of one object, so that two programs which disagree do not race."""

_KEYED_LISTS = frozenset(
    {
        "claims",
        "containers",
        "env",
        "finalizers",
        "hostAliases",
        "imagePullSecrets",
        "initContainers",
        "ownerReferences",
        "ports",
        "resourceClaims",
        "schedulingGates",
        "topologySpreadConstraints",
        "volumeDevices",
        "volumeMounts",
        "volumes",
    }
)
"""Lists that are owned element by element: of an empty one nothing is booked."""


class Child(Protocol):
    @property
    def metadata(self) -> ChildMeta: ...


C = TypeVar("C", bound=Child)


class NotOurs(UserError):  # noqa: N818 - a finding that the caller turns into a condition
    """An object of the wanted name exists and belongs to somebody else, or to nobody."""

    def __init__(self, kind: str, meta: ChildMeta) -> None:
        owner = meta.controller
        whose = f"is controlled by {owner.kind} {owner.name!r}" if owner else "was not made by us"
        super().__init__(
            f"{kind} {meta.namespace}/{meta.name} {whose}", "rename or delete it, or choose another name for ours"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    wrote: bool
    drift: tuple[str, ...] = ()
    """Fields of ours that somebody else had changed."""
    after: float | None = None
    """Set if a repair was put off: seconds until it may be tried."""


@dataclass(frozen=True, slots=True)
class _Gap:
    """Fields of a manifest that the server does not book as ours."""

    fields: tuple[str, ...]
    look: Callable[[], Child | None]

    def exists(self, uid: str) -> bool:
        found = self.look()
        return found is not None and found.metadata.uid == uid


@dataclass(frozen=True, slots=True)
class _Repair:
    at: float
    refusal: Invalid | None = None


class Applier:
    def __init__(self, client: Client, manager: str, clock: Clock | None = None) -> None:
        self._client = client
        self._manager = manager
        self._clock = clock or SystemClock()
        self._gaps: dict[str, _Gap] = {}
        self._repairs: dict[str, _Repair] = {}

    async def apply(self, res: Resource[C], manifest: Manifest, store: Store[C]) -> Outcome:
        """Make the object so, unless it is; the answer goes into the store. Raises NotOurs."""
        wanted = stamped(manifest)
        live = await self._live(res, wanted, store) or await self._create(res, wanted, store)
        if live is None:
            return Outcome(wrote=True)
        meta = live.metadata
        if meta.terminating:
            return Outcome(wrote=False)
        if not ours(wanted, meta, self._manager):
            raise NotOurs(res.kind, meta)
        if meta.annotations.get(APPLIED_HASH) != wanted["metadata"]["annotations"][APPLIED_HASH]:
            return await self._send(res, wanted, store, meta)
        drift = lost_fields(wanted, meta, self._manager)
        gap = self._gaps.get(meta.uid)
        if drift == (gap.fields if gap else ()):
            return Outcome(wrote=False)
        return await self._repair(res, wanted, store, meta, drift)

    def made(self, manifest: Manifest, meta: ChildMeta) -> bool:
        """Whether this operator made the object that exists under the name of the manifest."""
        return ours(manifest, meta, self._manager)

    async def _create(self, res: Resource[C], wanted: Manifest, store: Store[C]) -> C | None:
        """Create the object; return the one that exists after all, unless it is what an earlier try of ours made."""
        name, namespace = wanted["metadata"]["name"], wanted["metadata"].get("namespace")
        try:
            result, new = await self._client.apply_new(res, wanted, manager=self._manager)
        except (AlreadyExists, Conflict, Invalid) as refusal:
            try:
                return await self._client.get(res, name, namespace)
            except NotFound:
                raise refusal from None
        if not new and await self._is_shared(res, name, namespace):
            # Naming nothing takes back everything that we alone own.
            identity = {"name": name, "uid": result.metadata.uid} | ({"namespace": namespace} if namespace else {})
            return await self._client.apply(res, {"metadata": identity}, manager=self._manager)
        self._saw(wanted, result, store)
        return None

    async def _is_shared(self, res: Resource[C], name: str, namespace: str | None) -> bool:
        raw = await self._client.get_raw(res, name, namespace)
        entries = (entry for entry in raw["metadata"].get("managedFields", ()) if not entry.get("subresource"))
        return any((entry["manager"], entry["operation"]) != (self._manager, "Apply") for entry in entries)

    async def _repair(
        self, res: Resource[C], wanted: Manifest, store: Store[C], meta: ChildMeta, drift: tuple[str, ...]
    ) -> Outcome:
        now = self._clock.monotonic()
        self._repairs = {uid: last for uid, last in self._repairs.items() if now - last.at < REPAIR_SECONDS}
        last = self._repairs.get(meta.uid)
        if last is not None and last.refusal is not None:
            # Nothing has changed since the server refused it, so it is as true as before.
            raise last.refusal
        if last is not None:
            return Outcome(wrote=False, drift=drift, after=last.at + REPAIR_SECONDS - now)
        self._repairs[meta.uid] = _Repair(now)
        log.info(
            "setting back fields that somebody else changed",
            extra={"kind": res.kind, "object": f"{meta.namespace}/{meta.name}", "fields": drift},
        )
        try:
            return await self._send(res, wanted, store, meta, drift)
        except Invalid as refusal:
            self._repairs[meta.uid] = _Repair(now, refusal)
            raise

    async def _send(
        self, res: Resource[C], wanted: Manifest, store: Store[C], meta: ChildMeta, drift: tuple[str, ...] = ()
    ) -> Outcome:
        # Only onto the object we looked at: were it replaced meanwhile, the server refuses.
        bound = wanted | {"metadata": wanted["metadata"] | {"uid": meta.uid}}
        try:
            result = await self._client.apply(res, bound, manager=self._manager)
        except Invalid as refusal:
            if not await self._claim(res, wanted, meta, refusal.fields):
                raise
            result = await self._client.apply(res, bound, manager=self._manager)
        self._saw(wanted, result, store)
        return Outcome(wrote=True, drift=drift)

    async def _claim(self, res: Resource[C], wanted: Manifest, meta: ChildMeta, refused: Iterable[str]) -> bool:
        """Become the owner of what stands in the way of an apply; whether there was any."""
        raw = await self._client.get_raw(res, meta.name, meta.namespace or None)
        entries = raw["metadata"].get("managedFields", [])
        wished = claimed(entries, wanted, self._manager, refused, raw)
        if raw["metadata"]["uid"] != meta.uid or wished == entries:
            return False
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": raw["metadata"]["resourceVersion"]},
            {"op": "replace", "path": "/metadata/managedFields", "value": wished},
        ]
        await self._client.patch(res, meta.name, patch, meta.namespace or None, kind="json")
        return True

    def _saw(self, wanted: Manifest, result: C, store: Store[C]) -> None:
        store.upsert(result)
        # Fields that the server never books as ours would look like drift for ever.
        meta = result.metadata
        self._gaps.pop(meta.uid, None)
        if fields := lost_fields(wanted, meta, self._manager):
            self._gaps = {uid: gap for uid, gap in self._gaps.items() if gap.exists(uid)}
            self._gaps[meta.uid] = _Gap(fields, lambda: store.get(meta.namespace, meta.name))

    async def _live(self, res: Resource[C], wanted: Manifest, store: Store[C]) -> C | None:
        """The store may hold a selection only: before the first write the server itself is asked."""
        namespace, name = wanted["metadata"].get("namespace", ""), wanted["metadata"]["name"]
        found = store.get(namespace, name)
        if found is not None:
            return found
        try:
            return await self._client.get(res, name, namespace or None)
        except NotFound:
            return None


def stamped(manifest: Manifest) -> Manifest:
    """The manifest with its own hash among the annotations."""
    meta = manifest["metadata"]
    annotations = {**meta.get("annotations", {}), APPLIED_HASH: digest_of(manifest)}
    return manifest | {"metadata": meta | {"annotations": annotations}}


def digest_of(manifest: Manifest) -> str:
    content = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(content).hexdigest()[:32]


def ours(wanted: Manifest, meta: ChildMeta, manager: str) -> bool:
    """Same controlling owner; a manifest without one claims only what our manager once applied."""
    owner = next((ref["uid"] for ref in wanted["metadata"].get("ownerReferences", ()) if ref.get("controller")), None)
    found = meta.controller
    if owner is None:
        return found is None and any(entry.manager == manager for entry in meta.managed_fields)
    return found is not None and found.uid == owner


def lost_fields(wanted: Manifest, meta: ChildMeta, manager: str) -> tuple[str, ...]:
    """The fields of `wanted` that our entry in managedFields does not list."""
    owned = next((entry.fields_v1 for entry in meta.managed_fields if entry.manager == manager), None)
    if owned is None:
        return ("*",)
    # The server keeps no book on what identifies the object.
    identity = ("name", "namespace", "uid")
    body = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind")}
    described = {key: value for key, value in body.pop("metadata").items() if key not in identity}
    body |= {"metadata": described} if described else {}
    return tuple(sorted(_uncovered(body, owned, "")))


def _uncovered(value: Any, owned: dict[str, Any], path: str) -> Iterator[str]:
    if not owned:
        # A leaf, or a structure that is owned as a whole.
        return
    for part, item, node in _parts(value, owned):
        if node is not None:
            yield from _uncovered(item, node, f"{path}.{part}")
        elif item is not None and (item != [] or part not in _KEYED_LISTS):
            yield f"{path}.{part}".removeprefix(".")


def _parts(value: Any, owned: dict[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any] | None]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, item, owned.get(f"f:{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield str(index), item, element_of(item, owned)

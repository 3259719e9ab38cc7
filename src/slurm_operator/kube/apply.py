"""Applier: server-side apply that sends nothing when nothing would change, and repairs what others changed.

Two questions decide, both answered by the live object alone, so a restart knows as much as a long run:

* Is what we want now what we applied last? A hash of the manifest travels with the object as an annotation.
* Do we still own all of it? When anyone else changes or removes a field of ours, the server takes that field out of
  our entry in `managedFields`. So the object is as we left it exactly if our entry still covers every field of the
  manifest; values need no comparing, and defaults, mutations and fields of others do not disturb.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from slurm_operator.errors import UserError
from slurm_operator.kube.client import Client
from slurm_operator.kube.clock import Clock, SystemClock
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.model import ChildMeta
from slurm_operator.kube.resource import Manifest, Resource
from slurm_operator.kube.store import Store

log = logging.getLogger(__name__)

APPLIED_HASH = "slinky.slurm.net/applied-hash"
REPAIR_SECONDS = 10.0
"""Between two repairs of one object, so that two programs which disagree do not race."""


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


class Applier:
    def __init__(self, client: Client, manager: str, clock: Clock | None = None) -> None:
        self._client = client
        self._manager = manager
        self._clock = clock or SystemClock()
        self._gaps: dict[str, tuple[str, ...]] = {}
        self._repaired: dict[str, float] = {}

    async def apply(self, res: Resource[C], manifest: Manifest, store: Store[C]) -> Outcome:
        """Make the object so, unless it is; the answer goes into the store. Raises NotOurs."""
        wanted = stamped(manifest)
        live = await self._live(res, wanted, store)
        if live is None:
            return await self._send(res, wanted, store)
        meta = live.metadata
        if meta.terminating:
            return Outcome(wrote=False)
        if not ours(wanted, meta, self._manager):
            raise NotOurs(res.kind, meta)
        if meta.annotations.get(APPLIED_HASH) != wanted["metadata"]["annotations"][APPLIED_HASH]:
            return await self._send(res, wanted, store, meta)
        drift = lost_fields(wanted, meta, self._manager)
        if drift == self._gaps.get(meta.uid, ()):
            return Outcome(wrote=False)
        return await self._repair(res, wanted, store, meta, drift)

    def made(self, manifest: Manifest, meta: ChildMeta) -> bool:
        """Whether this operator made the object that exists under the name of the manifest."""
        return ours(manifest, meta, self._manager)

    async def _repair(
        self, res: Resource[C], wanted: Manifest, store: Store[C], meta: ChildMeta, drift: tuple[str, ...]
    ) -> Outcome:
        now = self._clock.monotonic()
        self._repaired = {uid: when for uid, when in self._repaired.items() if now - when < REPAIR_SECONDS}
        if meta.uid in self._repaired:
            return Outcome(wrote=False, drift=drift, after=self._repaired[meta.uid] + REPAIR_SECONDS - now)
        self._repaired[meta.uid] = now
        log.info(
            "setting back fields that somebody else changed",
            extra={"kind": res.kind, "object": f"{meta.namespace}/{meta.name}", "fields": drift},
        )
        return await self._send(res, wanted, store, meta, drift)

    async def _send(
        self,
        res: Resource[C],
        wanted: Manifest,
        store: Store[C],
        meta: ChildMeta | None = None,
        drift: tuple[str, ...] = (),
    ) -> Outcome:
        if meta:
            # Only onto the object we looked at: were it replaced meanwhile, the server refuses.
            wanted = wanted | {"metadata": wanted["metadata"] | {"uid": meta.uid}}
        result = await self._client.apply(res, wanted, manager=self._manager)
        store.upsert(result)
        # Fields that the server never books as ours would look like drift for ever.
        gap = lost_fields(wanted, result.metadata, self._manager)
        if gap:
            self._gaps[result.metadata.uid] = gap
        else:
            self._gaps.pop(result.metadata.uid, None)
        return Outcome(wrote=True, drift=drift)

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
    body["metadata"] = {key: value for key, value in wanted["metadata"].items() if key not in identity}
    return tuple(sorted(_uncovered(body, owned, "")))


def _uncovered(value: Any, owned: dict[str, Any], path: str) -> Iterator[str]:
    if not owned:
        # A leaf, or a structure that is owned as a whole.
        return
    for part, item, node in _parts(value, owned):
        if node is not None:
            yield from _uncovered(item, node, f"{path}.{part}")
        elif item not in (None, {}, []):
            yield f"{path}.{part}".removeprefix(".")


def _parts(value: Any, owned: dict[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any] | None]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, item, owned.get(f"f:{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield str(index), item, _element(item, owned)


def _element(item: Any, owned: dict[str, Any]) -> dict[str, Any] | None:
    """Lists are booked by the fields that identify an element, or by its value."""
    for name, node in owned.items():
        kind, _, content = name.partition(":")
        if (kind == "v" and json.loads(content) == item) or (kind == "k" and _identified(item, json.loads(content))):
            found: dict[str, Any] = node
            return found
    return None


def _identified(item: Any, keys: dict[str, Any]) -> bool:
    """A key that the manifest leaves out was filled in by default."""
    return isinstance(item, dict) and all(item.get(key, value) == value for key, value in keys.items())

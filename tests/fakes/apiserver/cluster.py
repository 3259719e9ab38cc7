"""The API server's rules without any wire: create, read, patch, apply, delete and subresources over plain dicts.

Synchronous and deterministic (names, uids and times come from a seed and a clock handed in), so that a simulation can
also drive it directly.
"""

from __future__ import annotations

import copy
import random
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.fakes.apiserver import admission, controllers, deletion, managed
from tests.fakes.apiserver.kinds import Kind, Registry
from tests.fakes.apiserver.patches import json_patch, merge_patch, strategic_patch
from tests.fakes.apiserver.status import (
    MODIFIED,
    Refusal,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_options,
    not_found,
)
from tests.fakes.apiserver.storage import Storage, key_of, with_version

Json = dict[str, Any]

_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_FROM_THE_SERVER = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, and how: the query options that every writing verb shares."""

    manager: str = "test"
    dry_run: bool = False
    force: bool = False
    subresource: str = ""


ANYBODY = Writer()


class Cluster:
    def __init__(
        self,
        *,
        seed: int = 0,
        now: Callable[[], float] = time.time,
        kinds: Iterable[Kind] = (),
        namespaces: Iterable[str] = ("default", "kube-system"),
        run_controllers: bool = True,
    ) -> None:
        self.kinds = Registry(kinds)
        self.storage = Storage()
        self.run_controllers = run_controllers
        self.logs: dict[tuple[str, str, str], str] = {}
        """What containers wrote, by namespace, pod and container."""
        self._now = now
        self._settling = False
        self._random = random.Random(seed)
        for name in namespaces:
            self.create(self.kind("Namespace"), {"metadata": {"name": name}})

    def kind(self, name: str, api_version: str = "") -> Kind:
        found = [kind for kind in self.kinds if kind.kind == name and api_version in ("", kind.api_version)]
        return found[0]

    def timestamp(self, after: float = 0) -> str:
        return datetime.fromtimestamp(int(self._now() + after), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # reading

    def get(self, kind: Kind, name: str, namespace: str = "") -> Json:
        found = self.storage.get(kind, (namespace if kind.namespaced else "", name))
        if found is None:
            raise not_found(kind, name)
        return found

    def list(self, kind: Kind, namespace: str = "") -> list[Json]:
        return self.storage.all(kind, namespace)

    # writing

    def create(self, kind: Kind, manifest: Json, namespace: str = "", writer: Writer = ANYBODY) -> Json:
        obj = self._addressed(kind, manifest, namespace)
        metadata = obj["metadata"]
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                why = "Required value: name or generateName is required"
                raise invalid(kind, "", "metadata.name", why, "FieldValueRequired")
            metadata["name"] = metadata["generateName"] + "".join(self._random.choices(_NAME_LETTERS, k=5))
        if metadata.get("resourceVersion"):
            raise Refusal(500, "resourceVersion should not be set on objects to be created", reason="")
        self._refuse_in_namespace(kind, metadata)
        if self.storage.get(kind, key_of(obj)) is not None:
            raise already_exists(kind, metadata["name"])
        self._prepare_new(kind, obj)
        manager = managed.Manager(writer.manager, "Update", kind.api_version)
        own = obj if kind.keeps_status_on_create else self._part_for(kind, obj, "")
        owned = managed.track_update(None, own, kind, manager, self.timestamp())
        return self._store_new(kind, obj | {"metadata": owned["metadata"]}, writer)

    def _prepare_new(self, kind: Kind, obj: Json) -> None:
        metadata = obj["metadata"]
        for field in (*_FROM_THE_SERVER, "managedFields", "resourceVersion"):
            metadata.pop(field, None)
        if kind.has_status and not kind.keeps_status_on_create:
            obj.pop("status", None)
        admission.refuse_bad(kind, obj)
        admission.normalise(kind, obj)
        admission.fill_in(kind, obj)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = self.timestamp()
        if kind.counts_generations:
            metadata["generation"] = 1
        controllers.enforce_quota(self, kind, obj)

    def _store_new(self, kind: Kind, obj: Json, writer: Writer) -> Json:
        if writer.dry_run:
            return obj
        stored = self.storage.put(kind, obj)
        self._settle()
        return stored

    def update(self, kind: Kind, manifest: Json, name: str, namespace: str = "", writer: Writer = ANYBODY) -> Json:
        obj = self._addressed(kind, manifest, namespace)
        self._refuse_other_name(obj, name)
        old = self.get(kind, name, namespace)
        version, uid = obj["metadata"].get("resourceVersion"), obj["metadata"].get("uid") or old["metadata"]["uid"]
        if not version and (kind.custom or kind.kind == "Lease"):
            why = "Invalid value: 0: must be specified for an update"
            raise invalid(kind, name, "metadata.resourceVersion", why)
        if uid != old["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}"
            raise conflict(kind, name, why)
        return self._replace(kind, old, obj, writer)

    def patch(
        self, kind: Kind, name: str, namespace: str, patch: Any, how: str = "merge", writer: Writer = ANYBODY
    ) -> Json:
        old = self.get(kind, name, namespace)
        if how == "json":
            new = json_patch(old, patch)
        elif how == "strategic":
            if kind.custom:
                raise Refusal(415, "the body of the request was in an unknown format")
            new = copy.deepcopy(strategic_patch(kind, old, patch))
        else:
            new = copy.deepcopy(merge_patch(old, patch))
        return self._replace(kind, old, new, writer)

    def apply(self, kind: Kind, name: str, namespace: str, manifest: Json, writer: Writer) -> tuple[Json, bool]:
        """Server-side apply: (the object, whether it is new)."""
        if not writer.manager:
            why = "Required value: is required for apply patch"
            raise invalid_options("PatchOptions", "fieldManager", why, "FieldValueRequired")
        obj = self._addressed(kind, manifest, namespace)
        if obj["metadata"].pop("managedFields", None):
            raise bad_request("metadata.managedFields must be nil")
        self._refuse_other_name(obj, name)
        manager = managed.Manager(writer.manager, "Apply", kind.api_version, writer.subresource)
        old = self.storage.get(kind, key_of(obj))
        if old is None:
            return self._apply_new(kind, obj, manager, writer), True
        if kind.custom and writer.subresource == "status":
            obj["metadata"].pop("uid", None)
        self._refuse_stale(kind, old, obj)
        intent = self._part_for(kind, obj, writer.subresource)
        admission.normalise(kind, intent)
        new = managed.apply(copy.deepcopy(old), intent, kind, manager, self.timestamp(), force=writer.force)
        return self._commit(kind, old, new, writer), False

    def _apply_new(self, kind: Kind, obj: Json, manager: managed.Manager, writer: Writer) -> Json:
        name = obj["metadata"]["name"]
        if writer.subresource:
            raise not_found(kind, name)
        if uid := obj["metadata"].get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(kind, name, why)
        self._refuse_in_namespace(kind, obj["metadata"])
        intent = self._part_for(kind, obj, "")
        self._prepare_new(kind, obj)
        blank = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        owned = managed.apply(blank, intent, kind, manager, self.timestamp(), force=True)["metadata"]
        obj["metadata"]["managedFields"] = owned.get("managedFields", [])
        return self._store_new(kind, obj, writer)

    @staticmethod
    def _part_for(kind: Kind, obj: Json, subresource: str) -> Json:
        """What the endpoint listens to: status alone, or everything but status."""
        if subresource == "status":
            return {key: value for key, value in obj.items() if key in {"apiVersion", "kind", "status"}}
        return {key: value for key, value in obj.items() if not (kind.has_status and key == "status")}

    def _replace(self, kind: Kind, old: Json, new: Json, writer: Writer) -> Json:
        self._refuse_stale(kind, old, new)
        if writer.subresource == "status":
            new = old | {"metadata": dict(old["metadata"]), "status": new.get("status") or {}}
        elif kind.has_status:
            new = {key: value for key, value in new.items() if key != "status"}
            new |= {"status": old["status"]} if "status" in old else {}
        new["metadata"] = {key: value for key, value in new["metadata"].items() if key not in _FROM_THE_SERVER}
        new["metadata"] |= {key: old["metadata"][key] for key in _FROM_THE_SERVER if key in old["metadata"]}
        admission.normalise(kind, new)
        manager = managed.Manager(writer.manager, "Update", kind.api_version, writer.subresource)
        return self._commit(kind, old, managed.track_update(old, new, kind, manager, self.timestamp()), writer)

    def _commit(self, kind: Kind, old: Json, new: Json, writer: Writer) -> Json:
        """Store a changed object; an unchanged one keeps its version, and the last finalizer's end removes it."""
        new = with_version(new, int(old["metadata"]["resourceVersion"]))
        if new == old:
            return old
        admission.refuse_bad(kind, new)
        admission.refuse_forbidden_change(kind, old, new)
        if kind.counts_generations and _specified(kind, old) != _specified(kind, new):
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
        if writer.dry_run:
            return new
        stored = self.storage.put(kind, new)
        if deletion.is_over(stored):
            stored = self.storage.remove(kind, key_of(stored))
        self._settle()
        return stored

    def delete(self, kind: Kind, name: str, namespace: str = "", options: Json | None = None) -> Json:
        old = self.get(kind, name, namespace)
        wish = deletion.Options.read(options or {})
        wish.refuse_unless_met(kind, old)
        marked = deletion.mark(kind, old, wish, self.timestamp)
        if wish.dry_run:
            return old
        if marked is None:
            self.storage.remove(kind, key_of(old))
        elif marked != old:
            self.storage.put(kind, marked)
        self._settle()
        return old if marked is None else marked

    def evict(self, name: str, namespace: str, options: Json | None = None) -> Json:
        pods = self.kind("Pod")
        controllers.spend_disruption(self, self.get(pods, name, namespace))
        return self.delete(pods, name, namespace, options)

    def bind(self, name: str, namespace: str, node: str) -> None:
        """What the scheduler does: the one way to set `spec.nodeName` of a pod that exists."""
        pods = self.kind("Pod")
        pod = self.get(pods, name, namespace)
        if pod["spec"].get("nodeName"):
            raise conflict(pods, name, f"pod {name} is already assigned to node {pod['spec']['nodeName']!r}")
        self.storage.put(pods, pod | {"spec": pod["spec"] | {"nodeName": node}})

    # shared steps

    def _addressed(self, kind: Kind, manifest: Json, namespace: str) -> Json:
        """A private copy with its type and namespace filled in; refused when body and address disagree."""
        obj: Json = {"apiVersion": kind.api_version, "kind": kind.kind} | copy.deepcopy(manifest)
        if (obj["apiVersion"], obj["kind"]) != (kind.api_version, kind.kind):
            given, expected = f"{obj['apiVersion']}, Kind={obj['kind']}", f"{kind.api_version}, Kind={kind.kind}"
            raise bad_request(f"{given} in the data does not match the expected {expected}")
        metadata = obj.setdefault("metadata", {})
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace and namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        else:
            metadata.pop("namespace", None)
        return obj

    @staticmethod
    def _refuse_other_name(obj: Json, name: str) -> None:
        given = obj["metadata"].setdefault("name", name)
        if given != name:
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")

    def _refuse_in_namespace(self, kind: Kind, metadata: Json) -> None:
        if not kind.namespaced:
            return
        name = metadata["namespace"]
        namespace = self.get(self.kind("Namespace"), name)
        if "deletionTimestamp" in namespace["metadata"]:
            why = f"unable to create new content in namespace {name} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}
            raise forbidden(kind, metadata["name"], why, [cause | {"field": "metadata.namespace"}])

    @staticmethod
    def _refuse_stale(kind: Kind, old: Json, new: Json) -> None:
        have, given = old["metadata"], new["metadata"]
        if given.get("uid", have["uid"]) != have["uid"]:
            why = f'Invalid value: "{given["uid"]}": field is immutable'
            raise invalid(kind, have["name"], "metadata.uid", why)
        if given.get("resourceVersion") not in (None, "", have["resourceVersion"]):
            raise conflict(kind, have["name"], MODIFIED)

    def _settle(self) -> None:
        """Let the controllers follow; what they write themselves is followed by the same loop, not a nested one."""
        if not self.run_controllers:
            self.storage.take_changes()
        elif not self._settling:
            self._settling = True
            try:
                controllers.settle(self)
            finally:
                self._settling = False


def _specified(kind: Kind, obj: Json) -> Json:
    """What a generation counts: everything but metadata and, where it is a subresource, status."""
    ignored = {"metadata", "status"} if kind.has_status else {"metadata"}
    return {key: value for key, value in obj.items() if key not in ignored}

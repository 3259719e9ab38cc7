"""How an object goes: preconditions, finalizers, grace periods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fakes.apiserver.kinds import Kind
from tests.fakes.apiserver.status import unmet_precondition

Json = dict[str, Any]

_PROPAGATION_FINALIZERS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


@dataclass(frozen=True, slots=True)
class Options:
    """DeleteOptions."""

    uid: str = ""
    resource_version: str = ""
    grace: int | None = None
    propagation: str = ""
    dry_run: bool = False

    @classmethod
    def read(cls, body: Json) -> Options:
        preconditions = body.get("preconditions") or {}
        return cls(
            preconditions.get("uid") or "",
            preconditions.get("resourceVersion") or "",
            body.get("gracePeriodSeconds"),
            body.get("propagationPolicy") or "",
            bool(body.get("dryRun")),
        )

    def refuse_unless_met(self, kind: Kind, obj: Json) -> None:
        metadata = obj["metadata"]
        name, uid, version = metadata["name"], metadata["uid"], metadata["resourceVersion"]
        if self.uid and self.uid != uid:
            raise unmet_precondition(kind, name, "UID", self.uid, uid, "deleted and then recreated")
        if self.resource_version and self.resource_version != version:
            raise unmet_precondition(kind, name, "ResourceVersion", self.resource_version, version, "modified")


def mark(kind: Kind, obj: Json, options: Options, timestamp: Callable[[float], str]) -> Json | None:
    """The object as it waits for its end, or None when nothing holds it back."""
    metadata = obj["metadata"]
    grace = _grace(kind, obj, options)
    finalizers = list(metadata.get("finalizers") or ())
    if (extra := _PROPAGATION_FINALIZERS.get(options.propagation)) and extra not in finalizers:
        finalizers.append(extra)
    waits_in_spec = kind.kind == "Namespace" and obj.get("spec", {}).get("finalizers")
    if not grace and not finalizers and not waits_in_spec:
        return None
    marked = {**metadata, **({"finalizers": finalizers} if finalizers else {})}
    if "deletionTimestamp" not in metadata:
        marked |= {"deletionTimestamp": timestamp(grace), "deletionGracePeriodSeconds": grace}
        if "generation" in metadata:
            marked["generation"] = metadata["generation"] + 1
    elif grace < metadata.get("deletionGracePeriodSeconds", 0):
        marked |= {"deletionTimestamp": timestamp(grace), "deletionGracePeriodSeconds": grace}
    result = obj | {"metadata": marked}
    return result | {"status": {"phase": "Terminating"}} if waits_in_spec else result


def is_over(obj: Json) -> bool:
    """Marked for deletion and nothing left to wait for."""
    metadata = obj["metadata"]
    waits_in_spec = obj["kind"] == "Namespace" and (obj.get("spec") or {}).get("finalizers")
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not waits_in_spec
    )


def _grace(kind: Kind, obj: Json, options: Options) -> int:
    """Only pods are given time, and only those that a kubelet must stop."""
    if kind.resource != "pods":
        return 0
    finished = obj.get("status", {}).get("phase") in {"Failed", "Succeeded"}
    if not obj["spec"].get("nodeName") or finished:
        return 0
    if options.grace is not None:
        return options.grace
    running = obj["metadata"].get("deletionGracePeriodSeconds")
    return int(running if running is not None else obj["spec"].get("terminationGracePeriodSeconds", 30))

"""How lists and maps merge: keyed, as a set, key by key, or only as a whole.

The real server reads this from its OpenAPI schema; here is the small part of it that workloads and their children use.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from tests.fakes.apiserver.kinds import Kind

Names = tuple[str, ...]
"""Field names from the root of an object, without list positions."""

Shape = tuple[str, ...] | Literal["set", "atomic"]

_KEYED: dict[str, Names] = {
    "conditions": ("type",),
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "podIPs": ("ip",),
    "webhooks": ("name",),
}
_KEYED_BELOW: dict[Names, Names] = {
    ("containers", "ports"): ("containerPort", "protocol"),
    ("initContainers", "ports"): ("containerPort", "protocol"),
    ("spec", "ports"): ("port", "protocol"),
    ("status", "addresses"): ("type",),
    ("", "secrets"): ("name",),
}
_METADATA: dict[str, Shape] = {"ownerReferences": ("uid",), "finalizers": "set"}
_SETS = frozenset({"loadBalancerSourceRanges"})
_ATOMIC_MAPS = frozenset(
    {
        "selector",
        "labelSelector",
        "namespaceSelector",
        "nodeSelector",
        "secretKeyRef",
        "configMapKeyRef",
        "fieldRef",
        "resourceFieldRef",
        "secretRef",
        "configMapRef",
        "claimRef",
        "involvedObject",
        "regarding",
        "scaleTargetRef",
        "requiredDuringSchedulingIgnoredDuringExecution",
    }
)
_KEY_DEFAULTS = {"protocol": "TCP"}


def list_shape(kind: Kind, names: Names) -> Shape:
    parent, field = ("", *names)[-2:]
    if names[:1] == ("metadata",):
        return _METADATA.get(field, "atomic")
    if kind.custom:
        return ("type",) if names == ("status", "conditions") else "atomic"
    if keys := _KEYED_BELOW.get((parent, field)) or _KEYED.get(field):
        return keys
    return "set" if field in _SETS else "atomic"


def map_is_atomic(kind: Kind, names: Names) -> bool:
    if kind.custom or not names:
        return False
    return names[-1] in _ATOMIC_MAPS or (kind.kind == "ControllerRevision" and names == ("data",))


def item_key(item: Any, keys: Names) -> str:
    """`k:{"name":"x"}`: how managed fields name one item of a keyed list."""
    found = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in keys}
    return "k:" + json.dumps(found, separators=(",", ":"), sort_keys=True)

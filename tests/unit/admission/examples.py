"""Manifests as people have them: minimal ones, those that the Helm chart writes, old ones, broken ones.

A `Case` says what becomes of a manifest. The same table is checked offline and on a real API server.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from slurm_operator.api import KINDS, Kind, Object

Manifest = dict[str, Any]
Verdict = Literal["accepted", "refused", "refused by the webhook"]
"""What only the webhook refuses, the API server alone accepts."""

BY_NAME: dict[str, Kind[Object]] = {kind.name: kind for kind in KINDS}

KEYS: Manifest = {
    "slurmKeyRef": {"name": "slurm-auth-slurm", "key": "slurm.key"},
    "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
}
MINIMAL: dict[str, Manifest] = {
    "Controller": KEYS,
    "Accounting": {
        **KEYS,
        "storageConfig": {"host": "mariadb", "passwordKeyRef": {"name": "mariadb-password", "key": "password"}},
    },
    "NodeSet": {"controllerRef": {"name": "slurm"}},
    "LoginSet": {"controllerRef": {"name": "slurm"}, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}},
    "RestApi": {"controllerRef": {"name": "slurm"}},
    "Token": {"username": "alice", "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"}},
}


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    new: Manifest
    verdict: Verdict
    path: str = ""
    """Where the refusal must point."""
    old: Manifest | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def merged(base: Any, patch: Any) -> Any:
    """Merge patch in which `...` removes a field and None stays a null."""
    if not isinstance(patch, dict) or not isinstance(base, dict):
        return deepcopy(patch)
    result = {key: merged(base.get(key), value) for key, value in patch.items() if value is not ...}
    return {**{key: deepcopy(value) for key, value in base.items() if key not in patch}, **result}


def manifest(kind: str, patch: Manifest | None = None, **metadata: Any) -> Manifest:
    """A minimal valid object with changes to its spec."""
    return {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": kind,
        "metadata": {"name": "slurm", "namespace": "default", **metadata},
        "spec": merged(MINIMAL[kind], patch or {}),
    }


def accepts(kind: str, name: str, patch: Manifest, old: Manifest | None = None) -> Case:
    return Case(name, kind, manifest(kind, patch), "accepted", old=_old(kind, old))


def refuses(kind: str, name: str, path: str, patch: Manifest, old: Manifest | None = None) -> Case:
    return Case(name, kind, manifest(kind, patch), "refused", path, _old(kind, old))


def webhook_refuses(kind: str, name: str, path: str, patch: Manifest, old: Manifest | None = None) -> Case:
    return Case(name, kind, manifest(kind, patch), "refused by the webhook", path, _old(kind, old))


def _old(kind: str, patch: Manifest | None) -> Manifest | None:
    return None if patch is None else manifest(kind, patch)

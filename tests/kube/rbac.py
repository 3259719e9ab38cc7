"""Permissions for test users, as small as can be."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_operator.kube.client import Client
from slurm_operator.kube.kinds import Namespace
from slurm_operator.kube.resource import Manifest, Resource

_GROUP = "rbac.authorization.k8s.io"
# Nothing of them is read but their names, for which any projection will do.
ROLES = Resource(_GROUP, "v1", "Role", "roles", Namespace)
ROLE_BINDINGS = Resource(_GROUP, "v1", "RoleBinding", "rolebindings", Namespace)
CLUSTER_ROLES = Resource(_GROUP, "v1", "ClusterRole", "clusterroles", Namespace, namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(_GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings", Namespace, namespaced=False)

Rules = Mapping[str, list[str]]
"""Verbs by resource, as in `{"pods": ["list"], "leases.coordination.k8s.io": ["get"]}`."""


def _rules(rules: Rules) -> list[Manifest]:
    found = []
    for resource, verbs in rules.items():
        plural, _, group = resource.partition(".")
        found.append({"apiGroups": [group], "resources": [plural], "verbs": verbs})
    return found


def role_manifest(name: str, namespace: str, rules: Rules) -> Manifest:
    return {"metadata": {"name": name, "namespace": namespace}, "rules": _rules(rules)}


async def allow(admin: Client, user: str, namespace: str, rules: Rules) -> None:
    """A Role in one namespace and nothing else."""
    await admin.apply(ROLES, role_manifest(user, namespace, rules), manager="test")
    await admin.apply(ROLE_BINDINGS, _binding(user, "Role", namespace), manager="test")


async def allow_everywhere(admin: Client, user: str, rules: Rules) -> None:
    await admin.apply(CLUSTER_ROLES, {"metadata": {"name": user}, "rules": _rules(rules)}, manager="test")
    await admin.apply(CLUSTER_ROLE_BINDINGS, _binding(user, "ClusterRole"), manager="test")


def _binding(user: str, kind: str, namespace: str = "") -> Manifest:
    metadata = {"name": user} | ({"namespace": namespace} if namespace else {})
    subjects = [{"apiGroup": _GROUP, "kind": "User", "name": user}]
    return {"metadata": metadata, "subjects": subjects, "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": user}}

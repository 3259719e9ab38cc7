"""The operator's own objects: its account, exactly the rights it needs, and its Deployment."""

import hashlib
from functools import cache
from pathlib import Path

from slurm_operator import __version__
from slurm_operator.api import KINDS, names
from slurm_operator.kube.resource import Manifest

NAME = "slurm-operator"
IMAGE = f"localhost/slurm-operator/operator:{__version__}"
LABELS = {names.LABEL_APP: NAME}
READ = ["get", "list", "watch"]
KEEP = [*READ, "create", "patch", "delete"]
BUILD = "slurm-operator/build"
_RBAC = "rbac.authorization.k8s.io"


def operator_manifests(namespace: str, image: str = IMAGE, replicas: int = 1) -> list[Manifest]:
    """Everything but the CRDs, in the order in which it is to be applied."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(namespace)},
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": _meta(), "rules": cluster_rules()},
        _binding("ClusterRole", namespace),
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": _meta(namespace), "rules": lease_rules()},
        _binding("Role", namespace),
        _deployment(namespace, image, replicas),
    ]


@cache
def build(package: Path = Path(__file__).parent.parent) -> str:
    """What this program is made of: its pods are replaced when that changes, even if the image keeps its name."""
    digest = hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".sh")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def cluster_rules() -> list[Manifest]:
    """What the operator does, and nothing else. In one place, so that a test can run with exactly these."""
    plurals = [kind.plural for kind in KINDS]
    return [
        _rule("", ["nodes"], READ),
        _rule("", ["pods"], KEEP),
        _rule("", ["pods/status"], ["patch"]),
        _rule("", ["pods/log"], ["get"]),
        _rule("", ["services", "configmaps", "secrets"], KEEP),
        _rule("", ["persistentvolumeclaims"], [*READ, "create", "patch"]),
        _rule("apps", ["statefulsets", "deployments", "controllerrevisions"], KEEP),
        _rule("discovery.k8s.io", ["endpointslices"], KEEP),
        _rule("policy", ["poddisruptionbudgets"], KEEP),
        _rule("monitoring.coreos.com", ["servicemonitors"], KEEP),
        _rule("events.k8s.io", ["events"], ["list", "create", "patch"]),
        _rule(names.GROUP, plurals, READ),
        _rule(names.GROUP, ["nodesets"], ["patch"]),
        _rule(names.GROUP, [f"{plural}/status" for plural in plurals], ["patch"]),
        _rule(names.GROUP, [f"{plural}/finalizers" for plural in plurals], ["update"]),
    ]


def lease_rules() -> list[Manifest]:
    """Leadership, in the operator's own namespace."""
    return [_rule("coordination.k8s.io", ["leases"], ["get", "create", "update", "patch"])]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Manifest:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _meta(namespace: str = "") -> Manifest:
    meta: Manifest = {"name": NAME, "labels": LABELS}
    return {**meta, "namespace": namespace} if namespace else meta


def _binding(role: str, namespace: str) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role}Binding",
        "metadata": _meta(namespace if role == "Role" else ""),
        "roleRef": {"apiGroup": _RBAC, "kind": role, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def _deployment(namespace: str, image: str, replicas: int) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(namespace),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS, "annotations": {BUILD: build()}},
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [_container(image, namespace)],
                },
            },
        },
    }


def _container(image: str, namespace: str) -> Manifest:
    return {
        "name": NAME,
        "image": image,
        "args": ["run", "--leader-elect", "--leader-elect-namespace", namespace],
        "ports": [{"name": "health", "containerPort": 8081}, {"name": "metrics", "containerPort": 8080}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "periodSeconds": 20, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }

"""The kinds the fake API server knows, with the few facts per kind that change how a request is served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    has_status: bool = False
    """Status is a subresource: ignored on the main endpoint, and the only thing written through its own."""
    has_scale: bool = False
    counts_generations: bool = False
    keeps_status_on_create: bool = False
    custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`deployments.apps`, as the server spells it in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"


def custom(group: str, version: str, kind: str, plural: str, *, scale: bool = False, namespaced: bool = True) -> Kind:
    return Kind(
        group,
        version,
        kind,
        plural,
        namespaced=namespaced,
        has_status=True,
        has_scale=scale,
        counts_generations=True,
        custom=True,
    )


def _workload(kind: str, plural: str, *, scale: bool = True) -> Kind:
    return Kind("apps", "v1", kind, plural, has_status=True, has_scale=scale, counts_generations=True)


BUILT_IN = (
    Kind("", "v1", "Namespace", "namespaces", namespaced=False, has_status=True),
    Kind("", "v1", "Node", "nodes", namespaced=False, has_status=True, keeps_status_on_create=True),
    Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False, has_status=True),
    Kind("", "v1", "Pod", "pods", has_status=True, counts_generations=True),
    Kind("", "v1", "Service", "services", has_status=True),
    Kind("", "v1", "ConfigMap", "configmaps"),
    Kind("", "v1", "Secret", "secrets"),
    Kind("", "v1", "Event", "events"),
    Kind("", "v1", "Endpoints", "endpoints"),
    Kind("", "v1", "ServiceAccount", "serviceaccounts"),
    Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", has_status=True),
    Kind("", "v1", "ResourceQuota", "resourcequotas", has_status=True),
    _workload("Deployment", "deployments"),
    _workload("StatefulSet", "statefulsets"),
    _workload("ReplicaSet", "replicasets"),
    _workload("DaemonSet", "daemonsets", scale=False),
    Kind("apps", "v1", "ControllerRevision", "controllerrevisions"),
    Kind("batch", "v1", "Job", "jobs", has_status=True, counts_generations=True),
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", has_status=True, counts_generations=True),
    Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    Kind("coordination.k8s.io", "v1", "Lease", "leases"),
    Kind("events.k8s.io", "v1", "Event", "events"),
    Kind("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False),
    Kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False),
    Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False),
    Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", counts_generations=True),
    Kind(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
        counts_generations=True,
    ),
    Kind(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
        counts_generations=True,
    ),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        has_status=True,
        counts_generations=True,
    ),
    Kind("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", counts_generations=True, custom=True),
)

SLINKY = tuple(
    custom("slinky.slurm.net", "v1beta1", kind, plural, scale=kind in {"NodeSet", "LoginSet"})
    for kind, plural in (
        ("Controller", "controllers"),
        ("NodeSet", "nodesets"),
        ("LoginSet", "loginsets"),
        ("RestApi", "restapis"),
        ("Accounting", "accountings"),
        ("Token", "tokens"),
    )
)


class Registry:
    """Kinds by the path they are served under, and by the apiVersion and kind that manifests carry."""

    def __init__(self, extra: Iterable[Kind] = ()) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._by_kind: dict[tuple[str, str], Kind] = {}
        for kind in (*BUILT_IN, *SLINKY, *extra):
            self.add(kind)

    def add(self, kind: Kind) -> None:
        self._by_path[kind.group, kind.version, kind.plural] = kind
        self._by_kind[kind.api_version, kind.kind] = kind

    def remove(self, kind: Kind) -> None:
        """As when its CustomResourceDefinition is deleted."""
        del self._by_path[kind.group, kind.version, kind.plural]
        del self._by_kind[kind.api_version, kind.kind]

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._by_path.values()))

    def serves(self, group: str, version: str) -> bool:
        return any((kind.group, kind.version) == (group, version) for kind in self)

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def named(self, api_version: str, kind: str) -> Kind | None:
        return self._by_kind.get((api_version, kind))

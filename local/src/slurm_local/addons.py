"""What a fresh cluster gets: the DNS Service, storage classes, and the rights of those who serve them."""

from typing import Any

from slurm_local.layout import Network

PROVISIONER = "slurm-operator.local/folders"
LOCAL_CLASS = "local-path"
SHARED_CLASS = "shared"
COREDNS_USER = "stage:coredns"
PROVISIONER_USER = "stage:provisioner"

Manifest = dict[str, Any]


def corefile() -> str:
    """CoreDNS answers for the cluster; a name outside of it does not exist, as nothing outside can be reached."""
    return """cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
    errors
    ready 127.0.0.1:8181
    kubernetes {
        kubeconfig /stage/coredns.kubeconfig
        pods insecure
        ttl 5
    }
    cache 5
    loadbalance
}
.:53 {
    errors
    template ANY ANY {
        rcode NXDOMAIN
    }
}
"""


def manifests(network: Network) -> list[Manifest]:
    return [*_dns(network), *_storage_classes(), *_rights()]


def _dns(network: Network) -> list[Manifest]:
    """CoreDNS runs beside the API server, so its Service has no pods to select: its one endpoint is written here."""
    labels = {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
        "spec": {"clusterIP": network.dns_service, "ports": ports},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-stage",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns", "endpointslice.kubernetes.io/managed-by": "stage"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [network.control_plane], "conditions": {"ready": True}}],
        "ports": ports,
    }
    return [service, endpoints]


def _storage_classes() -> list[Manifest]:
    def storage_class(name: str, binding: str, annotations: dict[str, str]) -> Manifest:
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name, "annotations": annotations},
            "provisioner": PROVISIONER,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": binding,
        }

    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return [
        storage_class(LOCAL_CLASS, "WaitForFirstConsumer", default),
        storage_class(SHARED_CLASS, "Immediate", {}),
    ]


def _rights() -> list[Manifest]:
    """CoreDNS has the role that comes with Kubernetes' own releases of it; volumes are made with the provisioner's."""
    coredns = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return [
        {"apiVersion": _RBAC, "kind": "ClusterRole", "metadata": {"name": "system:coredns"}, "rules": coredns},
        _binding("system:coredns", "system:coredns", COREDNS_USER),
        _binding("stage:provisioner", "system:persistent-volume-provisioner", PROVISIONER_USER),
    ]


_RBAC = "rbac.authorization.k8s.io/v1"


def _binding(name: str, role: str, user: str) -> Manifest:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": _RBAC,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }

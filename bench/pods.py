"""Pods and nodes as a busy cluster has them: about 10 KB a pod, with everything that a reader has to skip."""

import json
from typing import Any

Json = dict[str, Any]

_TIME = "2026-11-15T08:00:00Z"
_ENV = [
    ("POD_NAME", "metadata.name"),
    ("POD_NAMESPACE", "metadata.namespace"),
    ("POD_UID", "metadata.uid"),
    ("POD_IP", "status.podIP"),
    ("NODE_NAME", "spec.nodeName"),
]


def pod(name: str = "worker-0", version: str = "1", node: str = "node-0") -> Json:
    """A Slurm worker with a log sidecar, running, written by its controller and by a kubelet."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": "worker-",
            "namespace": "slurm",
            "uid": f"6f0a2c52-6a3c-4f9e-9a53-{name[-8:]:0>12}",
            "resourceVersion": version,
            "generation": 1,
            "creationTimestamp": _TIME,
            "labels": _labels(name),
            "annotations": _annotations(),
            "ownerReferences": [_owner()],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "managedFields": [_managed("operator", ""), _managed("kubelet", "status")],
        },
        "spec": _spec(name, node),
        "status": _status(name),
    }


def node(name: str = "node-0", version: str = "1") -> Json:
    kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    capacity = {"cpu": "96", "memory": "1056Gi", "pods": "110", "ephemeral-storage": "3Ti", "nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"0b1f7d2e-55aa-4b1c-8a44-{name[-8:]:0>12}",
            "resourceVersion": version,
            "creationTimestamp": _TIME,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "gpu-h100-8",
                "topology.kubernetes.io/region": "eu-north",
                "topology.kubernetes.io/zone": "eu-north-b",
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            "managedFields": [_managed("kubelet", ""), _managed("kube-controller-manager", "status")],
        },
        "spec": {"podCIDR": "10.42.0.0/24", "providerID": f"cloud:///eu-north-b/{name}"},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [_condition(kind, str(kind == "Ready")) for kind in kinds],
            "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}, {"type": "Hostname", "address": name}],
            "nodeInfo": {"kernelVersion": "6.12.0", "kubeletVersion": "v1.36.4", "osImage": "Debian GNU/Linux 13"},
            "images": [{"names": [f"registry.example/image@sha256:{n:064x}"], "sizeBytes": n} for n in range(20)],
        },
    }


class Lines:
    """Many objects of one kind as JSON, made from one template: as different as objects differ, at 10 us each."""

    def __init__(self, kind: str) -> None:
        make = pod if kind == "pods" else node
        self._prefix = "worker" if kind == "pods" else "node"
        sample = make(name="@NAME@", version="@VERSION@") | {"kind": "Pod" if kind == "pods" else "Node"}
        self._template = json.dumps(sample, separators=(",", ":")).replace("node-0", "@NODE@")

    def one(self, number: int, version: int) -> bytes:
        name = f"{self._prefix}-{number:05d}"
        text = self._template.replace("@NAME@", name).replace("@VERSION@", str(version))
        return text.replace("@NODE@", f"node-{number:05d}").encode()

    def event(self, kind: str, number: int, version: int) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), self.one(number, version))


def _labels(name: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "slurmd",
        "app.kubernetes.io/instance": "gpu",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "slurm-operator",
        "nodeset.slinky.slurm.net/pod-name": name,
        "controller-revision-hash": "gpu-6d8f7c9b5d",
    }


def _annotations() -> dict[str, str]:
    return {
        "kubectl.kubernetes.io/default-container": "slurmd",
        "cni.example/networks": json.dumps([{"name": "rail", "interface": f"net{n}"} for n in range(4)]),
        "prometheus.io/scrape": "true",
        "checksum/config": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    }


def _owner() -> Json:
    return {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "NodeSet",
        "name": "gpu",
        "uid": "3f0e5d0c-5f57-4a8c-9a3e-0d7f2c9d1e11",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _managed(manager: str, subresource: str) -> Json:
    entry: Json = {"f:name": {}, "f:value": {}, 'k:{"type":"Ready"}': {".": {}}}
    fields = {f"f:field{number}": entry for number in range(6)}
    return {
        "manager": manager,
        "operation": "Update" if subresource else "Apply",
        "apiVersion": "v1",
        "time": _TIME,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": fields, "f:status" if subresource else "f:spec": fields},
        **({"subresource": subresource} if subresource else {}),
    }


def _spec(name: str, node: str) -> Json:
    return {
        "nodeName": node,
        "hostname": name,
        "subdomain": "gpu-workers",
        "serviceAccountName": "default",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "priority": 0,
        "containers": [_container("slurmd", 6818), _container("logs", 9100)],
        "initContainers": [_container("prepare", 1) | {"restartPolicy": "Always"}],
        "volumes": [
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            {"name": "config", "configMap": {"name": "slurm-config", "defaultMode": 420}},
            {"name": "keys", "secret": {"secretName": "slurm-auth", "defaultMode": 256}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
        ],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_anti_affinity()]}},
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
            for key in ("not-ready", "unreachable", "disk-pressure", "memory-pressure")
        ],
    }


def _anti_affinity() -> Json:
    selector = {"matchLabels": {"app.kubernetes.io/name": "slurmd", "app.kubernetes.io/component": "worker"}}
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}


def _container(name: str, port: int) -> Json:
    probe = {"exec": {"command": ["scontrol", "show", "slurmd"]}, "periodSeconds": 10, "failureThreshold": 6}
    env: list[Json] = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in _ENV]
    return {
        "name": name,
        "image": f"registry.example/slurm/{name}:26.05-debian13",
        "imagePullPolicy": "IfNotPresent",
        "args": ["-D", "-s", "-Z", "--conf-server", "slurmctld:6817", "--conf", "Features=gpu,h100"],
        "env": env,
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8"}, "requests": {"cpu": "90"}},
        "readinessProbe": probe,
        "livenessProbe": probe,
        "securityContext": {"privileged": False, "capabilities": {"add": ["BPF", "NET_ADMIN", "SYS_ADMIN"]}},
        "volumeMounts": [{"name": key, "mountPath": f"/run/{key}"} for key in ("token", "config", "keys", "shm")],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def _status(name: str) -> Json:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "hostIP": "10.1.2.3",
        "podIP": "10.42.7.9",
        "podIPs": [{"ip": "10.42.7.9"}],
        "startTime": _TIME,
        "qosClass": "Burstable",
        "conditions": [*(_condition(kind, "True") for kind in kinds), _condition("SlurmNodeStateIdle", "True")],
        "initContainerStatuses": [_container_status(name, "prepare")],
        "containerStatuses": [_container_status(name, "slurmd"), _container_status(name, "logs")],
    }


def _condition(kind: str, status: str) -> Json:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": _TIME, "reason": "Observed"}


def _container_status(pod_name: str, name: str) -> Json:
    return {
        "name": name,
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": f"registry.example/slurm/{name}:26.05-debian13",
        "imageID": f"registry.example/slurm/{name}@sha256:{'0123456789abcdef' * 4}",
        "containerID": f"containerd://{pod_name}{'fedcba9876543210' * 3}",
        "state": {"running": {"startedAt": _TIME}},
        "lastState": {},
    }

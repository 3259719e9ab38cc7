"""Objects as a real cluster holds them: whole, with all that we do not read."""

from typing import Any

Json = dict[str, Any]

HASH = "slinky.slurm.net/applied-hash"


def metadata(name: str, **more: Any) -> Json:
    return {
        "name": name,
        "namespace": "slurm",
        "uid": "0f9d1a3e-7d55-4ac1-a9de-2a6a3f5c0d11",
        "resourceVersion": "81234567",
        "generation": 3,
        "creationTimestamp": "2026-11-03T08:15:30Z",
        "deletionTimestamp": "2026-11-15T08:15:30Z",
        "deletionGracePeriodSeconds": 30,
        "labels": {"app.kubernetes.io/name": "slurmd", "app.kubernetes.io/instance": "gpu"},
        "annotations": {HASH: "7c1d", "prometheus.io/scrape": "true", "example.com/note": "x" * 200},
        "ownerReferences": [
            {
                "apiVersion": "slinky.slurm.net/v1beta1",
                "kind": "NodeSet",
                "name": "gpu",
                "uid": "6a1f0a34-0c55-4f2b-9f0b-0a60c8a3f3a2",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "finalizers": ["nodeset.slinky.slurm.net/reservation"],
        "managedFields": [managed("slurm-operator", "Apply", fields), managed("kubelet", "Update", fields, "status")],
        **more,
    }


fields: Json = {"f:metadata": {"f:labels": {"f:app.kubernetes.io/name": {}}}, "f:spec": {"f:replicas": {}}}


def managed(manager: str, operation: str, fields: Json, subresource: str = "") -> Json:
    return {
        "manager": manager,
        "operation": operation,
        "subresource": subresource,
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "time": "2026-11-03T08:15:30Z",
        "fieldsV1": fields,
    }


def condition(type_: str, status: str = "True", **more: Any) -> Json:
    return {
        "type": type_,
        "status": status,
        "lastTransitionTime": "2026-11-03T08:15:42Z",
        "reason": "Because",
        "message": "so it is",
        "observedGeneration": 3,
        **more,
    }


def container_status(name: str, **state: Any) -> Json:
    return {
        "name": name,
        "ready": True,
        "started": True,
        "restartCount": 2,
        "image": "ghcr.io/slinkyproject/slurmd:26.05-ubuntu24.04",
        "imageID": "ghcr.io/slinkyproject/slurmd@sha256:" + "ab" * 32,
        "containerID": "containerd://" + "cd" * 32,
        "state": state or {"running": {"startedAt": "2026-11-03T08:15:41Z"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "killed"}},
    }


WAITING = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
TERMINATED = {"terminated": {"exitCode": 1, "reason": "Error", "message": "boom", "startedAt": "2026-11-03T08:15:41Z"}}


def container(name: str) -> Json:
    return {
        "name": name,
        "image": "ghcr.io/slinkyproject/slurmd:26.05-ubuntu24.04",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/local/bin/slurm-entry", "slurmd"],
        "args": ["--conf", "Features=gpu Gres=gpu:8", "-Z", "--conf-server", "slurm-controller.slurm:6817"],
        "env": [{"name": f"VARIABLE_{i}", "value": f"the value of number {i}"} for i in range(12)],
        "ports": [{"name": "slurmd", "containerPort": 6818, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}},
        "readinessProbe": {"exec": {"command": ["scontrol", "show", "slurmd"]}, "periodSeconds": 10},
        "livenessProbe": {"exec": {"command": ["pgrep", "slurmd"]}, "periodSeconds": 60},
        "securityContext": {"privileged": True, "capabilities": {"add": ["BPF", "NET_ADMIN", "SYS_ADMIN"]}},
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [
            {"name": f"volume-{i}", "mountPath": f"/var/lib/place/number-{i}", "readOnly": True} for i in range(8)
        ],
    }


def worker_pod(number: int = 0) -> Json:
    """About 10 KB of JSON, as a Slurm worker has."""
    name = f"slurm-worker-gpu-{number}"
    meta = metadata(name, uid=f"0f9d1a3e-7d55-4ac1-a9de-{number:012d}", resourceVersion=str(81000000 + number))
    meta["labels"] |= {
        "app.kubernetes.io/component": "worker",
        "controller.kubernetes.io/hash": "7c9d5b66f",
        "nodeset.slinky.slurm.net/pod-hostname": name,
        "nodeset.slinky.slurm.net/pod-index": str(number),
        "nodeset.slinky.slurm.net/pod-name": name,
        "nodeset.slinky.slurm.net/scaling-mode": "StatefulSet",
        "slinky.slurm.net/cluster": "slurm",
    }
    meta["annotations"] = {
        "kubectl.kubernetes.io/default-container": "slurmd",
        "cni.projectcalico.org/podIP": "10.0.0.1/32",
        "k8s.v1.cni.cncf.io/network-status": "[" + "x" * 300 + "]",
        "nodeset.slinky.slurm.net/pod-deletion-cost": "100",
        "slinky.slurm.net/sshd-conf-hash": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "topology.slinky.slurm.net/spec": f"topo-switch:s{number // 32},topo-block:b{number // 8}",
    }
    del meta["deletionTimestamp"], meta["finalizers"]
    booked: Json = {f"f:field-{i}": {f"f:inner-{j}": {} for j in range(6)} for i in range(12)}
    meta["managedFields"] = [managed("slurm-operator", "Update", booked), managed("kubelet", "Update", booked)]
    when = f"2026-11-03T08:{number // 60 % 60:02}:{number % 60:02}Z"
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"type": t, "status": "True", "lastProbeTime": None, "lastTransitionTime": when} for t in types]
    idle = {"type": "SlurmNodeStateIdle", "status": "True", "lastTransitionTime": when, "reason": "", "message": ""}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            "nodeName": f"gpu-node-{number:05}",
            "hostname": name,
            "subdomain": "slurm-workers-slurm",
            "containers": [container("slurmd"), container("logfile")],
            "volumes": [
                {"name": f"volume-{i}", "projected": {"sources": [{"secret": {"name": f"secret-{i}"}}]}}
                for i in range(8)
            ],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "terminationGracePeriodSeconds": 60,
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.{number // 65536}.{number // 256 % 256}.{number % 256}",
            "podIPs": [{"ip": "10.0.0.1"}],
            "hostIP": "192.168.0.1",
            "qosClass": "Guaranteed",
            "startTime": when,
            "conditions": [*conditions, idle],
            "initContainerStatuses": [container_status("logfile")],
            "containerStatuses": [container_status("slurmd")],
        },
    }


def _pod() -> Json:
    pod = worker_pod()
    pod["metadata"] = metadata("slurm-worker-gpu-0")
    pod["spec"]["hostNetwork"] = True
    pod["status"] |= {
        "reason": "Evicted",
        "message": "The node was low on resource",
        "conditions": [condition("Ready")],
        "initContainerStatuses": [container_status("a", **WAITING), container_status("b", **TERMINATED)],
        "containerStatuses": [
            container_status("a", **WAITING),
            container_status("b", **TERMINATED),
            container_status("slurmd", running={"startedAt": "2026-11-15T08:15:42Z"}),
        ],
    }
    for status in (*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]):
        status["lastState"] |= WAITING
    return pod


def _workload(kind: str, **more: Any) -> Json:
    labels = {"app.kubernetes.io/name": "slurmctld"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata("slurm-controller"),
        "spec": {
            "replicas": 3,
            "serviceName": "slurm-controller-internal",
            "podManagementPolicy": "Parallel",
            "volumeClaimTemplates": [{"metadata": {"name": "statesave"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {
                    "creationTimestamp": None,
                    "labels": labels,
                    "annotations": {"slinky.slurm.net/jwt-key-hash": "ab"},
                },
                "spec": {"containers": [container("slurmctld")]},
            },
        },
        "status": {
            "observedGeneration": 3,
            "replicas": 3,
            "readyReplicas": 2,
            "updatedReplicas": 2,
            "availableReplicas": 1,
            "collisionCount": 0,
            "conditions": [condition("Available")],
            **more,
        },
    }


WHOLE: dict[str, Json] = {
    "Pod": _pod(),
    "Node": {
        "metadata": metadata("gpu-node-1"),
        "spec": {
            "podCIDR": "10.1.0.0/24",
            "unschedulable": True,
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule", "timeAdded": None}],
        },
        "status": {
            "conditions": [condition("Ready", lastHeartbeatTime="2026-11-15T08:15:42Z")],
            "capacity": {"cpu": "64", "memory": "527987372Ki", "nvidia.com/gpu": "8", "pods": "110"},
            "allocatable": {"cpu": "63", "memory": "517987372Ki", "nvidia.com/gpu": "8", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.36.4"},
            "images": [{"names": ["a"], "sizeBytes": 1}],
        },
    },
    "Namespace": {"metadata": metadata("slurm"), "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "Service": {
        "metadata": metadata("slurm-controller"),
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.7",
            "clusterIPs": ["10.96.0.7"],
            "selector": {"app.kubernetes.io/name": "slurmctld"},
            "ports": [{"name": "slurmctld", "protocol": "UDP", "port": 6817, "targetPort": "x", "nodePort": 30817}],
            "sessionAffinity": "None",
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7", "hostname": "slurm.example.com"}]}},
    },
    "ConfigMap": {
        "metadata": metadata("slurm-config"),
        "data": {"slurm.conf": "ClusterName=slurm\n"},
        "binaryData": {"logo": "iVBORw0KGgo="},
        "immutable": True,
    },
    "Secret": {
        "metadata": metadata("slurm-auth"),
        "type": "Opaque",
        "data": {"slurm.key": "c2VjcmV0"},
        "immutable": True,
    },
    "PersistentVolumeClaim": {
        "metadata": metadata("statesave-slurm-controller-0"),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard",
            "volumeName": "pvc-1",
            "resources": {"requests": {"storage": "4Gi"}},
        },
        "status": {"phase": "Bound", "capacity": {"storage": "4Gi"}},
    },
    "StatefulSet": _workload("StatefulSet", currentRevision="slurm-controller-1", updateRevision="slurm-controller-2"),
    "Deployment": _workload("Deployment"),
    "ControllerRevision": {
        "metadata": metadata("gpu-7c9d5b66f"),
        "revision": 7,
        "data": {"spec": {"template": {"spec": {"hostname": "gpu-"}}}},
    },
    "EndpointSlice": {
        "metadata": metadata("login-logins-ipv4"),
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.2"], "hostname": "login-x"}],
    },
    "PodDisruptionBudget": {
        "metadata": metadata("slurm-workers-pdb-slurm"),
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"a": "b"}}},
        "status": {"observedGeneration": 3, "disruptionsAllowed": 1, "currentHealthy": 2},
    },
    "Lease": {
        "metadata": metadata("slurm-operator"),
        "spec": {
            "holderIdentity": "slurm-operator-0",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-03T08:15:30.000000Z",
            "renewTime": "2026-11-03T08:15:30.000000Z",
            "leaseTransitions": 4,
        },
    },
    "Event": {
        "metadata": metadata("gpu.17a"),
        "type": "Warning",
        "reason": "SyncFailed",
        "action": "Reconcile",
        "note": "it failed",
        "reportingController": "slurm-operator",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "slurm", "name": "gpu-0", "uid": "0f9d"},
        "series": {"count": 4, "lastObservedTime": "2026-11-03T08:15:30.000000Z"},
        "eventTime": "2026-11-03T08:15:00.000000Z",
        "deprecatedLastTimestamp": "2026-11-03T08:15:30Z",
    },
    "ValidatingWebhookConfiguration": {
        "metadata": metadata("slurm-operator"),
        "webhooks": [{"name": "nodeset.slinky.slurm.net", "clientConfig": {"caBundle": "UEVN", "service": {}}}],
    },
    "MutatingWebhookConfiguration": {
        "metadata": metadata("slurm-operator"),
        "webhooks": [{"name": "pod.slinky.slurm.net", "clientConfig": {"caBundle": "UEVN", "service": {}}}],
    },
    "CustomResourceDefinition": {
        "metadata": metadata("nodesets.slinky.slurm.net"),
        "spec": {"group": "slinky.slurm.net"},
        "status": {"conditions": [condition("Established")], "storedVersions": ["v1beta1"]},
    },
}

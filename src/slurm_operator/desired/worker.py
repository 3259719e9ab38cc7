"""What a NodeSet wants to exist: worker pods with their claims, and sshd's configuration.

The template is built once and then made into one pod per slot, so that thousands of workers cost little.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from slurm_operator.api import Controller, NodeSet, names
from slurm_operator.api.values import parse_quantity
from slurm_operator.desired import endpoints, metadata, pod
from slurm_operator.desired.dns import DEFAULT_DOMAIN, full_name
from slurm_operator.desired.scripts import script
from slurm_operator.desired.workers import budget_owner
from slurm_operator.kube.resource import Manifest
from slurm_operator.slurm.conf.ssh import worker_sshd_config
from slurm_operator.slurm.conf.worker import TOPOLOGY_VARIABLE, node_conf_arguments
from slurm_operator.slurm.conf.writer import CONF_DIR

CAPABILITIES = ("BPF", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE")
LABEL_LIMIT = 63

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_WORKER_TOLERATION = {"key": names.TAINT_WORKER, "operator": "Equal", "value": "", "effect": "NoExecute"}
# What Kubernetes gives the pods of its own DaemonSets: a Node in trouble keeps its worker, a cordoned one gets it back.
DAEMON_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)

# A kubelet that does not answer says nothing about the jobs on its Node, and a disruption budget does not apply to the
# eviction that would follow after five minutes.
PATIENT_TOLERATIONS = tuple(toleration for toleration in DAEMON_TOLERATIONS if toleration["effect"] == "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    controller: Controller
    domain: str = DEFAULT_DOMAIN
    sssd_conf: bytes = b""


@dataclass(frozen=True, slots=True)
class Slot:
    """One place for a worker: its names, and the Kubernetes Node if there is only one it may run on."""

    name: str
    hostname: str
    index: str = ""  # padded ordinal; empty in DaemonSet mode
    node: str = ""

    @property
    def claim_suffix(self) -> str:
        return self.index or self.hostname


def ordinal_slot(nodeset: NodeSet, ordinal: int, pinned_to: str = "") -> Slot:
    """The place of an ordinal in StatefulSet mode."""
    index = names.ordinal(ordinal, nodeset.spec.ordinal_padding)
    name = f"{nodeset.metadata.name}-{index}"
    prefix = nodeset.spec.template.hostname
    return Slot(name, f"{prefix}{index}" if prefix else name, index, pinned_to)


def node_slot(nodeset: NodeSet, node: str, hostname_override: str = "") -> Slot:
    """The place of a Kubernetes Node in DaemonSet mode. The pod is named after it, so that it is made only once."""
    suffix = f"node-{node}" if node.isdigit() else node  # digits alone would pass for an ordinal
    name = f"{nodeset.metadata.name}-{suffix}"
    if len(name) > LABEL_LIMIT:
        name = f"{nodeset.metadata.name}-node-{metadata.text_hash(node)[:10]}"
    return Slot(name, hostname_override or node.partition(".")[0], node=node)


def worker_pod(nodeset: NodeSet, template: Manifest, slot: Slot, revision: str, budget_uid: str) -> Manifest:
    """The pod of one slot; the scheduler places it. What all pods have in common they share."""
    spec = {key: value for key, value in template["spec"].items() if key != "nodeName"}
    spec["hostname"] = slot.hostname
    if slot.node:
        spec["affinity"] = _only_on(spec.get("affinity") or {}, slot.node)
    if claimed := {_claim_name(claim) for claim in nodeset.spec.volume_claim_templates}:
        kept = [volume for volume in spec.get("volumes", []) if volume["name"] not in claimed]
        spec["volumes"] = [*kept, *(_claim_volume(name, nodeset, slot) for name in sorted(claimed))]
    meta = template["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": slot.name,
            "namespace": nodeset.metadata.namespace,
            "labels": {**meta["labels"], **identity_labels(nodeset, slot, revision)},
            "annotations": dict(meta["annotations"]),
            "ownerReferences": worker_owners(nodeset, budget_uid),
        },
        "spec": spec,
    }


def worker_owners(nodeset: NodeSet, budget_uid: str) -> list[Manifest]:
    """Return the owners of a worker pod: the NodeSet controls it, the budget of the cluster, if any, only keeps it."""
    kept = [budget_owner(nodeset.spec.controller_ref.name, budget_uid)] if budget_uid else []
    return [metadata.owner(nodeset), *kept]


def identity_labels(nodeset: NodeSet, slot: Slot, revision: str = "") -> dict[str, str]:
    found = {
        names.LABEL_POD_NAME: slot.name,
        names.LABEL_POD_HOSTNAME: slot.hostname,
        names.LABEL_POD_INDEX: slot.index,
        names.LABEL_SCALING_MODE: nodeset.spec.scaling_mode,
        names.LABEL_REVISION_HASH: revision,
    }
    return {key: value[:LABEL_LIMIT].rstrip("-._") for key, value in found.items() if value}


def worker_claims(nodeset: NodeSet, slot: Slot, owners: Sequence[Manifest] = ()) -> list[Manifest]:
    """The claims that must exist before the pod of this slot does."""
    claims = []
    for claim in nodeset.spec.volume_claim_templates:
        wished = claim.get("metadata") or {}
        meta = {
            "name": names.worker_claim(_claim_name(claim), nodeset.metadata.name, slot.claim_suffix),
            "namespace": nodeset.metadata.namespace,
            "labels": {**(wished.get("labels") or {}), **_selector(nodeset)},
            "annotations": dict(wished.get("annotations") or {}),
            "ownerReferences": list(owners),
        }
        claims.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {key: value for key, value in meta.items() if value},
                "spec": deepcopy(claim.get("spec") or {}),
            }
        )
    return claims


def ssh_config(nodeset: NodeSet) -> Manifest | None:
    """sshd's configuration, or None where nobody may log in."""
    if not nodeset.spec.ssh_enabled:
        return None
    meta = metadata.child(nodeset, names.ssh_config(nodeset.metadata.name), labels(nodeset))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"sshd_config": _sshd_config(nodeset)}}


def worker_template(nodeset: NodeSet, facts: WorkerFacts) -> Manifest:
    """Metadata and spec that all workers of this NodeSet share."""
    spec = nodeset.spec
    controller = facts.controller
    service = names.workers_service(controller.metadata.name)
    hashes = {
        names.ANNOTATION_SSHD_CONF_HASH: metadata.text_hash(_sshd_config(nodeset)),
        names.ANNOTATION_SSSD_CONF_HASH: metadata.text_hash(facts.sssd_conf),
        **({names.ANNOTATION_EXTERNAL: names.TRUE} if controller.spec.external else {}),
    }
    ours: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "subdomain": service,
        "dnsConfig": {"searches": [full_name(service, nodeset.metadata.namespace, facts.domain)]},
        "tolerations": [_WORKER_TOLERATION, *_tolerations(nodeset)],
        "initContainers": [pod.log_sidecar("slurmd", spec.logfile)],
        "containers": [_slurmd(nodeset, controller)],
        "volumes": _volumes(nodeset, controller),
    }
    if not spec.oversubscribe_node:
        alone = {"key": names.LABEL_APP, "operator": "In", "values": [names.APP_SLURMD]}
        term = pod.hostname_anti_affinity({"matchExpressions": [alone]})
        ours["affinity"] = {"podAntiAffinity": {_REQUIRED: [term]}}
    return {
        "metadata": metadata.pod(nodeset, labels(nodeset), spec.template.metadata, hashes, "slurmd"),
        "spec": pod.finished(ours, spec.template.spec),
    }


def _tolerations(nodeset: NodeSet) -> tuple[Manifest, ...]:
    if nodeset.spec.scaling_mode == "DaemonSet":
        return DAEMON_TOLERATIONS
    return PATIENT_TOLERATIONS if nodeset.spec.workload_disruption_protection else ()


def labels(nodeset: NodeSet) -> dict[str, str]:
    cluster = {names.LABEL_CLUSTER: nodeset.spec.controller_ref.name}
    return {**metadata.labels(names.APP_SLURMD, names.COMPONENT_WORKER, nodeset.metadata.name), **cluster}


def _selector(nodeset: NodeSet) -> dict[str, str]:
    return names.selector(names.APP_SLURMD, nodeset.metadata.name)


def _sshd_config(nodeset: NodeSet) -> str:
    ssh = nodeset.spec.ssh
    return worker_sshd_config(ssh.extra_sshd_config) if ssh is not None and ssh.enabled else ""


def _slurmd(nodeset: NodeSet, controller: Controller) -> Manifest:
    spec = nodeset.spec
    topology = {"fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_TOPOLOGY}']"}}
    conf_server = endpoints.conf_server(controller)
    return pod.container(
        "slurmd",
        spec.slurmd,
        args=["-Z", "--conf-server", conf_server, *node_conf_arguments(nodeset.slurm_name, spec.extra_conf)],
        env=[
            {"name": TOPOLOGY_VARIABLE, "valueFrom": topology},
            *_limits(nodeset),
        ],
        ports=[pod.port("slurmd", names.PORT_SLURMD), *([pod.port("ssh", names.PORT_SSH)] if spec.ssh_enabled else [])],
        startupProbe=pod.http_probe("/livez", "slurmd", **pod.STARTING),
        livenessProbe=pod.http_probe("/livez", "slurmd", **pod.PATIENT),
        readinessProbe=pod.http_probe("/readyz", "slurmd"),
        securityContext={"privileged": True, "capabilities": {"add": list(CAPABILITIES)}},
        lifecycle={
            "postStart": pod.reread_keys("slurmd", CONF_DIR),
            "preStop": {"exec": {"command": ["sh", "-c", script("prestop")]}},
        },
        volumeMounts=[pod.CONF_MOUNT, pod.LOG_MOUNT, *(_SSH_MOUNTS if spec.ssh_enabled else ())],
    )


_SSH_MOUNTS = (
    pod.mount("ssh-config", "/etc/ssh/sshd_config", "sshd_config"),
    pod.mount("sssd-conf", "/etc/sssd/sssd.conf", "sssd.conf"),
)


def _limits(nodeset: NodeSet) -> list[Manifest]:
    """The size of the node. A limit that the NodeSet leaves open may come from a LimitRange when the pod is created.

    Where none does, Kubernetes gives what the whole Kubernetes Node has to offer: POD_UNLIMITED has the image find out.
    """
    cpus, memory = _limit(nodeset, "cpu"), _limit(nodeset, "memory")
    entries = [
        {"name": "POD_CPUS", "value": str(math.ceil(cpus))} if cpus else _from_kubernetes("POD_CPUS", "cpu", "1"),
        {"name": "POD_MEMORY", "value": str(int(memory) // 2**20)}
        if memory
        else _from_kubernetes("POD_MEMORY", "memory", "1Mi"),
    ]
    given = _variables_of_the_user(nodeset)
    sizes = (("cpu", cpus, "POD_CPUS"), ("memory", memory, "POD_MEMORY"))
    unlimited = [name for name, limit, variable in sizes if not limit and variable not in given]
    return [*entries, *([{"name": "POD_UNLIMITED", "value": " ".join(unlimited)}] if unlimited else [])]


def _variables_of_the_user(nodeset: NodeSet) -> set[Any]:
    containers = nodeset.spec.template.spec.get("containers") or []
    holders = (nodeset.spec.slurmd, *(found for found in containers if found.get("name") == "slurmd"))
    return {entry.get("name") for holder in holders for entry in holder.get("env") or []}


def _from_kubernetes(name: str, resource: str, divisor: str) -> Manifest:
    field = {"containerName": "slurmd", "resource": f"limits.{resource}", "divisor": divisor}
    return {"name": name, "valueFrom": {"resourceFieldRef": field}}


def _limit(nodeset: NodeSet, resource: str) -> Any:
    """The limit of slurmd's container, else that of the pod, else none."""
    for holder in (nodeset.spec.slurmd, nodeset.spec.template.spec):
        limits = (holder.get("resources") or {}).get("limits") or {}
        if amount := parse_quantity(limits.get(resource) or 0):
            return amount
    return 0


def _volumes(nodeset: NodeSet, controller: Controller) -> list[Manifest]:
    key = pod.projected("slurm-etc", pod.PRIVATE, *pod.from_key_ring(controller.spec.slurm_key_ref))
    volumes = [key, pod.LOG_VOLUME]
    ssh = nodeset.spec.ssh
    if ssh is not None and ssh.enabled:
        volumes += [
            pod.projected("ssh-config", pod.PRIVATE, *pod.all_of([names.ssh_config(nodeset.metadata.name)])),
            pod.projected("sssd-conf", pod.PRIVATE, *pod.from_secret(ssh.sssd_conf_ref, "sssd.conf")),
        ]
    return volumes


def _only_on(affinity: Manifest, node: str) -> Manifest:
    """Where the pod must go is decided; the user's required terms had their say in that."""
    name = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [name]}]}}
    return {**affinity, "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), **required}}


def _claim_name(claim: Manifest) -> str:
    name = (claim.get("metadata") or {}).get("name")
    if not name:
        raise ValueError("volumeClaimTemplates: an entry has no metadata.name")
    return str(name)


def _claim_volume(template: str, nodeset: NodeSet, slot: Slot) -> Manifest:
    claim = names.worker_claim(template, nodeset.metadata.name, slot.claim_suffix)
    return {"name": template, "persistentVolumeClaim": {"claimName": claim}}

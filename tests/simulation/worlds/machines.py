"""Scheduler, kubelets and slurmds: what becomes of pods by itself, and what happens to Nodes."""

import random
from dataclasses import dataclass, field

import msgspec

from slurm_operator.api import names
from slurm_operator.kube.clock import Clock
from slurm_operator.kube.kinds import (
    NODES,
    PODS,
    ContainerState,
    ContainerStatus,
    Node,
    NodeSpec,
    Pod,
    PodStatus,
    Running,
    Waiting,
)
from slurm_operator.kube.model import Condition, ObjectMeta
from slurm_operator.kube.resource import Key, Manifest
from slurm_operator.runtime.times import rfc3339, seconds_of
from slurm_operator.slurm.reasons import is_ours
from tests.simulation.worlds.kube import ENDED, KubeTruth
from tests.simulation.worlds.slurm import SlurmTruth

BAD_IMAGE = "slurmd:cannot-be-pulled"
POOL = "pool"
"""Label of the Nodes of one cluster."""
GOING = f"{names.REASON_PREFIX}worker pod is going away"
"""The reason that the preStop hook gives."""


@dataclass
class Machines:
    namespace: str
    kube: KubeTruth
    slurm: SlurmTruth
    clock: Clock
    rng: random.Random
    starting: dict[str, str] = field(default_factory=dict)
    """Uid of a pod whose slurmd has not registered yet: the name under which it will."""
    ended_by_others: set[str] = field(default_factory=set)
    """Slurm names of workers that ended without the operator's doing."""
    serial: int = 0

    # Nodes

    def add_node(self, number: int) -> None:
        name = f"{self.namespace}-{number}"
        if ("", name) not in self.kube.all(NODES):
            meta = ObjectMeta(name=name, labels={POOL: self.namespace})
            self.kube.put(NODES, Node(metadata=meta, spec=NodeSpec()))

    def nodes(self) -> list[Node]:
        return [node for node in self.kube.all(NODES).values() if node.metadata.labels[POOL] == self.namespace]

    def cordon(self, node: Node, on: bool) -> None:
        if node.spec.unschedulable is not on:
            self.kube.put(NODES, msgspec.structs.replace(node, spec=NodeSpec(unschedulable=on)))

    def lose_node(self, node: Node) -> None:
        """The machine is gone for good, and with it its pods: no preStop hook runs."""
        self.kube.drop(NODES, ("", node.metadata.name))
        for pod in self.pods():
            if pod.spec.node_name == node.metadata.name:
                self.ended_by_others.add(pod.spec.hostname)
                self.slurm.falls_silent(pod.spec.hostname, pod.status.pod_ip)
                self._remove(pod)

    # Pods

    def pods(self) -> list[Pod]:
        return [pod for (namespace, _), pod in self.kube.all(PODS).items() if namespace == self.namespace]

    def pass_time(self) -> None:
        for pod in self.pods():
            if pod.metadata.deletion_timestamp is not None:
                self.end(pod)
            elif pod.status.phase == "Pending":
                self._start(pod)
            elif pod.metadata.uid in self.starting and self.rng.random() < 0.8:
                self.register(pod)
        self.slurm.pass_time()

    def _start(self, pod: Pod) -> None:
        manifest = self.kube.made_from[pod.metadata.uid]
        node = pod.spec.node_name or self._place(manifest)
        if not node:
            return
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        if _image(manifest) == BAD_IMAGE:
            stuck = ContainerStatus(name="slurmd", state=ContainerState(waiting=Waiting(reason="ImagePullBackOff")))
            status = PodStatus(phase="Pending", start_time=rfc3339(self.clock.now()), container_statuses=(stuck,))
            if not pod.spec.node_name:
                self.kube.put(PODS, msgspec.structs.replace(pod, spec=spec, status=status))
            return
        self.serial += 1
        now = rfc3339(self.clock.now())
        runs = ContainerStatus(name="slurmd", ready=True, state=ContainerState(running=Running(started_at=now)))
        status = PodStatus(
            phase="Running",
            pod_ip=f"10.{len(self.namespace)}.{self.serial // 250}.{self.serial % 250}",
            start_time=now,
            conditions=(Condition(type="Ready", status="True", last_transition_time=now),),
            container_statuses=(runs,),
        )
        started = self.kube.put(PODS, msgspec.structs.replace(pod, spec=spec, status=status))
        self.starting[pod.metadata.uid] = pod.spec.hostname
        if self.rng.random() < 0.7:
            self.register(started)

    def _place(self, manifest: Manifest) -> str:
        """The scheduler: one worker on a Node, none on a cordoned one but in DaemonSet mode, which tolerates it."""
        taken = {pod.spec.node_name for pod in self.pods()}
        if wanted := _only_node(manifest):
            return wanted if ("", wanted) in self.kube.all(NODES) and wanted not in taken else ""
        free = [node.metadata.name for node in self.nodes() if not node.spec.unschedulable]
        return next((name for name in sorted(free) if name not in taken), "")

    def register(self, pod: Pod) -> None:
        """Slurmd tells slurmctld of itself; while slurmctld does not answer it tries again."""
        if self.slurm.reachable and self.is_up(pod):
            self.starting.pop(pod.metadata.uid, None)
            self.slurm.register(pod.spec.hostname, pod.status.pod_ip, seconds_of(pod.status.start_time, absent=0.0))

    def is_up(self, pod: Pod) -> bool:
        return pod.status.phase == "Running"

    def end(self, pod: Pod) -> None:
        """What the preStop hook does, then slurmd is gone, and jobs on it end: an administrator's claim stays."""
        record = self.slurm.records.get(pod.spec.hostname)
        if record is not None and record.address == pod.status.pod_ip and pod.status.phase == "Running":
            self.slurm.end_jobs_on(pod.spec.hostname)
            if self.slurm.reachable and (not record.out_of_service or is_ours(record.reason)):
                record.down, record.reason = True, GOING
            self.slurm.falls_silent(pod.spec.hostname, pod.status.pod_ip)
        self._remove(pod)

    def fail(self, pod: Pod) -> None:
        """Its containers end by themselves."""
        if pod.status.phase in ENDED or not pod.spec.node_name:
            return
        self.ended_by_others.add(pod.spec.hostname)
        self.slurm.falls_silent(pod.spec.hostname, pod.status.pod_ip)
        record = self.slurm.records.get(pod.spec.hostname)
        if record is not None and record.address == pod.status.pod_ip:
            self.slurm.end_jobs_on(pod.spec.hostname)
        status = msgspec.structs.replace(pod.status, phase="Failed", conditions=(), container_statuses=())
        self.starting.pop(pod.metadata.uid, None)
        self.kube.put(PODS, msgspec.structs.replace(pod, status=status))

    def _remove(self, pod: Pod) -> None:
        key: Key = (pod.metadata.namespace, pod.metadata.name)
        self.starting.pop(pod.metadata.uid, None)
        self.kube.finish_deletion(PODS, key)


def _image(manifest: Manifest) -> str:
    return next(str(part["image"]) for part in manifest["spec"]["containers"] if part["name"] == "slurmd")


def _only_node(manifest: Manifest) -> str:
    required = ((manifest["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution", {}
    )
    for term in required.get("nodeSelectorTerms", ()):
        for field_ in term.get("matchFields", ()):
            return str(field_["values"][0])
    return ""

"""Nodes in name only beside a real control plane: kwok plays their kubelets, so that thousands fit on one machine."""

from typing import Any

from slurm_local.apiserver import ApiServer, free_ports
from slurm_local.binaries import KWOK_CONFIG
from slurm_local.controlplane import words
from slurm_local.kubectl import Kubectl
from slurm_local.processes import Background

_ANNOTATION = {"kwok.x-k8s.io/node": "fake"}


class SimulatedNodes:
    """Controller-manager, scheduler and kwok on an API server; nodes are added by the number."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.kubectl = Kubectl(server.root, server.kubeconfig)
        self._programs = [self._controller_manager(), self._scheduler(), self._kwok()]

    def _program(self, name: str, flags: dict[str, str]) -> Background:
        return Background(name, words(str(self.server.binaries / name), flags), self.server.folder / f"{name}.log")

    def _controller_manager(self) -> Background:
        # Simulated kubelets are late now and then; that is not what these nodes are for.
        patience = {"node-monitor-grace-period": "1h", "secure-port": str(free_ports(1)[0])}
        return self._program("kube-controller-manager", {**self.server.plane.controller_manager(), **patience})

    def _scheduler(self) -> Background:
        port = {"secure-port": str(free_ports(1)[0])}
        return self._program("kube-scheduler", {**self.server.plane.scheduler(), **port})

    def _kwok(self) -> Background:
        flags = {
            "kubeconfig": str(self.server.kubeconfig_for("kwok", "kwok", "system:masters")),
            "config": str(self.server.binaries / KWOK_CONFIG),
            "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
            "node-lease-duration-seconds": "40",
            "server-address": f"127.0.0.1:{free_ports(1)[0]}",
        }
        return self._program("kwok", flags)

    def start(self) -> None:
        for program in self._programs:
            program.start()

    def stop(self) -> None:
        for program in reversed(self._programs):
            program.stop(patience=0)

    def add(self, count: int, *, prefix: str = "sim", cpus: int = 64, gpus: int = 0) -> list[str]:
        """Adds nodes and returns their names once all are Ready."""
        names = [f"{prefix}-{index}" for index in range(count)]
        self.kubectl.apply([node_manifest(name, cpus, gpus) for name in names])
        everyone = [f"node/{name}" for name in names]
        self.kubectl("wait", *everyone, "--for=condition=Ready", "--timeout=120s", timeout=150)
        return names


def node_manifest(name: str, cpus: int = 64, gpus: int = 0) -> dict[str, Any]:
    """A node that kwok takes for one of its own."""
    size = {"cpu": str(cpus), "memory": "256Gi", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": _ANNOTATION,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
        },
        "spec": {},
        "status": {"allocatable": size, "capacity": size},
    }

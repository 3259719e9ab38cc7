"""A real kube-apiserver with its etcd on loopback, for tests: ready in seconds, gone with the one who started it."""

import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from slurm_local.binaries import binaries
from slurm_local.controlplane import ControlPlane, words
from slurm_local.machine import machine_root, program
from slurm_local.processes import Background
from slurm_local.progress import SILENT, Progress
from slurm_operator.errors import UserError


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(held.getsockname()[1]) for held in sockets]
    for held in sockets:
        held.close()
    return ports


class ApiServer:
    """etcd and kube-apiserver in one folder. Both can be stopped and started again on the same ports and data."""

    def __init__(self, folder: Path, progress: Progress = SILENT) -> None:
        self.folder = folder
        self.binaries = binaries(progress)
        self.root = machine_root(progress)
        port, etcd_port, peer_port = free_ports(3)
        self.plane = ControlPlane(
            folder=folder,
            address="127.0.0.1",
            port=port,
            etcd_port=etcd_port,
            etcd_peer_port=peer_port,
            service_range="10.96.0.0/16",
            service_address="10.96.0.1",
            audit=True,
        )
        self.etcd = Background("etcd", words(program(self.root, "etcd"), self.plane.etcd()), folder / "etcd.log")
        self.apiserver = Background(
            "kube-apiserver",
            words(str(self.binaries / "kube-apiserver"), self.plane.apiserver()),
            folder / "kube-apiserver.log",
        )
        self.kubeconfig = self.kubeconfig_for("admin", "kubernetes-admin", "system:masters")

    @property
    def url(self) -> str:
        return self.plane.url

    @property
    def ca(self) -> Path:
        return self.plane.authority.pair.cert

    @property
    def cert(self) -> Path:
        return self.plane.admin.cert

    @property
    def key(self) -> Path:
        return self.plane.admin.key

    @property
    def audit_log(self) -> Path:
        return self.plane.audit_log

    def kubeconfig_for(self, file: str, user: str, *groups: str) -> Path:
        """A kubeconfig for another user, so that permissions and the audit log tell who did what."""
        return self.plane.kubeconfig(file, user, *groups)

    def kubectl(self, *arguments: str) -> list[str]:
        """The words of a kubectl command line against this server."""
        return [*program(self.root, "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]

    def start(self) -> None:
        self.etcd.start()
        self.apiserver.start()
        self.wait_ready()

    def stop(self) -> None:
        self.apiserver.stop(patience=0)
        self.etcd.stop(patience=0)

    def wait_ready(self, timeout: float = 60) -> None:
        """Returns once the server says that it is ready to serve."""
        deadline = time.monotonic() + timeout
        while not self._is_ready():
            self.etcd.check()
            self.apiserver.check()
            if time.monotonic() > deadline:
                raise UserError(
                    f"kube-apiserver was not ready after {timeout:.0f} s", hint=f"See the logs in {self.folder}."
                )
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.cert, self.key)
        try:
            ready = f"{self.url}/readyz"
            with urllib.request.urlopen(ready, context=context, timeout=2) as answer:  # noqa: S310 - our own, https only
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

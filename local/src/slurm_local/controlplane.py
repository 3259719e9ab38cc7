"""How the programs of a control plane are called: pure functions from addresses and files to command lines."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from slurm_local.kubeconfig import write_kubeconfig
from slurm_local.pki import Authority, Pair, write_service_account_keys

ISSUER = "https://kubernetes.default.svc.cluster.local"

Flags = Mapping[str, str]

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def words(program: str | list[str], flags: Flags) -> list[str]:
    """A command line: the program's words, then its flags."""
    head = [program] if isinstance(program, str) else program
    return [*head, *(f"--{name}={value}" for name, value in flags.items())]


@dataclass(frozen=True)
class ControlPlane:
    """Where a control plane lives: its folder, its address and ports, the ranges it hands out."""

    folder: Path
    address: str
    port: int
    etcd_port: int
    etcd_peer_port: int
    service_range: str
    service_address: str
    pod_range: str = ""
    audit: bool = False
    bind_all: bool = False

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    @cached_property
    def authority(self) -> Authority:
        return Authority(self.folder / "pki", "ca")

    @cached_property
    def _etcd_authority(self) -> Authority:
        return Authority(self.folder / "pki" / "etcd", "ca")

    @cached_property
    def _proxy_authority(self) -> Authority:
        return Authority(self.folder / "pki", "front-proxy-ca")

    @cached_property
    def admin(self) -> Pair:
        return self.authority.issue("admin", "kubernetes-admin", groups=["system:masters"])

    def kubeconfig(self, file: str, user: str, *groups: str) -> Path:
        """The kubeconfig of one program or person, with a certificate of its own; written on first use."""
        path = self.folder / f"{file}.kubeconfig"
        if not path.exists():
            pair = self.authority.issue(file, user, groups=groups)
            write_kubeconfig(path, name=file, url=self.url, authority=self.authority.pair.cert, user=pair)
        return path

    def etcd(self) -> Flags:
        hosts = ["localhost", "127.0.0.1"]
        server = self._etcd_authority.issue("server", "etcd", hosts=hosts)
        client, peer = f"https://127.0.0.1:{self.etcd_port}", f"https://127.0.0.1:{self.etcd_peer_port}"
        files = {"cert-file": server.cert, "key-file": server.key, "trusted-ca-file": self._etcd_authority.pair.cert}
        return {
            "name": "stage",
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"stage={peer}",
            "client-cert-auth": "true",
            "peer-client-cert-auth": "true",
            # What a stage holds may be lost with the machine; waiting for the disk makes everything slower.
            "unsafe-no-fsync": "true",
            "log-level": "warn",
            **{name: str(path) for name, path in files.items()},
            **{f"peer-{name}": str(path) for name, path in files.items()},
        }

    def apiserver(self) -> Flags:
        flags = {
            "advertise-address": self.address,
            "bind-address": "0.0.0.0" if self.bind_all else self.address,  # noqa: S104 - only inside a namespace of its own
            "secure-port": str(self.port),
            "allow-privileged": "true",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "service-cluster-ip-range": self.service_range,
            # Nothing proxies Services here, so webhooks are reached at their pods.
            "enable-aggregator-routing": "true",
            **self._apiserver_certificates(),
        }
        if self.audit:
            policy = self.folder / "audit-policy.json"
            policy.write_text(json.dumps(_AUDIT_POLICY))
            flags |= {"audit-policy-file": str(policy), "audit-log-path": str(self.audit_log)}
        return flags

    def _apiserver_certificates(self) -> Flags:
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        hosts = [*names, "localhost", "127.0.0.1", self.address, self.service_address]
        serving = self.authority.issue("apiserver", "kube-apiserver", hosts=hosts)
        kubelet = self.authority.issue("apiserver-kubelet-client", "kube-apiserver", groups=["system:masters"])
        etcd = self._etcd_authority.issue("apiserver", "kube-apiserver")
        proxy = self._proxy_authority.issue("front-proxy-client", "front-proxy-client")
        accounts = write_service_account_keys(self.folder / "pki")
        return {
            "client-ca-file": str(self.authority.pair.cert),
            "tls-cert-file": str(serving.cert),
            "tls-private-key-file": str(serving.key),
            "kubelet-client-certificate": str(kubelet.cert),
            "kubelet-client-key": str(kubelet.key),
            "kubelet-certificate-authority": str(self.authority.pair.cert),
            "kubelet-preferred-address-types": "InternalIP",
            "etcd-servers": f"https://127.0.0.1:{self.etcd_port}",
            "etcd-cafile": str(self._etcd_authority.pair.cert),
            "etcd-certfile": str(etcd.cert),
            "etcd-keyfile": str(etcd.key),
            "proxy-client-cert-file": str(proxy.cert),
            "proxy-client-key-file": str(proxy.key),
            "requestheader-client-ca-file": str(self._proxy_authority.pair.cert),
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-username-headers": "X-Remote-User",
            "service-account-issuer": ISSUER,
            "service-account-key-file": str(accounts.cert),
            "service-account-signing-key-file": str(accounts.key),
        }

    def controller_manager(self) -> Flags:
        kubeconfig = str(self.kubeconfig("controller-manager", "system:kube-controller-manager"))
        accounts = write_service_account_keys(self.folder / "pki")
        ranges = {"cluster-cidr": self.pod_range, "allocate-node-cidrs": "true"} if self.pod_range else {}
        return {
            "bind-address": "127.0.0.1",
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "client-ca-file": str(self.authority.pair.cert),
            "root-ca-file": str(self.authority.pair.cert),
            "cluster-signing-cert-file": str(self.authority.pair.cert),
            "cluster-signing-key-file": str(self.authority.pair.key),
            "service-account-private-key-file": str(accounts.key),
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            **ranges,
        }

    def scheduler(self) -> Flags:
        kubeconfig = str(self.kubeconfig("scheduler", "system:kube-scheduler"))
        return {
            "bind-address": "127.0.0.1",
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "leader-elect": "false",
        }

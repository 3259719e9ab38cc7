"""A node: how its containerd, kubelet, kube-proxy and pod network are configured, and the programs it runs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from slurm_local.controlplane import ControlPlane
from slurm_local.layers import unpacked_home
from slurm_local.layout import Names, Network, node_name
from slurm_local.machines import Machine
from slurm_local.pause import PAUSE_IMAGE

VOLUMES = "/var/lib/slurm-operator/volumes"
SHARED = "/var/lib/slurm-operator/shared"

IMPORT_IMAGE = Path(__file__).parent / "scripts" / "import-image.sh"


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What can be chosen about a node."""

    index: int
    cpus: int | None = None
    gpus: int = 0
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return node_name(self.index)


@dataclass(frozen=True)
class NodeMaker:
    """Turns the settings of a node into a machine of the stage."""

    names: Names
    network: Network
    plane: ControlPlane
    root: Path
    binaries: Path

    def machine(self, settings: NodeSettings) -> Machine:
        folder = self.names.machine(settings.name)
        services = {
            "containerd": "exec containerd --config /stage/containerd.toml --log-level warn\n",
            "kubelet": _kubelet_service(settings, self.network.machine(settings.index)),
            "kube-proxy": f"exec kube-proxy --config=/stage/kube-proxy.json --hostname-override={settings.name}\n",
        }
        if settings.gpus:
            services["device-plugin"] = f"exec device-plugin --resource=nvidia.com/gpu --count={settings.gpus}\n"
        return Machine(
            names=self.names,
            name=settings.name,
            root=self.root,
            services=services,
            files=self._files(settings),
            binds={
                self.binaries: "/usr/local/bin",
                self.names.folder / "images": "/stage/images",
                unpacked_home(): "/stage/layers",
                self.names.folder / "shared": SHARED,
                self.names.folder / "volumes" / settings.name: VOLUMES,
                folder / "containerd": "/var/lib/containerd",
                folder / "kubelet": "/var/lib/kubelet",
            },
            cpus=settings.cpus,
        )

    def _files(self, settings: NodeSettings) -> dict[str, str]:
        name = settings.name
        address = self.network.machine(settings.index)
        serving = self.plane.authority.issue(f"kubelet-{name}", f"system:node:{name}", hosts=[name, address])
        kubelet = self.plane.kubeconfig(name, f"system:node:{name}", "system:nodes")
        proxy = self.plane.kubeconfig("kube-proxy", "system:kube-proxy")
        return {
            "ca.crt": self.plane.authority.pair.cert.read_text(),
            "kubelet.crt": serving.cert.read_text(),
            "kubelet.key": serving.key.read_text(),
            "kubelet.kubeconfig": kubelet.read_text(),
            "kube-proxy.kubeconfig": proxy.read_text(),
            "kubelet.json": json.dumps(_kubelet_configuration(self.network), indent=2),
            "kube-proxy.json": json.dumps(_proxy_configuration(self.network), indent=2),
            "containerd.toml": _CONTAINERD,
            "import-image.sh": IMPORT_IMAGE.read_text(),
            "cni/10-stage.conflist": json.dumps(_pod_network(self.network, settings.index), indent=2),
            "resolv.conf": f"nameserver {self.network.control_plane}\n",
        }


_CONTAINERD = f"""version = 3

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE_IMAGE}'

[plugins.'io.containerd.cri.v1.runtime']
# Without this every sandbox fails where root lacks CAP_SYS_RESOURCE.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['/usr/lib/cni']
conf_dir = '/stage/cni'
"""

# Images are stored once and brought into every node that starts.
_IMPORT_IMAGES = """until ctr version >/dev/null 2>&1; do sleep 0.1; done
for image in /stage/images/*.tar; do
    if [ -e "$image" ]; then sh /stage/import-image.sh "$image" || exit 1; fi
done
"""


def _kubelet_service(settings: NodeSettings, address: str) -> str:
    flags = [
        "--config=/stage/kubelet.json",
        "--kubeconfig=/stage/kubelet.kubeconfig",
        f"--hostname-override={settings.name}",
        f"--node-ip={address}",
    ]
    if settings.labels:
        flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in settings.labels.items()))
    if settings.taints:
        flags.append("--register-with-taints=" + ",".join(settings.taints))
    return _IMPORT_IMAGES + "exec kubelet " + " ".join(flags) + "\n"


def _kubelet_configuration(network: Network) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/stage/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/stage/kubelet.crt",
        "tlsPrivateKeyFile": "/stage/kubelet.key",
        "clusterDNS": [network.dns_service],
        "clusterDomain": "cluster.local",
        "resolvConf": "/stage/resolv.conf",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        # Images cannot be pulled again, and the disk is the machine's: neither is thrown away to make room.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
    }


def _proxy_configuration(network: Network) -> dict[str, Any]:
    untouched = {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": str(network.whole),
        "clientConnection": {"kubeconfig": "/stage/kube-proxy.kubeconfig"},
        "conntrack": untouched,
    }


def _pod_network(network: Network, index: int) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "name": "stage",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isDefaultGateway": True,
                "hairpinMode": True,
                "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": network.pods(index)}]]},
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }

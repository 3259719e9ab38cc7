"""The Debian root that the stage's machines run in, and how to run one of its programs from outside."""

from pathlib import Path

from slurm_local.debian import Root, make_root
from slurm_local.progress import SILENT, Progress

MACHINE = Root(
    name="machine",
    packages=(
        "busybox",
        "ca-certificates",
        "conntrack",
        "containerd",
        "containernetworking-plugins",
        "etcd-client",
        "etcd-server",
        "iproute2",
        "iptables",
        "iputils-ping",
        "kubernetes-client",
        "mount",
        "nftables",
        "procps",
        "runc",
        "socat",
        "tini",
        "util-linux",
    ),
)


def machine_root(progress: Progress = SILENT) -> Path:
    return make_root(MACHINE, progress)


def program(root: Path, name: str) -> list[str]:
    """The words that run a program of the root on the machine itself, with the root's own loader and libraries."""
    loader = next((root / "lib64").glob("ld-linux-*.so.*"), None) or next((root / "lib").glob("ld-linux-*.so.*"))
    libraries = [str(path) for path in sorted((root / "usr" / "lib").glob("*-linux-gnu*"))]
    return [str(loader), "--library-path", ":".join(libraries), str(root / "usr" / "bin" / name)]

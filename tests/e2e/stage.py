"""What tests of the real stage share: a small image, and a cluster that is asked in a line or two."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_local.kubectl import Kubectl
from slurm_local.machine import program
from slurm_local.oci import Entry, Image, write_archive, write_layer
from slurm_local.stage import Stage, existing

TEST_IMAGE = "localhost/slurm-operator/busybox:1"


def write_test_image(root: Path, target: Path) -> None:
    """busybox with its C library: a shell, httpd, wget and nslookup in three megabytes."""
    applets = subprocess.run([*program(root, "busybox"), "--list"], check=True, capture_output=True, text=True).stdout
    libraries = [path for name in ("libc.so.6", "libresolv.so.2") for path in (root / "usr/lib").glob(f"*/{name}")]
    loader = next((root / "usr/lib64").glob("ld-linux-*")).resolve()
    entries = [
        Entry("bin", 0o755, "folder"),
        Entry("bin/busybox", 0o755, content=root / "usr/bin/busybox"),
        *(Entry(f"bin/{name}", 0o777, "symlink", link="busybox") for name in applets.split() if name != "busybox"),
        Entry("lib64", 0o755, "folder"),
        Entry("lib64/ld-linux-x86-64.so.2", 0o755, content=loader),
        *(Entry(f"lib64/{path.name}", 0o755, content=path.resolve()) for path in libraries),
        Entry("tmp", 0o1777, "folder"),
    ]
    layer = write_layer(entries, target.with_suffix(".layer"))
    write_archive(target, [Image(TEST_IMAGE, [layer], env={"PATH": "/bin", "LD_LIBRARY_PATH": "/lib64"})])


def eventually(what: str, check: Callable[[], bool], timeout: float = 60, pause: float = 0.3) -> None:
    """Waits until `check` holds; says what was waited for if it never does."""
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {timeout:.0f} s: {what}")
        time.sleep(pause)


def never(what: str, check: Callable[[], bool], seconds: float, pause: float = 0.5) -> None:
    """Check again and again for some time that something does not happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert not check(), what
        time.sleep(pause)


class Cluster:
    """The stage of this run, seen through kubectl."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.kubectl: Kubectl = stage.kubectl
        self.kubeconfig: Path = stage.kubeconfig

    @property
    def nodes(self) -> list[str]:
        return [node.name for node in self.stage.settings.nodes]

    def apply(self, namespace: str, *manifests: dict[str, Any]) -> None:
        placed = [{**m, "metadata": {"namespace": namespace, **m["metadata"]}} for m in manifests]
        self.kubectl.apply(placed)

    def get(self, namespace: str, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.json("get", kind, name, "-n", namespace)
        return found

    def wait(self, namespace: str, what: str, condition: str, timeout: int = 90) -> None:
        self.kubectl("wait", what, "-n", namespace, f"--for={condition}", f"--timeout={timeout}s", timeout=timeout + 30)

    def wait_ready(self, namespace: str, *pods: str, timeout: int = 90) -> None:
        for pod in pods:
            self.wait(namespace, f"pod/{pod}", "condition=Ready", timeout)

    def run(self, namespace: str, pod: str, *command: str) -> str:
        """What a command prints in a pod."""
        return self.kubectl("exec", pod, "-n", namespace, "--", *command).strip()

    def on_machine(self, node: str, script: str) -> str:
        """What a shell script prints on the machine of a node, outside of all pods."""
        stage = existing(self.stage.names.stage)
        return stage.node(stage.find(node)).run("/bin/sh", "-c", script)

    @contextmanager
    def paused_kubelet(self, node: str) -> Iterator[None]:
        """Stop a node's kubelet; its pods run on."""
        self.on_machine(node, "kill -STOP $(pidof kubelet)")
        try:
            yield
        finally:
            self.on_machine(node, "kill -CONT $(pidof kubelet)")

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One `slurm-operator local` command on this stage."""
        return local(*arguments, "--name", self.stage.names.stage)

    def status(self) -> list[str]:
        """The lines of `slurm-operator local status`."""
        return local("status", "--name", self.stage.names.stage, check=False).stdout.splitlines()


def local(*arguments: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "slurm-operator"), "local", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise AssertionError(f"local {' '.join(arguments)} failed: {done.stderr}")
    return done


def pod(name: str, command: str = "sleep 100000", **spec: Any) -> dict[str, Any]:
    """A pod of the test image that runs one shell line; `spec` adds to its specification."""
    container = {
        "name": "main",
        "image": TEST_IMAGE,
        # A shell that is process 1 would not hear that it is to end.
        "command": ["/bin/sh", "-c", f"trap 'exit 0' TERM; {command} & wait"],
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [container], **spec},
    }


def claim(name: str, storage_class: str | None, mode: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": [mode], "resources": {"requests": {"storage": "10Mi"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def with_volume(claim_name: str) -> dict[str, Any]:
    """The part of a pod's specification that mounts a claim at /data."""
    return {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}],
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    }

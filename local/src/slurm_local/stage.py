"""A stage, brought up and taken down. Each step looks whether it is done already, so an interrupted start goes on."""

import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

import msgspec

from slurm_local import addons, cgroups, layers, settings
from slurm_local.binaries import binaries
from slurm_local.cache import cache_home, fingerprint, remove_tree
from slurm_local.controlplane import ControlPlane, words
from slurm_local.debian import require_debian
from slurm_local.kubectl import Kubectl
from slurm_local.layout import CONTROL_PLANE, MOST_NODES, Names, Network
from slurm_local.limits import raise_limits, restore_limits
from slurm_local.machine import machine_root
from slurm_local.machines import Machine, spawn
from slurm_local.network import Wiring
from slurm_local.node import IMPORT_IMAGE, NodeMaker, NodeSettings
from slurm_local.pause import write_pause_archive
from slurm_local.progress import SILENT, Progress
from slurm_local.settings import StageSettings
from slurm_operator.errors import UserError

_ROOM = 6 * 1024**3

# A CoreDNS that was once refused its watches never asks for them again.
_COREDNS = """until kubectl --kubeconfig /stage/coredns.kubeconfig get namespaces >/dev/null 2>&1; do sleep 0.2; done
exec coredns -conf /stage/Corefile
"""


def require_root() -> None:
    if os.geteuid() != 0:
        raise UserError("the local stage needs root: it makes namespaces, mounts and control groups", hint="Use sudo.")


def require_room(*folders: Path) -> None:
    """Fails where a cold start would run out of disk half-way."""
    for folder in folders:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if free < _ROOM:
            raise UserError(
                f"{existing} has {free / 1024**3:.1f} GB free, and the stage needs about {_ROOM // 1024**3} GB",
                hint="Make room there, or point XDG_CACHE_HOME at a larger disk.",
            )


@dataclass(frozen=True)
class Stage:
    """A stage whose settings are known. Nothing here remembers more than its folder does."""

    names: Names
    settings: StageSettings
    progress: Progress = SILENT

    @property
    def network(self) -> Network:
        return Network(self.settings.network)

    @property
    def root(self) -> Path:
        return Path(self.settings.root)

    @cached_property
    def wiring(self) -> Wiring:
        return Wiring(self.root, self.names)

    @cached_property
    def plane(self) -> ControlPlane:
        return ControlPlane(
            folder=self.names.folder / "control-plane",
            address=self.network.control_plane,
            port=6443,
            etcd_port=2379,
            etcd_peer_port=2380,
            service_range=self.network.service_range,
            service_address=self.network.api_service,
            bind_all=True,
        )

    @cached_property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig("admin", "kubernetes-admin", "system:masters")

    @cached_property
    def kubectl(self) -> Kubectl:
        return Kubectl(self.root, self.kubeconfig)

    @cached_property
    def control_plane(self) -> Machine:
        plane = self.plane
        coredns = plane.kubeconfig("coredns", addons.COREDNS_USER)
        return Machine(
            names=self.names,
            name=CONTROL_PLANE,
            root=self.root,
            services={
                "etcd": _service(words("etcd", plane.etcd())),
                "kube-apiserver": _service(words("kube-apiserver", plane.apiserver())),
                "kube-controller-manager": _service(words("kube-controller-manager", plane.controller_manager())),
                "kube-scheduler": _service(words("kube-scheduler", plane.scheduler())),
                "coredns": _COREDNS,
            },
            files={"Corefile": addons.corefile(), "coredns.kubeconfig": coredns.read_text()},
            binds={Path(self.settings.binaries): "/usr/local/bin", plane.folder: str(plane.folder)},
        )

    def node(self, node: NodeSettings) -> Machine:
        maker = NodeMaker(self.names, self.network, self.plane, self.root, Path(self.settings.binaries))
        return maker.machine(node)

    def find(self, name: str) -> NodeSettings:
        """The settings of a node, by its name or its number."""
        for node in self.settings.nodes:
            if name in {node.name, str(node.index)}:
                return node
        known = ", ".join(node.name for node in self.settings.nodes)
        raise UserError(f"the stage '{self.names.stage}' has no node '{name}'", hint=f"Its nodes are {known}.")

    # -- starting

    def start(self, lock: int) -> None:
        """Starts whatever of the stage does not run, and returns once the API answers and every node is ready."""
        self.wiring.add_bridge(self.network)
        count = len(self.settings.nodes)
        with self.progress.step(f"starting the control plane and {count} nodes", usual=8):
            self._prepare_images()
            self._boot(self.control_plane, 0, lock)
            for node in self.settings.nodes:
                self._boot(self.node(node), node.index, lock)
            self.wait_api()
        with self.progress.step("setting up DNS and storage classes", usual=2):
            self.kubectl.apply(addons.manifests(self.network))
            self._start_provisioner(lock)
        with self.progress.step(f"waiting for {count} nodes and DNS", usual=5):
            self.wait_nodes([node.name for node in self.settings.nodes])
            self.control_plane.run("/bin/sh", "-c", _DNS_IS_READY, timeout=60)

    def _prepare_images(self) -> None:
        images = self.names.folder / "images"
        images.mkdir(exist_ok=True)
        if not (images / "pause.tar").exists():
            write_pause_archive(Path(self.settings.binaries) / "pause", images / "pause.tar")

    def _boot(self, machine: Machine, index: int, lock: int) -> None:
        """Starts a machine that does not run, on a network of its own that is new every time."""
        if machine.pid is not None:
            return
        self.progress.detail(f"starting {machine.name}")
        machine.stop(patience=0)
        self.wiring.add_machine(self.network, machine.name, index, [node.index for node in self.settings.nodes])
        machine.start(lock)

    def _start_provisioner(self, lock: int) -> None:
        group = f"{self.names.cgroup}/provisioner"
        if cgroups.processes(group):
            return
        kubeconfig = self.plane.kubeconfig("provisioner", addons.PROVISIONER_USER)
        cgroups.create(group)
        program = [sys.executable, "-m", "slurm_local.provisioner", str(self.names.folder), str(kubeconfig)]
        command = ["/bin/sh", "-c", 'while :; do "$@"; sleep 1; done', "sh", *program]
        spawn(group, command, log=self.names.folder / "provisioner.log", lock=lock)

    def wait_api(self, timeout: float = 90) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.kubectl("get", "--raw", "/readyz", "--request-timeout=2s", timeout=20)
            except UserError as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"the API server was not ready after {timeout:.0f} s: {error}",
                        hint=f"slurm-operator local logs kube-apiserver --name {self.names.stage}",
                    ) from error
                time.sleep(0.1)
            else:
                return

    def ready_nodes(self, since: float = 0) -> dict[str, bool]:
        """Every node that the API knows, and whether it said that it is ready, at `since` or later."""
        items = self.kubectl.json("get", "nodes")["items"]
        return {
            item["metadata"]["name"]: any(
                condition["type"] == "Ready"
                and condition["status"] == "True"
                and datetime.fromisoformat(condition["lastHeartbeatTime"]).timestamp() >= since
                for condition in item["status"].get("conditions", [])
            )
            for item in items
        }

    def wait_nodes(self, names: list[str], *, timeout: float = 120, since: float = 0) -> None:
        """Returns once all of them are ready, by a report of theirs that is not older than `since`."""
        deadline = time.monotonic() + timeout
        while missing := [name for name in names if not self.ready_nodes(since).get(name)]:
            if time.monotonic() > deadline:
                raise UserError(
                    f"{', '.join(missing)} did not become ready within {timeout:.0f} s",
                    hint=f"slurm-operator local logs kubelet --name {self.names.stage} --node {missing[0]}",
                )
            time.sleep(0.3)

    # -- nodes, one by one

    def start_node(self, node: NodeSettings, lock: int) -> None:
        with self.progress.step(f"starting {node.name}", usual=12):
            # The API has heartbeats in whole seconds, and believes a silent node for a while.
            since = int(time.time()) if self.node(node).pid is None else 0
            self._boot(self.node(node), node.index, lock)
            self.wait_nodes([node.name], since=since)

    def stop_node(self, node: NodeSettings, *, patience: float) -> None:
        with self.progress.step(f"stopping {node.name}", usual=3):
            self.node(node).stop(patience=patience)
            self.wiring.remove_machine(node.name, node.index)

    def with_node(self, node: NodeSettings) -> "Stage":
        """The same stage with one more node, which its machines know the way to."""
        grown = msgspec.structs.replace(self.settings, nodes=(*self.settings.nodes, node))
        settings.save(self.names, grown)
        for machine, _ in self._running():
            self.wiring.add_route(self.network, machine.name, node.index)
        return Stage(self.names, grown, self.progress)

    def next_index(self) -> int:
        return 1 + max((node.index for node in self.settings.nodes), default=0)

    def _running(self) -> list[tuple[Machine, int]]:
        machines = [(self.control_plane, 0), *((self.node(node), node.index) for node in self.settings.nodes)]
        return [(machine, index) for machine, index in machines if machine.pid is not None]

    # -- images

    def load_image(self, archive: Path) -> list[str]:
        """Keeps an image archive for every node of now and later; returns the nodes that it was brought into."""
        if not archive.is_file():
            raise UserError(f"there is no file {archive}")
        status = archive.stat()
        key = fingerprint(str(archive.resolve()), str(status.st_size), str(status.st_mtime_ns))
        kept = self.names.folder / "images" / f"{key}.tar"
        if not kept.exists():
            partial = kept.with_suffix(".partial")
            partial.unlink(missing_ok=True)
            try:
                partial.hardlink_to(archive)
            except OSError:
                shutil.copyfile(archive, partial)
            if layers.is_ours(archive):
                steps = layers.unpack(archive)
                kept.with_suffix(".layers").write_text("".join(f"{step}\n" for step in steps))
            partial.rename(kept)
        nodes = [machine for machine, index in self._running() if index]
        with ThreadPoolExecutor() as workers:
            list(workers.map(lambda node: self._bring(node, kept.name), nodes))
        return [node.name for node in nodes]

    def _bring(self, machine: Machine, image: str) -> None:
        machine.run("/bin/sh", "-c", IMPORT_IMAGE.read_text(), "import", f"/stage/images/{image}", timeout=300)


_DNS_IS_READY = "until busybox wget -q -T 2 -O /dev/null http://127.0.0.1:8181/ready; do sleep 0.2; done"


def _service(command: list[str]) -> str:
    quoted = " ".join(f"'{word}'" for word in command)
    return f"exec {quoted}\n"


def existing(name: str, progress: Progress = SILENT) -> Stage:
    """The stage of that name; a sentence if there is none."""
    names = Names(name)
    found = settings.load(names)
    if found is None:
        raise UserError(f"there is no stage '{name}'", hint=f"slurm-operator local up --name {name}")
    return Stage(names, found, progress)


def up(name: str, nodes: list[NodeSettings], progress: Progress = SILENT, given: Path | None = None) -> Stage:
    """Brings a stage up: makes what it lacks, starts what does not run, and is quick where all is well."""
    require_root()
    require_debian()
    names = Names(name)
    if len(nodes) > MOST_NODES:
        raise UserError(f"a stage has at most {MOST_NODES} nodes")
    known = settings.load(names)
    if known is None or not (Path(known.root).exists() and Path(known.binaries).exists()):
        require_room(names.folder, cache_home())
        programs, root = binaries(progress, given), machine_root(progress)
    else:
        programs, root = Path(known.binaries), Path(known.root)
    with settings.locked(names) as lock:
        known = settings.load(names)
        network = Network(known.network) if known else Wiring(root, names).choose()
        chosen = StageSettings(
            network=network.second,
            binaries=str(programs),
            root=str(root),
            nodes=known.nodes if known else tuple(nodes),
        )
        settings.save(names, chosen)
        raise_limits()
        stage = Stage(names, chosen, progress)
        stage.start(lock)
    return stage


def down(name: str, progress: Progress = SILENT) -> bool:
    """Removes every trace of a stage, finished or not; says whether there was one."""
    require_root()
    names = Names(name)
    if not names.folder.exists():
        return False
    with settings.locked(names), progress.step(f"removing the stage '{name}'", usual=4):
        cgroups.kill(names.cgroup)
        known = settings.load(names)
        if known is not None:
            Wiring(Path(known.root), names).remove()
        cgroups.remove(names.cgroup)
        remove_tree(names.folder)
    restore_limits()
    for folder in (names.folder.parent, names.folder.parent.parent):
        with suppress(OSError):  # other stages live there
            folder.rmdir()
    return True

"""Stages that come and go: nothing of them is left, whenever and however they end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_local import cgroups
from slurm_local.debian import Root, make_root
from slurm_local.layout import CONTROL_PLANE, Names
from slurm_local.machine import machine_root, program
from slurm_local.stage import down, existing
from slurm_operator.errors import UserError
from tests.e2e.stage import Cluster, local, pod, write_test_image

NAME = "brief"
NAMES = Names(NAME)
LINKS = Path("/sys/class/net")
LIMIT = 15  # seconds that `down` may take


@pytest.fixture(autouse=True)
def gone() -> Iterator[None]:
    down(NAME)
    yield
    down(NAME)


def traces() -> dict[str, list[str]]:
    """Whatever on this machine belongs to the stage, by kind."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    links = [path.name for path in LINKS.iterdir()]
    found = {
        "processes": [*map(str, cgroups.processes(NAMES.cgroup)), *processes_naming(str(NAMES.folder))],
        "mounts": [line for line in mounts if str(NAMES.folder) in line],
        "links": [link for link in links if link.startswith(NAMES.tag)],
        "routes": [line for line in host_ip("route", "show", "table", "all").splitlines() if NAMES.tag in line],
        "control groups": [str(tree) for tree in cgroups.trees(NAMES.cgroup) if tree.exists()],
        "files": [str(NAMES.folder)] if NAMES.folder.exists() else [],
    }
    return {kind: entries for kind, entries in found.items() if entries}


def processes_naming(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if text in words and path.parent.name != str(os.getpid()):
            found.append(words)
    return found


def host_ip(*arguments: str) -> str:
    command = [*program(machine_root(), "ip"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def machine_wide() -> dict[str, str]:
    """What a stage could change without putting its name on it."""
    nft = [*program(machine_root(), "nft")[:-1], str(machine_root() / "usr/sbin/nft"), "list", "tables"]
    settings = ["net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"]
    return {
        "nft tables": subprocess.run(nft, check=True, capture_output=True, text=True).stdout,
        **{name: Path("/proc/sys", name).read_text() for name in settings},
    }


@pytest.mark.timeout(240)
def test_a_second_stage_beside_the_first_grows_and_leaves_no_trace(cluster: Cluster, tmp_path: Path) -> None:
    wide = machine_wide()
    local("up", "--name", NAME, "--nodes", "1", "--node-cpus", "16")
    stage = existing(NAME)
    write_test_image(stage.root, tmp_path / "busybox.tar")
    local("load-image", str(tmp_path / "busybox.tar"), "--name", NAME)

    started = time.monotonic()
    local("up", "--name", NAME)
    assert time.monotonic() - started < 15

    local("node", "add", "--name", NAME, "--label", "pool=late", "--taint", "pool=late:NoSchedule")
    late = stage.kubectl.json("get", "node", "node-2")
    assert late["metadata"]["labels"]["pool"] == "late"
    assert {"key": "pool", "value": "late", "effect": "NoSchedule"} in late["spec"]["taints"]
    assert stage.kubectl.json("get", "node", "node-1")["status"]["allocatable"]["cpu"] == "16"

    pair = Cluster(existing(NAME))
    pair.kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=30s")
    pair.apply("default", pod("one", nodeName="node-1"), pod("two", nodeName="node-2"))
    pair.wait_ready("default", "one", "two")
    address = pair.get("default", "pod", "two")["status"]["podIP"]
    assert "0% packet loss" in pair.run("default", "one", "ping", "-c", "1", "-W", "5", address)

    assert down_in_seconds() < LIMIT
    assert traces() == {}
    assert machine_wide() == wide
    assert set(cluster.stage.ready_nodes().values()) == {True}


# Each comes into being at another moment of a start, in this order.
MOMENTS: dict[str, Callable[[], bool]] = {
    "folder": NAMES.folder.exists,
    "settings": (NAMES.folder / "stage.json").exists,
    "bridge": (LINKS / NAMES.bridge).exists,
    "network namespace": NAMES.namespace(CONTROL_PLANE).exists,
    "cable": (LINKS / NAMES.link(0)).exists,
    "process": lambda: bool(cgroups.processes(NAMES.cgroup)),
    "process of a node": lambda: bool(cgroups.processes(f"{NAMES.cgroup}/node-1")),
    "log of the kubelet": (NAMES.machine("node-1") / "log/kubelet.log").exists,
    "provisioner": lambda: bool(cgroups.processes(f"{NAMES.cgroup}/provisioner")),
    "running kubectl": lambda: any("kubectl" in words for words in processes_naming(str(NAMES.folder))),
}


@pytest.mark.parametrize("seconds", [2.0, 4.0, 8.0])
def test_nothing_is_left_of_a_start_that_was_killed(seconds: float) -> None:
    start_and_kill(after(seconds))

    local("down", "--name", NAME)

    assert traces() == {}


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left_of_a_start_that_was_killed_as_soon_as_there_was_a(moment: str) -> None:
    start_and_kill(MOMENTS[moment])

    took = down_in_seconds()

    assert traces() == {}
    assert took < LIMIT


def test_an_interrupted_start_goes_on() -> None:
    start_and_kill(after(1.5))

    local("up", "--name", NAME, "--nodes", "1")

    assert "Ready" in local("status", "--name", NAME).stdout


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def start_and_kill(now: Callable[[], bool]) -> None:
    program_ = str(Path(sys.executable).parent / "slurm-operator")
    process = subprocess.Popen(
        [program_, "local", "up", "--name", NAME, "--nodes", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not now():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()


def down_in_seconds() -> float:
    started = time.monotonic()
    local("down", "--name", NAME)
    return time.monotonic() - started


def test_kubectl_comes_with_the_stage(cluster: Cluster) -> None:
    named = local("kubectl", "--name", cluster.stage.names.stage, "get", "namespaces", "-o", "name").stdout.split()

    assert "namespace/kube-system" in named


def test_a_stage_that_does_not_exist_is_named() -> None:
    done = local("status", "--name", NAME, check=False)

    assert done.returncode == 1
    assert f"there is no stage '{NAME}'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_network_nothing_is_left_half_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("slurm_local.debian._mirror", lambda: "http://127.0.0.1:9/debian")

    with pytest.raises(UserError) as failure:
        make_root(Root(name="tiny", packages=("busybox",)))

    assert "making the Debian root 'tiny' failed" in failure.value.message
    assert "apt-get update" in failure.value.hint
    assert [path.name for path in (tmp_path / "slurm-operator" / "roots").iterdir() if path.suffix != ".lock"] == []

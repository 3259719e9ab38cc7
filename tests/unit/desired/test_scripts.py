"""The shell programs of generated pods, run in the shells that images have."""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from slurm_operator.api import names
from slurm_operator.desired.scripts import script

SHELLS = [shell for shell in ("bash", "dash") if shutil.which(shell)]


@contextmanager
def running(shell: str, text: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    path = os.environ["PATH"]
    environment = {"PATH": f"{env.pop('BIN')}:{path}" if "BIN" in env else path, **env}
    heard = ("env", "--default-signal=HUP")  # whoever was started with `nohup` would not hear it
    process = subprocess.Popen(
        [*heard, shell, "-c", text], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_log_sidecar_outlives_its_writers_and_ends_on_a_signal(shell: str, tmp_path: Path) -> None:
    log = tmp_path / "log" / "slurmd.log"
    log.parent.mkdir()
    log.write_text("an ordinary file is in the way\n")
    announced = script("logfile").replace("# In the background", "echo started\n# In the background")
    with running(shell, announced, SOCKET=str(log)) as sidecar:
        assert sidecar.stdout is not None
        assert sidecar.stdout.readline() == "started\n"
        assert log.is_fifo()
        for line in ("first\n", "second\n"):
            log.write_text(line)
            assert sidecar.stdout.readline() == line
        sidecar.terminate()
        assert sidecar.wait(timeout=10) == 0
        assert sidecar.stdout.read() == "", "its reader is gone too"


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """Files as the kubelet mounts them, in two versions that say the same."""
    folder = tmp_path / "etc"
    for version in ("..one", "..two"):
        (folder / version).mkdir(parents=True)
        (folder / version / "slurm.conf").write_text(conf("a"))
    (folder / "..data").symlink_to("..one")
    (folder / "slurm.conf").symlink_to("..data/slurm.conf")
    return folder


def about(folder: Path, name: str) -> str:
    settings = f"TOLD={folder.parent / 'told'}\n"
    text = settings + script("told") + script(name)
    return text.replace("/etc/slurm", str(folder)).replace("sleep 2", "sleep 0.05")


def test_reconfigure_follows_files_but_not_the_kubelets_directories(mounted: Path, tmp_path: Path) -> None:
    """scenario 178"""
    scontrol(tmp_path, PINGED)
    calls = tmp_path / "calls"
    text = about(mounted, "reconfigure").replace("wait $!\n", "wait $!\n echo looked\n", 1)
    with running("bash", text, BIN=str(tmp_path)) as sidecar:
        assert sidecar.stdout is not None
        assert [sidecar.stdout.readline() for _ in range(2)] == ["accepted a\n", "looked\n"]
        swap(mounted / "..data", "..two")
        assert [sidecar.stdout.readline() for _ in range(2)] == ["looked\n"] * 2
        (mounted / "..two" / "slurm.conf").write_text(conf("b"))
        assert "accepted b\n" in iter(sidecar.stdout.readline, "")
    assert calls.read_text().startswith("reconfigure\nping\n")

    (mounted / "..two" / "slurm.conf").write_text(conf("c"))
    with running("bash", text, BIN=str(tmp_path)) as sidecar:
        assert sidecar.stdout is not None
        assert "accepted c\n" in iter(sidecar.stdout.readline, ""), "it changed while the pod was away"


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ('echo one; echo "Bad value BLA for State" >&2; exit 1', "refused b: one Bad value BLA for State \n"),
        (
            "echo slurm_reconfigure error: Unable to contact slurm controller; exit 1",
            "waiting b: slurm_reconfigure error",
        ),
        ('[ "$1" = reconfigure ] || echo "Slurmctld(primary) at one is DOWN"', "waiting b: Slurmctld(primary) at one"),
    ],
    ids=["refused", "not there", "ends after it has answered"],
)
def test_only_an_accepted_configuration_counts_as_delivered(
    mounted: Path, tmp_path: Path, answer: str, line: str
) -> None:
    scontrol(tmp_path, answer)
    with running("bash", about(mounted, "reconfigure"), BIN=str(tmp_path)) as sidecar:
        assert sidecar.stdout is not None
        assert sidecar.stdout.readline() == "accepted a\n"
        (mounted / "..one" / "slurm.conf").write_text(conf("b"))
        assert sidecar.stdout.readline().startswith(line)
        scontrol(tmp_path, PINGED)
        assert sidecar.stdout.readline() == "accepted b\n", "tried again, and nothing was said twice"


PINGED = '[ "$1" = reconfigure ] || echo "Slurmctld(primary) at one is UP"'


def scontrol(path: Path, answer: str) -> None:
    """A command that writes down how it is called; replaced at once, as it may be called meanwhile."""
    fresh = path / "scontrol-new"
    program(fresh, f'echo "$@" >> {path / "calls"}\n{answer}')
    fresh.rename(path / "scontrol")


def conf(version: str) -> str:
    return f"ClusterName={version}\n# Configuration {version}\n"


def test_workers_follow_a_slurmctld_that_came_back_with_other_files(mounted: Path, tmp_path: Path) -> None:
    """scenario 178"""
    calls = tmp_path / "calls"
    scontrol(tmp_path, PINGED)
    with readiness("503 Standby", "200 OK", "200 OK") as port:
        text = f"PORT={port}\n" + about(mounted, "restarted").replace(") &", "; echo followed)")
        text = text.replace("exec </dev/null >/dev/null 2>&1 &&", "")

        def follow() -> str:
            with running("bash", text, BIN=str(tmp_path)) as hook:
                return hook.communicate(timeout=20)[0]

        assert follow() == "followed\n"
        assert not calls.exists(), "nobody holds older files than those of the first start"
        (mounted / "..one" / "slurm.conf").write_text("ClusterName=b\n")
        assert follow() == "followed\n"
    assert calls.read_text() == "reconfigure\nping\n"


@contextmanager
def readiness(*answers: str) -> Iterator[int]:
    """A slurmctld that is asked whether it is the active one, and answers so."""
    with socket.create_server(("localhost", 0)) as server:

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as asked:
                    assert asked.readline() == b"GET /readyz HTTP/1.1\r\n"
                    assert b"\r\n" in iter(asked.readline, b"")
                    connection.sendall(f"HTTP/1.1 {answer}\r\n\r\n".encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(timeout=10)
        assert not thread.is_alive(), "it was asked less often than expected"


def swap(link: Path, target: str) -> None:
    fresh = link.with_name("..data_tmp")
    fresh.symlink_to(target)
    fresh.rename(link)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("copied", [False, True], ids=["in place", "copied"])
def test_a_daemon_hears_of_new_keys_once_and_the_hook_ends_at_once(shell: str, copied: bool, tmp_path: Path) -> None:
    """scenario 187"""
    source, target, heard = tmp_path / "keys", tmp_path / "etc", tmp_path / "heard"
    target.mkdir()
    for version in ("..one", "..two"):
        (source / version).mkdir(parents=True)
        (source / version / "slurm.jwks").write_text(version)
    (source / "..data").symlink_to("..one")
    (source / "slurm.jwks").symlink_to("..data/slurm.jwks")
    settings = f"DAEMON=sackd KEYS={source} COPY={target if copied else ''}\n"
    text = settings + script("keys").replace("-o 401 -g 401", "").replace("sleep 2", "sleep 0.05")
    with running("bash", f"trap 'echo heard >> {heard}' HUP; echo ready; while :; do sleep 0.05; done") as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "ready\n"
        program(tmp_path / "pidof", f"echo {daemon.pid}")
        with running(shell, text.replace("sleep 5", "sleep 0.1"), BIN=str(tmp_path)) as hook:
            assert hook.communicate(timeout=5)[0] == "", "whoever reads the output of the hook is not kept waiting"
            swap(source / "..data", "..two")
            deadline = time.monotonic() + 10
            while not heard.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.5)  # long enough for a second signal, which must not come
            assert heard.read_text() == "heard\n"
    assert (target / "slurm.jwks").exists() == copied


@pytest.mark.parametrize("shell", SHELLS)
def test_initconf_copies_keys_and_configuration_flat_and_private(shell: str, tmp_path: Path) -> None:
    source, target = tmp_path / "slurm", tmp_path / "etc"
    (source / "..data").mkdir(parents=True)
    target.mkdir()
    for name in ("slurm.jwks", "slurm.conf", "other.txt"):
        (source / "..data" / name).write_text(name)
        (source / name).symlink_to(f"..data/{name}")
    text = script("initconf").replace("/mnt/slurm", str(source)).replace("/mnt/etc/slurm", str(target))
    text = text.replace("401:401", f"{os.getuid()}:{os.getgid()}")
    subprocess.run([shell, "-c", text], check=True, capture_output=True, timeout=10)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in target.iterdir()} == {
        "slurm.jwks": "0o600",
        "slurm.conf": "0o644",
    }


SHOWN = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.10 AvailableFeatures=gpu "
    "Gres=(null) NodeAddr=10.0.0.7 NodeHostName={name} Version=26.05.0 OS=Linux 6.1 #1 SMP State of the art  "
    "RealMemory=200 Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A "
    "Partitions=all  CfgTRES=cpu=2,mem=200M AllocTRES= CurrentWatts=n/a AveWatts=n/a{tail}"
)
OURS = "slurm-operator: scaled in"
ANSWERED_READ = ["-o show node slinky-0"]
TAKEN_OUT = [*ANSWERED_READ, "update NodeName=slinky-0 State=DOWN Reason=slurm-operator: worker pod is going away"]


def prestop(shell: str, folder: Path, show: str, host: str = "slinky-0") -> list[str]:
    """Run the hook beside a scontrol that shows the node so; return the calls that scontrol got."""
    calls = folder / "calls"
    program(folder / "scontrol", f'echo "$*" >> {calls}\n[ "$1" = update ] && exit 1\n{show}')
    program(folder / "hostname", f"echo {host}")
    with running(shell, script("prestop"), BIN=str(folder)) as hook:
        assert hook.wait(timeout=11) == 0, "the hook never fails"
    return calls.read_text().splitlines()


def shown(folder: Path, state: str, tail: str = "") -> str:
    answer = folder / "answer"
    answer.write_text(SHOWN.format(name="slinky-0", state=state, tail=tail) + "\n")
    return f"cat {answer}"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("IDLE", ""),
        ("MIXED+DYNAMIC_NORM", ""),
        ("IDLE+POWERED_DOWN+DYNAMIC_NORM", ""),
        ("IDLE+DRAIN+DYNAMIC_NORM", OURS),
        ("MIXED+DRAIN", OURS),
        ("DOWN*", "slurm-operator: worker pod is going away"),
        ("DOWN+DRAIN+DYNAMIC_NORM+NOT_RESPONDING", OURS),
    ],
)
def test_prestop_takes_its_own_node_out_of_service(shell: str, state: str, reason: str, tmp_path: Path) -> None:
    tail = f" Reason={reason} [slurm@2026-01-01T00:00:00] Comment=Reason=bad State=DOWN" if reason else ""
    assert prestop(shell, tmp_path, shown(tmp_path, state, tail)) == TAKEN_OUT
    assert TAKEN_OUT[-1].split("Reason=")[1].startswith(names.REASON_PREFIX)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("state", ["IDLE+DRAIN+DYNAMIC_NORM", "MIXED+DRAIN", "DOWN*", "DOWN+DYNAMIC_NORM", "IDLE+FAIL"])
@pytest.mark.parametrize(
    "reason",
    [
        "bad disk, ticket 4711 State=IDLE Reason=slurm-operator: x",
        'it\'s "quoted" $(date) `x` \\ *',
        "Not responding",
        "slurm-operator",
        "",
    ],
)
def test_prestop_leaves_the_claim_of_an_administrator(shell: str, state: str, reason: str, tmp_path: Path) -> None:
    tail = f" Reason={reason} [root@2026-01-01T00:00:00] Comment={OURS}" if reason else ""
    assert prestop(shell, tmp_path, shown(tmp_path, state, tail)) == ANSWERED_READ


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "show", ["echo Node slinky-0 not found; exit 1", "echo slurm_load_node error", "exec sleep 60"]
)
def test_prestop_leaves_a_node_that_cannot_be_read(shell: str, show: str, tmp_path: Path) -> None:
    assert prestop(shell, tmp_path, show) == ANSWERED_READ


@pytest.mark.parametrize("shell", SHELLS)
def test_prestop_names_the_node_as_slurmd_does(shell: str, tmp_path: Path) -> None:
    assert prestop(shell, tmp_path, shown(tmp_path, "IDLE"), host="slinky-0.example.com") == TAKEN_OUT

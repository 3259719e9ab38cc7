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
    conf = tmp_path / "etc"
    for version in ("..one", "..two"):
        (conf / version).mkdir(parents=True)
        (conf / version / "slurm.conf").write_text("ClusterName=a\n")
    (conf / "..data").symlink_to("..one")
    (conf / "slurm.conf").symlink_to("..data/slurm.conf")
    return conf


def about(conf: Path, name: str) -> str:
    settings = f"TOLD={conf.parent / 'told'}\n"
    text = settings + script("told") + script(name)
    return text.replace("/etc/slurm", str(conf)).replace("sleep 2", "sleep 0.05")


def test_reconfigure_follows_files_but_not_the_kubelets_directories(mounted: Path, tmp_path: Path) -> None:
    """scenario 178"""
    calls = tmp_path / "calls"
    program(tmp_path / "scontrol", f'echo "$@" >> {calls}\n[ "$(wc -l < {calls})" -gt 1 ]')
    text = about(mounted, "reconfigure").replace("wait $!\n", "wait $!\n echo looked\n", 1)
    with running("bash", text, BIN=str(tmp_path)) as sidecar:
        assert sidecar.stdout is not None
        assert sidecar.stdout.readline() == "looked\n"
        swap(mounted / "..data", "..two")
        assert [sidecar.stdout.readline() for _ in range(2)] == ["looked\n"] * 2
        (mounted / "..two" / "slurm.conf").write_text("ClusterName=b\n")
        seen = list(iter(sidecar.stdout.readline, "reconfigured\n"))
    assert seen[-1] == "configuration changed, reconfiguring\n"
    assert calls.read_text() == "reconfigure\n" * 2, "the first attempt failed and was repeated"

    (mounted / "..two" / "slurm.conf").write_text("ClusterName=c\n")
    with running("bash", text, BIN=str(tmp_path)) as sidecar:
        assert sidecar.stdout is not None
        assert "reconfigured\n" in iter(sidecar.stdout.readline, ""), "it changed while the pod was away"


def test_workers_follow_a_slurmctld_that_came_back_with_other_files(mounted: Path, tmp_path: Path) -> None:
    """scenario 178"""
    calls = tmp_path / "calls"
    program(tmp_path / "scontrol", f'echo "$@" >> {calls}')
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
    assert calls.read_text() == "reconfigure\n"


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


@pytest.mark.parametrize("shell", SHELLS)
def test_prestop_names_its_own_node_and_never_fails(shell: str, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    program(tmp_path / "scontrol", f"printf '%s\\n' \"$@\" > {calls}\nexit 1")
    program(tmp_path / "hostname", "echo slinky-0")
    with running(shell, script("prestop"), BIN=str(tmp_path)) as hook:
        assert hook.wait(timeout=10) == 0
    words = calls.read_text().splitlines()
    assert words[:3] == ["update", "NodeName=slinky-0", "State=DOWN"]
    assert words[3].startswith("Reason=slurm-operator: ")

"""The shell programs of generated pods, run in the shells that images have."""

import os
import shutil
import signal
import subprocess
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
    process = subprocess.Popen(
        [shell, "-c", text], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
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


def test_reconfigure_follows_files_but_not_the_kubelets_directories(tmp_path: Path) -> None:
    """scenario 178"""
    conf, binaries = tmp_path / "etc", tmp_path / "bin"
    conf.mkdir()
    binaries.mkdir()
    for version in ("..one", "..two"):
        (conf / version).mkdir()
        (conf / version / "slurm.conf").write_text("ClusterName=a\n")
    (conf / "..data").symlink_to("..one")
    (conf / "slurm.conf").symlink_to("..data/slurm.conf")
    calls = tmp_path / "calls"
    program(binaries / "scontrol", f'echo "$@" >> {calls}\n[ "$(wc -l < {calls})" -gt 1 ]')
    text = script("reconfigure").replace("/etc/slurm", str(conf)).replace("sleep 2", "sleep 0.05")
    text = text.replace("current=$(fingerprint)", "current=$(fingerprint); echo looked", 1)
    with running("bash", text, BIN=str(binaries)) as sidecar:
        assert sidecar.stdout is not None
        assert sidecar.stdout.readline() == "looked\n"
        swap(conf / "..data", "..two")
        assert [sidecar.stdout.readline() for _ in range(2)] == ["looked\n"] * 2
        (conf / "..two" / "slurm.conf").write_text("ClusterName=b\n")
        seen = list(iter(sidecar.stdout.readline, "reconfigured\n"))
    assert seen[-1] == "configuration changed, reconfiguring\n"
    assert calls.read_text() == "reconfigure\n" * 2, "the first attempt failed and was repeated"


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

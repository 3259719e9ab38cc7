"""Programs that we run for long: what they said when they failed, and their end when we are killed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_local.shell import run_logged
from slurm_operator.errors import UserError


def test_a_failure_is_a_sentence_with_the_last_lines_and_the_way_on(tmp_path: Path) -> None:
    with pytest.raises(UserError) as failure:
        run_logged(["sh", "-c", "echo first; echo why >&2; exit 3"], what="trying", log=tmp_path / "log", hint="Retry.")

    assert failure.value.message == "trying failed:\nsh -c 'echo first; echo why >&2; exit 3'\nfirst\nwhy"
    assert failure.value.hint == f"Retry. The whole log is {tmp_path / 'log'}."


LONG = """
from pathlib import Path
from slurm_local.shell import run_logged
run_logged(["sh", "-c", "echo up; sleep 987.125"], what="x", log=Path("{folder}/log"), hint="")
"""
KUBECTL = """
from pathlib import Path
from slurm_local.kubectl import Kubectl
Kubectl(Path("{folder}"), Path("kubeconfig"))("get", "pods")
"""


@pytest.mark.parametrize("script", [LONG, KUBECTL], ids=["a long program", "kubectl"])
def test_what_we_started_dies_with_us(script: str, tmp_path: Path) -> None:
    loader = tmp_path / "lib64" / "ld-linux-x86-64.so.2"  # kubectl is run by the loader of its root
    loader.parent.mkdir()
    loader.write_text("#!/bin/sh\nexec sleep 987.125\n")
    loader.chmod(0o755)
    process = subprocess.Popen([sys.executable, "-c", script.format(folder=tmp_path)])
    deadline = time.monotonic() + 30
    while not sleepers() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sleepers()

    process.kill()
    process.wait()

    while sleepers() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not sleepers()


def sleepers() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == b"sleep\x00987.125\x00":
                found.append(path.parent.name)
        except OSError:  # it has ended
            continue
    return found

"""When slurmctld may start on a state that lacks files: only if it died before it could have saved them."""

import os
import subprocess
from pathlib import Path

import pytest

from slurm_local.recipes import load

SCRIPT = load("slurm").files / "usr/local/bin/slurm-entry"
CONF = """\
SlurmctldHost=slurm-controller-0(slurm-controller.slurm)
#SlurmctldHost=not-this-one
AccountingStorageType=accounting_storage/slurmdbd
StateSaveLocation={state}
"""
MADE = 1_800_000_000


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What a slurmctld leaves behind that was killed in its first minutes."""
    folder = tmp_path / "state"
    folder.mkdir()
    (tmp_path / "slurm.conf").write_text(CONF.format(state=folder))
    write(folder / "clustername", MADE)
    write(folder / "job_state", MADE + 290)
    return folder


def write(file: Path, when: int) -> None:
    file.touch()
    os.utime(file, (when, when))


def start(state: Path) -> bool:
    """Whether slurmctld is let start: the file that would make it refuse is gone."""
    functions, _, _ = SCRIPT.read_text().partition("\ndaemon=")
    environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(state.parent / "slurm.conf")}
    subprocess.run(["bash", "-c", f"{functions}\nlet_start"], env=environment, check=True, timeout=10)
    return not (state / "clustername").exists()


def test_one_that_died_before_its_first_save_starts_with_its_jobs(state: Path) -> None:
    assert start(state)
    assert (state / "job_state").exists()
    assert start(state), "nothing is missed when the file is gone already"


@pytest.mark.parametrize("file", ["assoc_usage", "assoc_usage.old", "qos_usage", "qos_usage.old"])
def test_one_that_has_saved_before_is_left_to_a_person(state: Path, file: str) -> None:
    write(state / file, MADE + 300)
    assert not start(state)


def test_one_that_has_run_for_long_must_have_saved_so_files_were_lost(state: Path) -> None:
    write(state / "job_state", MADE + 3600)
    assert not start(state)


@pytest.mark.parametrize(
    "line",
    ["SlurmctldHost=slurm-controller-1(slurm-controller-1.slurm)\n", "AccountingStorageType=accounting_storage/none\n"],
    ids=["a standby may be at work", "no accounting, no usage"],
)
def test_any_other_cluster_is_left_alone(state: Path, line: str) -> None:
    conf = state.parent / "slurm.conf"
    conf.write_text(conf.read_text() + line)
    assert not start(state)


def test_without_a_configuration_nothing_is_touched(state: Path) -> None:
    (state.parent / "slurm.conf").unlink()
    assert not start(state)

"""A machine that cannot carry the stage says so in one sentence, before anything is made."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_local import debian
from slurm_local.binaries import GIVEN, PROGRAMS, binaries, pinned_version
from slurm_local.layout import Names, Network
from slurm_local.machines import show_processors
from slurm_local.network import Wiring
from slurm_local.stage import existing, require_room, up
from slurm_operator.cli import main
from slurm_operator.errors import UserError


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(UserError, match="needs root") as failure:
        up("dev", [])

    assert "sudo" in failure.value.hint


def test_another_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "_os_release", lambda: {"ID": "fedora", "PRETTY_NAME": "Fedora 44"})

    with pytest.raises(UserError, match="runs on Debian, and this is Fedora 44") as failure:
        debian.require_debian()

    assert "kubeconfig" in failure.value.hint


def test_relatives_of_debian_are_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "_os_release", lambda: {"ID": "ubuntu", "ID_LIKE": "debian"})

    debian.require_debian()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * 1024**3))

    with pytest.raises(UserError, match=r"has 3\.0 GB free, and the stage needs about 6 GB"):
        require_room(tmp_path / "not" / "there" / "yet")


def test_no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "_os_release", lambda: {"VERSION_CODENAME": "nowhere"})

    with pytest.raises(UserError, match="knows no Debian mirror"):
        debian._mirror()


def test_given_programs_are_used_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROGRAMS:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv(GIVEN, str(tmp_path))

    assert binaries() == tmp_path
    (tmp_path / "kubelet").unlink()
    with pytest.raises(UserError, match="lacks the programs kubelet"):
        binaries()


def test_one_client_version_for_all() -> None:
    assert pinned_version().startswith("v1.36.")
    assert pinned_version("sigs.k8s.io/kwok").startswith("v0.")


def test_a_network_that_is_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wiring = Wiring(tmp_path / "none", Names("dev"))
    monkeypatch.setattr(wiring, "_routes", list)
    first = wiring.choose()
    monkeypatch.setattr(wiring, "_routes", lambda: [first.whole])

    assert wiring.choose() != first
    monkeypatch.setattr(wiring, "_routes", lambda: [Network(second).whole for second in range(64, 128)])
    with pytest.raises(UserError, match="routes to every network"):
        wiring.choose()


def test_processors_are_shown_without_a_topology(tmp_path: Path) -> None:
    show_processors(tmp_path, 3)

    assert sorted(path.name for path in tmp_path.glob("cpu*")) == ["cpu0", "cpu1", "cpu2"]
    assert (tmp_path / "online").read_text() == "0-2\n"


def test_an_unknown_stage_is_a_sentence_and_not_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "status", "--name", "never-made"]) == 1
    assert "there is no stage 'never-made'" in capsys.readouterr().err
    with pytest.raises(UserError):
        existing("never-made")

"""What a Debian root is made of, and what is left out of it."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

from slurm_local import debian
from slurm_local.debian import Root


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(debian, "_mirror", lambda: "http://mirror.example/debian")
    monkeypatch.setattr(debian, "_mmdebstrap", lambda: Path("/usr/bin/mmdebstrap"))
    return debian._command(Root("tiny", ("busybox",)), Path("target"))


def kept(command: list[str], path: str) -> bool:
    """As dpkg decides: the last pattern that matches."""
    verdict = True
    for word in command:
        action, _, pattern = word.removeprefix("--dpkgopt=").partition("=")
        if action in ("path-exclude", "path-include") and fnmatch(path, pattern):
            verdict = action == "path-include"
    return verdict


def test_manuals_are_left_out_and_licences_stay(command: list[str]) -> None:
    assert not kept(command, "/usr/share/man/man1/busybox.1.gz")
    assert not kept(command, "/usr/share/doc/busybox/changelog.gz")
    assert kept(command, "/usr/share/doc/busybox/copyright")
    assert kept(command, "/usr/bin/busybox")


def test_what_is_left_out_is_part_of_a_roots_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Root("tiny", ("busybox",)).path
    monkeypatch.setattr(debian, "_KEPT", "/usr/share/doc/*/NOTICE")

    assert Root("tiny", ("busybox",)).path != before

"""Layers that all nodes share: unpacked once, piled up under the names that containerd gives them."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from slurm_local import layers
from slurm_local.oci import Entry, Image, write_archive, write_layer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this machine cannot: files of other owners need root")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/slurm-operator"


@pytest.fixture
def archive(tmp_path: Path, cache: Path) -> Path:
    """One image of two layers, the upper of which takes a file away."""
    below = [Entry("etc", 0o755, "folder"), Entry("etc/kept", 0o640, content=b"k", uid=7), Entry("etc/gone", 0o644)]
    above = [Entry("etc/.wh.gone", 0o644), Entry("bin/new", 0o755, content=b"n")]
    piled = [write_layer(entries, tmp_path / f"{index}.blob") for index, entries in enumerate((below, above))]
    (cache / "images").mkdir(parents=True)
    target = cache / "images/example.tar"
    write_archive(target, [Image("localhost/example:1", piled), Image("localhost/example:2", piled[:1])])
    return target


def test_each_pile_has_the_name_that_the_image_specification_gives_it(archive: Path) -> None:
    lower, upper = layers.unpack(archive)

    assert lower.below == ""
    assert upper.below == lower.chain == f"sha256:{lower.folder}"
    both = f"{lower.chain} sha256:{upper.folder}"
    assert upper.chain == f"sha256:{hashlib.sha256(both.encode()).hexdigest()}"
    assert str(lower).split() == [lower.chain, "-", lower.folder]


def test_files_keep_owner_and_mode_and_removed_ones_are_hidden(archive: Path) -> None:
    lower, upper = (layers.unpacked_home() / step.folder for step in layers.unpack(archive))

    kept = (lower / "etc/kept").stat()
    assert (stat.S_IMODE(kept.st_mode), kept.st_uid) == (0o640, 7)
    hidden = (upper / "etc/gone").lstat()
    assert stat.S_ISCHR(hidden.st_mode)
    assert hidden.st_rdev == 0
    assert not (upper / "etc/.wh.gone").exists()
    assert (upper / "bin/new").read_text() == "n"


def test_what_is_unpacked_is_not_unpacked_again(archive: Path) -> None:
    first = [(layers.unpacked_home() / step.folder).stat().st_ino for step in layers.unpack(archive)]

    assert [(layers.unpacked_home() / step.folder).stat().st_ino for step in layers.unpack(archive)] == first


def test_only_archives_that_we_built_go_into_the_cache(archive: Path, tmp_path: Path) -> None:
    assert layers.is_ours(archive)
    assert not layers.is_ours(tmp_path / "example.tar")

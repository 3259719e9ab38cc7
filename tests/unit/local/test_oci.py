"""An OCI archive holds exactly the given folder, is the same bytes every time, and shares what images share."""

import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_local.oci import Compression, Entry, Image, Layer, folder_entries, write_archive, write_layer

Tree = dict[str, str | None]  # path -> content, or None for a folder


def make_tree(root: Path, tree: Tree) -> Path:
    root.mkdir()
    for name, content in sorted(tree.items()):
        path = root / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return root


def seen(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """What a container would see: mode and content of every path."""
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(root))] = (0, str(path.readlink()))
        else:
            content = path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(root))] = (path.stat().st_mode, content)
    return found


def unpack(layers: list[Layer], target: Path) -> Path:
    """Applies layers as a container runtime does: an entry replaces what was there, a whiteout removes it."""
    target.mkdir()
    for layer in layers:
        with tarfile.open(layer.path) as tar:
            for member in tar:
                folder, _, last = member.name.rpartition("/")
                path = target / member.name
                if last.startswith(".wh."):
                    remove(target / folder / last.removeprefix(".wh."))
                    continue
                if not (member.isdir() and path.is_dir() and not path.is_symlink()):
                    remove(path)
                tar.extract(member, target, filter="fully_trusted")
    return target


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def read_archive(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = make_tree(tmp_path / "root", {"etc/passwd": "root", "usr/bin/tool": "#!/bin/sh", "empty": None})
    (root / "usr/bin/tool").chmod(0o4755)
    (root / "bin").symlink_to("usr/bin")
    (root / "usr/bin/same").hardlink_to(root / "usr/bin/tool")
    return root


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_layer_unpacks_to_the_folder_it_was_made_from(root: Path, tmp_path: Path, compression: Compression) -> None:
    layer = write_layer(folder_entries(root), tmp_path / "layer", compression)

    assert seen(unpack([layer], tmp_path / "out")) == seen(root)
    assert (tmp_path / "out/usr/bin/same").stat().st_ino == (tmp_path / "out/usr/bin/tool").stat().st_ino


def test_a_layer_is_named_by_its_content_and_by_its_bytes(root: Path, tmp_path: Path) -> None:
    plain = write_layer(folder_entries(root), tmp_path / "plain", "none")
    packed = write_layer(folder_entries(root), tmp_path / "packed", "gzip")

    assert plain.digest == plain.diff_id == packed.diff_id != packed.digest
    assert packed.digest == f"sha256:{hashlib.sha256(packed.path.read_bytes()).hexdigest()}"
    assert packed.size == packed.path.stat().st_size


def test_the_same_folder_gives_the_same_bytes_whatever_its_times_and_order(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_file() and not path.is_symlink() and path.name != "same":
            (copy / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy / path.relative_to(root))
            os.utime(copy / path.relative_to(root), (1, 1))
    (copy / "empty").mkdir()
    (copy / "bin").symlink_to("usr/bin")
    (copy / "usr/bin/same").hardlink_to(copy / "usr/bin/tool")

    one = write_layer(folder_entries(root), tmp_path / "one", "gzip")
    two = write_layer(folder_entries(copy), tmp_path / "two", "gzip")
    assert one.path.read_bytes() == two.path.read_bytes()


def test_device_nodes_and_pipes_stay_out(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "pipe")

    names = [entry.name for entry in folder_entries(root)]
    assert "pipe" not in names
    assert "usr/bin/tool" in names


NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(PATHS, st.sampled_from([None, "", "x", "y"]), max_size=8).map(
    lambda tree: {
        name: content
        for name, content in tree.items()
        # a file cannot hold others
        if not any(other.startswith(name + "/") for other in tree) or content is None
    }
)


@given(lower=TREES, upper=TREES)
def test_an_upper_layer_turns_any_folder_into_any_other(
    tmp_path_factory: pytest.TempPathFactory, lower: Tree, upper: Tree
) -> None:
    work = tmp_path_factory.mktemp("layers")
    below, above = make_tree(work / "below", lower), make_tree(work / "above", upper)
    base = write_layer(folder_entries(below), work / "base", "none")
    delta = write_layer(folder_entries(above, below=below), work / "delta", "none")

    assert seen(unpack([base, delta], work / "out")) == seen(above)


def test_what_is_the_same_in_both_folders_is_not_in_the_upper_layer(root: Path, tmp_path: Path) -> None:
    above = Path(shutil.copytree(root, tmp_path / "above", symlinks=True))
    (above / "etc/passwd").write_text("slurm")
    (above / "usr/bin/same").unlink()

    names = [entry.name for entry in folder_entries(above, below=root)]
    assert names == ["etc/passwd", "usr/bin/.wh.same"]


def test_references_in_one_archive_share_their_layers(root: Path, tmp_path: Path) -> None:
    layer = write_layer(folder_entries(root), tmp_path / "layer", "gzip")
    images = [
        Image("localhost/one:1", [layer], entrypoint=["/bin/one"], env={"A": "1"}, user="401:401"),
        Image("localhost/two:1", [layer], entrypoint=["/bin/two"], command=["--help"]),
    ]
    write_archive(tmp_path / "archive.tar", images)

    files = read_archive(tmp_path / "archive.tar")
    manifests = json.loads(files["index.json"])["manifests"]
    assert [each["annotations"]["io.containerd.image.name"] for each in manifests] == [
        "localhost/one:1",
        "localhost/two:1",
    ]
    first, second = (json.loads(files[blob(each)]) for each in manifests)
    assert first["layers"] == second["layers"]
    assert sum(len(content) > 0 for name, content in files.items() if name.startswith("blobs/")) == 5
    config = json.loads(files[blob(first["config"])])
    assert config["config"]["Entrypoint"] == ["/bin/one"]
    assert config["config"]["User"] == "401:401"
    assert "A=1" in config["config"]["Env"]
    assert config["rootfs"]["diff_ids"] == [layer.diff_id]


def test_every_blob_has_the_name_of_its_content(root: Path, tmp_path: Path) -> None:
    layer = write_layer([Entry("hello", 0o644, content=b"hi")], tmp_path / "layer", "gzip")
    write_archive(tmp_path / "archive.tar", [Image("localhost/one:1", [layer])])

    blobs = {name: data for name, data in read_archive(tmp_path / "archive.tar").items() if name.startswith("blobs/")}
    assert blobs
    assert all(name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}" for name, data in blobs.items())


def test_file_capabilities_travel_with_the_file(tmp_path: Path) -> None:
    value = bytes.fromhex("0100000200040000000000000000000000000000")
    layer = write_layer([Entry("tool", 0o755, content=b"x", capabilities=value)], tmp_path / "layer", "none")

    with tarfile.open(fileobj=io.BytesIO(layer.path.read_bytes())) as tar:
        headers = tar.getmember("tool").pax_headers
    assert headers["SCHILY.xattr.security.capability"].encode("utf-8", "surrogateescape") == value


def blob(descriptor: dict[str, Any]) -> str:
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")

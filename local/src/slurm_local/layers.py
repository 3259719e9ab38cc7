"""Layers of the project's own images, unpacked once into the cache and shown to the nodes of every stage.

Each node would otherwise unpack them for itself: tens of thousands of files that are written when images are loaded and
removed, one by one, when the stage goes.
"""

import hashlib
import json
import os
import stat
import tarfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from slurm_local.cache import cache_home, made_once
from slurm_local.shell import run_logged
from slurm_operator.errors import UserError

_DECOMPRESS = {"tar": "cat", "tar+gzip": "gzip -dc", "tar+zstd": "zstd -dc"}
_HIDDEN = ".wh."
_OPAQUE = ".wh..wh..opq"

# $1: the archive, $2: the layer's name in it, $3: what decompresses it, $4: the folder.
_UNPACK = """umask 022
tar -xOf "$1" "$2" | $3 | tar -x -C "$4" --numeric-owner --preserve-permissions --xattrs --xattrs-include='*'
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One layer on top of others: containerd knows the pile by the name `chain`, and what is below it by `below`."""

    chain: str
    below: str
    folder: str

    def __str__(self) -> str:
        return f"{self.chain} {self.below or '-'} {self.folder}"


def unpacked_home() -> Path:
    return cache_home() / "unpacked"


def is_ours(archive: Path) -> bool:
    """Whether the archive is one that we built: others are not kept in the cache, and nor are their layers."""
    return archive.parent == cache_home() / "images"


def unpack(archive: Path) -> list[Step]:
    """Makes sure that every layer of the archive's images lies in `unpacked_home()`; how they are piled up."""
    steps: dict[str, Step] = {}
    with tarfile.open(archive) as tar:
        for entry in _read(tar, "index.json")["manifests"]:
            manifest = _read(tar, _blob(entry["digest"]))
            contents = _read(tar, _blob(manifest["config"]["digest"]))["rootfs"]["diff_ids"]
            chain = ""
            for layer, content in zip(manifest["layers"], contents, strict=True):
                folder = made_once(unpacked_home() / content.partition(":")[2], partial(_unpack, archive, layer))
                below, chain = chain, _pile(chain, content)
                steps[chain] = Step(chain, below, folder.name)
    return list(steps.values())


def _read(tar: tarfile.TarFile, name: str) -> Any:
    member = tar.extractfile(name)
    if member is None:
        raise UserError(f"an image archive without a file {name}")
    return json.load(member)


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _pile(below: str, content: str) -> str:
    return "sha256:" + hashlib.sha256(f"{below} {content}".encode()).hexdigest() if below else content


def _unpack(archive: Path, layer: dict[str, Any], target: Path) -> None:
    target.mkdir(parents=True)
    decompress = _DECOMPRESS[layer["mediaType"].rpartition(".")[2]]
    run_logged(
        ["bash", "-o", "pipefail", "-euc", _UNPACK, "unpack", archive, _blob(layer["digest"]), decompress, target],
        what=f"unpacking a layer of {archive.name}",
        log=cache_home() / "logs" / "unpack.log",
        hint="Is the disk full? Else remove the archive and run the same command again: it is made anew.",
    )
    _hide_what_it_removes(target)


def _hide_what_it_removes(folder: Path) -> None:
    """Turns an archive's notes about removed files into what overlayfs takes for them."""
    for note in list(folder.rglob(f"{_HIDDEN}*")):
        note.unlink()
        if note.name == _OPAQUE:
            os.setxattr(note.parent, "trusted.overlay.opaque", b"y")
        else:
            os.mknod(note.with_name(note.name.removeprefix(_HIDDEN)), stat.S_IFCHR, os.makedev(0, 0))

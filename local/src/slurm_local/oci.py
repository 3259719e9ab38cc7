"""OCI image archives written with nothing but Python: layers from folders, one archive for several references.

The same folder gives the same bytes: names are sorted, times fixed, device nodes and sockets left out.
"""

import filecmp
import gzip
import hashlib
import io
import json
import os
import platform
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

from slurm_operator.errors import UserError

Compression = Literal["none", "gzip", "zstd"]
JSON = dict[str, object]

_MEDIA_TYPE = {"none": "", "gzip": "+gzip", "zstd": "+zstd"}
_CAPABILITIES = "security.capability"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of a layer. The content of a file is bytes or lies at a path; `link` is a target, as tar knows it."""

    name: str
    mode: int
    kind: Literal["file", "folder", "symlink", "hardlink"] = "file"
    content: bytes | Path = b""
    link: str = ""
    uid: int = 0
    gid: int = 0
    capabilities: bytes = b""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's blob on disk; `diff_id` names its content, `digest` its compressed bytes."""

    path: Path
    media_type: str
    digest: str
    diff_id: str
    size: int


@dataclass(frozen=True, slots=True)
class Image:
    """One reference: its layers, lowest first, and what runs when it is started."""

    reference: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    user: str = ""
    workdir: str = "/"


def folder_entries(root: Path, *, below: Path | None = None) -> Iterator[Entry]:
    """Everything under a folder; with `below`, only what differs from that other folder, as an upper layer would."""
    first_names: dict[tuple[int, int], str] = {}
    for path in _sorted_walk(root):
        entry = _entry(root, path)
        if entry is None or (below is not None and _same(root, below, entry)):
            continue
        status = path.lstat()
        if entry.kind == "file" and status.st_nlink > 1:
            first = first_names.setdefault((status.st_dev, status.st_ino), entry.name)
            if first != entry.name:
                entry = Entry(entry.name, entry.mode, "hardlink", link=first, uid=entry.uid, gid=entry.gid)
        yield entry
    if below is not None:
        yield from _whiteouts(root, below)


def write_layer(entries: Iterable[Entry], target: Path, compression: Compression = "gzip") -> Layer:
    """Streams a layer to a file."""
    with target.open("wb") as file, _packed(file, compression) as packed:
        content = _Hashing(packed)
        with tarfile.open(
            fileobj=cast("IO[bytes]", content), mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCK
        ) as tar:
            for entry in entries:
                _add(tar, entry)
    media_type = f"application/vnd.oci.image.layer.v1.tar{_MEDIA_TYPE[compression]}"
    with target.open("rb") as blob:
        digest = hashlib.file_digest(blob, "sha256").hexdigest()
    return Layer(target, media_type, f"sha256:{digest}", content.digest, target.stat().st_size)


def write_archive(target: Path, images: Sequence[Image]) -> None:
    """One tar with all images; `ctr images import`, `kind load`, `podman load` and `docker load` take it."""
    blobs: dict[str, bytes | Path] = {}
    manifests: list[JSON] = []
    for_docker: list[JSON] = []
    for image in images:
        config = _keep(blobs, "application/vnd.oci.image.config.v1+json", _config(image))
        for layer in image.layers:
            blobs[layer.digest] = layer.path
        manifest = _keep(blobs, "application/vnd.oci.image.manifest.v1+json", _manifest(image, config))
        names = {"io.containerd.image.name": image.reference, "org.opencontainers.image.ref.name": image.reference}
        manifests.append(
            {**manifest, "annotations": names, "platform": {"architecture": _architecture(), "os": "linux"}}
        )
        paths = [_blob_path(layer.digest) for layer in image.layers]
        docker: JSON = {"Config": _blob_path(str(config["digest"])), "RepoTags": [image.reference], "Layers": paths}
        for_docker.append(docker)
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, Entry("oci-layout", 0o644, content=_json({"imageLayoutVersion": "1.0.0"})))
        _add(tar, Entry("index.json", 0o644, content=_json(index)))
        _add(tar, Entry("manifest.json", 0o644, content=_json(for_docker)))
        for digest, content in sorted(blobs.items()):
            _add(tar, Entry(_blob_path(digest), 0o644, content=content))


def _sorted_walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _sorted_walk(path)


def _entry(root: Path, path: Path) -> Entry | None:
    status = path.lstat()
    name, mode = str(path.relative_to(root)), stat.S_IMODE(status.st_mode)
    uid, gid = status.st_uid, status.st_gid
    if stat.S_ISDIR(status.st_mode):
        return Entry(name, mode, "folder", uid=uid, gid=gid)
    if stat.S_ISLNK(status.st_mode):
        return Entry(name, 0o777, "symlink", link=str(path.readlink()), uid=uid, gid=gid)
    if stat.S_ISREG(status.st_mode):
        return Entry(name, mode, content=path, uid=uid, gid=gid, capabilities=_capabilities(path))
    return None


def _capabilities(path: Path) -> bytes:
    try:
        return os.getxattr(path, _CAPABILITIES)
    except OSError:  # none set, or a file system without attributes
        return b""


def _same(root: Path, below: Path, entry: Entry) -> bool:
    other_path = below / entry.name
    if not os.path.lexists(other_path):
        return False
    other = _entry(below, other_path)
    if other is None or not isinstance(entry.content, Path):
        return entry == other
    shape = (entry.kind, entry.mode, entry.uid, entry.gid, entry.capabilities)
    if shape != (other.kind, other.mode, other.uid, other.gid, other.capabilities):
        return False
    return filecmp.cmp(root / entry.name, other_path, shallow=False)


def _whiteouts(root: Path, below: Path) -> Iterator[Entry]:
    """What the lower folder has and the upper one lacks; a removed folder hides all that was in it."""
    hidden = ""
    for path in _sorted_walk(below):
        name = str(path.relative_to(below))
        if (hidden and name.startswith(hidden)) or _entry(below, path) is None:
            continue
        if not os.path.lexists(root / name):
            hidden = name + "/"
            folder, _, last = name.rpartition("/")
            yield Entry(f"{folder}/.wh.{last}".lstrip("/"), 0o644)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.name)
    info.mode, info.uid, info.gid = entry.mode, entry.uid, entry.gid
    if entry.capabilities:
        value = entry.capabilities.decode("utf-8", "surrogateescape")
        info.pax_headers = {f"SCHILY.xattr.{_CAPABILITIES}": value}
    match entry.kind:
        case "folder":
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        case "symlink" | "hardlink":
            info.type = tarfile.SYMTYPE if entry.kind == "symlink" else tarfile.LNKTYPE
            info.linkname = entry.link
            tar.addfile(info)
        case "file":
            with entry.content.open("rb") if isinstance(entry.content, Path) else io.BytesIO(entry.content) as file:
                info.size = file.seek(0, os.SEEK_END)
                file.seek(0)
                tar.addfile(info, file)


class _Hashing:
    """Passes bytes on, and knows their digest."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target, self._hash = target, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._target.write(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


@contextmanager
def _packed(file: IO[bytes], compression: Compression) -> Iterator[IO[bytes]]:
    """Where to write what shall arrive compressed in `file`."""
    match compression:
        case "none":
            yield file
        case "gzip":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
                yield cast("IO[bytes]", packed)
        case "zstd":
            with subprocess.Popen(["zstd", "-q", "-6", "-c"], stdin=subprocess.PIPE, stdout=file) as program:
                yield cast("IO[bytes]", program.stdin)
            if program.returncode:
                raise UserError(f"zstd ended with code {program.returncode}", "is the disk full?")


def _config(image: Image) -> JSON:
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **(image.env or {})}
    run: JSON = {"Env": [f"{key}={value}" for key, value in env.items()], "WorkingDir": image.workdir}
    for key, words in (("Entrypoint", image.entrypoint), ("Cmd", image.command)):
        if words:
            run[key] = list(words)
    if image.user:
        run["User"] = image.user
    layers = [layer.diff_id for layer in image.layers]
    rootfs = {"type": "layers", "diff_ids": layers}
    return {"architecture": _architecture(), "os": "linux", "config": run, "rootfs": rootfs}


def _manifest(image: Image, config: JSON) -> JSON:
    layers = [{"mediaType": each.media_type, "digest": each.digest, "size": each.size} for each in image.layers]
    media_type = "application/vnd.oci.image.manifest.v1+json"
    return {"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": layers}


def _keep(blobs: dict[str, bytes | Path], media_type: str, document: JSON) -> JSON:
    """Adds a document to the blobs; returns the descriptor that points to it."""
    data = _json(document)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    blobs[digest] = data
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _blob_path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)

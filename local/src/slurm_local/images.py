"""Builds the project's container images without a container engine, only what changed, into the cache folder."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import copytree, ignore_patterns, which

import msgspec

from slurm_local import oci, recipes
from slurm_local.cache import cache_home, fingerprint, made_once
from slurm_local.debian import make_root
from slurm_local.progress import SILENT, Progress
from slurm_local.recipes import Recipe
from slurm_local.shell import run_logged
from slurm_operator.errors import UserError

REPOSITORY = "localhost/slurm-operator"


def references(recipe: Recipe) -> list[str]:
    """Every name that the image's archive holds, e.g. `localhost/slurm-operator/slurmctld:26.05`."""
    return [f"{REPOSITORY}/{name}:{recipe.version}" for name in recipe.references]


def build(names: Sequence[str] = (), progress: Progress = SILENT) -> list[Path]:
    """The archives of these images (of all without names), each made if its sources have changed."""
    return [_build(recipes.load(name), progress) for name in names or recipes.names()]


def image_archives() -> list[Path]:
    """The archives that are built and up to date."""
    paths = (archive_path(recipes.load(name)) for name in recipes.names())
    return [path for path in paths if path.exists()]


def archive_path(recipe: Recipe) -> Path:
    """Named after everything that goes into the image, except what the mirror holds."""
    started = msgspec.json.encode((recipe.references, recipe.version), order="deterministic")
    name = fingerprint(started, *(part.name for part in _parts(recipe)))
    return cache_home() / "images" / f"{recipe.name}-{name}.tar"


def _build(recipe: Recipe, progress: Progress) -> Path:
    target = archive_path(recipe)
    if not target.exists():
        for each in recipe.chain:
            make_root(each.root, progress)

    def make(unfinished: Path) -> None:
        with progress.step(f"writing the image '{recipe.name}'", 6):
            layers = [_layer(part) for part in _parts(recipe)]
            oci.write_archive(unfinished, _images(recipe, layers))
            for old in target.parent.glob(f"{recipe.name}-????????????????.tar"):
                old.unlink()

    return made_once(target, make)


def _images(recipe: Recipe, layers: Sequence[oci.Layer]) -> list[oci.Image]:
    return [
        oci.Image(name, layers, started.entrypoint, started.command, started.env, started.user)
        for name, started in zip(references(recipe), recipe.references.values(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Part:
    """A layer to be: a name that tells its content, and what is in it, for which a scratch folder is given."""

    name: str
    entries: Callable[[Path], Iterable[oci.Entry]]


def _parts(recipe: Recipe) -> list[_Part]:
    """Those of the image below, then the Debian root, the added files, the locked wheels and the project's packages."""
    root = recipe.root.path
    below = recipe.below.root.path if recipe.below else None
    parts = _parts(recipe.below) if recipe.below else []
    parts.append(_Part(f"{root.name}-{below.name if below else ''}", lambda _: oci.folder_entries(root, below=below)))
    if recipe.folders or recipe.files.is_dir():
        folders = msgspec.json.encode(recipe.folders, order="deterministic")
        name = fingerprint(root.name, folders, *recipes.contents(recipe.files))
        parts.append(_Part(f"files-{name}", lambda _: _added(recipe, root)))
    if (python := recipe.python) is not None:
        wheels = fingerprint(root.name, *recipes.contents(recipes.project() / python.requirements))
        parts.append(_Part(f"wheels-{wheels}", partial(_wheels, python, root)))
        texts = [text for source in python.sources for text in recipes.contents(recipes.project() / source)]
        name = fingerprint(root.name, *texts)
        parts.append(_Part(f"sources-{name}", partial(_sources, python, root)))
    return parts


def _layer(part: _Part) -> oci.Layer:
    """Layers are kept: after a change of one line of code only the smallest is written anew."""

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as work:
            compression: oci.Compression = "zstd" if which("zstd") else "gzip"
            layer = oci.write_layer(part.entries(Path(work)), folder / "blob", compression)
        known = {"media_type": layer.media_type, "digest": layer.digest, "diff_id": layer.diff_id, "size": layer.size}
        (folder / "layer.json").write_text(json.dumps(known))

    folder = made_once(cache_home() / "layers" / part.name, make)
    return oci.Layer(folder / "blob", **json.loads((folder / "layer.json").read_text()))


def _added(recipe: Recipe, root: Path) -> Iterator[oci.Entry]:
    """The recipe's own folders and files, owned as it says, whoever checked the project out."""
    owners = _users(root)
    for name, text in sorted(recipe.folders.items()):
        mode, owner = text.split()
        if owner not in owners:
            raise UserError(f"{recipe.folder}/image.toml: {name} belongs to '{owner}', a user the image has not")
        uid, gid = owners[owner]
        yield oci.Entry(name, int(mode, 8), "folder", uid=uid, gid=gid)
    if recipe.files.is_dir():
        yield from (_readable(entry) for entry in oci.folder_entries(recipe.files) if entry.kind != "folder")


def _readable(entry: oci.Entry) -> oci.Entry:
    """Root's, and readable for everybody, whatever the rights of whoever builds."""
    return replace(entry, mode=0o755 if entry.mode & 0o100 else 0o644, uid=0, gid=0)


def _users(root: Path) -> dict[str, tuple[int, int]]:
    lines = (line.split(":") for line in (root / "etc/passwd").read_text().splitlines())
    return {fields[0]: (int(fields[2]), int(fields[3])) for fields in lines}


def _packages(root: Path, work: Path) -> Path:
    """Where the root's own Python looks for packages that are not Debian's."""
    version = next(path.name for path in sorted((root / "usr/lib").glob("python3.*")))
    return work / "usr/local/lib" / version / "dist-packages"


def _wheels(python: recipes.Python, root: Path, work: Path) -> Iterator[oci.Entry]:
    packages = _packages(root, work)
    version = packages.parent.name.removeprefix("python")
    run_logged(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
            *("--require-hashes", "--only-binary=:all:", "--implementation=cp", f"--python-version={version}"),
            *(f"--target={packages}", f"--requirement={recipes.project() / python.requirements}"),
        ],
        what=f"installing {python.requirements} for Python {version}",
        log=cache_home() / "logs" / "image-pip.log",
        hint="Check that pip reaches its package index, then run the same command again.",
    )
    return _compiled(root, work)


def _sources(python: recipes.Python, root: Path, work: Path) -> Iterator[oci.Entry]:
    for source in python.sources:
        target = _packages(root, work) / Path(source).name
        copytree(recipes.project() / source, target, ignore=ignore_patterns("__pycache__"))
    return _compiled(root, work)


def _compiled(root: Path, work: Path) -> Iterator[oci.Entry]:
    """What lies in the scratch folder, with byte code, so that a read-only container starts fast."""
    run_logged(
        ["unshare", "--mount", "sh", "-euc", _COMPILE, "compile", str(root), str(work)],
        what="compiling the Python packages",
        log=cache_home() / "logs" / "image-compile.log",
        hint="Run the same command again.",
    )
    return map(_readable, oci.folder_entries(work))


# The root's own interpreter does it: byte code differs from version to version.
_COMPILE = """
mount --make-rprivate /
mount --bind "$2" "$1/mnt"
exec chroot "$1" python3 -m compileall -q --invalidation-mode unchecked-hash -s /mnt -p / /mnt
"""


def add_image_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """`images`: build them, and say how to load them into a cluster."""
    parser = subparsers.add_parser("images", help="build the container images, for this stage or any other cluster")
    parser.add_argument("names", nargs="*", metavar="IMAGE", help=f"one of {', '.join(recipes.names())} (default: all)")
    parser.add_argument("--verbose", action="store_true")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    names = arguments.names or recipes.names()
    paths = build(names, Progress(verbose=arguments.verbose))
    lines = []
    for name, path in zip(names, paths, strict=True):
        lines += [str(path), *(f"    {reference}" for reference in references(recipes.load(name)))]
    lines += [
        "",
        "Load an archive into a cluster:",
        "    this stage     slurm-operator local load-image FILE",
        "    kind           kind load image-archive FILE",
        "    k3d            k3d image import FILE",
        "    any node       ctr --namespace k8s.io images import FILE",
        "    a registry     skopeo copy oci-archive:FILE:REFERENCE docker://REGISTRY/NAME:TAG",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0

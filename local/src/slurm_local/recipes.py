"""What `images/*/image.toml` says, as types: the Debian root an image starts from and the references made of it."""

from pathlib import Path
from typing import Annotated

import msgspec

from slurm_local.debian import Root
from slurm_operator.errors import UserError

# Without these two, packages that make system users would pull in all of systemd.
_ALWAYS = ("adduser", "systemd-standalone-sysusers")

Words = tuple[str, ...]
ModeAndOwner = Annotated[str, msgspec.Meta(pattern=r"^0[0-7]{3,4} [a-z_-]+$")]


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One name under which an image can be started, and what it then does."""

    entrypoint: Words
    command: Words = ()
    env: dict[str, str] = {}
    user: str = ""


class Python(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is installed for the root's own Python; paths are relative to the project."""

    requirements: str
    sources: Words


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One `image.toml`. Paths are relative to the image's root; files to add are in `files/` beside it."""

    version: str
    references: dict[str, Reference]
    packages: Words
    suite: str = "forky"
    extra_suite: str = ""
    base: str = ""
    remove: Words = ()
    run: Words = ()
    users: dict[str, int] = {}
    folders: dict[str, ModeAndOwner] = {}
    python: Python | None = None
    name: str = ""
    folder: Path = Path()

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def below(self) -> "Recipe | None":
        """The image whose layers this one continues."""
        return load(self.base) if self.base else None

    @property
    def root(self) -> Root:
        """Everything of the images below, and what this one adds."""
        chain = self.chain
        suites = (self.suite, self.extra_suite) if self.extra_suite else (self.suite,)
        users = {name: number for recipe in chain for name, number in recipe.users.items()}
        hooks = [("essential", _add_user(name, number)) for name, number in sorted(users.items())]
        hooks += [("customize", f'chroot "$1" {command}') for recipe in chain for command in recipe.run]
        removed = [pattern for recipe in chain for pattern in recipe.remove]
        hooks += [("customize", f'rm -rf "$1"/{pattern}') for pattern in (*_LEFTOVERS, *removed)]
        packages = {package for recipe in chain for package in recipe.packages}
        return Root(f"image-{self.name}", tuple(sorted({*packages, *_ALWAYS})), suites, tuple(hooks))

    @property
    def chain(self) -> "tuple[Recipe, ...]":
        """The images this one consists of, lowest first."""
        return (*self.below.chain, self) if self.below else (self,)


def contents(path: Path) -> list[str | bytes]:
    """Names, modes and bytes of a file or of all files in a folder, without what Python leaves behind."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    kept = [file for file in files if file.suffix != ".pyc"]
    return [
        part for file in kept for part in (str(file.relative_to(path)), oct(file.stat().st_mode), file.read_bytes())
    ]


_LEFTOVERS = ("var/lib/apt/lists/*", "var/cache/apt/*.bin", "var/cache/debconf/*-old", "var/log/*", "etc/hostname")


def _add_user(name: str, number: int) -> str:
    """A shell line; Debian's packages keep a user who is there already."""
    group = f'echo "{name}:x:{number}:" >> "$1/etc/group"'
    user = f'echo "{name}:x:{number}:{number}::/nonexistent:/usr/sbin/nologin" >> "$1/etc/passwd"'
    return f"{group} && {user}"


def project() -> Path:
    """The source tree; images are built from it and not from an installed package."""
    folder = Path(__file__).parents[3]
    if not (folder / "images").is_dir():
        raise UserError("images are built from the project's source tree", "install with: pip install -e . -e local")
    return folder


def load(name: str) -> Recipe:
    folder = project() / "images" / name
    path = folder / "image.toml"
    if not path.is_file():
        known = ", ".join(names())
        raise UserError(f"there is no image '{name}'", f"there are: {known}")
    try:
        recipe = msgspec.toml.decode(path.read_bytes(), type=Recipe)
    except (msgspec.ValidationError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    return msgspec.structs.replace(recipe, name=name, folder=folder)


def names() -> list[str]:
    return sorted(path.parent.name for path in project().glob("images/*/image.toml"))

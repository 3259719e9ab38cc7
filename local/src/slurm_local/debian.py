"""Debian root folders, made by mmdebstrap from the mirror that the machine's own apt uses, and cached by content."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm_local.cache import cache_home, fingerprint, made_once
from slurm_local.progress import SILENT, Progress
from slurm_local.shell import run_logged
from slurm_operator.errors import UserError

_RETRY = "Check that the machine reaches its Debian mirror (apt-get update), then run the same command again."

# Nobody reads these in a container; without them a root is a third smaller and quicker to unpack. Licences go along
# with what they are of: images are handed on.
_UNREAD = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/lintian/*")
_KEPT = "/usr/share/doc/*/copyright"


@dataclass(frozen=True, slots=True)
class Root:
    """What a root consists of. Packages come from the first suite; later suites only fill in what it lacks.

    `hooks` are pairs of an mmdebstrap stage (setup, extract, essential, customize) and a shell line,
    which finds the root's folder in `$1`.
    """

    name: str
    packages: tuple[str, ...]
    suites: tuple[str, ...] = ("forky",)
    hooks: tuple[tuple[str, str], ...] = ()
    form: Literal["folder", "tar"] = "folder"

    @property
    def path(self) -> Path:
        """Where it is kept, once made."""
        hooks = [word for hook in self.hooks for word in hook]
        recipe = [*self.packages, "", *self.suites, "", *hooks, "", *_UNREAD, _KEPT]
        suffix = ".tar" if self.form == "tar" else ""
        return cache_home() / "roots" / f"{self.name}-{fingerprint(*recipe)}{suffix}"


def make_root(root: Root, progress: Progress = SILENT, *, usual: float = 45) -> Path:
    """Returns the folder (or tar file) of a root, made on first use."""

    def make(target: Path) -> None:
        with progress.step(f"making the Debian root folder '{root.name}'", usual):
            target.parent.mkdir(parents=True, exist_ok=True)
            run_logged(
                _command(root, target),
                what=f"making the Debian root '{root.name}'",
                log=cache_home() / "logs" / f"root-{root.name}.log",
                hint=_RETRY,
                env={**os.environ, "PATH": f"{_mmdebstrap().parent}:{os.environ.get('PATH', '')}"},
            )

    return made_once(root.path, make)


def _command(root: Root, target: Path) -> list[str]:
    mirror = _mirror()
    sources = [f"deb {mirror} {suite} main" for suite in root.suites]
    options = [
        # The index of a suite that still moves is sometimes past its date on a mirror.
        'Acquire::Check-Valid-Until "false"',
        'Acquire::Retries "3"',
        f'APT::Default-Release "{root.suites[0]}"',
    ]
    return [
        str(_mmdebstrap()),
        "--mode=root",
        "--variant=minbase",
        f"--format={'tar' if root.form == 'tar' else 'directory'}",
        f"--include={','.join(root.packages)}",
        *(f"--aptopt={option}" for option in options),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _UNREAD),
        f"--dpkgopt=path-include={_KEPT}",
        *(f"--{stage}-hook={script}" for stage, script in root.hooks),
        root.suites[0],
        str(target),
        *sources,
    ]


def _mirror() -> str:
    """The address of the Debian archive in the machine's apt configuration."""
    codename = _os_release().get("VERSION_CODENAME", "")
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
    )
    for line in listing.stdout.splitlines():
        release, component, address = line.split(" ", 2)
        if release in {codename, "stable", "testing", "unstable", "sid"} and component == "main":
            return address
    raise UserError(
        "apt on this machine knows no Debian mirror", hint="Add one to /etc/apt/sources.list and run apt-get update."
    )


def _os_release() -> dict[str, str]:
    path = Path("/etc/os-release")
    lines = path.read_text().splitlines() if path.exists() else []
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def require_debian() -> None:
    """Fails with a sentence where there is no apt to take packages from."""
    release = _os_release()
    if release.get("ID") != "debian" and "debian" not in release.get("ID_LIKE", "").split():
        raise UserError(
            f"the local stage runs on Debian, and this is {release.get('PRETTY_NAME', 'something else')}",
            hint="Use a Debian 12 (or newer) machine, or any Kubernetes cluster you have: "
            "every other command takes a kubeconfig.",
        )


def _mmdebstrap() -> Path:
    """The program: the machine's own, or one unpacked into the cache, so that the machine stays untouched.

    It calls others of its package by their bare names, so their folder must be in PATH.
    """
    installed = shutil.which("mmdebstrap")
    if installed:
        return Path(installed)
    folder = made_once(cache_home() / "tools" / "mmdebstrap", _unpack_mmdebstrap)
    return folder / "usr" / "bin" / "mmdebstrap"


def _unpack_mmdebstrap(target: Path) -> None:
    target.mkdir(parents=True)
    # apt drops its privileges to a user who cannot write here; the package is verified all the same.
    download = "apt-get download -o APT::Sandbox::User=root mmdebstrap"
    # A machine that was just installed, or was off for long, has no list of packages or an old one.
    command = (
        f"{{ {download} || {{ apt-get update && {download}; }}; }} && dpkg -x mmdebstrap_*.deb . && rm mmdebstrap_*.deb"
    )
    run_logged(
        ["sh", "-c", command],
        what="fetching the package mmdebstrap",
        log=cache_home() / "logs" / "mmdebstrap.log",
        hint="Run apt-get update (or apt-get install mmdebstrap), then the same command again.",
        cwd=target,
        env={**os.environ, "LC_ALL": "C"},
    )

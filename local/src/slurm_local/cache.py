"""Things made once and kept: each lives under a name that tells its content, and appears there whole or not at all."""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_home() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "slurm-operator"


def fingerprint(*parts: str | bytes) -> str:
    """A short name for exactly these parts, in this order."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a file's lock, across processes, until the block ends or the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_tree(path: Path) -> None:
    """Removes a folder, or a file, but nothing that is mounted below it."""
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(path)], check=True)


def made_once(path: Path, make: Callable[[Path], None]) -> Path:
    """Returns `path`, letting `make` write it first (to a path beside it) if it is not there yet."""
    if path.exists():
        return path
    with locked(path.with_name(path.name + ".lock")):
        if not path.exists():
            partial = path.with_name("partial-" + path.name)
            remove_tree(partial)
            try:
                make(partial)
            except BaseException:
                remove_tree(partial)
                raise
            partial.rename(path)
    return path

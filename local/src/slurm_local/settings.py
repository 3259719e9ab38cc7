"""What was chosen for a stage, kept in its folder from before its first part exists until its last one is gone."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from slurm_local.layout import Names
from slurm_local.node import NodeSettings


class StageSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    network: int
    binaries: str
    root: str
    nodes: tuple[NodeSettings, ...] = ()


def load(names: Names) -> StageSettings | None:
    path = names.folder / "stage.json"
    return msgspec.json.decode(path.read_bytes(), type=StageSettings) if path.exists() else None


def save(names: Names, settings: StageSettings) -> None:
    path = names.folder / "stage.json"
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(settings)))
    partial.rename(path)


@contextmanager
def locked(names: Names) -> Iterator[int]:
    """Holds a stage for one command alone; gives the lock's file descriptor. The stage's folder itself is the lock."""
    while True:
        names.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(names.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_still(lock, names):
                yield lock
                return
        finally:
            os.close(lock)


def _is_still(lock: int, names: Names) -> bool:
    """Whether the folder was not removed, and perhaps made anew, while we waited for it."""
    try:
        return os.path.samestat(os.fstat(lock), names.folder.stat())
    except FileNotFoundError:
        return False

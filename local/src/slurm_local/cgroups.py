"""A stage's part of the machine's control groups, version 1 or 2, all below one parent."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from slurm_operator.errors import UserError

_MOUNT = Path("/sys/fs/cgroup")


def is_unified() -> bool:
    """Whether this machine has version 2 alone (its controllers in one tree)."""
    return (_MOUNT / "cgroup.controllers").exists()


def controllers() -> list[str]:
    """The version 1 hierarchies, by the name of their mount option (`cpu,cpuacct`, `memory`, `name=systemd`, ...)."""
    if is_unified():
        return []
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return [name for _, name, _ in (line.split(":", 2) for line in lines) if name and (_MOUNT / _folder(name)).is_dir()]


def _folder(controller: str) -> str:
    return controller.removeprefix("name=")


def trees(group: str) -> list[Path]:
    """The group's folder in every hierarchy."""
    if is_unified():
        return [_MOUNT / group]
    return [_MOUNT / _folder(name) / group for name in controllers()]


def create(group: str) -> None:
    """Makes the group in every hierarchy, parents first, with whatever a group must have before processes may enter."""
    for tree in trees(group):
        for folder in [*reversed(tree.relative_to(_MOUNT).parents), tree.relative_to(_MOUNT)][1:]:
            _make(_MOUNT / folder)


def _make(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if is_unified():
        for name in (folder.parent / "cgroup.controllers").read_text().split():
            with suppress(OSError):  # a controller that the machine holds back is not ours to have
                (folder.parent / "cgroup.subtree_control").write_text(f"+{name}")
        return
    for name in ("cpuset.cpus", "cpuset.mems"):
        own, above = folder / name, folder.parent / name
        if own.exists() and above.exists() and not own.read_text().strip():
            own.write_text(above.read_text())


def move_aside(pid: int, group: str) -> None:
    """Version 2 lets a group have groups below it only while no process is in it: takes one out into another group."""
    if is_unified():
        create(group)
        with suppress(ProcessLookupError):
            (_MOUNT / group / "cgroup.procs").write_text(str(pid))


def processes(group: str) -> set[int]:
    """Every process of the group and of the groups below it."""
    found: set[int] = set()
    for tree in trees(group):
        for folder, _, _ in os.walk(tree):
            try:
                found.update(int(pid) for pid in (Path(folder) / "cgroup.procs").read_text().split())
            except OSError:  # the group went away while it was read
                continue
    return found


def kill(group: str, *, patience: float = 10) -> None:
    """Ends every process of the group, however fast they multiply."""
    deadline = time.monotonic() + patience
    while pids := processes(group):
        if time.monotonic() > deadline:
            raise UserError(f"processes {sorted(pids)} of {group} do not end", hint="Try again in a moment.")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def remove(group: str, *, patience: float = 10) -> None:
    """Removes the empty group in every hierarchy, deepest first; the kernel may need a moment to let go of it."""
    deadline = time.monotonic() + patience
    for tree in trees(group):
        for folder, _, _ in os.walk(tree, topdown=False):
            _remove_folder(Path(folder), deadline)


def _remove_folder(folder: Path, deadline: float) -> None:
    while True:
        try:
            return folder.rmdir()
        except FileNotFoundError:
            return None
        except OSError as error:
            if time.monotonic() > deadline:
                raise UserError(f"the control group {folder} cannot be removed: {error.strerror}") from error
            time.sleep(0.02)

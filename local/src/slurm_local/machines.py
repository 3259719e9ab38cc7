"""Machines made of namespaces: each with its own file system, network, processes, hostname and control groups.

A machine is found again by its control group alone, so nothing about it has to be remembered.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from slurm_local import cgroups
from slurm_local.layout import Names
from slurm_local.shell import ENDING_WITH_US, tail
from slurm_operator.errors import UserError

_SCRIPTS = Path(__file__).parent / "scripts"
_CLEAN = ["/usr/bin/env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"]


@dataclass(frozen=True)
class Machine:
    """One machine of a stage: its name, the root folder it starts from, and what it sees of the world outside."""

    names: Names
    name: str
    root: Path
    services: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    binds: Mapping[Path, str] = field(default_factory=dict)
    cpus: int | None = None

    @property
    def folder(self) -> Path:
        return self.names.machine(self.name)

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def group(self) -> str:
        return f"{self.names.cgroup}/{self.name}"

    @property
    def pid(self) -> int | None:
        """The machine's first process, as seen from outside."""
        return next((pid for pid in sorted(cgroups.processes(self.group)) if _is_first(pid)), None)

    def start(self, lock: int) -> None:
        """Starts the machine in its network namespace, and returns once it lives in its own file system.

        `lock` is held until the machine can be found by its control group.
        """
        self._lay_out()
        cgroups.create(self.group)
        pairs = {self.folder / "stage": "/stage", self.logs: "/var/log", **self.binds}
        boot = [str(_SCRIPTS / "boot.sh"), str(self.folder), self.name, str(self.root), " ".join(cgroups.controllers())]
        process = spawn(
            self.group,
            [
                "nsenter",
                f"--net={self.names.namespace(self.name)}",
                *("unshare", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--fork", "--kill-child"),
                *("/bin/sh", *boot, *(f"{source}:{target}" for source, target in pairs.items())),
            ],
            log=self.logs / "boot.log",
            lock=lock,
        )
        self._wait_booted(process)

    def _wait_booted(self, process: subprocess.Popen[bytes], timeout: float = 30) -> None:
        deadline = time.monotonic() + timeout
        while (pid := self.pid) is None or not _has_booted(pid):
            if pid is not None:
                cgroups.move_aside(process.pid, f"{self.names.cgroup}/launchers")
            if time.monotonic() > deadline or process.poll() is not None:
                said = tail(self.logs / "boot.log")
                raise UserError(f"the machine {self.name} did not start: {said or 'it said nothing'}")
            time.sleep(0.02)

    def _lay_out(self) -> None:
        for name in ("upper", "work", "root", "log", "stage/services"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for source in self.binds:
            source.mkdir(parents=True, exist_ok=True)
        stage = self.folder / "stage"
        (stage / "supervise.sh").write_text((_SCRIPTS / "supervise.sh").read_text())
        for name, text in {**self.files, **{f"services/{name}": text for name, text in self.services.items()}}.items():
            path = stage / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(text)
        if self.cpus is not None:
            show_processors(self.folder / "cpu", self.cpus)

    def run(self, *command: str, stdin: int = subprocess.DEVNULL, timeout: float = 120) -> str:
        """Runs a program inside the machine and returns what it printed."""
        pid = self.pid
        if pid is None:
            raise UserError(f"{self.name} is not running", hint=f"slurm-operator local node start {self.name}")
        inside = ["nsenter", f"--target={pid}", *("-m", "-u", "-i", "-n", "-p", "-C"), "--root", "--wd"]
        done = subprocess.run(
            [*ENDING_WITH_US, *inside, *_CLEAN, *command], stdin=stdin, capture_output=True, text=True, timeout=timeout
        )
        if done.returncode != 0:
            raise UserError(
                f"'{' '.join(command)}' failed on {self.name}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return done.stdout

    def stop(self, *, patience: float) -> None:
        """Ends every process of the machine: after asking them, where `patience` leaves them time, or at once."""
        pid = self.pid
        if pid is not None and patience > 0:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + patience
            while cgroups.processes(self.group) and time.monotonic() < deadline:
                time.sleep(0.05)
        cgroups.kill(self.group)
        cgroups.remove(self.group)


def spawn(group: str, command: Sequence[str], *, log: Path, lock: int) -> subprocess.Popen[bytes]:
    """Starts a program that outlives us, in a control group from its first moment on."""
    files = [str(tree / "cgroup.procs") for tree in cgroups.trees(group)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            ["/bin/bash", str(_SCRIPTS / "enter.sh"), str(lock), *files, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(lock,),
            cwd="/",
        )


def show_processors(folder: Path, count: int) -> None:
    """Writes what the kernel's list of CPUs would say on a machine that has `count` of them.

    Their topology is left out: the kubelet would pin pods to CPUs that do not exist.
    """
    every = f"0-{count - 1}" if count > 1 else "0"
    for index in range(count):
        (folder / f"cpu{index}").mkdir(parents=True, exist_ok=True)
    for name in ("online", "possible", "present"):
        (folder / name).write_text(every + "\n")


def _is_first(pid: int) -> bool:
    """Whether a process is number 1 of a process namespace directly below ours."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(numbers) == len(_own_numbers()) + 1 and numbers[-1] == "1"


def _own_numbers() -> list[str]:
    status = Path("/proc/self/status").read_text()
    return next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))


def _has_booted(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "tini"
    except OSError:
        return False

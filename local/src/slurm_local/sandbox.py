"""A throw-away machine made of namespaces: own network, processes and hostname on a root folder that stays untouched.

Everything it writes is in memory. It dies with the process that made it, and nothing of it outlives that.
"""

import asyncio
import os
import re
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from slurm_local.cache import cache_home
from slurm_local.shell import ENDING_WITH_US
from slurm_operator.errors import UserError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NETWORKS = 4096  # of four addresses each: 10.213.0.0 to 10.213.63.255

# $1: an empty folder, $2: the machine's name, then pairs of a root folder and where it goes ("" is the root itself).
_INIT = r"""
set -eu
work=$1 name=$2; shift 2
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$work"
root=$work/root; mkdir "$root"
overlay() {
    mkdir -p "$work/up$3" "$work/tmp$3" "$2"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$work/up$3,workdir=$work/tmp$3" "$2"
    for d in dev run tmp; do mount -t tmpfs -o mode=1777 tmpfs "$2/$d"; done
    chmod 755 "$2/run" "$2/dev"
    mount -t proc proc "$2/proc"
    for d in null zero full random urandom tty; do touch "$2/dev/$d"; mount --bind "/dev/$d" "$2/dev/$d"; done
    mkdir "$2/dev/pts" "$2/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$2/dev/pts"; ln -s pts/ptmx "$2/dev/ptmx"
    mount -t tmpfs tmpfs "$2/dev/shm"; ln -s /proc/self/fd "$2/dev/fd"
    : > "$2/etc/resolv.conf"
}
n=0
while [ $# -gt 0 ]; do n=$((n + 1)); overlay "$1" "$root$2" "$n"; shift 2; done
hostname "$name"
ip link set lo up
echo ready
exec chroot "$root" /bin/sh -c 'trap : TERM; while :; do sleep 2147483647 & wait; done'
"""


@dataclass(slots=True)
class Daemon:
    """A program kept running in a sandbox, to be stopped, hung and started again at will."""

    sandbox: "Sandbox"
    name: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    process: Process | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def log(self) -> str:
        with suppress(FileNotFoundError):
            return self._log_path.read_text(errors="replace")
        return ""

    @property
    def _log_path(self) -> Path:
        return self.sandbox.path(f"/var/log/{self.name}.log")

    async def start(self) -> None:
        if self.running:
            return
        with self._log_path.open("ab") as log:
            self.process = await self.sandbox.spawn(*self.command, env=self.env, stdout=log)

    async def stop(self, *, timeout: float = 20) -> None:
        """Ask it to end; kill it if it has not after `timeout`."""
        await self._end(signal.SIGTERM, timeout)

    async def kill(self) -> None:
        await self._end(signal.SIGKILL, 10)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def hang(self) -> None:
        """Let it neither answer nor die, as a machine that swaps itself to death. Returns when it has stopped.

        A thread that runs on another core goes on for a moment after the signal, long enough to answer.
        """
        self.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while not all(state in "TXZ" for state in self._thread_states()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not stop")
            time.sleep(0.001)

    def _thread_states(self) -> list[str]:
        if (pid := self.pid) is None:
            raise RuntimeError(f"{self.name} does not run")
        # The state is the first word behind the name, which may itself hold spaces and brackets.
        return [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)
        if self.running and self.process is not None:
            self.process.send_signal(signal.SIGCONT)  # nsenter stops itself when its child is stopped

    def send_signal(self, number: signal.Signals) -> None:
        if (pid := self.pid) is not None:
            os.kill(pid, number)

    @property
    def pid(self) -> int | None:
        """The daemon's own process id, as seen from outside; nsenter, its parent, is the one we started."""
        if self.process is None or self.process.returncode is not None:
            return None
        return _only_child(self.process)

    async def _end(self, number: signal.Signals, timeout: float) -> None:
        if self.process is None:
            return
        self.resume()
        self.send_signal(number)
        try:
            await asyncio.wait_for(self.process.wait(), timeout)
        except TimeoutError:
            self.send_signal(signal.SIGKILL)
            await asyncio.wait_for(self.process.wait(), 10)
        self.process = None


class Sandbox:
    """`async with Sandbox("name", {"": root_folder}) as box`: `box.run(...)`, `box.spawn(...)`, `box.path("/etc")`."""

    def __init__(self, name: str, roots: dict[str, Path]) -> None:
        self.name = name
        self.address = ""
        self._roots = roots
        self._init: Process | None = None
        self._spawned: list[Process] = []
        self._pid = 0
        self._work = cache_home() / "sandbox"  # each has a memory of its own mounted here, seen by nobody else

    async def __aenter__(self) -> Self:
        if os.geteuid() != 0:
            raise UserError("namespaces, mounts and network devices need root", "run it with sudo")
        self._work.mkdir(parents=True, exist_ok=True)
        try:
            await self._unshare()
            await self._connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._init is not None and self._init.returncode is None:
            self._init.kill()
            await self._init.wait()
        for process in self._spawned:
            _kill_with_child(process)
            await process.wait()

    def path(self, inside: str) -> Path:
        """Where a path of the sandbox is seen from outside."""
        return Path(f"/proc/{self._pid}/root{inside}")

    async def spawn(
        self, *command: str, env: dict[str, str] | None = None, stdout: int | IO[bytes] = DEVNULL
    ) -> Process:
        """Start a program inside; its standard error goes where its output goes."""
        process = await asyncio.create_subprocess_exec(
            *self._entering(command, env or {}), stdin=DEVNULL, stdout=stdout, stderr=STDOUT
        )
        self._spawned.append(process)
        return process

    async def run(self, *command: str, env: dict[str, str] | None = None, timeout: float = 60) -> str:
        """Return the output of a program run inside; a failure raises UserError with what it printed."""
        process = await asyncio.create_subprocess_exec(
            *self._entering(command, env or {}), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        try:
            output, errors = await asyncio.wait_for(process.communicate(), timeout)
        except asyncio.CancelledError:
            _kill_with_child(process)
            raise
        except TimeoutError:
            _kill_with_child(process)
            await process.wait()
            raise UserError(f"{' '.join(command)} did not end within {timeout:g} s") from None
        if process.returncode:
            said = (errors or output).decode(errors="replace").strip()
            raise UserError(f"{' '.join(command)} ended with code {process.returncode}: {said}")
        return output.decode(errors="replace")

    def _entering(self, command: tuple[str, ...], env: dict[str, str]) -> list[str]:
        variables = [f"{key}={value}" for key, value in {"PATH": PATH, "HOME": "/root", **env}.items()]
        inside = ["nsenter", f"--target={self._pid}", "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--"]
        return [*ENDING_WITH_US, *inside, "env", "-i", *variables, *command]

    async def _unshare(self) -> None:
        pairs = [text for where, root in self._roots.items() for text in (str(root), where)]
        self._init = await asyncio.create_subprocess_exec(
            *ENDING_WITH_US,
            *["unshare", "-m", "-u", "-i", "-n", "-p", "--fork", "--kill-child=KILL"],
            *["sh", "-c", _INIT, "sandbox", str(self._work), self.name, *pairs],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        assert self._init.stdout is not None  # noqa: S101 - spawned with PIPE, for the type checker
        assert self._init.stderr is not None  # noqa: S101 - spawned with PIPE, for the type checker
        line = await asyncio.wait_for(self._init.stdout.readline(), 30)
        if line != b"ready\n":
            said = await asyncio.wait_for(self._init.stderr.read(), 10)
            raise UserError(f"could not make the sandbox {self.name}: {said.decode(errors='replace').strip()}")
        self._pid = _only_child(self._init) or 0

    async def _connect(self) -> None:
        """A cable between us and the sandbox; the device's name is taken or not, so two labs never share a network."""
        for number in range(_NETWORKS):
            device = f"slab{number}"
            peer = ["type", "veth", "peer", "name", "eth0", "netns", str(self._pid)]
            if await _ip("link", "add", device, *peer, taken_is_fine=True):
                break
        else:
            raise UserError("no free network for one more sandbox", "ip link shows slab0, slab1, ...")
        network, first = f"10.213.{number // 64}", number % 64 * 4
        self.address = f"{network}.{first + 2}"
        await _ip("addr", "add", f"{network}.{first + 1}/30", "dev", device)
        await _ip("link", "set", device, "up")
        await self._inside_ip("addr", "add", f"{self.address}/30", "dev", "eth0")
        await self._inside_ip("link", "set", "eth0", "up")
        hosts = f"127.0.0.1 localhost\n{self.address} {self.name}\n"
        for where in self._roots:
            self.path(f"{where}/etc/hosts").write_text(hosts)

    async def _inside_ip(self, *arguments: str) -> None:
        await _check("nsenter", f"--target={self._pid}", "-n", "ip", *arguments)


def _only_child(process: Process) -> int | None:
    with suppress(FileNotFoundError):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return int(children[0]) if children else None
    return None


def _kill_with_child(process: Process) -> None:
    """Ends nsenter and what it runs; the child alone would keep our pipes open."""
    with suppress(ProcessLookupError):
        if (child := _only_child(process)) is not None:
            os.kill(child, signal.SIGKILL)
        process.kill()


async def _ip(*arguments: str, taken_is_fine: bool = False) -> bool:
    try:
        await _check("ip", *arguments)
    except UserError as error:
        if taken_is_fine and re.search(r"File exists", error.message):
            return False
        raise
    return True


async def _check(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    if process.returncode:
        raise UserError(f"{' '.join(command)} failed: {output.decode(errors='replace').strip()}")

"""A real Slurm without Kubernetes, for tests and benchmarks: slurmctld and slurmrestd, on request slurmdbd and workers.

    async with SlurmLab(nodes=1000, accounting=True) as lab:
        token = await lab.token("slurm")
        ...  # lab.url, lab.jwt_key, await lab.scontrol("show node n-0001"), await lab.slurmctld.kill()

`nodes` are EXTERNAL node records, thousands of them at no cost; `slurmds` are real workers that run jobs.
All of it lives in one sandbox in memory and dies with the process that made it.
"""

import asyncio
import os
import secrets
import shlex
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import aiohttp

from slurm_local.debian import make_root
from slurm_local.recipes import load
from slurm_local.sandbox import Daemon, Sandbox
from slurm_operator.errors import UserError

SLURMCTLD_PORT, SLURMDBD_PORT, SLURMRESTD_PORT = 6817, 6819, 6820
_FIRST_SLURMD_PORT = 20000
_MARIADB = "/srv/mariadb"
_SLURM = ("setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", "--")
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
# All slurmd of a machine would race for the one socket in this folder.
_OWN_RUN_FOLDER = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /run/slurm && exec "$@"', "slurmd")
_START_TIMEOUT = 60.0

_SLURM_CONF = """\
ClusterName=lab
SlurmUser=slurm
SlurmctldHost={host}
SlurmctldPort=6817
StateSaveLocation=/var/spool/slurmctld
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmctldLogFile=/dev/null
SlurmdUser=root
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmdPidFile=/run/slurm/slurmd-%n.pid
SlurmdLogFile=/dev/null
MaxNodeCount={max_nodes}
ReturnToService=2
AuthType=auth/slurm
CredType=cred/slurm
AuthInfo=use_client_ids
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key,use_jwt_client_ids
SlurmctldParameters=enable_configless
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
MailProg=/usr/bin/true
MetricsType=metrics/openmetrics
MpiDefault=none
{accounting}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=UNLIMITED
"""

_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={host}
"""

_SLURMDBD_CONF = """\
AuthType=auth/slurm
AuthInfo=use_client_ids
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key,use_jwt_client_ids
DbdHost={host}
SlurmUser=slurm
LogFile=/dev/null
PidFile=/run/slurmdbd/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost={host}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""


class SlurmLab:
    """The daemons are `slurmctld`, `slurmrestd`, `slurmdbd`, `mariadb` and `slurmds`; each can be stopped and hung.

    `conf` is appended to slurm.conf; `files` are further files of /etc/slurm (gres.conf, topology.yaml, ...).
    """

    def __init__(
        self,
        *,
        nodes: int = 0,
        node_conf: str = "CPUs=16 RealMemory=64000",
        slurmds: int = 0,
        slurmd_conf: str = "CPUs=2 RealMemory=200",
        accounting: bool = False,
        conf: str = "",
        files: Mapping[str, str] | None = None,
        max_nodes: int = 12000,
    ) -> None:
        self.jwt_key = secrets.token_bytes(32)
        self._slurm_key = secrets.token_bytes(1024)
        self._password = secrets.token_hex(16)
        self._nodes, self._node_conf = nodes, node_conf
        self._slurmd_count, self._slurmd_conf = slurmds, slurmd_conf
        self._accounting = accounting
        self._conf, self._files, self._max_nodes = conf, dict(files or {}), max_nodes
        self._cleanup = AsyncExitStack()

    async def __aenter__(self) -> Self:
        roots = {"": await asyncio.to_thread(make_root, load("slurm").root)}
        if self._accounting:
            roots[_MARIADB] = await asyncio.to_thread(make_root, load("mariadb").root)
        self.box = await self._cleanup.enter_async_context(Sandbox("lab", roots))
        try:
            self._prepare()
            await self._start()
        except BaseException:
            await self._cleanup.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cleanup.aclose()

    @property
    def url(self) -> str:
        """Where slurmrestd answers."""
        return f"http://{self.box.address}:{SLURMRESTD_PORT}"

    @property
    def slurmctld_url(self) -> str:
        """Where slurmctld answers /livez, /readyz and /metrics."""
        return f"http://{self.box.address}:{SLURMCTLD_PORT}"

    async def run(self, command: str, *, user: str = "root", timeout: float = 60) -> str:
        """The output of a command line, e.g. `srun -N2 hostname`; the words are split as a shell would."""
        identity = () if user == "root" else ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--")
        return await self.box.run(*identity, *shlex.split(command), timeout=timeout)

    async def scontrol(self, command: str, *, timeout: float = 60) -> str:
        return await self.run(f"scontrol {command}", timeout=timeout)

    async def token(self, user: str = "slurm", *, lifetime: int = 3600) -> str:
        """A token that Slurm itself made."""
        return (await self.scontrol(f"token username={user} lifespan={lifetime}")).strip().removeprefix("SLURM_JWT=")

    async def add_nodes(self, names: str, conf: str) -> None:
        """Makes node records without a daemon; `names` is a hostlist such as `n-[0001-5000]`."""
        # Without an address slurmctld would look up every name, many seconds each.
        await self.scontrol(f"create nodename={names} {conf} NodeAddr={self.box.address} State=EXTERNAL", timeout=300)

    def config(self, name: str) -> Path:
        """A file of /etc/slurm, to be read and written directly; `reconfigure()` makes it known."""
        return self.box.path(f"/etc/slurm/{name}")

    async def reconfigure(self) -> None:
        await self.scontrol("reconfigure")

    async def wipe_state(self) -> None:
        """Loses everything slurmctld remembers, as a volume that comes back empty; it is stopped meanwhile."""
        await self.slurmctld.stop()
        folder = self.box.path("/var/spool/slurmctld")
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        await self.slurmctld.start()
        await self.ready()

    async def ready(self, *, timeout: float = 60) -> None:
        """Waits until slurmctld serves requests and slurmrestd accepts them."""
        await _until(lambda: self._answers(f"{self.slurmctld_url}/readyz"), "slurmctld", timeout, self.slurmctld)
        await _until(lambda: self._listens(SLURMRESTD_PORT), "slurmrestd", timeout, self.slurmrestd)

    async def nodes_up(self, count: int, *, timeout: float = 120) -> None:
        """Waits until that many nodes are idle."""

        async def enough() -> bool:
            words = (await self.run("sinfo --noheader --format=%D --states=idle")).split()
            return sum(map(int, words)) >= count

        await _until(enough, f"{count} idle nodes", timeout, self.slurmctld, *self.slurmds)

    def _prepare(self) -> None:
        host = self.box.name
        accounting = _ACCOUNTING.format(host=host) if self._accounting else ""
        slurm_conf = _SLURM_CONF.format(host=host, max_nodes=self._max_nodes, accounting=accounting)
        self._write("slurm.conf", slurm_conf + self._conf + "\n", 0o644)
        self._write("cgroup.conf", "CgroupPlugin=disabled\n", 0o644)
        self._write("slurm.key", self._slurm_key, 0o600)
        self._write("jwt.key", self.jwt_key, 0o600)
        for name, text in self._files.items():
            self._write(name, text, 0o644)
        if self._accounting:
            self._write("slurmdbd.conf", _SLURMDBD_CONF.format(host=host, password=self._password), 0o600)
        for folder in ("/run/slurmctld", "/run/slurmdbd", "/var/spool/slurmctld"):
            self.box.path(folder).mkdir(parents=True, exist_ok=True)
            _give_to_slurm(self.box.path(folder))
        self.box.path("/run/slurm").mkdir()

    def _write(self, name: str, content: str | bytes, mode: int) -> None:
        path = self.config(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        _give_to_slurm(path)

    async def _start(self) -> None:
        entry = load("mariadb").files / "usr/local/bin/mariadb-entry"
        self.mariadb = self._daemon(
            "mariadb",
            *("chroot", _MARIADB, "sh", "-c", entry.read_text(), "mariadb-entry", "--innodb-fast-shutdown=2"),
            env={"MARIADB_PASSWORD": self._password},
        )
        self.slurmdbd = self._daemon("slurmdbd", *_SLURM, "/usr/sbin/slurmdbd", "-D")
        self.slurmctld = self._daemon("slurmctld", *_SLURM, "/usr/sbin/slurmctld", "-D")
        listen = f"0.0.0.0:{SLURMRESTD_PORT}"
        self.slurmrestd = self._daemon(
            "slurmrestd",
            *(*_NOBODY, "/usr/sbin/slurmrestd", "-a", "rest_auth/jwt", listen),
            env={"SLURM_JWT": "daemon", "MALLOC_ARENA_MAX": "1"},
        )
        self.slurmds: list[Daemon] = []
        if self._accounting:
            await self.mariadb.start()
            await _until(lambda: self._listens(3306), "mariadb", _START_TIMEOUT, self.mariadb)
            await self.slurmdbd.start()
            await _until(lambda: self._listens(SLURMDBD_PORT), "slurmdbd", _START_TIMEOUT, self.slurmdbd)
        await self.slurmctld.start()
        await self.slurmrestd.start()
        await self.ready()
        if self._nodes:
            await self.add_nodes(f"n-[{1:0{len(str(self._nodes))}}-{self._nodes}]", self._node_conf)
        if self._slurmd_count:
            await self.start_slurmds(self._slurmd_count, self._slurmd_conf)

    def _daemon(self, name: str, *command: str, env: dict[str, str] | None = None) -> Daemon:
        return Daemon(self.box, name, command, env or {})

    async def start_slurmds(self, count: int, conf: str = "CPUs=2 RealMemory=200") -> None:
        """Starts more real workers, named w-0, w-1, ..., and waits until they have registered."""
        idle = sum(map(int, (await self.run("sinfo --noheader --format=%D --states=idle")).split()))
        for number in range(len(self.slurmds), len(self.slurmds) + count):
            name = f"w-{number}"
            node = f"Port={_FIRST_SLURMD_PORT + number} {conf}"
            server = f"{self.box.name}:{SLURMCTLD_PORT}"
            command = ("/usr/sbin/slurmd", "-D", "-N", name, "-Z", "--conf", node, "--conf-server", server)
            daemon = self._daemon(f"slurmd-{name}", *_OWN_RUN_FOLDER, *command)
            self.slurmds.append(daemon)
            await daemon.start()
        await self.nodes_up(idle + count, timeout=60 + count)

    async def _listens(self, port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection(self.box.address, port)
        except OSError:
            return False
        writer.close()
        return True

    async def _answers(self, url: str) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.ok
        except aiohttp.ClientError:
            return False


def _give_to_slurm(path: Path) -> None:
    os.chown(path, 401, 401)


async def _until(condition: Callable[[], Awaitable[bool]], what: str, timeout: float, *daemons: Daemon) -> None:
    try:
        async with asyncio.timeout(timeout):
            while not await condition():
                for daemon in daemons:
                    if not daemon.running:
                        raise UserError(f"{daemon.name} ended:\n{daemon.log[-2000:]}")
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise UserError(f"{what} not ready after {timeout:g} s:\n{daemons[0].log[-2000:]}") from None

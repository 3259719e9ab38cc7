"""`slurm-operator up` and `down`: from nothing to a first job, before the user's eyes."""

import argparse
import asyncio
import os
import shutil
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from slurm_local import images, settings
from slurm_local.cli import DEFAULT_NAME, DEFAULT_NODES
from slurm_local.kubectl import Kubectl
from slurm_local.machine import machine_root
from slurm_local.node import NodeSettings
from slurm_local.progress import Progress
from slurm_local.recipes import project
from slurm_local.stage import Stage, down, up
from slurm_operator.cli.install import BUSY_HINT, install, uninstall, wait_ready
from slurm_operator.cli.keys import key_secret
from slurm_operator.cli.manifests import NAME as OPERATOR
from slurm_operator.cli.release import all_nodesets, refuse_busy
from slurm_operator.cli.status import Glance, glance
from slurm_operator.cli.types import Subparsers
from slurm_operator.errors import UserError
from slurm_operator.kube import Client, NotFound, load
from slurm_operator.kube.kinds import SECRETS
from slurm_operator.kube.manifests import Manifests, read

EXAMPLE = Path("examples/cluster.yaml")
NAMESPACE = "slurm"
MANAGER = "slurm-operator-up"
PATIENCE = 300.0
LOADED = ("slurm", "login", "mariadb", "operator")

WIDTH = 80


def add_commands(subparsers: Subparsers) -> None:
    bring = subparsers.add_parser("up", help="a real Kubernetes, the operator, a Slurm cluster and a first job")
    bring.set_defaults(run=_up)
    take = subparsers.add_parser(
        "down",
        help="remove what `up` made",
        description="Remove what `up` made. A local Kubernetes goes as a whole, and running jobs end with it. In a "
        "cluster of yours (--context) nothing is removed while jobs run, unless --force says so.",
    )
    take.add_argument("--force", action="store_true", help="with --context: remove the cluster even if jobs run on it")
    take.set_defaults(run=_down)
    for parser in (bring, take):
        parser.add_argument("--context", default="", help="use this context of your kubeconfig, not a local Kubernetes")
        parser.add_argument("--name", default=DEFAULT_NAME, help=f"name of the local stage (default {DEFAULT_NAME})")
        parser.add_argument("--file", type=Path, help="manifests of the cluster (default: the example)")
        parser.add_argument("--verbose", action="store_true", help="say more about what is being done")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the cluster goes."""

    kubeconfig: Path | None
    context: str
    kubectl: Kubectl


def _up(arguments: argparse.Namespace) -> int:
    progress = Progress(verbose=arguments.verbose)
    try:
        _bring(arguments, progress)
    except KeyboardInterrupt:
        type_ = Commands(arguments.name, arguments.context).up_or_down
        progress.say(_wrapped(f"interrupted: `{type_('up')}` goes on, `{type_('down')}` removes it"))
        return 130
    return 0


def _bring(arguments: argparse.Namespace, progress: Progress) -> None:
    began = time.monotonic()
    file = arguments.file or project() / EXAMPLE
    read(file)
    if arguments.context:
        place = _given(arguments.context, progress)
        progress.say("images are not loaded into a cluster of yours: see `slurm-operator local images`")
    else:
        place = _local(arguments.name, progress)
    asyncio.run(_install(place, file, progress))
    _first_job(place.kubectl, progress)
    print(f"\nall of it took {(time.monotonic() - began) / 60:.1f} minutes")
    print(Commands(arguments.name, arguments.context).next())


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands about the same cluster, as the user types them from where they stand."""

    name: str
    context: str

    def ours(self, command: str) -> str:
        program = "slurm-operator" if shutil.which("slurm-operator") else os.path.relpath(sys.argv[0])
        return f"{program} {command}"

    def up_or_down(self, command: str) -> str:
        if self.context:
            return self.ours(f"{command} --context {self.context}")
        return self.ours(command if self.name == DEFAULT_NAME else f"{command} --name {self.name}")

    def kubectl(self, verb: str, rest: str) -> str:
        context = f" --context {self.context}" if self.context else ""
        bare = not self.context and shutil.which("kubectl") is None
        program = self.up_or_down("local kubectl") if bare else f"kubectl{context}"
        return f"{program} {verb} -n {NAMESPACE} {rest}"

    def next(self) -> str:
        status = f"status -n {NAMESPACE}" + (f" --context {self.context}" if self.context else "")
        kubeconfig = self.up_or_down("local kubeconfig --path")
        rows = (
            *(() if self.context else ((f"export KUBECONFIG=$({kubeconfig})", ""),)),
            (self.kubectl("exec", "-it deploy/login -- bash"), "then sinfo, srun, sbatch"),
            (self.kubectl("scale", "nodeset small --replicas=1"), "leaves when its job ends"),
            (self.ours(status), "the cluster at a glance"),
            (self.up_or_down("down"), "and it is gone"),
        )
        lines = [f"  {line:<50} # {note}" if note and len(line) <= 50 else _continued(line) for line, note in rows]
        return "\n".join(["\nwhat to try next:", *lines])


def _continued(command: str) -> str:
    """A command in lines that fit, as a shell reads it."""
    lines = textwrap.wrap(command, WIDTH - 6, break_long_words=False, break_on_hyphens=False)
    return "  " + " \\\n    ".join(lines)


def _wrapped(text: str, indent: str = "", rest: str = "  ") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=rest, break_on_hyphens=False)


def _down(arguments: argparse.Namespace) -> int:
    progress = Progress(verbose=arguments.verbose)
    if not arguments.context:
        if not down(arguments.name, progress):
            print(f"there is no stage '{arguments.name}'")
        return 0
    asyncio.run(_remove(arguments.context, arguments.file or project() / EXAMPLE, force=arguments.force))
    print("the cluster and the operator are removed")
    return 0


def _local(name: str, progress: Progress) -> Place:
    nodes = [NodeSettings(index=index) for index in range(1, DEFAULT_NODES + 1)]
    stage: Stage = up(name, nodes, progress)
    archives = images.build(LOADED, progress)
    with progress.step("loading the images", usual=30), settings.locked(stage.names):
        for archive in archives:
            stage.load_image(archive)
    return Place(stage.kubeconfig, "", stage.kubectl)


def _given(context: str, progress: Progress) -> Place:
    config = load(context=context)
    return Place(None, context, Kubectl(machine_root(progress), Path(config.source)))


async def _install(place: Place, file: Path, progress: Progress) -> None:
    config = load(str(place.kubeconfig or ""), place.context)
    async with Client(config) as client:
        with progress.step("installing the operator", usual=8):
            await install(client, OPERATOR)
            await wait_ready(client, OPERATOR, 120)
        with progress.step("creating the Slurm cluster", usual=2):
            await _create(client, file)
        await _wait(client, progress)


async def _create(client: Client, file: Path) -> None:
    manifests = Manifests(client, MANAGER, NAMESPACE)
    await manifests.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    secret = key_secret("slurm-keys", NAMESPACE)
    try:
        await client.get(SECRETS, secret["metadata"]["name"], NAMESPACE)
    except NotFound:
        await client.create(SECRETS, secret)
    await manifests.apply(read(file))


async def _wait(client: Client, progress: Progress) -> None:
    """Until everything is ready, saying what changes; then, or when patience ends, the whole table."""
    shown: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    with progress.step("waiting for the Slurm cluster", usual=45):
        while True:
            now: Glance = await glance(client, NAMESPACE)
            for line in now.changes(shown):
                progress.say(_wrapped(line, "  ", "    "))
            if now.ready:
                now = await glance(client, NAMESPACE, slurm=True)
                break
            if time.monotonic() > deadline:
                print(now.table())
                raise UserError(
                    f"the Slurm cluster was not ready within {PATIENCE:.0f} s",
                    "the table says what is waited for; `slurm-operator up` goes on where it stopped",
                )
            await asyncio.sleep(1)
    print(now.table())


def _first_job(kubectl: Kubectl, progress: Progress) -> None:
    login = ("-n", NAMESPACE, "exec", "deploy/login", "-c", "login", "--")

    def run(*command: str) -> str:
        return kubectl(*login, *command, timeout=120).strip()

    with progress.step("running a first job", usual=5):
        hosts = run("srun", "-N2", "hostname")
        job = run("sbatch", "--parsable", "--wait", "-N2", "-o", "/home/first-%j.txt", "--wrap", "srun hostname")
        output = run("cat", f"/home/first-{job}.txt")
        account = run("sacct", "-X", "-j", job, "--format=JobID,JobName,Partition,NNodes,State,Elapsed")
    for command, shown in (
        ("srun -N2 hostname", hosts),
        ("sbatch -N2 --wrap 'srun hostname'", output),
        (f"sacct -X -j {job}", account),
    ):
        print(f"\n$ {command}\n{shown}")


async def _remove(context: str, file: Path, *, force: bool) -> None:
    """Delete the cluster while the operator is there to end its workers in order, then the operator."""
    async with Client(load(context=context)) as client:
        if not force:
            await refuse_busy(client, await all_nodesets(client, NAMESPACE), BUSY_HINT)
        await Manifests(client, MANAGER, NAMESPACE).delete(read(file))
        if not force:
            await _nodesets_gone(client, context)
        await uninstall(client, OPERATOR, force=force)


async def _nodesets_gone(client: Client, context: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while left := await all_nodesets(client, NAMESPACE):
        if time.monotonic() > deadline:
            hint = f"see: kubectl --context {context} describe nodesets -n {NAMESPACE}; --force does not wait"
            raise UserError(f"not gone within {PATIENCE:.0f} s: NodeSets {', '.join(map(str, left))}", hint)
        await asyncio.sleep(1)

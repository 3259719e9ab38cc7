"""The `slurm-operator local` commands."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from slurm_local import settings
from slurm_local.images import add_image_commands
from slurm_local.layout import CONTROL_PLANE
from slurm_local.node import NodeSettings
from slurm_local.progress import Progress
from slurm_local.stage import Stage, down, existing, require_root, up
from slurm_operator.cli.types import Subparsers
from slurm_operator.errors import UserError

DEFAULT_NAME = "dev"
DEFAULT_NODES = 3


def add_commands(subparsers: Subparsers) -> None:
    local = subparsers.add_parser(
        "local",
        help="a real multi-node Kubernetes on this machine",
        description="A real multi-node Kubernetes on this machine, without a container engine. Needs Debian and root.",
    )
    commands: Subparsers = local.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_up(commands)
    _command(commands, "down", _down, "remove every trace of the stage")
    _command(commands, "status", _status, "what runs, and where")
    kubeconfig = _command(commands, "kubeconfig", _kubeconfig, "print the kubeconfig of the stage's administrator")
    kubeconfig.add_argument("--path", action="store_true", help="print the path of the file instead")
    kubectl = _command(commands, "kubectl", _kubectl, "run kubectl on the stage; for machines that have none")
    kubectl.usage = "%(prog)s [-h] [--name NAME] [--verbose] [WORD ...]"
    kubectl.epilog = "The words are kubectl's, its options included, as in: -n slurm get pods."
    kubectl.set_defaults(words=())
    load = _command(commands, "load-image", _load_image, "bring an image archive into every node")
    load.add_argument("file", type=Path, help="OCI or Docker archive (tar)")
    add_image_commands(commands)
    _add_node(commands)
    logs = _command(commands, "logs", _logs, "the log of one of the stage's programs")
    logs.add_argument("component", help="kube-apiserver, etcd, kubelet, containerd, kube-proxy, coredns, ...")
    logs.add_argument("--node", default="", help="of which node (default: the first that has such a log)")
    logs.add_argument("-f", "--follow", action="store_true", help="go on printing what is added")


class _Parser(argparse.ArgumentParser):
    """A parser that, for a command with `words`, reads its own options first and leaves the rest as it is.

    argparse itself refuses an option before the first word that is none.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.get_default("words") is None:
            return super().parse_known_args(args, namespace)
        own, words = _split(args or ())
        namespace, _ = super().parse_known_args(own, namespace)
        namespace.words = words
        return namespace, []


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the leading options that every local command has, and the words after them."""
    end = 0
    while end < len(arguments):
        word = arguments[end]
        if word == "--":
            return arguments[:end], arguments[end + 1 :]
        if word == "--name":
            end += 2
        elif word in ("-h", "--help", "--verbose") or word.startswith("--name="):
            end += 1
        else:
            break
    return arguments[:end], arguments[end:]


def _command(commands: Subparsers, name: str, run: object, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("--name", default=DEFAULT_NAME, help=f"name of the stage (default: {DEFAULT_NAME})")
    parser.add_argument("--verbose", action="store_true", help="say more about what is being done")
    parser.set_defaults(run=run)
    return parser


def _add_up(commands: Subparsers) -> None:
    parser = _command(commands, "up", _up, "bring the stage up; does nothing if it is up")
    parser.add_argument("--nodes", type=_count, metavar="N", help=f"number of nodes (default: {DEFAULT_NODES})")
    parser.add_argument("--binaries", type=Path, metavar="DIR", help="use the programs in this folder, build none")
    _add_node_options(parser)


def _add_node(commands: Subparsers) -> None:
    node = commands.add_parser("node", help="add, stop, start or kill a node")
    verbs: Subparsers = node.add_subparsers(metavar="COMMAND", required=True)
    _add_node_options(_command(verbs, "add", _node_add, "add one more node"))
    for name, run, text in (
        ("stop", _node_stop, "shut a node down; its disk is kept"),
        ("start", _node_start, "start a node that was stopped or killed"),
        ("kill", _node_kill, "end every process of a node at once, as a power failure would"),
    ):
        _command(verbs, name, run, text).add_argument("node", help="the node's name or number")


def _add_node_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node-cpus", type=_count, metavar="N", help="CPUs that a node shows (default: the machine's)")
    parser.add_argument(
        "--gpus", type=int, default=0, metavar="N", help="nvidia.com/gpu devices, in name only, per node"
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help="label of a node (repeatable)"
    )
    parser.add_argument("--taint", action="append", default=[], metavar="KEY=VALUE:EFFECT", help="taint (repeatable)")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _node_settings(arguments: argparse.Namespace, index: int) -> NodeSettings:
    labels = dict(label.partition("=")[::2] for label in arguments.label)
    return NodeSettings(
        index=index, cpus=arguments.node_cpus, gpus=arguments.gpus, labels=labels, taints=tuple(arguments.taint)
    )


def _up(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    wanted = arguments.nodes or DEFAULT_NODES
    nodes = [_node_settings(arguments, index) for index in range(1, wanted + 1)]
    stage = up(arguments.name, nodes, _progress(arguments), arguments.binaries)
    count = len(stage.settings.nodes)
    if arguments.nodes and count != wanted:
        print(f"the stage has {count} nodes already; slurm-operator local node add makes one more")
    print(f"the stage '{arguments.name}' is up after {time.monotonic() - started:.0f} s; to use it:")
    print(f"  export KUBECONFIG={stage.kubeconfig}")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    there_was = down(arguments.name, _progress(arguments))
    if not there_was:
        print(f"there is no stage '{arguments.name}'")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    stage = existing(arguments.name)
    try:
        ready = stage.ready_nodes() if stage.control_plane.pid else {}
    except UserError:
        ready = {}
    api = "answers" if ready else "does not answer"
    rows = [("NAME", "ADDRESS", "MACHINE", "KUBERNETES")]
    rows.append((CONTROL_PLANE, stage.network.control_plane, _running(stage.control_plane.pid), api))
    for node in stage.settings.nodes:
        state = "Ready" if ready.get(node.name) else "NotReady" if node.name in ready else "unknown"
        rows.append((node.name, stage.network.machine(node.index), _running(stage.node(node).pid), state))
    for row in rows:
        print(f"{row[0]:<16}{row[1]:<16}{row[2]:<10}{row[3]}")
    return 0 if ready and all(ready.values()) else 1


def _running(pid: int | None) -> str:
    return "runs" if pid else "stopped"


def _kubeconfig(arguments: argparse.Namespace) -> int:
    path = existing(arguments.name).kubeconfig
    print(path if arguments.path else path.read_text(), end="\n" if arguments.path else "")
    return 0


def _kubectl(arguments: argparse.Namespace) -> NoReturn:
    command = existing(arguments.name).kubectl.command(*arguments.words)
    os.execv(command[0], command)  # noqa: S606 - to be kubectl, with its terminal, signals and exit code


def _load_image(arguments: argparse.Namespace) -> int:
    require_root()
    stage = existing(arguments.name, _progress(arguments))
    with settings.locked(stage.names), stage.progress.step(f"loading {arguments.file.name}", usual=15):
        nodes = stage.load_image(arguments.file)
    print(f"{arguments.file} is on {', '.join(nodes) or 'no node yet: none runs'}")
    return 0


def _node_add(arguments: argparse.Namespace) -> int:
    require_root()
    stage = existing(arguments.name, _progress(arguments))
    with settings.locked(stage.names) as lock:
        node = _node_settings(arguments, stage.next_index())
        stage.with_node(node).start_node(node, lock)
    return 0


def _node_start(arguments: argparse.Namespace) -> int:
    require_root()
    stage = existing(arguments.name, _progress(arguments))
    with settings.locked(stage.names) as lock:
        stage.start_node(stage.find(arguments.node), lock)
    return 0


def _node_stop(arguments: argparse.Namespace) -> int:
    return _end_node(arguments, patience=10)


def _node_kill(arguments: argparse.Namespace) -> int:
    return _end_node(arguments, patience=0)


def _end_node(arguments: argparse.Namespace, *, patience: float) -> int:
    require_root()
    stage = existing(arguments.name, _progress(arguments))
    with settings.locked(stage.names):
        stage.stop_node(stage.find(arguments.node), patience=patience)
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    stage = existing(arguments.name)
    path = _log_file(stage, arguments.component, arguments.node)
    with path.open(errors="replace") as file:
        while True:
            sys.stdout.write(file.read())
            sys.stdout.flush()
            if not arguments.follow:
                return 0
            time.sleep(0.5)


def _log_file(stage: Stage, component: str, node: str) -> Path:
    machines = stage.names.folder / "machines"
    files = [*sorted(machines.glob(f"{node or '*'}/log/*.log")), stage.names.folder / "provisioner.log"]
    found = [path for path in files if path.stem == component]
    if not found:
        known = ", ".join(sorted({path.stem for path in files}))
        raise UserError(f"there is no log of '{component}'", hint=f"There are logs of {known}.")
    return found[0]


def _progress(arguments: argparse.Namespace) -> Progress:
    return Progress(verbose=arguments.verbose)

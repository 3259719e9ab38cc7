"""`slurm-operator status`: a cluster at a glance: what is ready, what is waited for, nodes and jobs by state."""

import argparse
import asyncio
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from slurm_operator.api import KINDS as ALL_KINDS
from slurm_operator.api import Kind, Object, names
from slurm_operator.api.common import Status
from slurm_operator.cli.jobs import jobs_of
from slurm_operator.cli.types import Subparsers
from slurm_operator.errors import UserError
from slurm_operator.kube import Client, NotFound, load
from slurm_operator.kube.custom import NODESETS, resource_of

WIDTH = 80
MESSAGE_WIDTH = 44


@dataclass(frozen=True, slots=True)
class Line:
    """One resource."""

    kind: str
    name: str
    ready: bool
    note: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name} " + ("is ready" if self.ready else self.note or "is not ready")


@dataclass(frozen=True, slots=True)
class Glance:
    lines: tuple[Line, ...]
    nodes: dict[str, int]
    jobs: dict[str, str] = field(default_factory=dict)
    """By Controller; only where somebody asked."""

    @property
    def ready(self) -> bool:
        return bool(self.lines) and all(line.ready for line in self.lines)

    def changes(self, shown: set[str]) -> Iterator[str]:
        """What was not said before."""
        for line in self.lines:
            text = str(line)
            if text not in shown:
                shown.add(text)
                yield text

    def table(self) -> str:
        rows = [f"{'RESOURCE':<24}{'READY':<7}WAITING FOR"]
        for line in self.lines:
            note = "" if line.ready else line.note
            first, *rest = textwrap.wrap(note, MESSAGE_WIDTH, break_on_hyphens=False) or [""]
            rows.append(f"{f'{line.kind}/{line.name}':<24}{'yes' if line.ready else 'no':<7}{first}".rstrip())
            rows += [" " * 31 + part for part in rest]
        counts = ", ".join(f"{count} {state}" for state, count in self.nodes.items() if count)
        rows += ["", f"Slurm nodes: {counts or 'none'}"]
        for controller, text in self.jobs.items():
            rows += textwrap.wrap(f"Jobs of {controller}: {text}", WIDTH, subsequent_indent="  ")
        return "\n".join(rows)


def add_command(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("status", help="a Slurm cluster at a glance")
    parser.add_argument("-n", "--namespace", default="slurm", help="namespace of the cluster (default slurm)")
    parser.add_argument("--kubeconfig", default="", help="file to reach the cluster with; default: as kubectl")
    parser.add_argument("--context", default="", help="context of the kubeconfig")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    async def look() -> Glance:
        async with Client(load(options.kubeconfig, options.context)) as client:
            found = await glance(client, options.namespace)
            return replace(found, jobs=await jobs_of(client, options.namespace))

    found = asyncio.run(look())
    if not found.lines:
        raise UserError(
            f"there is no Slurm cluster in namespace {options.namespace}", "choose another with --namespace"
        )
    print(found.table())
    return 0 if found.ready else 1


async def glance(client: Client, namespace: str) -> Glance:
    lines: list[Line] = []
    for kind in ALL_KINDS:
        lines += await _lines(client, kind, namespace)
    return Glance(tuple(lines), await _nodes(client, namespace))


async def _lines(client: Client, kind: Kind[Object], namespace: str) -> list[Line]:
    try:
        found = await client.list(resource_of(kind), namespace)
    except NotFound as error:
        raise UserError("the cluster does not know the Slurm kinds", "run `slurm-operator install`") from error
    return [
        Line(kind.name, obj.metadata.name, *_verdict(getattr(obj, "status"), obj.metadata.generation))  # noqa: B009 - the six kinds have it, their common base has not
        for obj in found.items
    ]


def _verdict(status: Status, generation: int) -> tuple[bool, str]:
    ready = status.condition(names.CONDITION_READY)
    if ready is None or ready.observed_generation < generation:
        return False, "the operator has not looked at it yet"
    if ready.is_true:
        return True, ""
    for condition in (names.CONDITION_DEGRADED, names.CONDITION_PROGRESSING):
        found = status.condition(condition)
        if found is not None and found.is_true and found.message:
            return False, found.message
    return False, ready.message


async def _nodes(client: Client, namespace: str) -> dict[str, int]:
    sets = [nodeset.status for nodeset in (await client.list(NODESETS, namespace)).items]
    return {
        "idle": sum(status.slurm_idle for status in sets),
        "allocated": sum(status.slurm_allocated for status in sets),
        "down": sum(status.slurm_down for status in sets),
        "draining": sum(status.slurm_drain for status in sets),
    }

"""`slurm-operator status`: a cluster at a glance: what is ready, what is waited for, nodes and jobs by state."""

import argparse
import asyncio
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import msgspec

from slurm_operator.api import KINDS as ALL_KINDS
from slurm_operator.api import Kind, Object, names
from slurm_operator.api.common import Status
from slurm_operator.cli.clusters import Cluster, clusters_of
from slurm_operator.cli.types import Subparsers
from slurm_operator.errors import UserError
from slurm_operator.kube import Client, NotFound, load
from slurm_operator.kube.custom import resource_of

WIDTH = 80
SHORTEST_NOTE = 30
"""Columns that a note gets at least, however long the names are."""

Verdict = Literal["yes", "no", "unknown", "degraded"]


@dataclass(frozen=True, slots=True)
class Line:
    """One resource."""

    kind: str
    name: str
    verdict: Verdict
    note: str = ""
    namespace: str = ""

    @property
    def ready(self) -> bool:
        return self.verdict in ("yes", "degraded")

    def __str__(self) -> str:
        subject = f"{self.kind}/{self.name}"
        if self.verdict == "degraded":
            return f"{subject} is ready, but degraded: {self.note}"
        return f"{subject} is ready" if self.ready else f"{subject} {self.note or 'is not ready'}"


@dataclass(frozen=True, slots=True)
class Glance:
    lines: tuple[Line, ...]
    clusters: tuple[Cluster, ...] = ()
    """Only where the caller asked for them."""

    @property
    def ready(self) -> bool:
        return bool(self.lines) and all(line.ready for line in self.lines)

    @property
    def well(self) -> bool:
        """Whether everything is ready and nothing is degraded."""
        return bool(self.lines) and all(line.verdict == "yes" for line in self.lines)

    def changes(self, shown: set[str]) -> Iterator[str]:
        """What was not said before."""
        for line in self.lines:
            text = str(line)
            if text not in shown:
                shown.add(text)
                yield text

    def table(self, *, namespaces: bool = False) -> str:
        """Return the text for people; with `namespaces`, each object is shown with its own."""

        def named(namespace: str, name: str) -> str:
            return f"{namespace}/{name}" if namespaces else name

        cells = [(named(line.namespace, f"{line.kind}/{line.name}"), line.verdict, line.note) for line in self.lines]
        wide = max(24, 2 + max((len(name) for name, _, _ in cells), default=0))
        room = max(SHORTEST_NOTE, WIDTH - wide - 10)
        rows = [f"{'RESOURCE':<{wide}}{'READY':<10}WAITING FOR"]
        for name, verdict, note in cells:
            first, *rest = textwrap.wrap(note, room, break_on_hyphens=False) or [""]
            rows.append(f"{name:<{wide}}{verdict:<10}{first}".rstrip())
            rows += [" " * (wide + 10) + part for part in rest]
        for cluster in self.clusters:
            rows += ["", *_about(cluster, named(cluster.namespace, cluster.name))]
        return "\n".join(rows)

    def json(self) -> str:
        content = {
            "ready": self.ready,
            "resources": [{**asdict(line), "ready": line.ready} for line in self.lines],
            "clusters": [_plain(cluster) for cluster in self.clusters],
        }
        return msgspec.json.format(msgspec.json.encode(content)).decode()


def _about(cluster: Cluster, name: str) -> Iterator[str]:
    stale = ""
    if cluster.unknown:
        age = cluster.silent_seconds
        stale = " (stale, age unknown)" if age is None else f" (stale: no answer for {_duration(age)})"
    jobs = f"unknown: {cluster.unknown}" if cluster.unknown else _counts(cluster.jobs)
    for text in (f"Slurm nodes of {name}{stale}: {_counts(cluster.nodes)}", f"Jobs of {name}: {jobs}"):
        yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _plain(cluster: Cluster) -> dict[str, object]:
    return {
        "namespace": cluster.namespace,
        "name": cluster.name,
        "nodes": cluster.nodes,
        "jobs": None if cluster.unknown else cluster.jobs,
        "stale": bool(cluster.unknown),
        "silentSeconds": None if cluster.silent_seconds is None else int(cluster.silent_seconds),
        "unknown": cluster.unknown,
    }


def add_command(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "status",
        help="a Slurm cluster at a glance",
        description="A Slurm cluster at a glance. Exit code: 0 all is ready and nothing is degraded, 1 otherwise.",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("-n", "--namespace", default="", help="namespace of the cluster (default: the kubeconfig's)")
    place.add_argument("-A", "--all-namespaces", action="store_true", help="the clusters of all namespaces")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="how to print it")
    parser.add_argument("--kubeconfig", default="", help="file to reach the cluster with; default: as kubectl")
    parser.add_argument("--context", default="", help="context of the kubeconfig")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    config = load(options.kubeconfig, options.context)
    namespace = None if options.all_namespaces else options.namespace or config.namespace

    async def look() -> Glance:
        async with Client(config) as client:
            return await glance(client, namespace, slurm=True)

    found = asyncio.run(look())
    if not found.lines:
        where = f"namespace {namespace}" if namespace else "any namespace"
        hint = "choose another with --namespace, or see all with -A" if namespace else "create one: see examples/"
        raise UserError(f"there is no Slurm cluster in {where}", hint)
    print(found.json() if options.output == "json" else found.table(namespaces=namespace is None))
    return 0 if found.well else 1


async def glance(client: Client, namespace: str | None, *, slurm: bool = False) -> Glance:
    """Look at a namespace, or at all of them; with `slurm`, ask each Slurm cluster for its nodes and jobs too."""
    lines: list[Line] = []
    for kind in ALL_KINDS:
        lines += await _lines(client, kind, namespace)
    lines.sort(key=lambda line: line.namespace)
    return Glance(tuple(lines), tuple(await clusters_of(client, namespace)) if slurm else ())


async def _lines(client: Client, kind: Kind[Object], namespace: str | None) -> list[Line]:
    try:
        found = await client.list(resource_of(kind), namespace)
    except NotFound as error:
        raise UserError("the cluster does not know the Slurm kinds", "run `slurm-operator install`") from error
    unreadable = [
        Line(kind.name, bad.metadata.name, "unknown", f"it cannot be read: {bad.error}", bad.metadata.namespace)
        for bad in found.unreadable
    ]
    return unreadable + [
        Line(kind.name, obj.metadata.name, *_verdict(getattr(obj, "status"), obj), obj.metadata.namespace)  # noqa: B009 - the six kinds have it, their common base has not
        for obj in found.items
    ]


def _verdict(status: Status, obj: Object) -> tuple[Verdict, str]:
    ready, degraded, progressing = map(
        status.condition, (names.CONDITION_READY, names.CONDITION_DEGRADED, names.CONDITION_PROGRESSING)
    )
    if ready is None or ready.observed_generation < obj.metadata.generation:
        return "no", "the operator has not looked at it yet"
    if ready.is_true:
        if degraded is None or not degraded.is_true:
            return "yes", ""
        return "degraded", ": ".join(filter(None, (degraded.reason, degraded.message)))
    verdict: Verdict = "unknown" if ready.status == "Unknown" else "no"
    for found in (degraded, progressing):
        if found is not None and found.is_true and found.message:
            return verdict, found.message
    return verdict, ready.message

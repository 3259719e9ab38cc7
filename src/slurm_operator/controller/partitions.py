"""Partitions that no NodeSet asks for any more.

At a reconfigure and at a start slurmctld ends every job whose partition is not in slurm.conf, without a requeue. A
partition therefore stays until no unfinished job names it. It is closed first (State=DRAIN): slurmctld then refuses new
jobs for it and runs those that it has. It leaves when slurmctld itself has said that it is closed, and a list of all
jobs that was read afterwards does not name it. Nothing of this has to be stored: slurm.conf says which partitions are
closed, and slurmctld says the rest again after a restart of the operator.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slurm_operator.kube.resource import Key
from slurm_operator.runtime.actions import HasKube
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.plan import Done, Urgency
from slurm_operator.slurm.conf.groups import closed
from slurm_operator.slurm.conf.writer import NodeGroup
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.views import SlurmViews

CLOSED = "DRAIN"
ANSWER_SECONDS = 5.0
"""How long slurmctld may take to answer: other Controllers wait for the same workers of the queue."""
SHOWN_JOBS = 3
UNPROVEN = "until slurmctld refuses new jobs for it and lists no job that names it"


@dataclass(frozen=True, slots=True)
class Retired:
    """A group that stays in slurm.conf although no NodeSet asks for its partition."""

    group: NodeGroup
    why: str
    """What it waits for, as the end of a sentence."""
    ask: bool = False
    """The configuration in force closes it and Slurm answers: slurmctld says whether it is closed."""
    confirmed: bool = False
    """slurmctld has said that it is closed."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What tells whether a partition may leave."""

    known: bool
    """Slurm answers."""
    jobs: JobList | None
    """None before its jobs have been read."""
    closed_at: Mapping[str, float]
    """Monotonic second at which slurmctld had said that a partition is closed."""
    unreadable: tuple[str, ...] = ()
    """NodeSets of the namespace that exist and cannot be read: any partition may be theirs."""
    asking: bool = False
    """Slurm has not answered yet, as it was asked only a moment ago."""


def leaving(
    in_force: Iterable[NodeGroup], wanted: Iterable[NodeGroup], defined: Collection[str]
) -> tuple[NodeGroup, ...]:
    """Return the groups whose partition would leave slurm.conf; `defined` are partitions of the administrator's own."""
    stay = {group.name for group in wanted if group.partition is not None} | {*defined}
    return tuple(group for group in in_force if group.partition is not None and group.name not in stay)


def retired(groups: Iterable[NodeGroup], evidence: Evidence) -> tuple[Retired, ...]:
    """Return what must stay of the groups that would leave."""
    return tuple(kept for group in groups if (kept := _retired(group, evidence)) is not None)


def _retired(group: NodeGroup, evidence: Evidence) -> Retired | None:
    if evidence.unreadable:
        return Retired(group, f"until NodeSet {evidence.unreadable[0]} can be read")
    shut = closed(group)
    if not evidence.known:
        return Retired(shut, UNPROVEN if evidence.asking else "until Slurm can be asked whether a job names it")
    ask = shut == group
    confirmed_at = evidence.closed_at.get(group.name) if ask else None
    if confirmed_at is None:
        return Retired(shut, UNPROVEN, ask)
    if evidence.jobs is None or evidence.jobs.began_at < confirmed_at:
        return Retired(shut, UNPROVEN, ask, confirmed=True)
    if ids := evidence.jobs.partitions.get(group.name):
        ended = "it leaves slurm.conf when they have ended or named another partition"
        return Retired(shut, f"because {_named(ids)}; {ended}", ask, confirmed=True)
    return None


def _named(ids: Collection[int]) -> str:
    """Name the first jobs, so that the text changes little while many of them end."""
    shown = [str(job) for job in sorted(ids)[:SHOWN_JOBS]]
    if rest := len(ids) - len(shown):
        return f"jobs {', '.join(shown)} and {rest} more name it"
    if len(shown) == 1:
        return f"job {shown[0]} names it"
    return f"jobs {', '.join(shown[:-1])} and {shown[-1]} name it"


def told(kept: Iterable[Retired], before: str) -> str:
    """Say why each partition stays. `before` is what was said last.

    The jobs that were named last stand until slurmctld has been asked anew: a restart of the operator is no news.
    """
    return "; ".join(_told(one, before) for one in kept)


def _told(one: Retired, before: str) -> str:
    begin = f"partition {one.group.name} is kept "
    jobs = re.search(f"(?:^|; )({begin}because .*?)(?=; partition |$)", before)
    return jobs[1] if jobs is not None and one.why == UNPROVEN else begin + one.why


class ClosedPartitions:
    """When slurmctld has first said of a partition that it is closed, for as long as it goes on saying so."""

    def __init__(self, views: SlurmViews, clock: Clock) -> None:
        self._views = views
        self._clock = clock
        self._closed_at: dict[Key, dict[str, float]] = {}

    def closed_at(self, cluster: Key, partitions: Collection[str]) -> Mapping[str, float]:
        """Return the seconds at which these were known to be closed, and forget all others of the cluster.

        A partition that was open in between is asked for anew.
        """
        known = {name: at for name, at in self._closed_at.pop(cluster, {}).items() if name in partitions}
        if known:
            self._closed_at[cluster] = known
        return dict(known)

    async def look(self, cluster: Key, partitions: Collection[str]) -> None:
        """Ask slurmctld; without an answer nothing changes."""
        client = self._views.client(cluster)
        if client is None:
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await client.partitions()
        except (SlurmError, TimeoutError):
            return
        now = self._clock.monotonic()
        before = self._closed_at.get(cluster, {})
        shut = {one.name for one in found if CLOSED in one.partition.state}
        self._closed_at[cluster] = {name: before.get(name, now) for name in partitions if name in shut}


class ControllerHands(HasKube, Protocol):
    @property
    def partitions(self) -> ClosedPartitions: ...


@dataclass(frozen=True, slots=True)
class LookAtPartitions:
    """Ask slurmctld whether partitions are closed to new jobs."""

    cluster: Key
    partitions: tuple[str, ...]
    urgency: Urgency = Urgency.NORMAL
    lane: str = ""

    def __str__(self) -> str:
        return f"ask whether {', '.join(self.partitions)} refuse new jobs"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self)}

    async def run(self, hands: ControllerHands) -> Done:
        await hands.partitions.look(self.cluster, self.partitions)
        return Done(wrote=False)

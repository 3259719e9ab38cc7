"""Partitions that no NodeSet asks for any more.

At a reconfigure and at a start slurmctld ends every job whose partition is not in slurm.conf, without a requeue. A
partition therefore stays until no unfinished job names it. It is closed first (State=DRAIN): slurmctld then refuses new
jobs for it and runs those that it has. It leaves when slurmctld itself has said that it is closed, and a list of all
jobs that was read afterwards does not name it. Nothing of this has to be stored: slurm.conf says which partitions are
closed, and slurmctld says the rest again after a restart of the operator.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slurm_operator.api import names
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.actions import HasKube
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.controller import without_worker
from slurm_operator.runtime.plan import Done, Urgency
from slurm_operator.slurm.conf.groups import closed
from slurm_operator.slurm.conf.writer import NodeGroup
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.views import SlurmViews

CLOSED = "DRAIN"
ANSWER_SECONDS = 25.0
"""How long slurmctld may take to answer; the status of the Controller waits for that."""
SHOWN = 3
"""Jobs, and reservations, that a message names."""
FRESH_SECONDS = 60.0
"""Age of an answer of slurmctld, and of a list of jobs, beyond which no partition leaves by it."""
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
    unread: bool = False
    """The jobs have not been read yet, or too long ago."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What tells whether a partition may leave."""

    known: bool
    """Slurm answers."""
    jobs: JobList | None
    """None before the jobs have been read, and if that was too long ago."""
    closed_at: Mapping[str, float]
    """Monotonic second at which slurmctld had said that a partition is closed."""
    unreadable: tuple[str, ...] = ()
    """NodeSets of the namespace that exist and cannot be read: any partition may be theirs."""
    asking: bool = False
    """Slurm has not answered yet, as it was asked only a moment ago."""
    broken: bool = False
    """slurmctld does not run with the configuration in force: options of a partition may be the cause."""
    unreserved: frozenset[str] = frozenset()
    """Partitions of which an administrator says that no reservation names them in `AllowedPartitions`."""


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
    shut = closed(group, bare=evidence.broken)
    if not evidence.known:
        why = UNPROVEN if evidence.asking else "until Slurm can be asked whether a job names it"
        return Retired(shut, why, unread=evidence.asking)
    ask = shut == group
    confirmed_at = evidence.closed_at.get(group.name) if ask else None
    if evidence.jobs is None:
        return Retired(shut, UNPROVEN, ask, confirmed_at is not None, unread=True)
    if users := _users(evidence.jobs, group.name):
        ended = "it leaves slurm.conf when they have ended or named another partition"
        return Retired(shut, f"because {users}; {ended}", ask, confirmed_at is not None)
    if group.name not in evidence.unreserved and (doubt := _doubt(evidence.jobs, group.name)):
        return Retired(shut, f"because {doubt}", ask, confirmed_at is not None)
    if confirmed_at is None or evidence.jobs.began_at < confirmed_at:
        return Retired(shut, UNPROVEN, ask, confirmed_at is not None)
    return None


def _users(jobs: JobList, partition: str) -> str:
    """Say which jobs and reservations name a partition; nothing if none does."""
    named = [
        *_named("job", [str(job) for job in sorted(jobs.partitions.get(partition, ()))]),
        *_named("reservation", sorted(jobs.reserved_partitions.get(partition, ()))),
    ]
    return " and ".join(named)


def _doubt(jobs: JobList, partition: str) -> str:
    """Say which reservations may name a partition; nothing if there is none.

    slurmctld drops a reservation that names a missing partition in `AllowedPartitions`, also as one of several and also
    as a denied one, and slurmrestd does not show that option.
    """
    if not jobs.reservations:
        return ""
    others = len(jobs.reservations) - 1
    more = f" and {others} more" if others else ""
    cure = (
        f"if `scontrol show reservation` shows it nowhere, annotate the Controller with {names.ANNOTATION_UNRESERVED}"
    )
    return f"reservation {min(jobs.reservations)}{more} may name it in AllowedPartitions; {cure}={partition}"


def _named(kind: str, users: Sequence[str]) -> Iterator[str]:
    """Name the first ones, so that the text changes little while many of them end."""
    shown = [*users[:SHOWN]]
    if rest := len(users) - len(shown):
        yield f"{kind}s {', '.join(shown)} and {rest} more name it"
    elif len(shown) > 1:
        yield f"{kind}s {', '.join(shown[:-1])} and {shown[-1]} name it"
    elif shown:
        yield f"{kind} {shown[0]} names it"


def told(kept: Iterable[Retired], before: str) -> str:
    """Say why each partition stays. `before` is what was said last.

    What was named last stands until the jobs have been read anew: a restart of the operator is no news.
    """
    return "; ".join(_told(one, before) for one in kept)


def _told(one: Retired, before: str) -> str:
    begin = f"partition {one.group.name} is kept "
    users = re.search(f"(?:^|; )({re.escape(begin)}because .*?)(?=; partition |$)", before)
    return users[1] if users is not None and one.unread else begin + one.why


@dataclass(frozen=True, slots=True)
class Closed:
    """Monotonic seconds at which slurmctld first and last said that a partition is closed."""

    first: float
    last: float


class ClosedPartitions:
    """When slurmctld has first said of a partition that it is closed, for as long as it goes on saying so."""

    def __init__(self, views: SlurmViews, clock: Clock) -> None:
        self._views = views
        self._clock = clock
        self._closed: dict[Key, dict[str, Closed]] = {}

    def closed_at(self, cluster: Key, partitions: Collection[str]) -> Mapping[str, float]:
        """Return the seconds at which these were known to be closed, and forget all others of the cluster.

        A partition that was open in between, or was not asked for some time, is asked for anew.
        """
        now = self._clock.monotonic()
        known = {
            name: closed
            for name, closed in self._closed.pop(cluster, {}).items()
            if name in partitions and now - closed.last <= FRESH_SECONDS
        }
        if known:
            self._closed[cluster] = known
        return {name: closed.first for name, closed in known.items()}

    def forget(self, cluster: Key) -> None:
        """Drop what is known of a cluster that is gone."""
        self._closed.pop(cluster, None)

    async def look(self, cluster: Key, partitions: Collection[str]) -> None:
        """Ask slurmctld; without an answer nothing changes."""
        client = self._views.client(cluster)
        if client is None:
            return
        try:
            with without_worker():
                async with asyncio.timeout(ANSWER_SECONDS):
                    found = await client.partitions()
        except (SlurmError, TimeoutError):
            return
        now = self._clock.monotonic()
        before = self._closed.get(cluster, {})
        shut = {one.name for one in found if CLOSED in one.partition.state}
        self._closed[cluster] = {
            name: Closed(before[name].first if name in before else now, now) for name in partitions if name in shut
        }


class AsksPartitions(HasKube, Protocol):
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

    async def run(self, hands: AsksPartitions) -> Done:
        await hands.partitions.look(self.cluster, self.partitions)
        return Done(wrote=False)

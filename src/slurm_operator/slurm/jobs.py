"""Which unfinished jobs and reservations use which nodes and partitions, and when running jobs will have ended.

A node list that cannot be read does not affect other jobs. It is reported in `skipped`, never guessed.
"""

import asyncio
import math
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar, cast

from slurm_operator.slurm.client import Listing, NotChanged, SlurmClient
from slurm_operator.slurm.clock import Clock
from slurm_operator.slurm.errors import DeadlineExceeded, Garbage, SlurmError
from slurm_operator.slurm.hostlist import HostlistError, expand
from slurm_operator.slurm.model import Job, Reservation
from slurm_operator.slurm.pace import Pace

NEVER = math.inf
"""End of a job without a time limit. Slurm shows start + 365 days for it, which is not meant."""
RETRY_SECONDS = 30.0
"""Seconds for which callers with limited patience do not wait again after a read failed."""

CLOCK_SECONDS = 2.0
"""Seconds by which two looks at slurmctld's clock may differ: it shows whole seconds, and answers take a moment."""

_RUNS = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "RESIZING", "SIGNALING"})
_FINAL = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)
_NOT_OVER = frozenset({"COMPLETING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STAGE_OUT"})
"""Flags with which a job in a final state still holds resources, or runs again."""

Ids = tuple[int, ...]
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs and reservations as one read showed them, by node and by partition."""

    began_at: float
    """Monotonic second at which the read began."""
    read_seconds: float = 0.0
    """How long the read took."""
    latest: Mapping[str, float] = field(default_factory=dict)
    """Per node with running jobs: the second since 1970 by which the last of them must have ended."""
    untold: frozenset[str] = frozenset()
    """Nodes with a running job whose end Slurm does not tell."""
    skipped: Ids = ()
    """Unfinished jobs with a node list that cannot be read."""
    holding: Mapping[str, Ids] = field(default_factory=dict)
    """Per node: unfinished jobs that are allocated to it, in whatever state (suspended, completing, ...)."""
    naming: Mapping[str, Ids] = field(default_factory=dict)
    """Per node: unfinished jobs that require or exclude it by name, and are not allocated to it."""
    partitions: Mapping[str, Ids] = field(default_factory=dict)
    """Per partition: unfinished jobs that name it."""
    reserved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Per node: reservations that name it."""
    reserved_partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Per partition: reservations whose `PartitionName` it is."""
    reservations: tuple[str, ...] = ()
    """All of them: slurmrestd does not show `AllowedPartitions`, so that each may name any partition."""
    odd_reservations: tuple[str, ...] = ()
    """Reservations with a node list that cannot be read."""

    @property
    def ended_at(self) -> float:
        """Monotonic second at which the read had ended."""
        return self.began_at + self.read_seconds

    def users_of(self, node: str) -> tuple[str, ...]:
        """Return what keeps the record of a node from being deleted, in words."""
        ids = sorted({*self.holding.get(node, ()), *self.naming.get(node, ()), *self.skipped})
        reservations = sorted({*self.reserved.get(node, ()), *self.odd_reservations})
        return (*(f"job {number}" for number in ids), *(f"reservation {name}" for name in reservations))

    def waited_for_elsewhere(self, node: str) -> tuple[str, ...]:
        """Return what names a node without running on it: jobs elsewhere or pending, and reservations."""
        here = {f"job {number}" for number in self.holding.get(node, ())}
        return tuple(user for user in self.users_of(node) if user not in here)


def is_running(job: Job) -> bool:
    return not _RUNS.isdisjoint(job.job_state)


def is_unfinished(job: Job) -> bool:
    """Return whether a job still runs, holds resources or may run later; an unknown state counts as unfinished."""
    return _FINAL.isdisjoint(job.job_state) or not _NOT_OVER.isdisjoint(job.job_state)


def job_end(job: Job) -> float | None:
    """Return the latest second at which a running job ends; None if Slurm does not say."""
    if job.time_limit.infinite:
        return NEVER
    if end := job.end_time.value:
        return float(end)
    start, minutes = job.start_time.value, job.time_limit.value
    return float(start + minutes * 60) if start and minutes is not None else None


class JobListBuilder:
    """Take jobs piece by piece, as they arrive."""

    def __init__(self, began_at: float) -> None:
        self._began_at = began_at
        self._latest: dict[str, float] = {}
        self._untold: set[str] = set()
        self._skipped: list[int] = []
        self._holding: dict[str, Ids] = {}
        self._naming: dict[str, list[int]] = {}
        self._partitions: dict[str, list[int]] = {}

    def add(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if is_unfinished(job):
                self._add(job)

    def _add(self, job: Job) -> None:
        for partition in filter(None, job.partition.split(",")):
            _append(self._partitions, (partition,), job.job_id)
        try:
            allocated = expand(job.nodes)
            named = {*expand(job.required_nodes), *expand(job.excluded_nodes)}.difference(allocated)
        except HostlistError:
            self._skipped.append(job.job_id)
            return
        for name in allocated:
            self._holding[name] = (*self._holding.get(name, ()), job.job_id)
        _append(self._naming, named, job.job_id)
        if is_running(job):
            self._note_end(allocated, job_end(job))

    def _note_end(self, nodes: Iterable[str], end: float | None) -> None:
        if end is None:
            self._untold.update(nodes)
            return
        for name in nodes:
            if end > self._latest.get(name, 0.0):
                self._latest[name] = end

    def build(self, reservations: Iterable[Reservation] = ()) -> JobList:
        return with_reservations(self._build(), reservations)

    def _build(self) -> JobList:
        return JobList(
            began_at=self._began_at,
            latest=self._latest,
            untold=frozenset(self._untold),
            skipped=tuple(self._skipped),
            holding=self._holding,
            naming=_frozen(self._naming),
            partitions=_frozen(self._partitions),
        )


def with_reservations(jobs: JobList, reservations: Iterable[Reservation]) -> JobList:
    """Return the same jobs with these reservations."""
    reserved: dict[str, tuple[str, ...]] = {}
    partitions: dict[str, tuple[str, ...]] = {}
    odd: list[str] = []
    found = tuple(reservations)
    for reservation in found:
        if reservation.partition:
            partitions[reservation.partition] = (*partitions.get(reservation.partition, ()), reservation.name)
        try:
            names = expand(reservation.node_list)
        except HostlistError:
            odd.append(reservation.name)
            continue
        for name in names:
            reserved[name] = (*reserved.get(name, ()), reservation.name)
    return replace(
        jobs,
        reserved=reserved,
        reserved_partitions=partitions,
        reservations=tuple(reservation.name for reservation in found),
        odd_reservations=tuple(odd),
    )


def _append(table: dict[str, list[int]], keys: Iterable[str], job_id: int) -> None:
    for key in keys:
        known = table.setdefault(key, [])
        if not known or known[-1] != job_id:
            known.append(job_id)


def _frozen(table: Mapping[str, list[int]]) -> dict[str, Ids]:
    return {key: tuple(ids) for key, ids in table.items()}


class JobListReader:
    """Read all jobs and reservations on demand: one read at a time, shared by all callers."""

    def __init__(self, client: SlurmClient, clock: Clock, pace: Pace) -> None:
        self._client = client
        self._clock = clock
        self._pace = pace
        self._last: JobList | None = None
        self._last_update = 0
        self._clock_then = _SlurmctldClock(0, 0.0)
        """At the last list that was not answered with "nothing changed"."""
        self._epoch = -1
        self._budget = pace.for_lists(clock.monotonic)
        self._reading: _Reading | None = None
        self._failed_at = -math.inf
        self._error: SlurmError | None = None

    def last(self, epoch: int) -> JobList | None:
        """Return the last list of the slurmctld of this epoch, however old."""
        return self._last if epoch == self._epoch else None

    async def read(self, max_age: float, epoch: int, patience: float | None = None) -> JobList:
        """Return a list that is at most `max_age` seconds old, or as fresh as its price allows.

        With `patience`, a read that takes longer raises SlurmError and goes on in the background; later callers do not
        wait for the same read again, nor for a new one right after a failure.
        """
        while True:
            now = self._clock.monotonic()
            last = self.last(epoch)
            if last and (now - last.began_at < max_age or self._budget.wait() > 0):
                return last
            reading = self._reading
            if reading is None:
                if patience is not None and self._error is not None and now - self._failed_at < RETRY_SECONDS:
                    raise self._error.with_traceback(None)
                reading = self._start(epoch)
            if patience is not None and reading.is_late:
                raise _too_late()
            done, _ = await asyncio.wait({reading.task}, timeout=patience)
            if not done:
                reading.is_late = True
                raise _too_late()
            found = reading.task.result()
            if reading.epoch == epoch and found.began_at >= now - max_age:
                return found

    def _start(self, epoch: int) -> "_Reading":
        task = asyncio.create_task(self._read(epoch), name="read the job list of a Slurm cluster")
        self._reading = _Reading(task, epoch)
        task.add_done_callback(self._ended)
        return self._reading

    def _ended(self, task: asyncio.Task[JobList]) -> None:
        self._reading = None
        error = None if task.cancelled() else task.exception()
        self._error = error if isinstance(error, SlurmError) else None
        if self._error is not None:
            self._failed_at = self._clock.monotonic()

    async def _read(self, epoch: int) -> JobList:
        """Ask for everything at the same time: a slow slurmctld takes its time for each answer."""
        now = self._clock.monotonic()
        last = self.last(epoch)
        builder = JobListBuilder(now)
        listing, clock, reservations = await _all_of(
            self._client.jobs(builder.add, self._last_update if last is not None else 0),
            self._ask_clock(),
            self._client.reservations(),
        )
        if isinstance(listing, NotChanged) and clock.ahead < self._clock_then.ahead - CLOCK_SECONDS:
            listing = await self._client.jobs(builder.add)
        if isinstance(listing, Listing):
            await self._note_update(listing, clock)
            found = builder.build()
        elif last is not None:
            found = replace(last, began_at=now)
        else:
            raise Garbage("GET jobs/", "nothing changed, although all jobs were asked for")
        found = with_reservations(found, reservations)
        self._last, self._epoch = replace(found, read_seconds=self._clock.monotonic() - now), epoch
        return self._last

    async def _note_update(self, listing: Listing[Job], clock: "_SlurmctldClock") -> None:
        """Note what the next read may ask for changes since: nothing if slurmctld's clock was set back meanwhile."""
        self._budget.spend(self._pace.price(listing.cost))
        if listing.last_update > clock.now + CLOCK_SECONDS:  # told after the list, or before it was set back
            clock = await self._ask_clock()
        self._last_update = listing.last_update if listing.last_update <= clock.now + CLOCK_SECONDS else 0
        self._clock_then = clock

    async def _ask_clock(self) -> "_SlurmctldClock":
        now = (await self._client.diag()).now
        return _SlurmctldClock(now, now - self._clock.monotonic())

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.task.cancel()
            await asyncio.wait({self._reading.task})


class _SlurmctldClock(NamedTuple):
    now: int
    ahead: float
    """Seconds by which it is ahead of our monotonic clock: less than before if it was set back."""


async def _all_of(first: Awaitable[A], second: Awaitable[B], third: Awaitable[C]) -> tuple[A, B, C]:
    """Wait for all of them, also if one fails: none goes on unwatched."""
    found = await asyncio.gather(first, second, third, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return cast("tuple[A, B, C]", tuple(found))


@dataclass(slots=True)
class _Reading:
    """A read under way."""

    task: asyncio.Task[JobList]
    epoch: int
    is_late: bool = False
    """A caller's patience ended before the read did."""


def _too_late() -> SlurmError:
    return DeadlineExceeded("GET jobs/", "the read goes on in the background")

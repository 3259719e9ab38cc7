"""When the jobs on each node will have ended, from Slurm's job list.

One odd job never spoils the rest: what cannot be told is named, not guessed.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurm_operator.slurm.client import NotChanged, SlurmClient
from slurm_operator.slurm.clock import Clock
from slurm_operator.slurm.hostlist import HostlistError, expand
from slurm_operator.slurm.model import Job
from slurm_operator.slurm.pace import Pace

NEVER = math.inf
"""End of a job without a time limit. Slurm shows start + 365 days for it, which is not meant."""

_HOLDS_NODES = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "RESIZING", "SIGNALING"})


@dataclass(frozen=True, slots=True)
class JobEnds:
    began_at: float
    """Monotonic second at which the read began that showed this."""
    latest: Mapping[str, float]
    """Per node with running jobs: the second since 1970 by which the last of them must have ended."""
    untold: frozenset[str]
    """Nodes with a running job whose end cannot be told."""
    skipped: tuple[int, ...]
    """Running jobs whose node list makes no sense."""
    jobs: Mapping[str, tuple[int, ...]]
    """Per node: its running jobs, to say what is waited for."""


def holds_nodes(job: Job) -> bool:
    return not _HOLDS_NODES.isdisjoint(job.job_state)


def job_end(job: Job) -> float | None:
    """The latest second at which a running job ends; None if Slurm does not say."""
    if job.time_limit.infinite:
        return NEVER
    if end := job.end_time.value:
        return float(end)
    start, minutes = job.start_time.value, job.time_limit.value
    return float(start + minutes * 60) if start and minutes is not None else None


class JobEndsBuilder:
    """Takes jobs piece by piece, as they arrive."""

    def __init__(self, began_at: float) -> None:
        self._began_at = began_at
        self._latest: dict[str, float] = {}
        self._untold: set[str] = set()
        self._skipped: list[int] = []
        self._jobs: dict[str, tuple[int, ...]] = {}

    def add(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if holds_nodes(job):
                self._add(job)

    def _add(self, job: Job) -> None:
        try:
            names = expand(job.nodes)
        except HostlistError:
            self._skipped.append(job.job_id)
            return
        for name in names:
            self._jobs[name] = (*self._jobs.get(name, ()), job.job_id)
        end = job_end(job)
        if end is None:
            self._untold.update(names)
            return
        for name in names:
            if end > self._latest.get(name, 0.0):
                self._latest[name] = end

    def build(self) -> JobEnds:
        return JobEnds(self._began_at, self._latest, frozenset(self._untold), tuple(self._skipped), self._jobs)


class JobEndsReader:
    """Reads all jobs when somebody needs their ends, once for everybody who asks at the time."""

    def __init__(self, client: SlurmClient, clock: Clock, pace: Pace) -> None:
        self._client = client
        self._clock = clock
        self._pace = pace
        self._reading = asyncio.Lock()
        self.last: JobEnds | None = None
        self._last_update = 0
        self._epoch = -1
        self._budget = pace.for_lists(clock.monotonic)

    async def read(self, max_age: float, epoch: int) -> JobEnds:
        """Ends that are at most `max_age` old, or as fresh as their price allows; `epoch` tells a new slurmctld."""
        async with self._reading:
            now = self._clock.monotonic()
            last = self.last if epoch == self._epoch else None
            if last and (now - last.began_at < max_age or self._budget.wait() > 0):
                return last
            builder = JobEndsBuilder(now)
            listing = await self._client.jobs(builder.add, self._last_update if last else 0)
            if last and isinstance(listing, NotChanged):
                ends = replace(last, began_at=now)
            else:
                ends = builder.build()
                self._last_update = 0 if isinstance(listing, NotChanged) else listing.last_update
                self._budget.spend(self._pace.price(listing.cost))
            self.last, self._epoch = ends, epoch
            return ends

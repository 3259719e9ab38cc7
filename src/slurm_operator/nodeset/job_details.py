"""Reads who runs the few jobs that a report names, and since when. A pass never waits long for that."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_operator.kube.resource import Key
from slurm_operator.runtime.clock import Clock
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.errors import NotFound, SlurmError
from slurm_operator.slurm.model import Job

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
"""How long a pass waits for the details of jobs."""
MAX_AGE_SECONDS = 300.0
"""Age at which details are read again: an administrator may have changed the time limit."""
RETRY_SECONDS = 30.0
"""Seconds after a failure in which nothing is read."""


@dataclass(frozen=True, slots=True)
class _Read:
    job: Job
    at: float


class JobDetails:
    """Remembers, for each NodeSet, the jobs of its last report."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[Key, dict[int, _Read]] = {}
        self._retry_at: dict[Key, float] = {}

    def forget(self, nodeset: Key) -> None:
        self._known.pop(nodeset, None)
        self._retry_at.pop(nodeset, None)

    async def read(self, nodeset: Key, client: SlurmClient, jobs: Sequence[int]) -> Mapping[int, Job]:
        """Return the details of these jobs as far as they are known, after at most a short wait."""
        now = self._clock.monotonic()
        known = {number: read for number, read in self._known.get(nodeset, {}).items() if number in jobs}
        due = [number for number in jobs if number not in known or now - known[number].at > MAX_AGE_SECONDS]
        if due and now >= self._retry_at.get(nodeset, now):
            found, failed = await _read_all(client, due)
            known |= {number: _Read(job, now) for number, job in found.items()}
            if failed:
                self._retry_at[nodeset] = self._clock.monotonic() + RETRY_SECONDS
        self._known[nodeset] = known
        return {number: read.job for number, read in known.items()}


async def _read_all(client: SlurmClient, jobs: Sequence[int]) -> tuple[dict[int, Job], bool]:
    """Return the jobs that were read in time, and whether a read failed or was late."""
    reads = {number: asyncio.create_task(client.job(number)) for number in jobs}
    try:
        _, late = await asyncio.wait(reads.values(), timeout=PATIENCE_SECONDS)
    finally:
        for read in reads.values():
            read.cancel()
        await asyncio.gather(*reads.values(), return_exceptions=True)
    found = {number: read.result() for number, read in reads.items() if _succeeded(read)}
    return found, bool(late) or any(_failed(read) for read in reads.values())


def _succeeded(read: asyncio.Task[Job]) -> bool:
    return not read.cancelled() and read.exception() is None


def _failed(read: asyncio.Task[Job]) -> bool:
    """Return whether a read failed; a job that has ended meanwhile is no failure."""
    error = None if read.cancelled() else read.exception()
    if error is None or isinstance(error, NotFound):
        return False
    log.info("the details of a job cannot be read", extra={"error": str(error)})
    if not isinstance(error, SlurmError):
        raise error
    return True

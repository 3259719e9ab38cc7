"""Jobs that keep workers from going for longer than an administrator wants to wait without being told.

They are reported, and nothing else: a job is never ended because of the time that it takes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from slurm_operator.api import names
from slurm_operator.api.values import report_waiting
from slurm_operator.nodeset.choose import Choice
from slurm_operator.nodeset.drains import REMOVAL, left_behind
from slurm_operator.nodeset.waiting import END_OF_TIME_SECONDS, held_back, in_order, listed
from slurm_operator.nodeset.world import Standing, World
from slurm_operator.runtime.conditions import Verdict
from slurm_operator.runtime.times import seconds_of
from slurm_operator.slurm.hostlist import members
from slurm_operator.slurm.jobs import is_running, job_end
from slurm_operator.slurm.model import Job


@dataclass(slots=True)
class Overdue:
    """One job, since when it is waited for, and for the sake of which workers."""

    job: int
    since: float
    runs_on: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Workers that it asks for, or keeps away from, by name."""


def waiting_for_jobs(world: World, choice: Choice) -> list[Verdict]:
    """Return the condition WaitingForJobs, or none. It stays as it is while the jobs are not known."""
    if world.fresh_jobs is None:
        before = world.nodeset.status.condition(names.CONDITION_WAITING_FOR_JOBS)
        waits = choice.condemned or choice.waiting or left_behind(world)
        return [Verdict(before.type, before.status, before.reason, before.message)] if before and waits else []
    found = overdue(world, choice)
    if not found:
        return []
    told = listed([_told(world, each) for each in found], "; ")
    message = f"waiting since {_minute(found[0].since)} for {told}"
    return [Verdict.of(names.CONDITION_WAITING_FOR_JOBS, True, "JobsRunLong", message)]


def counts_as_degraded(world: World) -> bool:
    return world.nodeset.metadata.annotations.get(names.ANNOTATION_WAITING_DEGRADES) == names.TRUE


def overdue(world: World, choice: Choice) -> list[Overdue]:
    """Return the jobs that have been waited for too long; the longest waited for first."""
    found: dict[int, Overdue] = {}
    jobs, latest = world.fresh_jobs, world.now - limit_of(world)
    if jobs is None:
        return []
    began = {name: since for name, since in _removal_began(world).items() if since <= latest}
    if began:
        for worker in in_order(choice.going(world)):
            if worker.name in began and worker.standing is Standing.BUSY:
                for job in _each(found, jobs.holding.get(worker.name, ()), began[worker.name]):
                    job.runs_on.append(worker.name)
        for name in sorted(left_behind(world) & began.keys()):
            for job in _each(found, jobs.naming.get(name, ()), began[name]):
                job.names.append(name)
    updating_since = _progressing_since(world)
    if updating_since <= latest:
        for name in held_back(world, choice):
            for job in _each(found, jobs.naming.get(name, ()), updating_since):
                job.names.append(name)
    return sorted(found.values(), key=lambda each: (each.since, each.job))


def may_be_overdue(world: World) -> bool:
    """Return whether the status alone allows that a job is overdue: cheap, for passes in which nothing is."""
    latest = world.now - limit_of(world)
    drains = world.nodeset.status.drains
    removing = any(d.cause in REMOVAL and seconds_of(d.since, absent=world.now) <= latest for d in drains)
    named = world.jobs is not None and bool(world.jobs.naming)
    return removing or (named and _progressing_since(world) <= latest)


def limit_of(world: World) -> float:
    """Return the seconds for which jobs are waited for without a report; a bad annotation counts as none."""
    seconds = report_waiting(world.nodeset.metadata.annotations)
    return world.report_waiting_after if seconds is None else seconds


def _removal_began(world: World) -> Mapping[str, float]:
    began: dict[str, float] = {}
    for drain in world.nodeset.status.drains:
        if drain.cause in REMOVAL:
            since = seconds_of(drain.since, absent=world.now)
            for name in members(drain.nodes):
                began[name] = min(since, began.get(name, since))
    return began


def _progressing_since(world: World) -> float:
    found = world.nodeset.status.condition(names.CONDITION_PROGRESSING)
    return seconds_of(found.last_transition_time, absent=world.now) if found and found.is_true else world.now


def _each(found: dict[int, Overdue], ids: Iterable[int], since: float) -> Iterator[Overdue]:
    for number in ids:
        job = found.setdefault(number, Overdue(number, since))
        job.since = min(job.since, since)
        yield job


def _told(world: World, waited: Overdue) -> str:
    facts = world.job_facts.get(waited.job)
    user = f" of user {facts.user_name or facts.user_id}" if facts is not None else ""
    where = f" on {listed(waited.runs_on)}" if waited.runs_on else f", which names {listed(waited.names)}"
    end_it = f"`scancel {waited.job}` ends it"
    return f"job {waited.job}{user}{where} ({'; '.join([*_times(facts), end_it])})"


def _times(job: Job | None) -> Iterator[str]:
    if job is None:
        return
    if not is_running(job):
        yield "+".join(job.job_state)
        return
    start, end = job.start_time.value or 0, job_end(job) or 0
    if 0 < start < END_OF_TIME_SECONDS:  # else it cannot be shown as a date
        yield f"started {_minute(start)}"
    if end > 0:
        yield "no time limit" if end >= END_OF_TIME_SECONDS else f"ends by {_minute(end)} at the latest"


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"

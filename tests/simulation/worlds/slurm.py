"""A Slurm cluster as it really is: records, jobs and reservations, and what slurmctld makes of requests."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from slurm_operator.slurm.errors import Busy, NotFound
from slurm_operator.slurm.hostlist import compress
from slurm_operator.slurm.jobs import JobList, JobListBuilder
from slurm_operator.slurm.model import Job, NodeUpdate, Number, Reservation
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.reasons import is_ours
from slurm_operator.slurm.states import NOT_RESPONDING_REASON

SLURMD_TIMEOUT_SECONDS = 300.0
"""Seconds of silence after which slurmctld sets a node DOWN and ends its jobs."""


@dataclass
class Record:
    """One node record."""

    address: str
    started: float
    drain: bool = False
    down: bool = False
    reason: str = ""
    silent_since: float | None = None
    """When its slurmd ended; None while it runs."""
    unheard: bool = False
    """Just undrained or resumed: NOT_RESPONDING until the next ping."""

    @property
    def out_of_service(self) -> bool:
        return self.drain or self.down

    @property
    def claimed(self) -> bool:
        """Whether an administrator took it out of service."""
        by_slurmctld = self.down and not self.drain and self.reason in ("", NOT_RESPONDING_REASON)
        return self.out_of_service and not is_ours(self.reason) and not by_slurmctld


@dataclass
class TrueJob:
    state: str
    nodes: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


@dataclass
class SlurmTruth:
    now: Callable[[], float]
    records: dict[str, Record] = field(default_factory=dict)
    jobs: dict[int, TrueJob] = field(default_factory=dict)
    reservations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    boot: int = 1
    reachable: bool = True
    revived: set[str] = field(default_factory=set)
    """Records that were deleted and are back, since slurmctld was killed before it had saved that."""
    _ids: "count[int]" = field(default_factory=lambda: count(1))
    _saved: dict[str, Record] = field(default_factory=dict)

    # What slurmrestd shows

    def shown(self, name: str) -> SlurmNode:
        record = self.records[name]
        states = {job.state for job in self.jobs_on(name)}
        base = "DOWN" if record.down else "MIXED" if "RUNNING" in states else "IDLE"
        flags = {
            "DRAIN": record.drain,
            "COMPLETING": "COMPLETING" in states,
            "NOT_RESPONDING": record.silent_since is not None or record.unheard,
            "DYNAMIC_NORM": True,
        }
        return SlurmNode(
            name=name,
            state=(base, *(flag for flag, on in flags.items() if on)),
            reason=record.reason,
            address=record.address,
            slurmd_start_time=Number(set=True, number=int(record.started)),
        )

    def all_shown(self) -> list[SlurmNode]:
        return [self.shown(name) for name in self.records]

    def job_list(self, began: float) -> JobList:
        builder = JobListBuilder(began)
        builder.add(_job(number, job) for number, job in self.jobs.items())
        found = [Reservation(name=name, node_list=compress(nodes)) for name, nodes in self.reservations.items()]
        return builder.build(found)

    # What holds

    def jobs_on(self, name: str) -> list[TrueJob]:
        return [job for job in self.jobs.values() if name in job.nodes]

    def needed_by(self, name: str) -> str:
        """Return what would be lost with the record of a node."""
        for number, job in self.jobs.items():
            if name in job.nodes or name in job.required:
                return f"job {number} ({job.state})"
        return next((f"reservation {key}" for key, nodes in self.reservations.items() if name in nodes), "")

    def takes_jobs(self, name: str) -> bool:
        record = self.records[name]
        return not record.out_of_service and record.silent_since is None and not record.unheard

    def serves(self, name: str, address: str) -> bool:
        record = self.records.get(name)
        return record is not None and record.address == address and self.takes_jobs(name)

    # What the operator asks for

    def update(self, names: Iterable[str], update: NodeUpdate) -> None:
        unknown = [name for name in names if name not in self.records]
        for name in names:
            if record := self.records.get(name):
                self._update(record, update)
        if unknown:
            raise NotFound("POST nodes/", compress(unknown))

    def _update(self, record: Record, update: NodeUpdate) -> None:
        if isinstance(update.reason, str):
            record.reason = update.reason
        for word in update.state if isinstance(update.state, tuple) else ():
            record.drain = word == "DRAIN"
            record.down = record.down and word != "RESUME"
            record.unheard = word != "DRAIN"

    def delete(self, names: Iterable[str]) -> None:
        """As slurmctld: a suspended job, a job elsewhere or a coming reservation does not protect a record."""
        busy = [name for name in names if {job.state for job in self.jobs_on(name)} & {"RUNNING", "COMPLETING"}]
        unknown = [name for name in names if name not in self.records]
        for name in names:
            if name not in busy:
                self.records.pop(name, None)
        if busy:
            raise Busy("DELETE node/", compress(busy))
        if unknown:
            raise NotFound("DELETE node/", compress(unknown))

    # What slurmds and slurmctld do

    def register(self, name: str, address: str, started: float) -> None:
        """A record that exists stays drained, and DOWN unless slurmctld itself took it down (ReturnToService=1).

        Jobs of an earlier slurmd are over.
        """
        record = self.records.get(name)
        if record is None:
            self.records[name] = Record(address, started)
            return
        if record.address != address:
            self.end_jobs_on(name)
        record.address, record.started, record.silent_since = address, started, None
        if record.down and record.reason == NOT_RESPONDING_REASON:
            record.down, record.reason = False, record.reason if record.drain else ""

    def falls_silent(self, name: str, address: str) -> None:
        record = self.records.get(name)
        if record is not None and record.address == address and record.silent_since is None:
            record.silent_since = self.now()

    def pass_time(self) -> None:
        self._saved = {name: copy.copy(record) for name, record in self.records.items()}
        for name, record in self.records.items():
            record.unheard = False
            if record.silent_since is None or self.now() - record.silent_since < SLURMD_TIMEOUT_SECONDS:
                continue
            self.end_jobs_on(name)
            if not record.down:
                record.down = True
                record.reason = " : ".join(filter(None, (record.reason, NOT_RESPONDING_REASON)))
        for number in [number for number, job in self.jobs.items() if job.state == "COMPLETING"]:
            del self.jobs[number]

    def restart(self, *, killed: bool) -> None:
        """slurmctld starts anew; `killed`: what changed since the last save of its state is lost, jobs excepted."""
        self.boot += 1
        if killed:
            for name, saved in self._saved.items():
                record = self.records.get(name)
                if record is None:
                    self.records[name] = copy.copy(saved)
                    self.records[name].silent_since = self.now()
                    self.revived.add(name)
                elif record.address == saved.address:
                    record.drain, record.down, record.reason = saved.drain, saved.down, saved.reason

    # What users do

    def submit(self, *nodes: str) -> None:
        self.jobs[next(self._ids)] = TrueJob("RUNNING", nodes)

    def submit_for(self, *required: str) -> None:
        """A job that waits, and names the nodes it wants."""
        self.jobs[next(self._ids)] = TrueJob("PENDING", required=required)

    def end_jobs_on(self, name: str) -> None:
        for number in [number for number, job in self.jobs.items() if name in job.nodes]:
            del self.jobs[number]


def _job(number: int, job: TrueJob) -> Job:
    states = ("COMPLETED", "COMPLETING") if job.state == "COMPLETING" else (job.state,)
    return Job(job_id=number, job_state=states, nodes=compress(job.nodes), required_nodes=compress(job.required))

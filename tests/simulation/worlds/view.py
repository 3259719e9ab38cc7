"""What the operator sees of a Slurm cluster: the project's own ledger, fed by reads that a history begins and ends."""

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field

from slurm_operator.kube.clock import Clock
from slurm_operator.slurm.errors import NotFound, SlurmError, Unreachable
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.known import State
from slurm_operator.slurm.ledger import Ledger, ListRead
from slurm_operator.slurm.model import Job, Node, NodeUpdate
from slurm_operator.slurm.pace import Pace
from tests.simulation.worlds.chance import Chance
from tests.simulation.worlds.rules import Breaches, Rule
from tests.simulation.worlds.slurm import SlurmTruth

LONG_SECONDS = 1800.0
"""A worker that was waited for so long and then went with its jobs, or undrained, went by a deadline."""


@dataclass
class View:
    """Stands for `SlurmView`: the same methods, without a poller."""

    slurm: SlurmTruth
    clock: Clock
    chance: Chance
    breaches: Breaches
    written_down_at: Callable[[str], float | None]
    """Second at which a NodeSet's status first named the node as one that is drained; None: it does not."""
    on_change: Callable[[], None]
    writes: list[str] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)
    """Nodes with a write whose answer was lost: sending it again is right."""

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.clock, Pace().settle)
        self._reading: tuple[ListRead, int] | None = None
        self._shown_by_read: set[str] = set()
        self._jobs: tuple[JobList, int] | None = None

    # Reads

    def begin_read(self) -> None:
        """slurmrestd makes up its answer now; the operator gets it later."""
        if not self.slurm.reachable:
            self._fail()
            return
        read = self.ledger.begin_list()
        read.add(self.slurm.all_shown())
        self._reading = (read, self.slurm.boot)
        self._shown_by_read = set(self.unanswered)

    def end_read(self) -> None:
        if self._reading is None:
            return
        (read, boot), self._reading = self._reading, None
        if not self.slurm.reachable:
            self._fail()
            return
        if self.ledger.took_list(read, boot) is not None:
            self.on_change()
        self.unanswered -= self._shown_by_read

    def read(self) -> None:
        self._reading = None
        self.begin_read()
        self.end_read()

    def _fail(self) -> None:
        self._reading = None
        if self.ledger.failed(self._error()) is not None:
            self.on_change()

    def _error(self) -> SlurmError:
        return Unreachable("GET nodes/", "connection refused")

    @property
    def state(self) -> State:
        return self.ledger.state

    @property
    def jobs(self) -> JobList | None:
        return self._jobs[0] if self._jobs is not None and self._jobs[1] == self.ledger.epoch else None

    async def read_jobs(self, max_age: float, patience: float | None = None) -> JobList:
        last = self.jobs
        if last is not None and self.clock.monotonic() - last.began_at < max_age:
            return last
        self._reach()
        found = self.slurm.job_list(self.clock.monotonic())
        self._jobs = (found, self.ledger.epoch)
        return found

    async def job(self, number: int) -> Job:
        """Stands for `SlurmClient.job`."""
        self._reach()
        found = self.slurm.jobs.get(number)
        if found is None:
            raise NotFound("GET job/", f"{number}")
        return Job(job_id=number, job_state=(found.state,), user_name="alice")

    async def look(self, names: Collection[str]) -> dict[str, Node]:
        self._reach()
        return {name: self.slurm.shown(name) for name in names if name in self.slurm.records}

    def watch_nodes(self, owner: Hashable, names: Collection[str]) -> None:
        """The operator has looked at everything and decides now."""
        self.chance.meanwhile()

    def _reach(self) -> None:
        if not self.slurm.reachable:
            raise self._error()
        self.chance.read(self._error())

    # Writes

    async def undrain(self, names: Collection[str], reason: str = "") -> None:
        await self.update(names, NodeUpdate(state=("UNDRAIN",), reason=reason))

    async def update(self, names: Collection[str], update: NodeUpdate) -> None:
        if names:
            self._write(names, update, lambda: self._update(names, update))

    def _update(self, names: Collection[str], update: NodeUpdate) -> None:
        for name in names:
            self._check_claim(name, update)
            self._check_cause(name, update)
            self._check_news(name, update)
        self.writes.append(f"{'+'.join(update.state or ())} {','.join(names)}: {update.reason!r}")
        self.slurm.update(names, update)

    async def delete(self, names: Collection[str]) -> None:
        if names:
            self._write(names, None, lambda: self._delete(names))

    def _delete(self, names: Collection[str]) -> None:
        self.writes.append(f"DELETE {','.join(names)}")
        before = {name: (self.slurm.needed_by(name), record.claimed) for name, record in self.slurm.records.items()}
        try:
            self.slurm.delete(names)
        finally:
            for name in names:
                needed, claimed = before.get(name, ("", False))
                if name not in self.slurm.records and needed:
                    self.breaches.note(self._rule_for(name), f"record {name} is deleted, which {needed} needs")
                if name not in self.slurm.records and claimed:
                    self.breaches.note(Rule.ADMINISTRATORS_DECIDE, f"record {name} is deleted in spite of a claim")

    def _write(self, names: Collection[str], update: NodeUpdate | None, effect: Callable[[], None]) -> None:
        if not self.slurm.reachable:
            raise self._error()
        try:
            self.chance.call(effect, self._error(), lost=lambda: self.unanswered.update(names))
        except BaseException:
            if update is None:
                self.ledger.unanswered(names)
            raise
        self.ledger.wrote(names, update)

    # What must hold at the moment of a write

    def _rule_for(self, name: str) -> Rule:
        since = self.written_down_at(name)
        late = since is not None and self.clock.now() - since > LONG_SECONDS
        return Rule.DEADLINES_KILL_NOTHING if late else Rule.NO_JOB_IS_ENDED

    def _check_claim(self, name: str, update: NodeUpdate) -> None:
        record = self.slurm.records.get(name)
        keeps = update.state == ("DRAIN",) and not isinstance(update.reason, str)
        if record is not None and record.claimed and not keeps:
            told = f"{update.state} {update.reason!r} for {name}, which an administrator has: {record.reason!r}"
            self.breaches.note(Rule.ADMINISTRATORS_DECIDE, told)

    def _check_cause(self, name: str, update: NodeUpdate) -> None:
        if update.state == ("DRAIN",) and self.written_down_at(name) is None:
            self.breaches.note(Rule.ADMINISTRATORS_DECIDE, f"{name} is drained before the cause is written down")

    def _check_news(self, name: str, update: NodeUpdate) -> None:
        record = self.slurm.records.get(name)
        if record is None or name in self.unanswered or update.state != ("DRAIN",):
            return
        if record.drain and update.reason in (record.reason, None):
            self.breaches.note(Rule.REST_IS_QUIET, f"the drain of {name} is sent again: {record.reason!r}")

    def check_removal(self, name: str, address: str) -> None:
        """A pod of ours is about to be deleted by the operator."""
        record = self.slurm.records.get(name)
        if record is None or record.address != address:
            return
        if self.slurm.jobs_on(name):
            self.breaches.note(
                self._rule_for(name), f"pod {name} is deleted under {len(self.slurm.jobs_on(name))} jobs"
            )
        elif not record.out_of_service and record.silent_since is None:
            self.breaches.note(self._rule_for(name), f"pod {name} is deleted although its node takes jobs")


@dataclass
class Views:
    """Stands for `SlurmViews`."""

    by_cluster: dict[tuple[str, str], View]

    @property
    def clusters(self) -> dict[tuple[str, str], View]:
        return self.by_cluster

    def get(self, cluster: tuple[str, str]) -> View | None:
        return self.by_cluster.get(cluster)

    def client(self, cluster: tuple[str, str]) -> View | None:
        return self.by_cluster.get(cluster)

    def state(self, cluster: tuple[str, str]) -> State:
        return self.by_cluster[cluster].state

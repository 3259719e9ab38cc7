"""The few fields of Slurm's REST objects that we read, tolerant of everything else.

The names are the same in data parsers v0.0.42 to v0.0.45. States are tuples of words, so that a newer
Slurm's new word never breaks a read.
"""

import msgspec
from msgspec import UNSET, UnsetType

from slurm_operator.slurm.errors import ErrorEntry


class Rest(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Holds only strings, numbers and tuples of them, so the garbage collector need not look inside."""


class Number(Rest, frozen=True):
    """Slurm's number that may be unset or infinite."""

    set: bool = False
    infinite: bool = False
    number: int | float = 0

    @property
    def value(self) -> int | None:
        return int(self.number) if self.set and not self.infinite else None


NO_NUMBER = Number()


class Node(Rest, frozen=True):
    """Every field more costs a millisecond or more in each read of 10,000 nodes."""

    name: str
    address: str = ""
    state: tuple[str, ...] = ()
    reason: str = ""
    reason_set_by_user: str = ""
    comment: str = ""
    extra: str = ""
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    topology: str = ""
    slurmd_start_time: Number = NO_NUMBER
    cpus: int = 0
    alloc_cpus: int = 0


class Job(Rest, frozen=True):
    job_id: int
    job_state: tuple[str, ...] = ()
    nodes: str = ""
    start_time: Number = NO_NUMBER
    end_time: Number = NO_NUMBER
    time_limit: Number = NO_NUMBER
    user_id: int = 0
    user_name: str = ""
    partition: str = ""
    """One or more names, separated by commas."""
    required_nodes: str = ""
    """Hostlist that the user asked for."""
    excluded_nodes: str = ""
    name: str = ""


class JobState(Rest, frozen=True):
    job_id: str
    """A word, not a number: array tasks are `12_3`."""
    state: tuple[str, ...] = ()


class Reservation(Rest, frozen=True):
    name: str
    node_list: str = ""
    start_time: Number = NO_NUMBER
    end_time: Number = NO_NUMBER
    flags: tuple[str, ...] = ()
    users: str = ""
    partition: str = ""


class PartitionNodes(Rest, frozen=True):
    configured: str = ""
    total: int = 0


class PartitionState(Rest, frozen=True):
    state: tuple[str, ...] = ()


class Partition(Rest, frozen=True):
    name: str
    nodes: PartitionNodes = PartitionNodes()
    partition: PartitionState = PartitionState()


class Ping(Rest, frozen=True):
    hostname: str = ""
    responding: bool | UnsetType = UNSET
    pinged: str = ""
    """`UP` or `DOWN`: how v0.0.42 says it."""
    primary: bool | UnsetType = UNSET

    @property
    def up(self) -> bool:
        return self.responding if isinstance(self.responding, bool) else self.pinged == "UP"


class Statistics(Rest, frozen=True):
    req_time: Number = NO_NUMBER
    req_time_start: Number = NO_NUMBER
    jobs_running: int = 0
    jobs_pending: int = 0
    server_thread_count: int = 0

    @property
    def now(self) -> int:
        """slurmctld's own clock."""
        return self.req_time.value or 0

    @property
    def counting_since(self) -> int:
        """Start of slurmctld, or the last reset of its counters (every midnight)."""
        return self.req_time_start.value or 0


class AccountingTime(Rest, frozen=True):
    start: int = 0
    end: int = 0
    elapsed: int = 0


class AccountingState(Rest, frozen=True):
    current: tuple[str, ...] = ()


class AccountingJob(Rest, frozen=True):
    job_id: int
    name: str = ""
    nodes: str = ""
    user: str = ""
    time: AccountingTime = AccountingTime()
    state: AccountingState = AccountingState()


class AccountingCluster(Rest, frozen=True):
    name: str
    nodes: str = ""


class Answer(Rest, frozen=True):
    """What every answer may carry beside its own list."""

    errors: tuple[ErrorEntry, ...] = ()


class Nodes(Answer, frozen=True):
    nodes: tuple[Node, ...] | UnsetType = UNSET
    last_update: Number = NO_NUMBER


class Jobs(Answer, frozen=True):
    jobs: tuple[Job, ...] | UnsetType = UNSET
    last_update: Number = NO_NUMBER


class JobStates(Answer, frozen=True):
    jobs: tuple[JobState, ...] | UnsetType = UNSET


class Reservations(Answer, frozen=True):
    reservations: tuple[Reservation, ...] | UnsetType = UNSET


class Partitions(Answer, frozen=True):
    partitions: tuple[Partition, ...] | UnsetType = UNSET


class Pings(Answer, frozen=True):
    pings: tuple[Ping, ...] | UnsetType = UNSET


class Diagnosis(Answer, frozen=True):
    statistics: Statistics | UnsetType = UNSET


class AccountingJobs(Answer, frozen=True):
    jobs: tuple[AccountingJob, ...] | UnsetType = UNSET


class AccountingClusters(Answer, frozen=True):
    clusters: tuple[AccountingCluster, ...] | UnsetType = UNSET


class NodeUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What we change on nodes; a field left unset is left alone, an empty one is cleared."""

    state: tuple[str, ...] | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    comment: str | UnsetType = UNSET
    extra: str | UnsetType = UNSET
    features: tuple[str, ...] | UnsetType = UNSET
    features_act: tuple[str, ...] | UnsetType = UNSET
    topology_str: str | UnsetType = UNSET


class ReservationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation as we create or update it: times in seconds since 1970, its length in minutes."""

    name: str
    node_list: tuple[str, ...]
    users: tuple[str, ...]
    flags: tuple[str, ...]
    start_time: Number
    duration: Number

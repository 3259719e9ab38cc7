"""The endpoints of slurmrestd that we use, one small method each; decoded answers, typed errors.

How a call travels (token, version, deadline, breaker) is in `rest.py`.
"""

from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from slurm_operator.api.names import SLURM_USER
from slurm_operator.slurm import model
from slurm_operator.slurm.clock import Clock
from slurm_operator.slurm.errors import (
    EMPTY_QUERY,
    NO_ERROR,
    NO_SUCH_JOB,
    NO_SUCH_NODE,
    NO_SUCH_RESERVATION,
    Garbage,
    NotFound,
)
from slurm_operator.slurm.hostlist import compress
from slurm_operator.slurm.jwt import TokenSource
from slurm_operator.slurm.rest import DEADLINE, AnswerT, Call, Cost, Reply, Rest, WholeBody
from slurm_operator.slurm.stream import ListStream
from slurm_operator.slurm.transport import HttpTransport, Transport

T = TypeVar("T")
Sink = Callable[[Sequence[T]], None]

_IN_THE_FUTURE = 4_000_000_000

_ANSWER = msgspec.json.Decoder(model.Answer)
_NODES = msgspec.json.Decoder(model.Nodes)
_NODE_ITEMS = msgspec.json.Decoder(tuple[model.Node, ...])
_JOBS = msgspec.json.Decoder(model.Jobs)
_JOB_ITEMS = msgspec.json.Decoder(tuple[model.Job, ...])
_JOB_STATES = msgspec.json.Decoder(model.JobStates)
_RESERVATIONS = msgspec.json.Decoder(model.Reservations)
_PARTITIONS = msgspec.json.Decoder(model.Partitions)
_PINGS = msgspec.json.Decoder(model.Pings)
_DIAGNOSIS = msgspec.json.Decoder(model.Diagnosis)
_ACCOUNTING_JOBS = msgspec.json.Decoder(model.AccountingJobs)
_ACCOUNTING_CLUSTERS = msgspec.json.Decoder(model.AccountingClusters)


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A whole list as of `last_update`, which the next read may name to hear of changes only."""

    last_update: int
    cost: Cost


class NotChanged(msgspec.Struct, frozen=True):
    cost: Cost


class SlurmClient:
    """One cluster's slurmrestd; `rest` sends calls that have no method of their own here."""

    def __init__(
        self,
        url: str,
        key: bytes,
        clock: Clock,
        *,
        user: str = SLURM_USER,
        transport: Transport | None = None,
        deadline: float = DEADLINE,
        observe: Callable[[Cost], None] = lambda cost: None,
    ) -> None:
        self._tokens = TokenSource(key, clock.now, user=user)
        self.rest = Rest(url, self._tokens, transport or HttpTransport(), clock, deadline=deadline, observe=observe)

    async def __aenter__(self) -> "SlurmClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.rest.close()

    @property
    def version(self) -> str:
        """The data parser in use; empty before the first call."""
        return self.rest.version

    def set_key(self, key: bytes) -> bool:
        """The next request carries a token signed with this key; says whether it is another one."""
        return self._tokens.set_key(key)

    def set_url(self, url: str) -> None:
        self.rest.retarget(url)

    # --- nodes ----------------------------------------------------------------------------------------------------

    async def nodes(
        self, sink: Sink[model.Node], update_time: int = 0, *, probe: bool = False
    ) -> Listing[model.Node] | NotChanged:
        """Every node, handed to `sink` in pieces; nothing if none changed since `update_time`."""
        query = f"?update_time={update_time}" if update_time else ""
        call = Call(method="GET", path=f"nodes/{query}", probe=probe)
        reply = await self.rest.send(call, ListStream("nodes", _NODE_ITEMS, _NODES, sink))
        if reply.answer is None:
            if not update_time:
                raise Garbage(str(call), "nothing changed, although all nodes were asked for")
            return NotChanged(reply.cost)
        sink(_present(call, reply.answer.nodes))
        return Listing(reply.answer.last_update.value or 0, reply.cost)

    async def recount(self) -> None:
        """Make slurmctld count afresh which CPUs are in use: a single node is shown as of the last count.

        Only a read of all nodes counts. Asked for changes since a day to come, it counts and sends nothing.
        """
        call = Call(method="GET", path=f"nodes/?update_time={_IN_THE_FUTURE}")
        await self.rest.send(call, WholeBody(_ANSWER))

    async def node(self, name: str) -> model.Node:
        """One node; without a recount it may be shown busy for too long, but never idle too early."""
        call = Call(method="GET", path=f"node/{quote(name, safe='')}", missing={NO_ERROR, NO_SUCH_NODE})
        nodes = _present(call, (await self._ask(call, _NODES)).nodes)
        if not nodes:
            raise NotFound(str(call), "empty list")
        if nodes[0].name != name:
            raise Garbage(str(call), f"the answer is about {nodes[0].name}")
        return nodes[0]

    async def update_nodes(self, names: Collection[str], update: model.NodeUpdate) -> None:
        """Change any number of nodes by one request; HalfApplied if some names were unknown."""
        changes: dict[str, object] = msgspec.to_builtins(update)
        if len(names) == 1:
            (name,) = names
            call = Call(method="POST", path=f"node/{quote(name, safe='')}", body=changes, missing={NO_SUCH_NODE})
        else:
            changes["name"] = [compress(names)]
            call = Call(method="POST", path="nodes/", body=changes, missing={NO_SUCH_NODE}, bulk=True)
        await self._ask(call, _ANSWER)

    async def create_nodes(self, node_conf: str) -> None:
        """Create node records from a `NodeName=...` line, as scontrol takes it."""
        await self._ask(Call(method="POST", path="new/node/", body={"node_conf": node_conf}), _ANSWER)

    async def delete_nodes(self, names: Collection[str]) -> None:
        path = f"node/{quote(compress(names), safe='')}"
        bulk = len(names) > 1
        await self._ask(Call(method="DELETE", path=path, missing={NO_SUCH_NODE}, bulk=bulk), _ANSWER)

    # --- jobs -----------------------------------------------------------------------------------------------------

    async def jobs(self, sink: Sink[model.Job], update_time: int = 0) -> Listing[model.Job] | NotChanged:
        """Every job without its per-core detail; dear (8 kB a job), so only for decisions that need end times."""
        query = f"&update_time={update_time}" if update_time else ""
        call = Call(method="GET", path=f"jobs/?flags=ALL{query}")
        reply = await self.rest.send(call, ListStream("jobs", _JOB_ITEMS, _JOBS, sink))
        jobs = _present(call, reply.answer.jobs) if reply.answer is not None else ()
        last_update = reply.answer.last_update.value or 0 if reply.answer is not None else 0
        if not jobs and last_update and update_time:
            return await self.jobs(sink)  # an empty list of changes is no proof that there are no jobs
        if jobs or last_update:
            sink(jobs)
            return Listing(last_update, reply.cost)
        if not update_time:
            raise Garbage(str(call), "no list of jobs, although all jobs were asked for")
        return NotChanged(reply.cost)

    async def job(self, job_id: int) -> model.Job:
        call = Call(method="GET", path=f"job/{job_id}", missing={NO_SUCH_JOB})
        jobs = _present(call, (await self._ask(call, _JOBS)).jobs)
        if not jobs:
            raise NotFound(str(call), "empty list")
        for job in jobs:  # asked for the first job of an array, it answers with all of them
            if job.job_id == job_id:
                return job
        raise Garbage(str(call), f"the answer is about job {jobs[0].job_id}")

    async def job_states(self) -> tuple[model.JobState, ...]:
        """Ids and states of all jobs: a hundredth of the bytes of `jobs`."""
        call = Call(method="GET", path="jobs/state/")
        return _present(call, (await self._ask(call, _JOB_STATES)).jobs)

    # --- reservations ---------------------------------------------------------------------------------------------

    async def reservations(self) -> tuple[model.Reservation, ...]:
        call = Call(method="GET", path="reservations/")
        return _present(call, (await self._ask(call, _RESERVATIONS)).reservations)

    async def reservation(self, name: str) -> model.Reservation:
        path = f"reservation/{quote(name, safe='')}"
        call = Call(method="GET", path=path, missing={NO_ERROR, EMPTY_QUERY, NO_SUCH_RESERVATION})
        found = _present(call, (await self._ask(call, _RESERVATIONS)).reservations)
        if not found:
            raise NotFound(str(call), "empty list")
        return found[0]

    async def put_reservation(self, request: model.ReservationRequest) -> None:
        """Create the reservation, or change the one of that name."""
        await self._ask(Call(method="POST", path="reservation/", body=request), _ANSWER)

    async def delete_reservation(self, name: str) -> None:
        path = f"reservation/{quote(name, safe='')}"
        await self._ask(Call(method="DELETE", path=path, missing={NO_SUCH_RESERVATION}), _ANSWER)

    # --- the daemons ----------------------------------------------------------------------------------------------

    async def partitions(self) -> tuple[model.Partition, ...]:
        call = Call(method="GET", path="partitions/")
        return _present(call, (await self._ask(call, _PARTITIONS)).partitions)

    async def ping(self) -> tuple[model.Ping, ...]:
        """Which slurmctld answers; slurmrestd says so at once even if none does."""
        call = Call(method="GET", path="ping/")
        return _present(call, (await self._ask(call, _PINGS)).pings)

    async def diag(self, *, probe: bool = False) -> model.Statistics:
        call = Call(method="GET", path="diag/", probe=probe)
        return _present(call, (await self._ask(call, _DIAGNOSIS)).statistics)

    async def reconfigure(self) -> None:
        """Ask slurmctld to read its files again; success here is no promise that it survives them."""
        await self._ask(Call(method="GET", path="reconfigure/"), _ANSWER)

    # --- accounting -----------------------------------------------------------------------------------------------

    async def accounting_job(self, job_id: int) -> tuple[model.AccountingJob, ...]:
        """What slurmdbd recorded of a job: one entry per run, none if it knows nothing."""
        call = Call(method="GET", plugin="slurmdb", path=f"job/{job_id}")
        return _present(call, (await self._ask(call, _ACCOUNTING_JOBS)).jobs)

    async def accounting_clusters(self) -> tuple[model.AccountingCluster, ...]:
        call = Call(method="GET", plugin="slurmdb", path="clusters/")
        return _present(call, (await self._ask(call, _ACCOUNTING_CLUSTERS)).clusters)

    async def _ask(self, call: Call, decoder: msgspec.json.Decoder[AnswerT]) -> AnswerT:
        reply: Reply[AnswerT] = await self.rest.send(call, WholeBody(decoder))
        if reply.answer is None:
            raise Garbage(str(call), "HTTP 304 to a question that did not ask for changes")
        return reply.answer


def _present(call: Call, value: T | UnsetType) -> T:
    """An answer without its own list says nothing, least of all that the list is empty."""
    if value is UNSET or isinstance(value, UnsetType):
        raise Garbage(str(call), "the answer lacks what was asked for")
    return value

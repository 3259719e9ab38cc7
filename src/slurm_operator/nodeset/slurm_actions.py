"""What a plan may ask of Slurm. Each is one write however many nodes it names, after a last look at those nodes."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from slurm_operator.kube.kinds import PODS, Pod
from slurm_operator.nodeset.evidence import belongs
from slurm_operator.runtime.actions import HasKube, Patch
from slurm_operator.runtime.children import delete
from slurm_operator.runtime.plan import Done, Urgency
from slurm_operator.slurm.errors import AuthFailed, CircuitOpen, SlurmError
from slurm_operator.slurm.hostlist import compress
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.model import Node, NodeUpdate
from slurm_operator.slurm.states import (
    DrainOwner,
    claim_owner,
    drain_owner,
    is_busy,
    is_down,
    is_drained,
    is_responding,
)

JOBS_MAX_AGE_SECONDS = 1.0
"""Age that the list of jobs may have in the last look before a record is deleted, if a new one is affordable."""
JOBS_OLDEST_SECONDS = 10.0
"""Seconds after the end of a read of all jobs for which records and pods go by it, whatever a new one costs."""

KEPT_SECONDS = 60.0
"""Seconds to wait before retrying a record deletion that was refused."""
UNHEARD_SECONDS = 5.0
"""Seconds to wait before retrying a record deletion that did not reach slurmctld, or whose answer did not reach us."""


class SlurmCalls(Protocol):
    """What may be asked of a cluster, as `SlurmView` offers it."""

    async def look(self, names: Collection[str]) -> dict[str, Node]: ...

    async def update(self, names: Collection[str], update: NodeUpdate) -> None: ...

    async def undrain(self, names: Collection[str]) -> None: ...

    async def delete(self, names: Collection[str]) -> None: ...

    async def read_jobs(self, max_age: float, patience: float | None = None) -> JobList: ...


class SlurmHands(Protocol):
    """What Slurm actions need of the controller that runs them."""

    @property
    def slurm(self) -> SlurmCalls: ...

    def note_kept(self, names: Iterable[str], seconds: float = KEPT_SECONDS) -> None:
        """Remember for some time that these records could not be deleted just now."""
        ...

    def monotonic(self) -> float:
        """Return the second of the clock that the Slurm view uses."""
        ...


class RemovalHands(HasKube, SlurmHands, Protocol):
    """Both worlds."""


@dataclass(frozen=True, slots=True)
class SlurmAction:
    nodes: tuple[str, ...]

    lane = ""

    @property
    def urgency(self) -> Urgency:
        return Urgency.SAFETY

    def describe(self) -> dict[str, Any]:
        return {"slurm": type(self).__name__.lower(), "nodes": compress(self.nodes)}

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} {compress(self.nodes)}"


@dataclass(frozen=True, slots=True)
class Drain(SlurmAction):
    reason: str = ""
    """Empty: the reason that an administrator gave stays."""

    def describe(self) -> dict[str, Any]:
        return {**SlurmAction.describe(self), "reason": self.reason}

    async def run(self, hands: SlurmHands) -> Done:
        if self.reason:
            nodes = await _still(hands.slurm, self.nodes, _is_unclaimed)
            update = NodeUpdate(state=("DRAIN",), reason=self.reason)
        else:  # once the administrator has resumed a node, a drain without a reason would never be lifted
            nodes = await _still(hands.slurm, self.nodes, lambda node: not _is_unclaimed(node))
            update = NodeUpdate(state=("DRAIN",))
        await hands.slurm.update(nodes, update)
        return Done(wrote=bool(nodes))


def _is_too_old(jobs: JobList, hands: SlurmHands) -> bool:
    """Return whether nothing may be deleted by a list of jobs any more; a later pass finds a newer one."""
    return hands.monotonic() - jobs.ended_at > JOBS_OLDEST_SECONDS


async def _still(slurm: SlurmCalls, nodes: tuple[str, ...], fits: Callable[[Node], bool]) -> tuple[str, ...]:
    """Return the nodes of which it still holds: an administrator may have acted since our last read."""
    seen = await slurm.look(nodes)
    return tuple(name for name in nodes if name in seen and fits(seen[name]))


def _is_unclaimed(node: Node) -> bool:
    return claim_owner(node.state, node.reason, node.reason_set_by_user) is not DrainOwner.FOREIGN


def _is_our_drain(node: Node) -> bool:
    """Return whether a drain may be lifted: one that is DOWN as well would lose our reason and stay DOWN."""
    return drain_owner(node.state, node.reason) is DrainOwner.OURS and not is_down(node.state)


def _is_our_down(node: Node) -> bool:
    return is_down(node.state) and _is_ours_alone(node)


def _is_ours_alone(node: Node) -> bool:
    return claim_owner(node.state, node.reason) is DrainOwner.OURS


@dataclass(frozen=True, slots=True)
class Undrain(SlurmAction):
    async def run(self, hands: SlurmHands) -> Done:
        nodes = await _still(hands.slurm, self.nodes, _is_our_drain)
        await hands.slurm.undrain(nodes)
        return Done(wrote=bool(nodes))


@dataclass(frozen=True, slots=True)
class Resume(SlurmAction):
    """Put nodes back into service that we took down when their pods went."""

    async def run(self, hands: SlurmHands) -> Done:
        nodes = await _still(hands.slurm, self.nodes, _is_our_down)
        await hands.slurm.update(nodes, NodeUpdate(state=("RESUME",), reason=""))
        return Done(wrote=bool(nodes))


@dataclass(frozen=True, slots=True)
class Forget(SlurmAction):
    """Delete node records that no job and no reservation names.

    Slurm refuses only while a job runs on a node. A record that a job elsewhere or a pending job names would cost that
    job its life at the next reconfigure, so the list of jobs and the records are looked at once more.
    """

    async def run(self, hands: SlurmHands) -> Done:
        jobs = await hands.slurm.read_jobs(JOBS_MAX_AGE_SECONDS)
        if _is_too_old(jobs, hands):
            return Done(wrote=False)
        free = tuple(name for name in self.nodes if not jobs.users_of(name))
        nodes = await _still(hands.slurm, free, _may_be_forgotten)
        hands.note_kept(set(self.nodes) - set(nodes))
        try:
            await hands.slurm.delete(nodes)
        except SlurmError as error:
            unheard = error.outage or isinstance(error, AuthFailed | CircuitOpen)
            hands.note_kept(nodes, UNHEARD_SECONDS if unheard else KEPT_SECONDS)
            raise
        return Done(wrote=bool(nodes))


def _may_be_forgotten(node: Node) -> bool:
    out_of_service = is_drained(node.state) or is_down(node.state) or not is_responding(node.state)
    return out_of_service and not is_busy(node.state) and _is_unclaimed(node)


@dataclass(frozen=True, slots=True)
class Release:
    """Let a deleted NodeSet go, unless a last look finds the record of a worker that had none.

    A registration that was under way when the record was deleted makes it again, and no NodeSet is left to delete it.
    """

    nodeset: Patch
    nodes: tuple[str, ...]
    urgency: ClassVar[Urgency] = Urgency.NORMAL
    lane: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"{self.nodeset} if Slurm has no record of {compress(self.nodes)}"

    def describe(self) -> dict[str, Any]:
        return {**self.nodeset.describe(), "action": str(self)}

    async def run(self, hands: RemovalHands) -> Done:
        found = await hands.slurm.look(self.nodes)
        if any(_is_unclaimed(node) for node in found.values()):
            return Done(wrote=False, after=UNHEARD_SECONDS)
        return await self.nodeset.run(hands)


@dataclass(frozen=True, slots=True)
class Removal:
    """Delete a pod if a last look at its Slurm node allows it."""

    pod: Pod
    node: str
    urgency: ClassVar[Urgency] = Urgency.NORMAL
    lane: ClassVar[str] = ""
    proviso: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"delete Pod {self.pod.metadata.namespace}/{self.pod.metadata.name} if {self.node} {self.proviso}"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self), "uid": self.pod.metadata.uid}

    def allows(self, node: Node | None) -> bool:
        raise NotImplementedError

    async def run(self, hands: RemovalHands) -> Done:
        if not self.allows((await hands.slurm.look((self.node,))).get(self.node)):
            return Done(wrote=False)
        return await delete(PODS, self.pod).run(hands)


@dataclass(frozen=True, slots=True)
class RemoveDrained(Removal):
    """Delete a pod whose record stays, if the record still shows it drained and no job is listed on it.

    The record stays because a job or a reservation names it, because its drain is an administrator's, who may have
    lifted it since our last read and set it again, or because Slurm refused to delete it. A suspended job does not show
    in the state of a node.
    """

    proviso: ClassVar[str] = "is still drained"

    async def run(self, hands: RemovalHands) -> Done:
        jobs = await hands.slurm.read_jobs(JOBS_MAX_AGE_SECONDS)
        if self.node in jobs.holding or _is_too_old(jobs, hands):
            return Done(wrote=False)
        return await Removal.run(self, hands)

    def allows(self, node: Node | None) -> bool:
        return node is not None and is_drained(node.state)


@dataclass(frozen=True, slots=True)
class RemoveUnregistered(Removal):
    """Delete a pod that Slurm has no record of, if a second read agrees: slurmd may have registered meanwhile."""

    proviso: ClassVar[str] = "is not registered"

    def allows(self, node: Node | None) -> bool:
        return node is None or (not belongs(node, self.pod) and not is_busy(node.state))

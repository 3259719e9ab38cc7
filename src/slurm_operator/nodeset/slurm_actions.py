"""What a plan may ask of Slurm. Each is one request however many nodes it names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from slurm_operator.kube.kinds import PODS, Pod
from slurm_operator.runtime.actions import HasKube
from slurm_operator.runtime.children import delete
from slurm_operator.runtime.plan import Done, Urgency
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.hostlist import compress
from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.states import DrainOwner, drain_owner, is_drained
from slurm_operator.slurm.view import SlurmView

FEW = 16


class SlurmHands(Protocol):
    """What Slurm actions need of the controller that runs them."""

    @property
    def slurm(self) -> SlurmView: ...

    def note_kept(self, names: Iterable[str]) -> None:
        """Remember that Slurm would not delete these records just now."""
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
    """Empty: whatever reason somebody else gave stays."""

    def describe(self) -> dict[str, Any]:
        return {**SlurmAction.describe(self), "reason": self.reason}

    async def run(self, hands: SlurmHands) -> Done:
        nodes = await _unclaimed(hands.slurm, self.nodes) if self.reason else self.nodes
        update = NodeUpdate(state=("DRAIN",), reason=self.reason) if self.reason else NodeUpdate(state=("DRAIN",))
        await hands.slurm.update(nodes, update)
        return Done(wrote=bool(nodes))


async def _unclaimed(slurm: SlurmView, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Those that nobody else has drained since our last read: their reason must not be written over.

    A few are looked at one by one; for many the next read will tell, since people drain many nodes one by one too.
    """
    if len(nodes) > FEW:
        return nodes
    seen = {name: await slurm.look(name) for name in nodes}
    return tuple(name for name, node in seen.items() if drain_owner(node.state, node.reason) is not DrainOwner.FOREIGN)


@dataclass(frozen=True, slots=True)
class Undrain(SlurmAction):
    async def run(self, hands: SlurmHands) -> Done:
        await hands.slurm.undrain(self.nodes)
        return Done()


@dataclass(frozen=True, slots=True)
class Resume(SlurmAction):
    """Back into service what we took down when its pod went."""

    async def run(self, hands: SlurmHands) -> Done:
        await hands.slurm.update(self.nodes, NodeUpdate(state=("RESUME",), reason=""))
        return Done()


@dataclass(frozen=True, slots=True)
class Forget(SlurmAction):
    """Delete node records. Slurm itself refuses while a job is on a node, so this is also the last check."""

    async def run(self, hands: SlurmHands) -> Done:
        try:
            await hands.slurm.delete(self.nodes)
        except SlurmError:
            hands.note_kept(self.nodes)
            raise
        return Done()


@dataclass(frozen=True, slots=True)
class RemoveDrained:
    """Delete a pod whose record stays, because its drain is somebody else's or Slurm would not delete it.

    Whoever drained the node may have lifted that since our last read, so the node is looked at once more.
    """

    pod: Pod
    node: str
    urgency: ClassVar[Urgency] = Urgency.NORMAL
    lane: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"delete Pod {self.pod.metadata.namespace}/{self.pod.metadata.name} if {self.node} is still drained"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self), "uid": self.pod.metadata.uid}

    async def run(self, hands: RemovalHands) -> Done:
        if not is_drained((await hands.slurm.look(self.node)).state):
            return Done(wrote=False)
        return await delete(PODS, self.pod).run(hands)

"""Keeps the books of one cluster: takes reads, writes and failures in, gives `Known` or `Unknown` out. No I/O.

Equal records are kept as the same objects from read to read, so that a busy cluster costs no memory and a
comparison costs little.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from slurm_operator.slurm.clock import Clock
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.known import Change, Known, State, Unknown
from slurm_operator.slurm.model import Node, NodeUpdate
from slurm_operator.slurm.overlay import Effect, Overlay
from slurm_operator.slurm.states import is_drain

NOT_READ_YET = "Slurm has not been read yet"


class Began(NamedTuple):
    """When a read began: by the count of turns, which orders it among reads and writes, and by both clocks."""

    turn: int
    monotonic: float
    at: float


class ListRead:
    """A read of all nodes in progress: pieces go in as they arrive."""

    def __init__(self, base: Mapping[str, Node], began: Began) -> None:
        self._base = base
        self.began = began
        self.nodes: dict[str, Node] = {}

    def add(self, nodes: Sequence[Node]) -> None:
        base, mine = self._base, self.nodes
        for node in nodes:
            before = base.get(node.name)
            mine[node.name] = before if before is not None and before == node else node


class Ledger:
    def __init__(self, clock: Clock, settle: float) -> None:
        self._clock = clock
        self._settle = settle
        self.state: State = Unknown(clock.now(), NOT_READ_YET)
        self._overlay = Overlay()
        self._base: Mapping[str, Node] = {}
        self._later: dict[str, Began] = {}
        self._unpublished: set[str] = set()
        self._turn = 0
        self._valid_from = 0
        self._read = Began(0, 0.0, 0.0)
        self._boot = 0
        self._epoch = 0
        self._lost: frozenset[str] = frozenset()
        self._lost_until = 0.0
        self._drained: dict[str, float] = {}

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def has_pending(self) -> bool:
        """Return whether a write of ours waits for a read that shows it."""
        return bool(self._overlay.pending)

    def begin(self) -> Began:
        self._turn += 1
        return Began(self._turn, self._clock.monotonic(), self._clock.now())

    def is_current(self, began: Began) -> bool:
        """False for a read that began with a server that is not ours any more."""
        return began.turn >= self._valid_from

    def begin_list(self) -> ListRead:
        return ListRead(self._base, self.begin())

    def took_list(self, read: ListRead, boot: int) -> Change | None:
        """All nodes were read, from a slurmctld that started at `boot`."""
        nodes = read.nodes
        for name, began in list(self._later.items()):
            if began.turn < read.began.turn:
                del self._later[name]
            elif name in self._base:
                nodes[name] = self._base[name]
            else:
                nodes.pop(name, None)
        gone = self._base.keys() - nodes.keys()
        if self._boot and boot != self._boot:
            self._epoch += 1
            self._lost |= gone - self._overlay.pending
            self._lost_until = self._clock.monotonic() + self._settle
            self._drained.clear()
        changed = {name for name, node in nodes.items() if _differs(self._base.get(name), node)}
        if isinstance(self.state, Unknown):
            self._drained.clear()  # what happened meanwhile was not seen: a drain may have been lifted and set again
        is_broken = boot != self._boot or isinstance(self.state, Unknown)
        self._note_drained(nodes if is_broken else {name: nodes[name] for name in changed})
        for name in gone:
            self._drained.pop(name, None)
        self._boot = boot
        self._unpublished |= gone | changed
        self._base = nodes
        return self._read_all(read, self._overlay.settle(read.began.turn))

    def _note_drained(self, nodes: Mapping[str, Node]) -> None:
        """A drain counts from the end of the read: it may have been set after the read began, and a job before it."""
        now = self._clock.monotonic()
        for name, node in nodes.items():
            if is_drain(node.state):
                self._drained.setdefault(name, now)
            else:
                self._drained.pop(name, None)

    def took_no_change(self, read: ListRead) -> Change | None:
        """Nothing had changed since the list before, says slurmctld: that does not show what we wrote.

        The deletion of the last records, for one, does not count as a change.
        """
        self._later = {name: began for name, began in self._later.items() if began.turn > read.began.turn}
        return self._read_all(read, ())

    def took_nodes(self, reads: Mapping[str, tuple[Began, Node | None]]) -> Change | None:
        """Some nodes were read singly; None is a node that slurmctld has no record of."""
        nodes = dict(self._base)
        settled: list[str] = []
        for name, (began, node) in reads.items():
            if began.turn < max(self._read.turn, self._valid_from):
                continue
            if nodes.get(name) != node:
                self._unpublished.add(name)
            self._later[name] = began
            if node is None:
                nodes.pop(name, None)
                self._drained.pop(name, None)
            else:
                nodes[name] = node
                self._note_drained({name: node})
            settled += self._overlay.settle(began.turn, (name,))
        self._base = nodes
        if isinstance(self.state, Unknown):
            self._unpublished.update(settled)
            return None
        return self._publish(settled)

    def wrote(self, names: Collection[str], effect: Effect) -> None:
        """Slurm has just acknowledged a write of ours. Nobody is told: who wrote knows, the next read confirms."""
        self._turn += 1
        self._overlay.wrote(names, effect, self._turn)
        if isinstance(self.state, Known):
            self.state = self._known()

    def unanswered(self, names: Collection[str]) -> None:
        """A deletion may have taken effect or not: what is known of these nodes is unconfirmed until the next read."""
        self.wrote(names, NodeUpdate())

    def failed(self, error: SlurmError) -> Change | None:
        return self._doubt(str(error), error)

    def doubted(self, why: str) -> Change | None:
        """What was read cannot be trusted, although no call failed."""
        return self._doubt(why, None)

    def restart(self, why: str) -> Change | None:
        """Another server from now on: nothing that was read counts, nor what is being read."""
        self._turn += 1
        self._valid_from = self._turn
        self._overlay.forget()
        self._later.clear()
        self._boot = 0
        self._epoch += 1
        self._lost = frozenset()
        self._drained.clear()
        return self._doubt(why, None)

    def _read_all(self, read: ListRead, settled: Collection[str]) -> Change | None:
        self._read = read.began
        missing = self._lost - self._base.keys()
        if missing and self._clock.monotonic() < self._lost_until:
            self._unpublished.update(settled)
            return self._doubt(f"slurmctld started anew and has no record of {len(missing)} of its nodes", None)
        self._lost = frozenset()
        return self._publish(settled)

    def _publish(self, settled: Collection[str]) -> Change | None:
        names = frozenset(self._unpublished).union(settled)
        self._unpublished.clear()
        old, self.state = self.state, self._known()
        return Change(names, old, self.state) if names or isinstance(old, Unknown) else None

    def _known(self) -> Known:
        return Known(
            nodes=self._overlay.over(self._base),
            began_at=self._read.monotonic,
            at=self._read.at,
            boot=self._boot,
            epoch=self._epoch,
            later={name: began.monotonic for name, began in self._later.items()},
            pending=self._overlay.pending,
            drained=dict(self._drained),
        )

    def _doubt(self, why: str, error: SlurmError | None) -> Change | None:
        old = self.state
        if isinstance(old, Unknown):
            self.state = Unknown(old.since, why, error, old.last)
            return Change(frozenset(), old, self.state) if type(error) is not type(old.error) else None
        self.state = Unknown(self._clock.now(), why, error, old)
        return Change(frozenset(), old, self.state)


def _differs(before: Node | None, after: Node) -> bool:
    """Most records are the very same object, which is cheap to see."""
    return before is not after and before != after

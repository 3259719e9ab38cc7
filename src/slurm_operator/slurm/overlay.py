"""What we wrote counts as seen until a read that began after Slurm acknowledged it: so nothing is sent twice."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from slurm_operator.slurm.model import Node, NodeUpdate

Effect = NodeUpdate | None
"""None: the record was deleted."""


class _Write(NamedTuple):
    acked: int
    effect: Effect


def _without(*gone: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    return lambda state: tuple(word for word in state if word not in gone)


def _unchanged(state: tuple[str, ...]) -> tuple[str, ...]:
    return state


def _back_in_service(state: tuple[str, ...]) -> tuple[str, ...]:
    up = tuple("IDLE" if word == "DOWN" else word for word in state)
    return _without("DRAIN", "UNDRAIN", "FAIL")(up)


_TRANSITIONS: dict[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = {
    "DRAIN": lambda state: (*_without("DRAIN", "UNDRAIN")(state), "DRAIN"),
    "UNDRAIN": _without("DRAIN"),
    "RESUME": _back_in_service,
    "IDLE": _back_in_service,
    "DOWN": lambda state: ("DOWN", *state[1:]),
}
_SAME_NAME = ("reason", "comment", "extra", "features")
_OTHER_NAME = {"features_act": "active_features", "topology_str": "topology"}


def updated(node: Node, update: NodeUpdate) -> Node:
    """The record as Slurm will show it once it has carried out an update."""
    changes: dict[str, object] = {}
    for field in _SAME_NAME:
        if (value := getattr(update, field)) is not UNSET:
            changes[field] = value
    for written, read in _OTHER_NAME.items():
        if (value := getattr(update, written)) is not UNSET:
            changes[read] = value
    if isinstance(update.state, tuple):
        state = node.state
        for word in update.state:
            state = _TRANSITIONS.get(word, _unchanged)(state)
        changes["state"] = state
    return msgspec.structs.replace(node, **changes)


class Overlay:
    """Orders reads and writes by the ledger's count of turns: clocks have ties, turns have none."""

    def __init__(self) -> None:
        self._writes: dict[str, list[_Write]] = {}

    def wrote(self, names: Collection[str], effect: Effect, acked: int) -> None:
        for name in names:
            self._writes.setdefault(name, []).append(_Write(acked, effect))

    def settle(self, began: int, names: Collection[str] | None = None) -> list[str]:
        """A read of these nodes (or of all) that began then shows earlier writes itself; returns whose."""
        settled = []
        for name in list(self._writes) if names is None else [name for name in names if name in self._writes]:
            rest = [write for write in self._writes[name] if write.acked > began]
            if rest:
                self._writes[name] = rest
            else:
                del self._writes[name]
                settled.append(name)
        return settled

    def forget(self) -> None:
        self._writes.clear()

    @property
    def pending(self) -> frozenset[str]:
        return frozenset(self._writes)

    def over(self, base: Mapping[str, Node]) -> Mapping[str, Node]:
        if not self._writes:
            return base
        nodes = dict(base)
        for name, writes in self._writes.items():
            for write in writes:
                if write.effect is None:
                    nodes.pop(name, None)
                elif name in nodes:
                    nodes[name] = updated(nodes[name], write.effect)
        return nodes

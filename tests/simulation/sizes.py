"""How much each part of a running operator remembers: the sizes of its dictionaries, sets, lists and queues."""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from types import MethodType
from typing import Any

import msgspec

_CONTAINERS = (dict, set, list, tuple, deque)
_DEEPEST = 12


def sizes(root: object) -> dict[str, int]:
    """Return the size of every container that can be reached through attributes, by the way to it."""
    found: dict[str, int] = {}
    _visit(root, type(root).__name__, found, set(), 0)
    return found


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return what is larger than before, or was not there."""
    return {way: (before.get(way, 0), size) for way, size in after.items() if size > before.get(way, 0)}


def _visit(found: object, way: str, sizes: dict[str, int], seen: set[int], depth: int) -> None:
    if id(found) in seen or depth > _DEEPEST:
        return
    seen.add(id(found))
    if isinstance(found, _CONTAINERS):
        sizes[way] = len(found)
        for key, item in _items(found):
            _visit(item, f"{way}[{key}]", sizes, seen, depth + 1)
    elif isinstance(found, MethodType):
        _visit(found.__self__, way, sizes, seen, depth + 1)
    elif _is_ours(found):
        for name, value in _attributes(found):
            _visit(value, f"{way}.{name}", sizes, seen, depth + 1)


def _items(found: Any) -> Iterator[tuple[object, object]]:
    """Yield what may grow below a container: not the members of a set, which are values in no order."""
    if not isinstance(found, set):
        yield from found.items() if isinstance(found, dict) else enumerate(found)


def _is_ours(found: object) -> bool:
    """An object of the operator's own, and no value that it was sent."""
    value = isinstance(found, msgspec.Struct | Enum | type)
    return type(found).__module__.startswith("slurm_operator") and not value


def _attributes(found: object) -> Iterator[tuple[str, object]]:
    slots = {name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())}
    yield from {**getattr(found, "__dict__", {}), **{name: getattr(found, name, None) for name in slots}}.items()

"""Who owns which field of an object: reading and moving the entries of `metadata.managedFields`.

An apply removes only what the same manager applied before. A field of another program that makes the object invalid
beside ours (a port of the same name, a second source of a volume) therefore stays, and the server refuses every apply,
until the claim on it is ours: then the next apply removes it. Moving a claim changes no value.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from slurm_operator.kube.resource import Manifest

Fields = dict[str, Any]
"""A tree in the form of FieldsV1: `f:name` for a field, `k:{...}` and `v:...` for an element of a list."""

_INDEX = re.compile(r"\[[^\]]*\]")


def claimed(
    entries: Sequence[Manifest], wanted: Manifest, manager: str, fields: Iterable[str], live: Manifest
) -> list[Manifest]:
    """Return the entries after `manager` took over the claims that stand in the way of an apply of `wanted`.

    `fields` are those that the server refused, as it spells them: `spec.ports[1].name`. `live` is the object.
    """
    paths = [tuple(_INDEX.sub("", field).split(".")) for field in fields]
    ours: Fields = {}
    own: Manifest = {}
    others: list[Manifest] = []
    took = False
    for entry in entries:
        tree: Fields = entry.get("fieldsV1", {})
        if entry["manager"] == manager and entry["operation"] == "Apply" and not entry.get("subresource"):
            own, ours = entry, _union(ours, tree)
            continue
        taken: Fields = {}
        for path in paths if not entry.get("subresource") else ():
            taken = _union(taken, _in_the_way(tree, wanted, path, live) or {})
        if not taken:
            others.append(entry)
            continue
        took = True
        own, ours = own or {**entry, "manager": manager, "operation": "Apply"}, _union(ours, taken)
        if rest := _without(tree, taken):
            others.append({**entry, "fieldsV1": rest})
    if not took:
        return list(entries)
    return [{**own, "fieldsV1": ours}, *others]


def element_of(item: Any, owned: Fields) -> Fields | None:
    """Return the claims on an element of a list, which are booked by what identifies it, or by its value."""
    for name, node in owned.items():
        kind, _, content = name.partition(":")
        if (kind == "v" and json.loads(content) == item) or (kind == "k" and _identified(item, json.loads(content))):
            found: Fields = node
            return found
    return None


def _identified(item: Any, keys: dict[str, Any]) -> bool:
    """A key that the manifest leaves out was filled in by default."""
    return isinstance(item, dict) and all(item.get(key, value) == value for key, value in keys.items())


def _in_the_way(claims: Fields, wanted: Any, path: tuple[str, ...], live: Any) -> Fields | None:
    """Return the claims along the path on what `wanted` does not name, None if there are none.

    A whole element of a list is in the way only if nothing inside the wanted elements is, and if it has the value of
    one of them there: a name that may be used once, for example. Other elements are additions of their owner.
    """
    inside: Fields = {}
    strangers: Fields = {}
    for name, node in claims.items():
        kind, _, content = name.partition(":")
        found: Fields | None = None
        if kind == "f" and path and content == path[0]:
            inner = wanted.get(content) if isinstance(wanted, dict) else None
            found = node if inner is None else _in_the_way(node, inner, path[1:], _at(live, (content,)))
        elif kind in ("k", "v"):
            item, present = _element(wanted, name), _element(live, name)
            if item is not None:
                found = _in_the_way(node, item, path, present)
            elif _clashes(present, _items(wanted), path):
                strangers[name] = node
        if found is not None:
            inside[name] = found
    return inside or strangers or None


def _element(items: Any, name: str) -> Any:
    return next((item for item in _items(items) if element_of(item, {name: {}}) is not None), None)


def _clashes(item: Any, wanted: list[Any], path: tuple[str, ...]) -> bool:
    value = _at(item, path)
    return bool(path) and value is not None and any(_at(other, path) == value for other in wanted)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _union(one: Fields, other: Fields) -> Fields:
    return {**one, **{name: _both(one[name], node) if name in one else node for name, node in other.items()}}


def _both(one: Fields, other: Fields) -> Fields:
    """An empty node claims the field itself, which is written `.` beside claims below it."""
    return _union(one or {".": {}}, other or {".": {}}) if one or other else {}


def _without(tree: Fields, taken: Fields) -> Fields:
    rest: Fields = {}
    for name, node in tree.items():
        if name not in taken:
            rest[name] = node
        elif taken[name] != node and (left := _without(node, taken[name])):
            rest[name] = left
    return rest

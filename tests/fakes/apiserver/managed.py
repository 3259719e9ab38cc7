"""Server-side apply: who owns which field, and what merging one manager's intent does to an object.

An object is seen as a set of paths written as in `fieldsV1` (`f:spec`, `k:{"name":"a"}`, `v:"x"`). A path stands for a
leaf, or for the existence of one item of a keyed list.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.fakes.apiserver.kinds import Kind
from tests.fakes.apiserver.schema import Names, item_key, list_shape, map_is_atomic
from tests.fakes.apiserver.status import Refusal

Json = dict[str, Any]
Path = tuple[str, ...]
Flat = dict[Path, Any]

_ITEM = "an item of a keyed list"
_UNTRACKED_METADATA = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "selfLink",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)


@dataclass(frozen=True, slots=True)
class Manager:
    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        text = json.dumps(self.name)
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


@dataclass(frozen=True, slots=True)
class Owned:
    """One entry of managedFields."""

    paths: frozenset[Path]
    time: str


Managers = dict[Manager, Owned]


def apply(live: Json, applied: Json, kind: Kind, manager: Manager, now: str, *, force: bool) -> Json:
    """The live object after one manager's new intent: fields set, and fields it no longer names taken away."""
    managers = read_managers(live)
    intent = tracked(applied)
    wanted = frozenset(_flatten(kind, intent))
    merged = _merge(kind, live, intent, ())
    others = [owned.paths for other, owned in managers.items() if other != manager]
    before = managers[manager].paths if manager in managers else frozenset()
    for path in sorted(before - wanted, key=len):
        if not any(_covers(path, paths) for paths in (wanted, *others)):
            _remove(kind, merged, path)
    changed, removed = _difference(kind, live, merged)
    _refuse_conflicts(managers, manager, changed & wanted, force=force)
    managers = _give_up(managers, manager, (changed & wanted) | removed)
    managers[manager] = _refreshed(managers.get(manager), wanted, now)
    return _with_managers(merged, managers)


def track_update(live: Json | None, new: Json, kind: Kind, manager: Manager, now: str) -> Json:
    """The new object with what a create, update or patch changed booked on the writer's name.

    Whoever writes may also change the books themselves.
    """
    managers = read_managers(new if new["metadata"].get("managedFields") else live) if live else {}
    changed, removed = _difference(kind, live or {}, new)
    if changed or removed:
        managers = _give_up(managers, manager, changed | removed)
        before = managers.get(manager)
        paths = ((before.paths if before else frozenset()) | changed) - removed
        managers[manager] = _refreshed(before, paths, now)
    return _with_managers(new, managers)


def tracked(obj: Json) -> Json:
    """Only what somebody can own: no identity and nothing the server itself sets."""
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key not in _UNTRACKED_METADATA}
    rest = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}
    return {"metadata": metadata, **rest} if metadata else rest


def read_managers(obj: Json) -> Managers:
    managers: Managers = {}
    for entry in obj["metadata"].get("managedFields") or ():
        manager = Manager(
            entry["manager"], entry["operation"], entry.get("apiVersion", ""), entry.get("subresource", "")
        )
        managers[manager] = Owned(frozenset(_read_fields(entry["fieldsV1"], ())), entry["time"])
    return managers


def _refuse_conflicts(managers: Managers, manager: Manager, changed: frozenset[Path], *, force: bool) -> None:
    if force:
        return
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {other}", "field": dotted(path)}
        for other, owned in managers.items()
        if other != manager
        for path in sorted(owned.paths & changed)
    ]
    if causes:
        several = "conflict" if len(causes) == 1 else "conflicts"
        listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
        message = f"Apply failed with {len(causes)} {several}: {listed}"
        raise Refusal(409, message, details={"causes": causes})


def _give_up(managers: Managers, manager: Manager, taken: frozenset[Path]) -> Managers:
    """Every other manager loses the paths that this write changed or removed."""
    kept = {
        other: owned if other == manager or not owned.paths & taken else replace(owned, paths=owned.paths - taken)
        for other, owned in managers.items()
    }
    return {other: owned for other, owned in kept.items() if owned.paths}


def _refreshed(before: Owned | None, paths: frozenset[Path], now: str) -> Owned:
    return before if before and before.paths == paths else Owned(paths, now)


def _with_managers(obj: Json, managers: Managers) -> Json:
    entries = [
        {"manager": manager.name, "operation": manager.operation, "apiVersion": manager.api_version, "time": owned.time}
        | {"fieldsType": "FieldsV1", "fieldsV1": _write_fields(owned.paths)}
        | ({"subresource": manager.subresource} if manager.subresource else {})
        for manager, owned in managers.items()
        if owned.paths
    ]
    obj["metadata"].pop("managedFields", None)
    if entries:
        obj["metadata"]["managedFields"] = entries
    return obj


def _difference(kind: Kind, old: Json, new: Json) -> tuple[frozenset[Path], frozenset[Path]]:
    """(added or modified, removed) paths."""
    before, after = _flatten(kind, tracked(old)), _flatten(kind, tracked(new))
    changed = frozenset(path for path, value in after.items() if path not in before or before[path] != value)
    # An empty map that gets keys is still there.
    filled = {path for path, value in before.items() if value == {} and _covers(path, after)}
    return changed, frozenset(before.keys() - after.keys() - filled)


def _flatten(kind: Kind, obj: Json) -> Flat:
    return dict(_leaves(kind, obj, (), ()))


def _leaves(kind: Kind, value: Any, path: Path, names: Names) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value and not map_is_atomic(kind, names):
        for key, child in value.items():
            yield from _leaves(kind, child, (*path, f"f:{key}"), (*names, key))
        return
    shape = list_shape(kind, names) if isinstance(value, list) else "atomic"
    if shape == "set":
        yield from (((*path, _set_item(item)), item) for item in value)
    elif shape == "atomic":
        if path:
            yield path, value
    else:
        for item in value:
            inner = (*path, item_key(item, shape))
            yield inner, _ITEM
            yield from _leaves(kind, item, inner, names)


def _merge(kind: Kind, live: Any, applied: Any, names: Names) -> Any:
    if isinstance(live, dict) and isinstance(applied, dict) and not map_is_atomic(kind, names):
        merged = {key: copy.deepcopy(value) for key, value in live.items() if key not in applied}
        return merged | {
            key: _merge(kind, live.get(key), value, (*names, key)) if key in live else copy.deepcopy(value)
            for key, value in applied.items()
        }
    if isinstance(live, list) and isinstance(applied, list):
        shape = list_shape(kind, names)
        if shape == "set":
            return live + [item for item in applied if item not in live]
        if shape != "atomic":
            return _merge_keyed(kind, live, applied, shape, names)
    return copy.deepcopy(applied)


def _merge_keyed(kind: Kind, live: list[Json], applied: list[Json], keys: Names, names: Names) -> list[Any]:
    """Applied order first; an item only the live list has keeps its place behind its predecessor."""
    present = {item_key(item, keys): item for item in live}
    wanted = {item_key(item, keys): item for item in applied}
    order = list(wanted)
    previous = -1
    for key in present:
        if key in wanted:
            previous = order.index(key)
        else:
            previous += 1
            order.insert(previous, key)
    return [
        _merge(kind, present[key], wanted[key], names)
        if key in present and key in wanted
        else copy.deepcopy(wanted.get(key, present.get(key)))
        for key in order
    ]


def _remove(kind: Kind, obj: Any, path: Path, names: Names = ()) -> None:
    """Delete what the path names, and parents that become empty by it."""
    step, rest = path[0], path[1:]
    if isinstance(obj, dict):
        key = step.removeprefix("f:")
        if key not in obj:
            return
        if rest:
            _remove(kind, obj[key], rest, (*names, key))
        if not rest or obj[key] in ({}, []):
            del obj[key]
    elif isinstance(obj, list):
        shape = list_shape(kind, names)
        for item in list(obj):
            name = _set_item(item) if isinstance(shape, str) else item_key(item, shape)
            if name == step:
                if rest:
                    _remove(kind, item, rest, names)
                else:
                    obj.remove(item)


def _covers(path: Path, owned: Iterable[Path]) -> bool:
    return any(other[: len(path)] == path for other in owned)


def _set_item(value: Any) -> str:
    return "v:" + json.dumps(value, separators=(",", ":"))


def _write_fields(paths: Iterable[Path]) -> Json:
    root: Json = {}
    for path in sorted(paths):
        node = root
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
    return {step: _without_leaf_dots(child) for step, child in root.items()}


def _without_leaf_dots(node: Json) -> Json:
    """A leaf is written `{}`; only an item that also has children needs its own dot."""
    if node.keys() == {"."}:
        return {}
    return {step: _without_leaf_dots(child) if step != "." else {} for step, child in node.items()}


def _read_fields(node: Json, path: Path) -> Iterator[Path]:
    if not node and path:
        yield path
    for step, child in node.items():
        if step == ".":
            yield path
        else:
            yield from _read_fields(child, (*path, step))


def dotted(path: Path) -> str:
    """`.spec.containers[name="a"].image`, as conflict messages spell a path."""
    text = ""
    for step in path:
        if step.startswith("k:"):
            keys = ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(step[2:]).items())
            text += f"[{keys}]"
        elif step.startswith("v:"):
            text += f"[={step[2:]}]"
        else:
            text += f".{step[2:]}"
    return text

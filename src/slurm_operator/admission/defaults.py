"""What the API server makes of an object before it checks it: nulls dropped, defaults filled in."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from slurm_operator.admission.validate_quick import quick_check
from slurm_operator.api import Kind, Object
from slurm_operator.api.crd import Schema, schema
from slurm_operator.api.meta import without_nulls

Manifest = dict[str, Any]
Operation = dict[str, Any]
Complete: TypeAlias = Callable[[Any], Any]


class Stored(dict[str, Any]):
    """An object that is complete: to complete it again would change nothing, and is not done."""

    typed: Object | None = None
    """What it was read as, once it was."""
    fits: bool
    """Whether the schema has nothing to say about it."""


def admitted(kind: Kind[Object], manifest: Manifest) -> Stored:
    """The object as the API server would store it. Parts of free form are kept as they are."""
    if isinstance(manifest, Stored):
        return manifest
    fits = quick_check(kind)
    is_complete = fits(manifest)
    stored = Stored(manifest if is_complete else _completer(kind)(manifest))
    stored["metadata"] = without_nulls(stored.get("metadata") or {})
    stored.fits = is_complete or fits(stored)
    return stored


def default_patch(kind: Kind[Object], manifest: Manifest) -> list[Operation]:
    """JSON patch that writes missing defaults below spec, and touches nothing else."""
    before, after = manifest.get("spec"), admitted(kind, manifest).get("spec")
    return list(_additions("/spec", before, after)) if isinstance(before, dict) else []


@cache
def _completer(kind: Kind[Object]) -> Complete:
    return _compiled(schema(kind)) or _unchanged


def _compiled(node: Schema) -> Complete | None:
    """Completes values of a schema; None if there is nothing to complete in them."""
    match node.get("type"):
        case "object":
            return _compiled_object(node)
        case "array":
            item = _compiled(node["items"])
            return (
                (lambda value: [item(each) for each in value] if isinstance(value, list) else value) if item else None
            )
        case "integer":
            return lambda value: int(value) if isinstance(value, float) and value.is_integer() else value
        case _:
            return None


def _compiled_object(node: Schema) -> Complete | None:
    properties: Schema = node.get("properties", {})
    others: Schema = node.get("additionalProperties", {})
    if not properties and not others:
        return None
    defaults = [(name, child["default"]) for name, child in properties.items() if "default" in child]
    steps = {name: (bool(child) and not child.get("nullable"), _compiled(child)) for name, child in properties.items()}
    other_step = (bool(others) and not others.get("nullable"), _compiled(others))

    def complete(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        result = {name: default for name, default in defaults if value.get(name) is None}
        for name, item in value.items():
            drops_null, step = steps.get(name, other_step)
            if item is not None:
                result[name] = step(item) if step else item
            elif not drops_null:
                result[name] = None
        return result

    return complete


def _unchanged(value: Any) -> Any:
    return value


def _additions(path: str, before: Any, after: Any) -> list[Operation]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    found: list[Operation] = []
    for name, value in after.items():
        place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if before.get(name) is None and value is not None:
            found.append({"op": "add", "path": place, "value": value})
        else:
            found.extend(_additions(place, before.get(name), value))
    return found

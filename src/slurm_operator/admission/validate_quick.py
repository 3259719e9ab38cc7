"""A quick yes for objects about which the schema has nothing to say; the others are looked at in detail.

Almost all objects are right. To find that out costs a fifth of what it costs to be able to say what is wrong.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from slurm_operator.admission.validate_schema import bounds, schema_problems
from slurm_operator.api import Kind, Object
from slurm_operator.api.crd import Schema, schema

Fits: TypeAlias = Callable[[Any], bool]

_DETAILS: Final = frozenset({"enum", "format", "minLength", "pattern", "x-kubernetes-int-or-string"})


@cache
def quick_check(kind: Kind[Object]) -> Fits:
    """Whether an object has all defaults, no problems and no unknown fields."""
    return _compiled(schema(kind))


def _compiled(node: Schema) -> Fits:
    fits = _of_type(node)
    return (lambda value: value is None or fits(value)) if node.get("nullable") else fits


def _of_type(node: Schema) -> Fits:
    match node.get("type"):
        case "object":
            return _object(node)
        case "array":
            return _array(node)
        case "boolean":
            return lambda value: value is True or value is False
        case "integer":
            low, high = bounds(node)
            return lambda value: type(value) is int and low <= value <= high
        case "string" if _DETAILS.isdisjoint(node):
            limit = node.get("maxLength", float("inf"))
            return lambda value: isinstance(value, str) and len(value) <= limit
        case "string" if _DETAILS & node.keys() == {"enum"}:
            words = frozenset(node["enum"])
            return lambda value: isinstance(value, str) and value in words
        case _:
            return lambda value: next(schema_problems(node, value), None) is None


def _object(node: Schema) -> Fits:
    properties: Schema = node.get("properties", {})
    others: Schema = node.get("additionalProperties", {})
    free = others or "x-kubernetes-preserve-unknown-fields" in node or not properties
    checks = {name: _compiled(child) if child else _anything for name, child in properties.items()}
    other = _compiled(others) if others else _anything
    required = {*node.get("required", ()), *(name for name, child in properties.items() if "default" in child)}

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or not required <= value.keys():
            return False
        for name, item in value.items():
            check = checks.get(name)
            if check is None:
                if not free or not isinstance(name, str) or not other(item):
                    return False
            elif not check(item):
                return False
        return True

    return fits


def _array(node: Schema) -> Fits:
    limit, fits = node.get("maxItems", float("inf")), _compiled(node["items"])

    def all_fit(value: Any) -> bool:
        return isinstance(value, list) and len(value) <= limit and all(map(fits, value))

    return all_fit


def _anything(value: Any) -> bool:
    return True

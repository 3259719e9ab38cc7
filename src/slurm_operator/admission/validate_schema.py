"""The checks that the API server makes with the schema alone, for use without an API server."""

import re
from collections.abc import Iterator
from datetime import date
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from slurm_operator.admission.problem import Problem, Warn
from slurm_operator.api.crd import Schema

_NOUN: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
}
_KIND: Final = {
    bool: "boolean",
    int: "integer",
    str: "string",
    dict: "object",
    list: "array",
    type(None): "nothing",
}
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")


def schema_problems(node: Schema, value: Any, path: str = "") -> Iterator[Problem]:
    """Everything in which the value differs from its schema."""
    if value is None and node.get("nullable"):
        return
    kind = _kind(value)
    if wrong := _type_problem(node, kind):
        yield Problem(path, *wrong)
        return
    match kind:
        case "object":
            yield from _in_object(node, value, path)
        case "array":
            yield from _in_array(node, value, path)
        case "string":
            yield from _in_text(node, value, path)
        case "integer":
            yield from _in_number(node, value, path)
        case _:
            return


def unknown_fields(node: Schema, value: Any, path: str = "") -> Iterator[Warn]:
    """Fields that the API server drops, with the one that was probably meant."""
    if isinstance(value, dict):
        properties: Schema = node.get("properties", {})
        others: Schema = node.get("additionalProperties", {})
        free = others or "x-kubernetes-preserve-unknown-fields" in node or not properties
        for name, item in value.items():
            child: Schema = properties.get(name, others)
            if not free and name not in properties:
                yield Warn(join(path, name), unknown_text(str(name), properties))
            if child:
                yield from unknown_fields(child, item, join(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(node.get("items", {}), item, f"{path}[{index}]")


def unknown_text(name: str, known: Any) -> str:
    """Says that a field is unknown, and names the nearest known one."""
    near = get_close_matches(name, list(known), n=1)
    return f"unknown field, ignored; did you mean {near[0]}?" if near else "unknown field, ignored"


def bounds(node: Schema) -> tuple[int, int]:
    """The least and the greatest number that a schema allows."""
    bits = {"int32": 31}.get(node.get("format", ""), 63)
    return node.get("minimum", -(2**bits)), node.get("maximum", 2**bits - 1)


def join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _kind(value: Any) -> str:
    return _KIND.get(type(value)) or ("object" if isinstance(value, dict) else type(value).__name__)


def _type_problem(node: Schema, kind: str) -> tuple[str, str] | None:
    wanted = ("integer", "string") if node.get(_INT_OR_STRING) else (node["type"],)
    if kind in wanted:
        return None
    nouns = " or ".join(_NOUN[name] for name in wanted)
    quotes = "put it in quotes" if "string" in wanted and kind in ("integer", "boolean", "float") else f"write {nouns}"
    return f"must be {nouns}, not {_NOUN.get(kind, kind)}", quotes


def _in_object(node: Schema, value: dict[str, Any], path: str) -> Iterator[Problem]:
    properties: Schema = node.get("properties", {})
    for name in node.get("required", ()):
        if name not in value:
            about = properties[name]["description"]
            yield Problem(join(path, name), f"{name} is missing", about[0].lower() + about[1:].rstrip("."))
    for name, item in value.items():
        if not isinstance(name, str):
            yield Problem(join(path, name), "names of fields are texts", "put it in quotes")
        elif child := properties.get(name, node.get("additionalProperties")):
            yield from schema_problems(child, item, join(path, name))


def _in_array(node: Schema, value: list[Any], path: str) -> Iterator[Problem]:
    if len(value) > (limit := node.get("maxItems", len(value))):
        yield Problem(path, f"has {len(value)} items", f"write at most {limit}")
        return
    for index, item in enumerate(value):
        yield from schema_problems(node["items"], item, f"{path}[{index}]")


def _in_text(node: Schema, value: str, path: str) -> Iterator[Problem]:
    if len(value) > (limit := node.get("maxLength", len(value))):
        yield Problem(path, f"is {len(value)} characters long", f"write at most {limit}")
    elif len(value) < node.get("minLength", 0):
        yield Problem(path, "is empty", "write a text")
    elif "enum" in node and value not in node["enum"]:
        yield Problem(path, f"is {value!r}", f"write {' or '.join(node['enum'])}")
    elif "pattern" in node and not _compiled(node["pattern"]).search(value):
        yield Problem(path, f"{value!r} is not in the form that is expected", _about(node))
    elif node.get("format") == "date-time" and not _is_time(value):
        yield Problem(path, f"{value!r} is not a time", "write for example 2030-01-31T22:00:00Z")


def _about(node: Schema) -> str:
    text: str = node.get("description", "")
    return f"it is this: {text}" if text else f"it must match {node['pattern']}"


def _in_number(node: Schema, value: int, path: str) -> Iterator[Problem]:
    low, high = bounds(node)
    if not low <= value <= high:
        yield Problem(path, f"is {value}", f"write a number from {low} to {high}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern with the `$` of RE2, which does not match before a final line break."""
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern))


def _is_time(value: str) -> bool:
    day, _, rest = value.lower().partition("t")
    match = _TIME.fullmatch(rest)
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return match is not None and len(day) == 10 and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"

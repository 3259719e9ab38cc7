"""Label and field selectors as the API server reads them from a query string."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.fakes.apiserver.kinds import Kind
from tests.fakes.apiserver.status import bad_request

Json = dict[str, Any]
Predicate = Callable[[Json], bool]

_KEY = r"([A-Za-z0-9](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?)"
_SET = re.compile(rf"^{_KEY}\s+(in|notin)\s*\(([^)]*)\)$")
_COMPARE = re.compile(rf"^{_KEY}\s*(!=|==|=)\s*([A-Za-z0-9._-]*)$")
_EXISTS = re.compile(rf"^(!?)\s*{_KEY}$")
_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_MORE_FIELDS = {
    "Pod": frozenset(
        {"spec.nodeName", "spec.schedulerName", "spec.serviceAccountName", "status.phase", "status.podIP"}
    ),
    "Node": frozenset({"spec.unschedulable"}),
    "Namespace": frozenset({"status.phase"}),
    "Secret": frozenset({"type"}),
    "Event": frozenset({"type", "reason", "regarding.name", "regarding.kind", "regarding.uid", "involvedObject.name"}),
}


def _terms(text: str) -> Iterator[str]:
    """Split at commas, but not at those inside `in (...)`."""
    return (term.strip() for term in re.split(r",(?![^(]*\))", text) if term.strip())


def _label_term(term: str) -> Callable[[dict[str, str]], bool]:
    if match := _SET.match(term):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _COMPARE.match(term):
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS.match(term):
        absent, key = match.groups()
        return lambda labels: (key in labels) != bool(absent)
    raise bad_request(f"unable to parse requirement: found '{term}', expected: in, notin, =, ==, !=")


def _field_term(kind: Kind, term: str) -> Predicate:
    match = _COMPARE.match(term)
    if match is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, operator, value = match.groups()
    if path not in _FIELDS | _MORE_FIELDS.get(kind.kind, frozenset()):
        raise bad_request(f'"{path}" is not a known field selector')
    return lambda obj: (_at(obj, path) == value) != (operator == "!=")


def _at(obj: Json, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


def selector(kind: Kind, labels: str = "", fields: str = "") -> Predicate:
    """One predicate over whole objects for both selectors; empty selectors match everything."""
    label_terms = [_label_term(term) for term in _terms(labels)]
    field_terms = [_field_term(kind, term) for term in _terms(fields)]

    def matches(obj: Json) -> bool:
        own = obj["metadata"].get("labels") or {}
        return all(term(own) for term in label_terms) and all(term(obj) for term in field_terms)

    return matches


def matches_labels(label_selector: Json | None, labels: dict[str, str]) -> bool:
    """A LabelSelector inside an object's spec, as a PodDisruptionBudget has one."""
    if label_selector is None:
        return False
    wanted = label_selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _expression(term, labels) for term in label_selector.get("matchExpressions") or ()
    )


def _expression(term: Json, labels: dict[str, str]) -> bool:
    key, values = term["key"], term.get("values") or ()
    match term["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels

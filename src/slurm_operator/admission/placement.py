"""Checks of what a pod template says about Kubernetes Nodes: selector, required node affinity, tolerations.

In DaemonSet mode the operator itself decides by it where workers run.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from slurm_operator.admission.problem import Problem
from slurm_operator.api.meta import without_nulls
from slurm_operator.desired.merge import says_nothing

_NUMBER = re.compile(r"-?[0-9]+")
_FIELDS = ("nodeSelector", "affinity", "tolerations")


class _Expression(msgspec.Struct, frozen=True):
    key: Annotated[str, msgspec.Meta(min_length=1)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: tuple[_Expression, ...] = ()
    match_fields: tuple[_Expression, ...] = ()


class _Required(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[_Term, ...] = ()


class _NodeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Required = _Required()


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity = _NodeAffinity()


class _Toleration(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class _Placement(msgspec.Struct, frozen=True, rename="camel"):
    node_selector: dict[str, str] = {}
    affinity: _Affinity = _Affinity()
    tolerations: tuple[_Toleration, ...] = ()


def placement_problems(spec: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield what keeps the operator from telling to which Nodes a pod spec belongs."""
    given = {name: spec[name] for name in _FIELDS if not says_nothing(spec.get(name))}
    if not given:
        return
    try:
        placement = msgspec.convert(without_nulls(given), _Placement)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        yield Problem(f"{path}{place.rstrip('`')}", message[:1].lower() + message[1:], "write it as core/v1 has it")
        return
    required = f"{path}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    terms = placement.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    for number, term in enumerate(terms):
        place = f"{required}.nodeSelectorTerms[{number}]"
        yield from _value_problems(term.match_expressions, f"{place}.matchExpressions")
        yield from _value_problems(term.match_fields, f"{place}.matchFields")


def _value_problems(expressions: tuple[_Expression, ...], path: str) -> Iterator[Problem]:
    for index, found in enumerate(expressions):
        place = f"{path}[{index}].values"
        if found.operator in ("Gt", "Lt"):
            if len(found.values) != 1 or not _NUMBER.fullmatch(found.values[0]):
                hint = 'write for example values: ["4"]'
                yield Problem(place, f"{found.operator} needs one whole number, not {list(found.values)}", hint)
        elif found.operator in ("In", "NotIn") and not found.values:
            yield Problem(place, f"{found.operator} needs at least one value", "list the values that are meant")

"""Applies the rules that hang on the API's types, as the API server does with their CEL form."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.inspect import Metadata, StructType, Type, UnionType, VarTupleType, type_info

from slurm_operator.admission.problem import Problem
from slurm_operator.api.rules import Rule


@dataclass(frozen=True, slots=True)
class _Field:
    """A field that has rules, or holds something that has."""

    name: str
    written: str
    rules: tuple[Rule, ...]
    item_rules: tuple[Rule, ...]


def rule_problems(new: Struct, old: Struct | None) -> list[Problem]:
    """Every rule of the value and of its parts that does not hold."""
    problems: list[Problem] = []
    _check_struct(problems, new, old, "")
    return problems


def _check_struct(problems: list[Problem], new: Struct, old: Struct | None, path: str) -> None:
    _check(problems, getattr(type(new), "rules", ()), new, old, path)
    for field in _fields(type(new)):
        value = getattr(new, field.name)
        if value is None:
            continue
        before = getattr(old, field.name) if old is not None else None
        place = f"{path}.{field.written}"
        if field.rules:
            _check(problems, field.rules, value, before, place)
        if isinstance(value, Struct):
            _check_struct(problems, value, before, place)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                _check(problems, field.item_rules, item, None, f"{place}[{index}]")
                if isinstance(item, Struct):
                    _check_struct(problems, item, None, f"{place}[{index}]")


def _check(problems: list[Problem], rules: tuple[Rule, ...], new: Any, old: Any, path: str) -> None:
    for rule in rules:
        if rule.about_change and old is None:
            continue
        if not (rule.holds(new, old) if rule.about_change else rule.holds(new)):
            problems.append(Problem((path + rule.path).lstrip("."), rule.message, rule.hint))


@cache
def _fields(kind: type[Struct]) -> tuple[_Field, ...]:
    """Only those below which there is anything to check."""
    info = type_info(kind)
    assert isinstance(info, StructType)  # noqa: S101 - tells the type checker what Struct means to msgspec
    return tuple(
        _Field(field.name, field.encode_name, rules, item_rules)
        for field in info.fields
        for rules, item_rules in [(tuple(_rules(field.type)), tuple(_item_rules(field.type)))]
        if rules or item_rules or _has_rules_within(field.type)
    )


def _plain(info: Type) -> Iterator[Type]:
    """The types behind annotations and `| None`."""
    match info:
        case Metadata(inner):
            yield from _plain(inner)
        case UnionType(types):
            for member in types:
                yield from _plain(member)
        case _:
            yield info


def _has_rules_within(info: Type) -> bool:
    for plain in _plain(info):
        if isinstance(plain, VarTupleType):
            return _has_rules_within(plain.item_type)
        if isinstance(plain, StructType):
            return bool(getattr(plain.cls, "rules", ()) or _fields(plain.cls))
    return False


def _rules(info: Type) -> Iterator[Rule]:
    match info:
        case Metadata(inner, extra=extra):
            yield from (extra or {}).get("x-rules", ())
            yield from _rules(inner)
        case UnionType(types):
            for member in types:
                yield from _rules(member)
        case _:
            return


def _item_rules(info: Type) -> Iterator[Rule]:
    for plain in _plain(info):
        if isinstance(plain, VarTupleType):
            yield from _rules(plain.item_type)

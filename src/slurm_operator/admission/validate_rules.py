"""Applies the rules that hang on the API's types, as the API server does with their CEL form."""

from collections.abc import Iterable, Iterator
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
    within: bool
    """Whether what it holds has rules of its own."""


_Path = tuple["_Path | None", str]
"""Parent and last part: put together only when there is something to say."""


def rule_problems(new: Struct, old: Struct | None) -> list[Problem]:
    """Every rule of the value and of its parts that does not hold."""
    problems: list[Problem] = []
    _check_struct(problems, new, old, None)
    return problems


def _check_struct(problems: list[Problem], new: Struct, old: Struct | None, path: _Path | None) -> None:
    own, fields = _rules_of(type(new), old is not None)
    if own:
        _check(problems, own, new, old, path)
    for field in fields:
        value = getattr(new, field.name)
        if value is None:
            continue
        before = getattr(old, field.name) if old is not None else None
        place = (path, f".{field.written}")
        if field.rules:
            _check(problems, field.rules, value, before, place)
        if field.within and isinstance(value, Struct):
            _check_struct(problems, value, before, place)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                _check(problems, field.item_rules, item, None, (place, f"[{index}]"))
                if field.within and isinstance(item, Struct):
                    _check_struct(problems, item, None, (place, f"[{index}]"))


def _check(problems: list[Problem], rules: tuple[Rule, ...], new: Any, old: Any, path: _Path | None) -> None:
    for rule in rules:
        if rule.about_change and old is None:
            continue
        if not (rule.holds(new, old) if rule.about_change else rule.holds(new)):
            problems.append(Problem(f"{_text(path)}{rule.path}".lstrip("."), rule.message, rule.hint))


def _text(path: _Path | None) -> str:
    return f"{_text(path[0])}{path[1]}" if path is not None else ""


@cache
def _rules_of(kind: type[Struct], changing: bool) -> tuple[tuple[Rule, ...], tuple[_Field, ...]]:
    """Those of the type itself, and the fields below which there is anything to check; a new object changes nothing."""
    info = type_info(kind)
    assert isinstance(info, StructType)  # noqa: S101 - tells the type checker what Struct means to msgspec
    fields = (
        _Field(
            field.name,
            field.encode_name,
            _asked(_rules(field.type), changing),
            _asked(_item_rules(field.type), False),
            _has_rules_within(field.type, changing),
        )
        for field in info.fields
    )
    own = _asked(getattr(kind, "rules", ()), changing)
    return own, tuple(field for field in fields if field.rules or field.item_rules or field.within)


def _asked(rules: Iterable[Rule], changing: bool) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if changing or not rule.about_change)


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


def _has_rules_within(info: Type, changing: bool) -> bool:
    for plain in _plain(info):
        if isinstance(plain, VarTupleType):
            return _has_rules_within(plain.item_type, False)  # an item has no former self to compare with
        if isinstance(plain, StructType):
            return any(_rules_of(plain.cls, changing))
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

"""YAML with the place of every value, read as Kubernetes reads it: keys are texts, times are texts, nothing twice."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from slurm_operator.admission.validate_schema import join

VALUES_LIMIT: Final = 200_000
"""Aliases of aliases can make a short text endlessly long."""
_PREFIX: Final = "tag:yaml.org,2002:"
_OTHERWISE: Final = ("timestamp", "int", "float", "value")
"""Plain texts that Kubernetes' reader takes for something else than PyYAML does."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Both counted from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Mistake:
    """Why a text is not a document, or one that people read in different ways."""

    position: Position
    message: str


@dataclass(slots=True)
class Document:
    value: Any = None
    positions: dict[str, Position] = field(default_factory=dict)
    """By path, as in spec.template.spec.containers[0].name; of a field it is the place of its key."""
    mistakes: list[Mistake] = field(default_factory=list)

    def position(self, path: str) -> Position:
        """The place of a value, or of the nearest thing around it if there is none."""
        while path and path not in self.positions:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.positions.get(path, Position(1, 1))


def documents(text: str) -> Iterator[Document]:
    """One after the other; a text that cannot be read on ends with a document that says why."""
    try:
        loader = _Loader(text)
        while loader.check_node():
            yield _Walk(loader).document(loader.get_node())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, (error.context, error.problem)))
        yield Document(mistakes=[Mistake(_position(mark), f"not YAML: {what}")])
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = Position(before.count("\n") + 1, len(before) - before.rfind("\n"))
        yield Document(mistakes=[Mistake(place, f"not YAML: character {error.character:#06x} is not allowed")])
    except RecursionError:
        yield Document(mistakes=[Mistake(Position(1, 1), "not YAML that can be read: nested too deeply")])


class _Loader(yaml.SafeLoader):
    """The rules of Kubernetes' reader, which knows neither times nor numbers to the base of 60."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag.removeprefix(_PREFIX) not in _OTHERWISE]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    f"{_PREFIX}int",
    re.compile(r"[-+]?(0b[0-1_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    f"{_PREFIX}float",
    re.compile(
        r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$",
    ),
    list("-+0123456789."),
)


class _Walk:
    """Turns the nodes of one document into plain values, and notes where each of them was."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._found = Document()
        self._above: set[int] = set()
        self._count = 0

    def document(self, root: yaml.Node | None) -> Document:
        if root is not None:
            self._found.positions[""] = _position(root.start_mark)
            self._found.value = self._value(root, "")
        return self._found

    def _value(self, node: yaml.Node, path: str) -> Any:
        self._count += 1
        if self._count > VALUES_LIMIT or id(node) in self._above:
            reason = "contains itself" if id(node) in self._above else f"more than {VALUES_LIMIT} values"
            raise yaml.MarkedYAMLError(problem=reason, problem_mark=node.start_mark)
        self._above.add(id(node))
        try:
            match node:
                case yaml.MappingNode():
                    return self._mapping(node, path)
                case yaml.SequenceNode():
                    return [self._item(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
                case _:
                    return _scalar(self._loader, node)
        finally:
            self._above.discard(id(node))

    def _item(self, node: yaml.Node, path: str) -> Any:
        self._found.positions[path] = _position(node.start_mark)
        return self._value(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        inherited: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == f"{_PREFIX}merge":
                for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    merged = self._value(part, path)
                    inherited = {**(merged if isinstance(merged, dict) else {}), **inherited}
                continue
            name = _text(self._value(key, path))
            place = _position(key.start_mark)
            if name in own:
                self._found.mistakes.append(Mistake(place, f"{join(path, name)} is there twice"))
            self._found.positions[join(path, name)] = place
            own[name] = self._value(value, join(path, name))
        return {**inherited, **own}


def _scalar(loader: _Loader, node: yaml.Node) -> Any:
    if node.tag == f"{_PREFIX}int" and node.value.lstrip("+-").startswith("0o"):
        return int(node.value.replace("_", ""), 8)
    try:
        value = loader.construct_object(node)
    except (ValueError, OverflowError) as error:
        raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from None
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _text(key: Any) -> str:
    """Keys become JSON, where only texts can be keys."""
    return {True: "true", False: "false", None: "null"}[key] if isinstance(key, bool | None) else str(key)


def _position(mark: yaml.Mark | None) -> Position:
    return Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)

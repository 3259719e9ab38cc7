"""CustomResourceDefinitions, made from the types: what the types say is what the API server enforces."""

import ast
import gc
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec.inspect import (
    BoolType,
    DictType,
    Field,
    IntType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from slurm_operator.api import KINDS
from slurm_operator.api.kind import NEEDS_SPEC, Kind, Object
from slurm_operator.api.names import GROUP, VERSION
from slurm_operator.api.rules import Rule

Schema = dict[str, Any]

_HEADER: Final = "# Made from the types in slurm_operator.api by `python -m slurm_operator.api.crd crds`.\n"

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_KEYWORDS: Final = frozenset(
    {"additionalProperties", "anyOf", "default", "description", "enum", "format", "items", "maxItems", "maxLength"}
    | {"maximum", "minLength", "minimum", "nullable", "pattern", "properties", "required", "type"}
    | {_PRESERVE, _INT_OR_STRING, "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"}
    | {"x-kubernetes-validations"}
)
_FRAME: Final[Schema] = {
    "apiVersion": {"type": "string", "description": "Version of the API that this object is written in."},
    "kind": {"type": "string", "description": "Kind of this object."},
    "metadata": {"type": "object"},
}


def definition(kind: Kind[Object]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    subresources: dict[str, Any] = {"status": {}}
    if kind.scalable:
        subresources["scale"] = {
            "labelSelectorPath": ".status.selector",
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
        }
    columns = [
        {"name": column.name, "type": column.type, "jsonPath": column.path}
        | ({"priority": column.priority} if column.priority else {})
        for column in kind.columns
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short_names),
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema(kind)},
                    "subresources": subresources,
                }
            ],
        },
    }


@cache
def schema(kind: Kind[Object]) -> Schema:
    """The structural schema of a kind, from its root."""
    info = type_info(kind.type)
    assert isinstance(info, StructType)  # noqa: S101 - tells the type checker what a Kind guarantees
    root = _struct(info)
    for name in ("apiVersion", "metadata"):
        del root["properties"][name]
    root["properties"] = {**_FRAME, **root["properties"]}
    root["x-kubernetes-validations"] = _validations((NEEDS_SPEC, *kind.type.rules))
    _require_structural(root, kind.name)
    return root


def render_crds() -> str:
    """All definitions as one YAML stream, ready for `kubectl apply -f -`."""
    return "".join(f"---\n{render(kind)}" for kind in KINDS)


def render(kind: Kind[Object]) -> str:
    """One definition as YAML."""
    return yaml.safe_dump(definition(kind), sort_keys=False, width=120, allow_unicode=True)


def files() -> dict[str, str]:
    """All definitions by file name, as they are checked in."""
    return {f"{GROUP}_{kind.plural}.yaml": f"{_HEADER}{render(kind)}" for kind in KINDS}


def _of(info: Type) -> Schema:
    """Schema of any type that the API may use; TypeError for what no structural schema can say."""
    match info:
        case Metadata(inner, extra=extra):
            return {**_of(inner), **(extra or {})}
        case UnionType(types):
            return _union(tuple(member for member in types if not isinstance(member, NoneType)))
        case StructType():
            return _struct(info)
        case DictType(value_type=value):
            if isinstance(value, msgspec.inspect.AnyType):
                return {"type": "object", _PRESERVE: True}
            return {"type": "object", "additionalProperties": _of(value)}
        case VarTupleType(item):
            return {"type": "array", "items": _finished(_of(item))}
        case LiteralType(values):
            return {"type": "string", "enum": sorted(values)}
        case StrType():
            return {"type": "string"}
        case IntType():
            return {"type": "integer"}
        case BoolType():
            return {"type": "boolean"}
        case _:
            raise TypeError(f"{info} has no structural schema")


def _union(members: tuple[Type, ...]) -> Schema:
    match members:
        case (single,):
            return _of(single)
        case (IntType(), StrType()):
            return {"anyOf": [{"type": "integer"}, {"type": "string"}], _INT_OR_STRING: True}
        case _:
            raise TypeError(f"a union of {members} has no structural schema")


def _struct(info: StructType) -> Schema:
    described = _field_docs(info.cls)
    required: list[str] = []
    properties: Schema = {}
    for field in info.fields:
        raw = _of(field.type)
        if raw.pop("x-required", False):
            required.append(field.encode_name)
        if raw.pop("x-default", False):
            raw["default"] = _default(field)
        properties[field.encode_name] = {**_finished(raw), "description": described.get(field.name, "")}
    result: Schema = {
        "type": "object",
        "description": inspect.cleandoc(info.cls.__doc__ or ""),
        "properties": properties,
        **getattr(info.cls, "schema", {}),
    }
    if required:
        result["required"] = required
    if rules := getattr(info.cls, "rules", ()):
        result["x-kubernetes-validations"] = _validations(rules)
    return result


def _finished(raw: Schema) -> Schema:
    """Rules in the API server's terms."""
    rules = raw.pop("x-rules", ())
    if rules:
        raw["x-kubernetes-validations"] = raw.get("x-kubernetes-validations", []) + _validations(rules)
    return raw


def _validations(rules: tuple[Rule, ...]) -> list[dict[str, str]]:
    return [
        {"rule": rule.cel, "message": rule.text, "reason": rule.reason}
        | ({"fieldPath": rule.path} if rule.path else {})
        for rule in rules
    ]


def _default(field: Field) -> Any:
    if field.default is msgspec.NODEFAULT:
        raise TypeError(f"{field.name} has no default that the API server could write")
    return field.default


@cache
def _field_docs(kind: type) -> dict[str, str]:
    """What stands below each field of a class and of its bases, in one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("slurm_operator."):
            found.update(_documented(base))
    return found


def _documented(kind: type) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(_class_bodies(kind.__module__).get(kind.__name__, ())):
        match (field, text):
            case (ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words)))):
                yield name, " ".join(words.split())
            case _:
                continue


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    source = inspect.getsource(sys.modules[module])
    with _no_collection():
        tree = ast.parse(source)
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


@contextmanager
def _no_collection() -> Iterator[None]:
    """For ast.parse: before Python 3.11.8 it fails if a finalizer, such as one that logs a traceback, parses too."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _require_structural(node: Schema, path: str) -> None:
    """The API server would refuse it too; here the message names the field."""
    if unknown := node.keys() - _KEYWORDS:
        raise TypeError(f"{path}: {sorted(unknown)} are not allowed in a structural schema")
    if "type" not in node and not node.get(_INT_OR_STRING):
        raise TypeError(f"{path}: has no type")
    if "properties" in node and "additionalProperties" in node:
        raise TypeError(f"{path}: has both fixed and free properties")
    if node.get("type") == "array":
        _require_structural(node["items"], f"{path}[]")
    for name, child in node.get("properties", {}).items():
        _require_structural(child, f"{path}.{name}")
    if "additionalProperties" in node:
        _require_structural(node["additionalProperties"], f"{path}.*")


if __name__ == "__main__":
    for name, text in files().items():
        (Path(sys.argv[1]) / name).write_text(text)

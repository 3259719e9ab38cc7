"""The definitions: fresh, small, structural, and documented to the last field."""

import ast
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from msgspec.inspect import type_info

from slurm_operator.api import KINDS, NODESET, Kind, Object
from slurm_operator.api.crd import (
    Schema,
    _class_bodies,
    _of,
    _require_structural,
    definition,
    files,
    render_crds,
    schema,
)
from slurm_operator.api.meta import Defaulted, Model

FOLDER = Path(__file__).parents[3] / "crds"


@pytest.mark.parametrize("name", files())
def test_checked_in_files_are_fresh(name: str) -> None:
    assert (FOLDER / name).read_text() == files()[name], "run: python -m slurm_operator.api.crd crds"


def test_nothing_else_is_checked_in() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(files())


@pytest.mark.parametrize("name", files())
def test_small(name: str) -> None:
    assert len(files()[name].encode()) < 64 * 1024


def test_the_stream_holds_all_six() -> None:
    assert [document["spec"]["names"]["kind"] for document in yaml.safe_load_all(render_crds())] == [
        "Controller",
        "Accounting",
        "NodeSet",
        "LoginSet",
        "RestApi",
        "Token",
    ]


def nodes(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_says_what_it_is(kind: Kind[Object]) -> None:
    undocumented = [
        path
        for path, node in nodes(schema(kind), kind.name)
        if not node.get("description") and not path.endswith(("[]", ".metadata"))
    ]
    assert undocumented == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rules_say_what_is_wrong_and_what_to_write(kind: Kind[Object]) -> None:
    for path, node in nodes(schema(kind), kind.name):
        for rule in node.get("x-kubernetes-validations", []):
            wrong, _, hint = rule["message"].partition(": ")
            assert wrong, path
            assert hint, path
            assert len(rule["message"]) < 200, path


def test_scale_paths() -> None:
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    for kind in KINDS:
        subresources = definition(kind)["spec"]["versions"][0]["subresources"]
        assert subresources == {"status": {}} | ({"scale": scale} if kind.name in ("NodeSet", "LoginSet") else {})


def test_free_parts_are_left_open() -> None:
    spec = schema(NODESET)["properties"]["spec"]["properties"]
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for node in (spec["slurmd"], spec["logfile"], spec["template"]["properties"]["spec"]):
        assert node.items() >= open_object.items()


class Unsayable(Model):
    either: int | list[str] = 0


class NoDefault(Model):
    port: Defaulted[int]


@pytest.mark.parametrize("kind", [Unsayable, NoDefault, Annotated[Any, "anything"], float])
def test_what_no_structural_schema_can_say_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError):
        _of(type_info(kind))


@pytest.mark.parametrize(
    "node",
    [
        {"description": "no type"},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "string", "$ref": "#/x"}}},
        {"type": "array", "items": {}},
        {"type": "object", "additionalProperties": {"oneOf": []}},
    ],
)
def test_what_is_not_structural_is_refused(node: Schema) -> None:
    with pytest.raises(TypeError, match="it"):
        _require_structural(node, "it")


def test_a_collection_that_parses_does_not_disturb() -> None:
    """As one of garbage that logs a traceback does; before Python 3.11.8 a parse within a parse fails the outer one."""

    def parse(phase: str, info: dict[str, int]) -> None:
        ast.parse(f"{phase}, {info}")

    _class_bodies.cache_clear()
    often, usual = (1, 1, 1), gc.get_threshold()
    gc.callbacks.append(parse)
    gc.set_threshold(*often)
    try:
        assert "NodeSetSpec" in _class_bodies("slurm_operator.api.nodeset")
    finally:
        gc.callbacks.remove(parse)
        gc.set_threshold(*usual)

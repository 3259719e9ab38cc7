"""A long list decodes the same in whatever layout and pieces it arrives."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_operator.slurm.model import Node, Nodes
from slurm_operator.slurm.stream import ListStream

ITEMS = msgspec.json.Decoder(tuple[Node, ...])
DOCUMENT = msgspec.json.Decoder(Nodes)


def document(nodes: Sequence[dict[str, Any]], *, first: bool = True, **more: Any) -> dict[str, Any]:
    rest = {"last_update": {"set": True, "infinite": False, "number": 7}, "errors": [], **more}
    return {"nodes": nodes, **rest} if first else {**rest, "nodes": nodes}


def read(text: bytes, chunk: int) -> tuple[list[Node], Nodes, int]:
    pieces: list[Sequence[Node]] = []
    stream = ListStream("nodes", ITEMS, DOCUMENT, pieces.append)
    for at in range(0, len(text), chunk):
        stream.feed(text[at : at + chunk])
    answer = stream.finish()
    cut = [node for piece in pieces for node in piece]
    assert isinstance(answer.nodes, tuple)
    return cut + list(answer.nodes), answer, len(cut)


def many(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {"name": f"w-{at}", "energy": {"w": [{"x": 1}, {"y": 2}]}, "pad": "p" * 500, **fields} for at in range(count)
    ]


@pytest.mark.parametrize("indent", [None, 0, 2, 4])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("chunk", [1000, 1 << 16, 1 << 22])
def test_any_layout(indent: int | None, first: bool, chunk: int) -> None:
    text = json.dumps(document(many(1000), first=first), indent=indent).encode()
    nodes, answer, _ = read(text, chunk)
    assert [node.name for node in nodes] == [f"w-{at}" for at in range(1000)]
    assert answer.last_update.value == 7


def test_slurmrestds_layout_is_decoded_while_it_arrives() -> None:
    text = json.dumps(document(many(1000)), indent=2).encode()
    _, _, cut = read(text, 1 << 16)
    assert cut > 800


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "bait", ['},{"name":"fake"', "\n    },\n    {", '"nodes": [\n    {\n', "]},", "\\", '\\"},\n    {', "\u2028"]
)
def test_strings_that_look_like_the_end_of_an_item(bait: str, indent: int | None) -> None:
    text = json.dumps(document(many(400, extra=bait)), indent=indent).encode()
    nodes, _, _ = read(text, 1 << 15)
    assert [(node.name, node.extra) for node in nodes] == [(f"w-{at}", bait) for at in range(400)]


def test_a_nested_list_of_the_same_name_is_not_taken_for_it() -> None:
    nested = {"meta": {"nodes": [{"name": f"nested-{at}", "pad": "p" * 2000} for at in range(100)]}}
    text = json.dumps(nested | document(many(100)), indent=2).encode()
    nodes, _, _ = read(text, 1 << 14)
    assert {node.name for node in nodes} == {f"w-{at}" for at in range(100)}


@pytest.mark.parametrize("cut", [10, 5_000, 70_000, 300_000, -1])
def test_half_an_answer_is_refused(cut: int) -> None:
    text = json.dumps(document(many(1000)), indent=2).encode()[:cut]
    with pytest.raises(msgspec.DecodeError):
        read(text, 1 << 14)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    st.lists(st.dictionaries(st.text(min_size=1, max_size=6).map("x_{}".format), json_values, max_size=3), max_size=30),
    st.sampled_from([None, 0, 1, 2, 3]),
    st.integers(1, 40_000),
)
def test_any_document(fields: list[dict[str, Any]], indent: int | None, chunk: int) -> None:
    wanted = [{"name": f"w-{at}", "pad": "p" * 9000, **more} for at, more in enumerate(fields)]
    nodes, _, _ = read(json.dumps(document(wanted), indent=indent).encode(), chunk)
    assert [node.name for node in nodes] == [node["name"] for node in wanted]

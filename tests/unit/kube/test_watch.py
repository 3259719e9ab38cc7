"""Watch lines: cut right whatever the chunks, decoded by kind of event in any order of keys."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube import PODS, ObjectMeta, OwnerReference, Pod
from slurm_operator.kube.resource import key_of
from slurm_operator.kube.watch import (
    INITIAL_EVENTS_END,
    Added,
    Bookmark,
    Deleted,
    Failed,
    LineSplitter,
    Modified,
    Unreadable,
    decode_page,
    event_decoder,
)

decode = event_decoder(PODS.type)


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line), max_size=20),
    cuts=st.lists(st.integers(0, 400), max_size=20),
)
def test_lines_come_out_as_they_were_written_however_they_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    splitter = LineSplitter()
    found = [line for start, end in itertools.pairwise(edges) for line in splitter.feed(text[start:end])]
    assert found == lines


def test_a_line_of_megabytes_is_one_line() -> None:
    splitter = LineSplitter()
    assert not [line for _ in range(100) for line in splitter.feed(b"x" * 65536)]
    assert [len(line) for line in splitter.feed(b"\nrest")] == [6553600]


@pytest.mark.parametrize(("tag", "kind"), [("ADDED", Added), ("MODIFIED", Modified), ("DELETED", Deleted)])
@pytest.mark.parametrize("object_first", [True, False])
def test_events_about_objects(tag: str, kind: type, object_first: bool) -> None:
    pair = [("type", tag), ("object", {"kind": "Pod", "metadata": {"name": "a", "resourceVersion": "7"}})]
    event = decode(msgspec.json.encode(dict(pair[::-1] if object_first else pair)))
    assert type(event) is kind
    assert isinstance(event, Added | Modified | Deleted)
    assert isinstance(event.object, Pod)
    assert event.object.metadata.name == "a"


def test_bookmarks() -> None:
    meta: dict[str, object] = {"resourceVersion": "9", "creationTimestamp": None}
    plain = decode(msgspec.json.encode({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": meta}}))
    meta["annotations"] = {INITIAL_EVENTS_END: "true"}
    last = decode(msgspec.json.encode({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": meta}}))
    assert isinstance(plain, Bookmark)
    assert isinstance(last, Bookmark)
    assert (plain.resource_version, plain.ends_initial_events) == ("9", False)
    assert last.ends_initial_events


def test_errors() -> None:
    event = decode(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}')
    assert isinstance(event, Failed)
    assert (event.object.code, event.object.reason) == (410, "Expired")


def test_an_object_that_does_not_fit_keeps_its_name() -> None:
    event = decode(
        b'{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"b","resourceVersion":"3"},"spec":[]}}'
    )
    assert isinstance(event, Unreadable)
    assert key_of(event) == ("b", "a")
    assert "spec" in event.error
    assert event.type == "ADDED"


def test_an_object_that_does_not_fit_keeps_its_metadata() -> None:
    meta = {
        "name": "a",
        "resourceVersion": "3",
        "labels": {"l": "v"},
        "ownerReferences": [{"uid": "u", "controller": True}],
    }
    event = decode(msgspec.json.encode({"type": "ADDED", "object": {"metadata": meta, "spec": []}}))
    assert isinstance(event, Unreadable)
    assert event.metadata.labels == {"l": "v"}
    assert event.metadata.controller == OwnerReference(uid="u", controller=True)


def test_metadata_that_do_not_fit_are_reduced_to_the_identity() -> None:
    meta = {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "3", "labels": ["not", "a", "mapping"]}
    event = decode(msgspec.json.encode({"type": "MODIFIED", "object": {"metadata": meta}}))
    assert isinstance(event, Unreadable)
    assert event.metadata == ObjectMeta(name="a", namespace="b", uid="u", resource_version="3")


def test_a_page_without_items() -> None:
    page = decode_page(Pod, b'{"metadata":{"resourceVersion":"5"},"items":null}')
    assert (page.items, page.resource_version, page.continue_) == ([], "5", "")


def test_a_page_in_which_one_item_does_not_fit() -> None:
    items = [{"metadata": {"name": "good"}}, {"metadata": {"name": "bad", "namespace": "n"}, "status": 3}]
    body = msgspec.json.encode({"metadata": {"resourceVersion": "5", "continue": "more"}, "items": items})
    page = decode_page(Pod, body)
    assert [pod.metadata.name for pod in page.items] == ["good"]
    assert [key_of(entry) for entry in page.unreadable] == [("n", "bad")]
    assert page.continue_ == "more"

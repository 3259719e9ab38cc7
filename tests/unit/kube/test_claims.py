"""Claims on fields: which ones an apply needs, and that none of them gets lost on the way."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.claims import Fields, claimed

OURS, THEIRS = "slurm-operator", "kubectl-patch"
WANTED = {
    "spec": {
        "ports": [{"name": "web", "port": 80}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "strategy": {"type": "Recreate"},
    }
}
PORT = 'k:{"port":7000,"protocol":"TCP"}'
VOLUME, ANOTHER = 'k:{"name":"v"}', 'k:{"name":"theirs"}'


LIVE = {
    "spec": {
        "ports": [
            {"name": "web", "port": 7000, "protocol": "TCP"},
            {"name": "metrics", "port": 9100, "protocol": "TCP"},
        ],
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "theirs", "emptyDir": {}}],
    }
}
ADDED = 'k:{"port":9100,"protocol":"TCP"}'


def entry(manager: str, fields: Fields, operation: str = "Update", **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": fields, **more}


@pytest.mark.parametrize(
    ("refused", "theirs", "taken"),
    [
        (
            "spec.ports[1].name",
            {"f:ports": {PORT: {".": {}, "f:name": {}}}, "f:type": {}},
            {"f:ports": {PORT: {".": {}, "f:name": {}}}},
        ),
        (
            "spec.volumes[0].hostPath",
            {"f:volumes": {VOLUME: {"f:hostPath": {"f:path": {}}}, ANOTHER: {".": {}}}},
            {"f:volumes": {VOLUME: {"f:hostPath": {"f:path": {}}}}},
        ),
        (
            "spec.strategy.rollingUpdate",
            {"f:strategy": {"f:rollingUpdate": {}}},
            {"f:strategy": {"f:rollingUpdate": {}}},
        ),
        ("spec.strategy.type", {"f:strategy": {"f:type": {}, "f:rollingUpdate": {}}}, {}),
        (
            "spec.ports[1].name",
            {"f:ports": {PORT: {".": {}, "f:name": {}}, ADDED: {".": {}, "f:name": {}}}},
            {"f:ports": {PORT: {".": {}, "f:name": {}}}},
        ),
        ("spec.ports[0].nodePort", {"f:ports": {ADDED: {".": {}, "f:name": {}}}}, {}),
        ("spec.volumes[0].emptyDir.sizeLimit", {"f:volumes": {ANOTHER: {".": {}}}}, {}),
        ("spec.replicas", {"f:ports": {PORT: {".": {}}}}, {}),
        ("metadata.uid", {"f:ports": {PORT: {".": {}}}}, {}),
    ],
)
def test_what_is_in_the_way(refused: str, theirs: Fields, taken: Fields) -> None:
    before = [entry(OURS, {"f:data": {}}, "Apply"), entry(THEIRS, {"f:spec": theirs})]
    after = {found["manager"]: found["fieldsV1"] for found in claimed(before, WANTED, OURS, [refused], LIVE)}
    assert after[OURS] == {"f:data": {}, **({"f:spec": taken} if taken else {})}
    assert set(paths(after.get(THEIRS, {}))) == set(paths({"f:spec": theirs})) - set(paths({"f:spec": taken}))


def test_without_an_entry_of_ours_there_is_one_afterwards() -> None:
    theirs: Fields = {"f:spec": {"f:ports": {PORT: {".": {}}}}}
    found = claimed([entry(THEIRS, theirs, apiVersion="v1")], WANTED, OURS, ["spec.ports[1].name"], LIVE)
    assert found == [entry(OURS, theirs, "Apply", apiVersion="v1")]


def test_the_status_is_not_touched() -> None:
    entries = [entry(THEIRS, {"f:spec": {"f:ports": {PORT: {}}}}, subresource="status")]
    assert claimed(entries, WANTED, OURS, ["spec.ports[1].name"], LIVE) == entries


def test_nothing_is_written_where_nothing_is_in_the_way() -> None:
    """Also not the same entries in another order."""
    entries = [entry(THEIRS, {"f:spec": {"f:type": {}}}), entry(OURS, {"f:data": {}}, "Apply")]
    assert claimed(entries, WANTED, OURS, ["spec.clusterIP"], LIVE) == entries
    assert claimed(entries, WANTED, OURS, [], LIVE) == entries


STEPS = st.sampled_from(["f:spec", "f:ports", "f:volumes", "f:hostPath", "f:strategy", "f:type", PORT, VOLUME, ANOTHER])
TREES: st.SearchStrategy[Fields] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(STEPS, inner, max_size=3), max_leaves=8
)
REFUSED = st.lists(st.sampled_from(["spec.ports[0]", "spec.volumes[0].hostPath", "spec.strategy", "spec"]))


@given(TREES, TREES, REFUSED)
def test_no_claim_is_lost(ours: Fields, theirs: Fields, refused: list[str]) -> None:
    before = [entry(OURS, ours, "Apply"), entry(THEIRS, theirs)]
    after = claimed(before, WANTED, OURS, refused, LIVE)
    assert {path for found in after for path in paths(found["fieldsV1"])} >= {*paths(ours), *paths(theirs)}
    again = claimed(after, WANTED, OURS, refused, LIVE)
    assert again == after, "a second try finds nothing more"


def paths(tree: Fields, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not tree and above:
        yield above
    for step, node in tree.items():
        yield from [above] if step == "." else paths(node, (*above, step))

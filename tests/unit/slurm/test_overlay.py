"""What we wrote counts as seen, for exactly as long as no later read has shown it."""

import pytest

from slurm_operator.slurm.model import Node, NodeUpdate
from slurm_operator.slurm.overlay import Overlay, updated

NODE = Node(name="w-1", state=("IDLE", "DYNAMIC_NORM"))


def with_state(*words: str) -> Node:
    return Node(name="w-1", state=words)


@pytest.mark.parametrize(
    ("before", "word", "after"),
    [
        ("MIXED DYNAMIC_NORM", "DRAIN", {"MIXED", "DYNAMIC_NORM", "DRAIN"}),
        ("IDLE DRAIN", "DRAIN", {"IDLE", "DRAIN"}),
        ("IDLE DRAIN COMPLETING", "UNDRAIN", {"IDLE", "COMPLETING"}),
        ("DOWN DRAIN", "RESUME", {"IDLE"}),
        ("IDLE DYNAMIC_NORM", "DOWN", {"DOWN", "DYNAMIC_NORM"}),
        ("IDLE", "POWER_UP", {"IDLE"}),
    ],
)
def test_states_as_slurm_will_show_them(before: str, word: str, after: set[str]) -> None:
    assert set(updated(with_state(*before.split()), NodeUpdate(state=(word,))).state) == after


def test_fields_as_slurm_will_show_them() -> None:
    update = NodeUpdate(reason="r", comment="c", extra="e", features=("f",), features_act=("a",), topology_str="t:b")
    node = updated(NODE, update)
    assert (node.reason, node.comment, node.extra) == ("r", "c", "e")
    assert (node.features, node.active_features, node.topology) == (("f",), ("a",), "t:b")
    assert node.state == NODE.state


def test_a_read_that_began_before_the_acknowledgement_settles_nothing() -> None:
    overlay = Overlay()
    overlay.wrote(["w-1"], NodeUpdate(state=("DRAIN",)), acked=10)
    assert overlay.settle(8) == []
    assert overlay.settle(9) == []
    assert "DRAIN" in overlay.over({"w-1": NODE})["w-1"].state
    assert overlay.settle(11) == ["w-1"]
    assert overlay.over({"w-1": NODE})["w-1"] is NODE


def test_writes_apply_in_order_and_settle_one_by_one() -> None:
    overlay = Overlay()
    overlay.wrote(["w-1"], NodeUpdate(state=("DRAIN",), reason="r"), acked=1)
    overlay.wrote(["w-1"], NodeUpdate(state=("UNDRAIN",), reason=""), acked=3)
    assert overlay.settle(2) == []
    assert overlay.over({"w-1": NODE})["w-1"].state == NODE.state
    assert overlay.settle(4) == ["w-1"]


def test_a_single_read_settles_its_own_node_alone() -> None:
    overlay = Overlay()
    overlay.wrote(["w-1", "w-2"], NodeUpdate(comment="c"), acked=1)
    assert overlay.settle(2, ["w-2", "w-3"]) == ["w-2"]
    assert overlay.pending == {"w-1"}


def test_a_deleted_node_is_gone_at_once() -> None:
    overlay = Overlay()
    overlay.wrote(["w-1"], None, acked=1)
    assert overlay.over({"w-1": NODE}) == {}


def test_writing_to_an_unknown_node_makes_no_record() -> None:
    overlay = Overlay()
    overlay.wrote(["w-9"], NodeUpdate(comment="c"), acked=1)
    assert overlay.over({"w-1": NODE}) == {"w-1": NODE}

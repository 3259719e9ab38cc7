"""Names, ordinals and whose pod it is."""

import pytest

from slurm_operator.api import names
from slurm_operator.kube.model import OwnerReference
from slurm_operator.nodeset.identity import (
    daemon_slot,
    free_ordinals,
    may_adopt,
    ordinal_of,
    slurm_name,
    split_ordinal,
)
from tests.unit.nodeset.make import node, nodeset, pod


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("foo-0", ("foo", 0)),
        ("a-b-12", ("a-b", 12)),
        ("foo-007", ("foo", 7)),
        ("foo", ("", -1)),
        ("foo-", ("", -1)),
        (f"foo-{2**31}", ("", -1)),
    ],
)
def test_ordinal_of_a_name(name: str, parts: tuple[str, int]) -> None:
    """scenario 25"""
    assert split_ordinal(name) == parts


def test_gaps_are_filled_first() -> None:
    """scenario 27"""
    assert list(free_ordinals([0, 2, 3], 2)) == [1, 4]


def test_an_all_digit_suffix_in_daemonset_mode_is_no_ordinal() -> None:
    """scenario 37"""
    assert ordinal_of(pod("gpu-12345", labels={names.LABEL_SCALING_MODE: "DaemonSet"})) == -1


@pytest.mark.parametrize(
    ("node_name", "override", "hostname"),
    [
        ("node1.us-west-2.internal", None, "node1"),
        ("node1.us-west-2.internal", "rack7-3", "rack7-3"),
        ("node1", "", "node1"),
        ("node1-.x", None, "node1-"),
    ],
)
def test_hostname_in_daemonset_mode(node_name: str, override: str | None, hostname: str) -> None:
    """scenario 29"""
    found = node(node_name)
    if override is not None:
        found.metadata.annotations[names.ANNOTATION_HOSTNAME_OVERRIDE] = override
    assert daemon_slot(nodeset(), found).hostname == hostname


def test_daemon_pod_names_are_deterministic_and_short() -> None:
    long = "ip-10-0-0-1." + "x" * 200
    names_of = [daemon_slot(nodeset(), node(name)).name for name in (long, long, "other")]
    assert names_of[0] == names_of[1] != names_of[2]
    assert len(names_of[0]) <= 63


def orphan(name: str, instance: str = "foo") -> OwnerReference:
    return OwnerReference(kind="NodeSet", name=instance, uid="someone", controller=False)


@pytest.mark.parametrize(
    ("name", "adopted"),
    [("foo-3", True), ("foo-bar-3", False), ("foo", False), ("foo-x", False)],
)
def test_an_orphan_is_adopted_only_under_a_name_we_give(name: str, adopted: bool) -> None:
    """scenario 22, scenario 24: a non-controller owner reference is not enough to be somebody's"""
    candidate = pod(name, nodeset="foo", owner=orphan(name))
    assert may_adopt(candidate, "foo", "StatefulSet") is adopted


def test_a_pod_of_somebody_else_is_never_adopted() -> None:
    """scenario 24"""
    owner = OwnerReference(kind="NodeSet", name="foo", uid="other-uid", controller=True)
    assert not may_adopt(pod("foo-3", nodeset="foo", owner=owner), "foo", "StatefulSet")


def test_slurm_name_is_the_hostname_label() -> None:
    assert slurm_name(pod("gpu-0", labels={names.LABEL_POD_HOSTNAME: "rack-0"})) == "rack-0"

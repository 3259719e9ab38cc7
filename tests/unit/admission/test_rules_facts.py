"""What depends on more than the object itself: the cluster, the name, the request."""

from typing import Any

import pytest

from slurm_operator.admission.problem import Facts, Needs, Problem
from slurm_operator.admission.validate import load, needs, validate
from tests.unit.admission.examples import BY_NAME, Manifest, manifest

CONTROLLER = BY_NAME["Controller"]
SHARED: Manifest = {
    "ha": {"enabled": True},
    "persistence": {"existingClaim": "shared"},
    "configFileRefs": [{"name": "files"}, {"name": "more"}],
}


def paths(problems: list[Problem]) -> list[str]:
    return [problem.path for problem in problems]


def test_what_must_be_looked_up() -> None:
    assert needs(load(CONTROLLER, manifest("Controller", SHARED))) == Needs(
        frozenset({"files", "more"}), frozenset({"shared"})
    )
    assert needs(load(CONTROLLER, manifest("Controller"))) == Needs()
    assert needs(load(BY_NAME["NodeSet"], manifest("NodeSet"))) == Needs()


@pytest.mark.parametrize(
    ("claims", "refused"),
    [
        ({}, False),
        ({"shared": None}, False),
        ({"shared": frozenset({"ReadWriteMany"})}, False),
        ({"shared": frozenset({"ReadWriteOnce", "ReadWriteMany"})}, False),
        ({"shared": frozenset({"ReadWriteOnce"})}, True),
        ({"shared": frozenset()}, True),
    ],
)
def test_high_availability_needs_a_claim_that_all_can_write(claims: dict[str, Any], refused: bool) -> None:
    """scenario 173"""
    problems = validate(CONTROLLER, manifest("Controller", SHARED), None, Facts(claims=claims))
    assert paths(problems) == (["spec.persistence.existingClaim"] if refused else [])


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        (frozenset({"gres.conf"}), False),
        (frozenset(), False),
        (None, True),
        (frozenset({"slurm.conf"}), True),
        (frozenset({"slurmdbd.conf", "gres.conf"}), True),
    ],
)
def test_config_files(keys: frozenset[str] | None, refused: bool) -> None:
    problems = validate(CONTROLLER, manifest("Controller", SHARED), None, Facts(config_maps={"more": keys}))
    assert paths(problems) == (["spec.configFileRefs[1].name"] if refused else [])


@pytest.mark.parametrize(
    ("kind", "name", "accepted"),
    [
        ("Controller", "a" * 41, False),
        ("Controller", "1slurm", False),
        ("Controller", "slurm.prod", False),
        ("Accounting", "a" * 41, True),
        ("Accounting", "a" * 42, False),
        ("RestApi", "a" * 55, True),
        ("RestApi", "a" * 56, False),
        ("LoginSet", "a" * 63, True),
        ("LoginSet", "9", False),
        ("NodeSet", "a" * 61, True),
        ("NodeSet", "a" * 62, False),
        ("NodeSet", "1-gpu", True),
        ("Token", "a" * 242, True),
        ("Token", "a" * 249, False),
        ("Token", "A", False),
    ],
)
def test_names_leave_room_for_those_of_children(kind: str, name: str, accepted: bool) -> None:
    assert (validate(BY_NAME[kind], manifest(kind, name=name)) == []) == accepted


def test_a_controller_of_the_longest_name_needs_a_cluster_name() -> None:
    """scenario 189"""
    long = manifest("Controller", name="a" * 41)
    assert paths(validate(CONTROLLER, long)) == ["spec.clusterName"]
    long["spec"]["clusterName"] = "prod"
    assert validate(CONTROLLER, long) == []


def test_the_length_of_a_name_is_asked_on_creation_only() -> None:
    old = manifest("Controller", name="a" * 60)
    assert validate(CONTROLLER, old, old) == []


def test_hostnames_count_their_ordinals() -> None:
    tight: Manifest = {"template": {"spec": {"hostname": "a" * 62}}}
    nodeset = BY_NAME["NodeSet"]
    assert validate(nodeset, manifest("NodeSet", tight | {"replicas": 10})) == []
    assert paths(validate(nodeset, manifest("NodeSet", tight | {"replicas": 11}))) == ["spec.template.spec.hostname"]
    assert paths(validate(nodeset, manifest("NodeSet", tight | {"ordinalPadding": 2}))) == [
        "spec.template.spec.hostname"
    ]
    assert validate(nodeset, manifest("NodeSet", tight | {"replicas": 99, "scalingMode": "DaemonSet"})) == []


def test_an_object_that_is_being_deleted_is_never_held_up() -> None:
    broken = manifest("NodeSet", {"replicas": -1}, deletionTimestamp="2030-01-01T00:00:00Z")
    assert validate(BY_NAME["NodeSet"], broken, manifest("NodeSet")) == []


def test_an_unreadable_old_object_forbids_nothing() -> None:
    old = {**manifest("NodeSet"), "spec": {"controllerRef": 7}}
    assert validate(BY_NAME["NodeSet"], manifest("NodeSet"), old) == []
    assert validate(BY_NAME["NodeSet"], manifest("NodeSet"), {"metadata": {}}) == []


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        (7, "metadata"),
        ({"name": 7}, "metadata.name"),
        ({"labels": []}, "metadata.labels"),
        ({"labels": {"a": 1}}, "metadata.labels.a"),
        ({"annotations": {"a": True}}, "metadata.annotations.a"),
        ({"finalizers": "x"}, "metadata.finalizers"),
    ],
)
def test_broken_metadata(metadata: Any, path: str) -> None:
    assert paths(validate(BY_NAME["NodeSet"], {**manifest("NodeSet"), "metadata": metadata})) == [path]


def test_all_problems_at_once() -> None:
    """One round trip shows everything that is wrong."""
    broken = manifest("NodeSet", {"replicas": -1, "extraConf": "x", "controllerRef": {"name": ""}})
    assert sorted(paths(validate(BY_NAME["NodeSet"], broken))) == [
        "spec.controllerRef",
        "spec.extraConf",
        "spec.replicas",
    ]
    assert str(validate(BY_NAME["NodeSet"], manifest("NodeSet", {"replicas": -1}))[0]) == (
        "spec.replicas: must not be negative: write 0 or more"
    )

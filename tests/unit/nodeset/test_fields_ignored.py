"""Fields that have no effect are named by a condition, for as long as they are set."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api import names
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import Node
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import ApplyStatus
from tests.unit.nodeset.make import known, node, nodeset, revision, world
from tests.unit.nodeset.plans import planned, pods, records


def ignored(of: World) -> dict[str, Any] | None:
    (status,) = [action.manifest["status"] for action in planned(of, ApplyStatus)]
    return next((found for found in status["conditions"] if found["type"] == "FieldsIgnored"), None)


def running(**spec: Any) -> World:
    wanted = nodeset(1, **spec)
    return world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0)))


def annotated(value: str) -> Node:
    plain = node("k8s-0")
    noted = msgspec.structs.replace(plain.metadata, annotations={names.ANNOTATION_FEATURES: value} if value else {})
    return msgspec.structs.replace(plain, metadata=noted)


def test_nothing_is_said_if_every_field_has_its_effect() -> None:
    assert ignored(running()) is None


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"pinToNode": True}, "spec.pinToNode"),
        ({"scalingMode": "DaemonSet", "pruneSlurmNodeRecords": "NodeNotFound"}, "spec.pruneSlurmNodeRecords"),
        (
            {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}},
            "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
        ),
        ({"updateStrategy": {"type": "ScheduledUpdate"}}, "spec.updateStrategy.scheduledUpdate"),
    ],
)
def test_a_field_without_effect_is_named(spec: dict[str, Any], path: str) -> None:
    told = ignored(running(**spec))
    assert told is not None
    assert (told["status"], told["reason"]) == ("True", "NotImplemented")
    assert f"{path} " in told["message"]


def test_it_is_reported_once_and_ends_with_the_field() -> None:
    of = running(pinToNode=True)
    (status,) = [action.manifest["status"] for action in planned(of, ApplyStatus)]
    reported = msgspec.convert(status, NodeSetStatus)
    again = replace(of, nodeset=msgspec.structs.replace(of.nodeset, status=reported))
    assert not any(isinstance(action, ApplyStatus) for action in decide(again).actions)
    without = msgspec.structs.replace(again.nodeset.spec, pin_to_node=False)
    ended = replace(again, nodeset=msgspec.structs.replace(again.nodeset, spec=without))
    assert ignored(ended) is None


def test_features_of_kubernetes_nodes_are_named_while_a_worker_runs_there() -> None:
    of = running()
    told = ignored(replace(of, nodes={"k8s-0": annotated("a100"), "other": annotated("b")}))
    assert told is not None
    assert "features.slinky.slurm.net/spec of Node k8s-0 " in told["message"]
    assert ignored(replace(of, nodes={"k8s-0": annotated(""), "other": annotated("b")})) is None

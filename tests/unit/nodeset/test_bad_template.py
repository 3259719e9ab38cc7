"""A template that no pod can be made from: nothing is created or replaced, and everything else goes on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from slurm_operator.api import names
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.nodeset.slurm_actions import Drain, Undrain
from slurm_operator.nodeset.world import World
from tests.unit.nodeset.make import known, node, nodeset, pod, record, revision, world
from tests.unit.nodeset.plans import BUSY, condition, created, deleted, events, nodes_of, pods, records, told

NO_IMAGE = {"spec": {"containers": [{"name": "exporter"}]}}
SCRATCH: dict[str, Any] = {"metadata": {"name": "scratch"}, "spec": {}}


def affinity(**expression: Any) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}}


BAD_AFFINITIES = [
    affinity(key="gpus", operator="Gt", values=["many"]),
    affinity(key="gpus", operator="Lt", values=["1", "2"]),
    affinity(key="gpus", operator="Gt"),
    affinity(operator="Exists"),
    affinity(key="gpus", operator="In"),
    affinity(key="gpus", operator="Near", values=["8"]),
    {"spec": {"affinity": {"nodeAffinity": "k8s-1"}}},
    {"spec": {"tolerations": ["gpu"]}},
    {"spec": {"nodeSelector": "gpu"}},
]
BAD_TEMPLATES = [
    {"template": NO_IMAGE},
    {"slurmd": {}},
    {"slurmd": {"image": "slurmd", "resources": {"limits": {"memory": "lots"}}}},
    {"slurmd": {"image": "slurmd", "env": ["A=B"]}},
    {"template": {"spec": {"volumes": "none"}}},
    {"volumeClaimTemplates": [{"spec": {}}]},
    {"volumeClaimTemplates": [{"metadata": {"name": "scratch", "labels": ["fast"]}, "spec": {}}]},
    {"volumeClaimTemplates": [SCRATCH], "template": {"spec": {"volumes": [{"emptyDir": {}}]}}},
]


@pytest.mark.parametrize("change", BAD_TEMPLATES, ids=str)
def test_safety_work_goes_on_with_a_template_that_cannot_be_built(change: Mapping[str, Any]) -> None:
    """A cordoned Node is drained, a drain that is over is lifted, a surplus worker leaves; no worker is created."""
    wanted = nodeset(3, status=told("gpu-7"), **change)
    rev = revision(wanted)
    lifted = record("gpu-1", "IDLE", "DRAIN", reason="slurm-operator: Node was cordoned", ip="10.0.0.1")
    of = world(wanted, *pods(0, 1, rev=rev), slurm=known(*records(0, state=BUSY), lifted))
    of = replace(of, nodes={"k8s-0": node("k8s-0", cordoned=True), "k8s-1": node("k8s-1")})
    assert nodes_of(of, Drain) == ["gpu-0"]
    assert nodes_of(of, Undrain) == ["gpu-1"]
    assert created(of) == []
    smaller = nodeset(1, **change)
    assert nodes_of(world(smaller, *pods(0, 1, rev=rev), slurm=known(*records(0, 1))), Drain) == ["gpu-1"]


@pytest.mark.parametrize("change", BAD_TEMPLATES, ids=str)
def test_a_template_that_cannot_be_built_is_reported(change: Mapping[str, Any]) -> None:
    of = world(nodeset(1, **change))
    found = condition(of, names.CONDITION_DEGRADED)
    assert (found["status"], found["reason"]) == ("True", "InvalidTemplate")
    assert found["message"].startswith("NodeSet slurm/gpu: no worker can be created: ")
    assert "InvalidTemplate" in events(of)


def test_the_report_names_the_container_and_the_remedy() -> None:
    message = condition(world(nodeset(1, template=NO_IMAGE)), names.CONDITION_DEGRADED)["message"]
    place, remedy = "spec.template.spec.containers[0].image", "name the image that the container runs"
    assert message.endswith(f"{place}: container exporter has no image: {remedy}")


@pytest.mark.parametrize("change", BAD_TEMPLATES, ids=str)
def test_an_update_to_a_template_that_cannot_be_built_takes_no_worker_away(change: Mapping[str, Any]) -> None:
    """The worker that left would have no successor."""
    ill = pod("gpu-3", node="k8s-3", ip="10.0.0.3", revision="old", ready=False)
    of = world(nodeset(4, **change), *pods(0, 1, 2, rev="old"), ill, slurm=known(*records(0, 1, 2, 3)))
    assert nodes_of(of, Drain) == deleted(of) == []
    assert condition(of, names.CONDITION_DEGRADED)["reason"] == "InvalidTemplate"


@pytest.mark.parametrize(("template", "gone"), [({}, ["gpu-0"]), (NO_IMAGE, [])])
def test_a_worker_that_lost_its_record_to_us_stays_while_it_would_have_no_successor(
    template: Mapping[str, Any], gone: list[str]
) -> None:
    """It was being scaled in and is wanted again; with a good template it is replaced."""
    wanted = nodeset(1, status=told("gpu-0"), template=template)
    assert deleted(world(wanted, *pods(0, rev=revision(wanted)), slurm=known())) == gone


def test_a_nodeset_is_not_ready_while_workers_that_a_person_replaces_would_have_no_successor() -> None:
    wanted = nodeset(1, updateStrategy={"type": "OnDelete"}, template=NO_IMAGE)
    found = condition(world(wanted, *pods(0, rev="old"), slurm=known(*records(0))), names.CONDITION_READY)
    assert (found["status"], found["reason"]) == ("False", "InvalidTemplate")


def daemons(template: Mapping[str, Any], *, cordoned: bool = False) -> World:
    """Two Nodes, one with a worker."""
    wanted = nodeset(0, scalingMode="DaemonSet", template=template)
    labels = {names.LABEL_SCALING_MODE: "DaemonSet", names.LABEL_POD_HOSTNAME: "k8s-1"}
    here = pod("gpu-k8s-1", node="k8s-1", revision=revision(wanted), labels=labels)
    of = world(wanted, here, slurm=known(record("k8s-1", *BUSY)))
    nodes = (node("k8s-1", cordoned=cordoned, labels={"gpus": "4"}), node("k8s-2", labels={"gpus": "8"}))
    return replace(of, nodes={found.metadata.name: found for found in nodes})


@pytest.mark.parametrize("template", BAD_AFFINITIES, ids=str)
def test_placement_rules_that_cannot_be_read_move_no_worker(template: Mapping[str, Any]) -> None:
    """Which Nodes are meant is not known: no worker comes, none goes, and a cordoned Node is drained all the same."""
    of = daemons(template)
    assert created(of) == nodes_of(of, Drain) == deleted(of) == []
    assert nodes_of(daemons(template, cordoned=True), Drain) == ["k8s-1"]


@pytest.mark.parametrize("template", BAD_AFFINITIES, ids=str)
def test_a_change_to_daemons_that_cannot_be_placed_takes_no_worker_away(template: Mapping[str, Any]) -> None:
    wanted = nodeset(2, scalingMode="DaemonSet", template=template, status=NodeSetStatus(desired=2))
    of = world(wanted, *pods(0, 1, rev="old"), slurm=known(*records(0, 1)))
    assert nodes_of(of, Drain) == deleted(of) == []


@pytest.mark.parametrize("template", BAD_AFFINITIES, ids=str)
def test_placement_rules_that_cannot_be_read_are_reported(template: Mapping[str, Any]) -> None:
    found = condition(daemons(template), names.CONDITION_DEGRADED)
    assert (found["status"], found["reason"]) == ("True", "InvalidTemplate")
    assert "spec.template.spec" in found["message"]


def test_a_corrected_template_is_used_at_once() -> None:
    good = {"spec": {"containers": [{"name": "exporter", "image": "exporter"}]}}
    assert created(world(nodeset(2, template=good), slurm=known())) == ["gpu-0", "gpu-1"]


def test_a_claim_without_a_name_stops_nothing_while_a_pod_is_not_placed() -> None:
    """The claims of such a pod are looked after; they are no part of the revision."""
    wanted = nodeset(1, volumeClaimTemplates=[{"spec": {}}])
    of = world(wanted, pod("gpu-0", node="", phase="Pending", ready=None, revision=revision(wanted)))
    assert condition(of, "Degraded")["reason"] == "InvalidTemplate"

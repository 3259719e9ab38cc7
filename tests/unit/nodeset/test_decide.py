"""How a NodeSet gets and keeps its workers: scale-out, replacement, claiming, cordon, deletion, DaemonSet mode."""

from dataclasses import replace

import msgspec
import pytest

from slurm_operator.api import common, names
from slurm_operator.api.nodeset import Drain as Recorded
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import PodSpec, PodStatus
from slurm_operator.kube.model import Condition, ObjectMeta, OwnerReference
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.slurm_actions import Drain, Forget, Resume, Undrain
from slurm_operator.nodeset.world import Failures, Gone, World
from slurm_operator.runtime.actions import Create, Patch
from slurm_operator.runtime.trouble import no_controller
from slurm_operator.slurm.errors import Unreachable
from slurm_operator.slurm.known import Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from tests.unit.nodeset.make import NOW, at, known, node, nodeset, pod, record, revision, world
from tests.unit.nodeset.plans import (
    BUSY,
    DRAINED,
    OURS,
    condition,
    created,
    deleted,
    events,
    nodes_of,
    planned,
    pods,
    records,
    told,
)

# Scale out


def test_missing_workers_are_created_at_the_lowest_free_ordinals() -> None:
    """scenario 27, scenario 41"""
    wanted = nodeset(5)
    of = world(wanted, *pods(0, 2, 3, rev=revision(wanted)), slurm=known(*records(0, 2, 3)))
    assert created(of) == ["gpu-1", "gpu-4"]
    assert "ScalingUp" in events(of)


def test_scale_out_goes_on_while_slurm_is_down() -> None:
    """scenario 169"""
    assert created(world(nodeset(2), slurm=Unknown(NOW, "down"))) == ["gpu-0", "gpu-1"]


def test_without_a_controller_nothing_is_created_and_an_event_says_why() -> None:
    """scenario 42"""
    bare = world(nodeset(2))
    lost = no_controller("slurm", "nowhere")
    of = World(nodeset=bare.nodeset, controller=None, pods=(), slurm=bare.slurm, now=NOW, lacking=lost)
    assert created(of) == []
    assert "ControllerRefFailed" in events(of)


def test_trouble_is_told_once() -> None:
    lonely = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no room")
    stuck = msgspec.structs.replace(pod("gpu-0"), status=PodStatus(phase="Pending", conditions=(lonely,)))
    assert "Unschedulable" in events(world(nodeset(1), stuck))
    told = common.Condition(type="Degraded", status="True", reason="Unschedulable")
    assert "Unschedulable" not in events(world(nodeset(1, status=NodeSetStatus(conditions=(told,))), stuck))


def test_a_name_is_not_taken_twice_while_its_old_pod_ends() -> None:
    wanted = nodeset(2)
    leaving = pod("gpu-1", deleting=True, revision=revision(wanted))
    of = world(wanted, *pods(0, rev=revision(wanted)), leaving, slurm=known(*records(0)))
    assert created(of) == []
    assert "the old pod gpu-1 to end" in condition(of, "Progressing")["message"]


def test_padding_and_hostname_prefix() -> None:
    """scenario 26"""
    of = world(nodeset(1, ordinalPadding=3, template={"spec": {"hostname": "rack-"}}))
    (made,) = [a.manifest for a in planned(of, Create) if a.resource.kind == "Pod"]
    assert made["metadata"]["name"] == "gpu-000"
    assert made["spec"]["hostname"] == made["metadata"]["labels"][names.LABEL_POD_HOSTNAME] == "rack-000"
    assert made["metadata"]["labels"][names.LABEL_POD_INDEX] == "000"


# Replacement


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_finished_pod_is_replaced_under_its_name(phase: str) -> None:
    """scenario 62"""
    wanted = nodeset(1)
    assert deleted(world(wanted, pod("gpu-0", phase=phase, revision=revision(wanted)))) == ["gpu-0"]


@pytest.mark.parametrize(("count", "seconds"), [(1, 1), (3, 4), (9, 256), (20, 300)])
def test_a_pod_that_keeps_failing_waits_longer_each_time(count: int, seconds: int) -> None:
    """scenario 63"""
    waiting = world(nodeset(1), failures={"gpu-0": Failures(count, NOW - seconds + 0.5)})
    assert created(waiting) == []
    assert decide(waiting).after == pytest.approx(0.5)
    assert created(world(nodeset(1), failures={"gpu-0": Failures(count, NOW - seconds)})) == ["gpu-0"]


def test_the_stale_record_of_a_vanished_worker_goes_before_its_successor_registers() -> None:
    """scenario 97"""
    down = record("gpu-0", "DOWN", "NOT_RESPONDING", reason="slurm-operator: the pod goes away")
    of = world(nodeset(1), slurm=known(down))
    assert nodes_of(of, Forget) == ["gpu-0"]
    assert created(of) == ["gpu-0"]


@pytest.mark.parametrize(
    ("left", "makes"),
    [
        (record("gpu-0", "ALLOCATED", "NOT_RESPONDING"), []),
        (record("gpu-0", "DOWN", "DRAIN", reason="bad memory"), ["gpu-0"]),
        (record("gpu-0", "IDLE"), []),
    ],
    ids=["job", "foreign", "answering"],
)
def test_a_record_with_a_job_or_an_administrators_word_stays(left: SlurmNode, makes: list[str]) -> None:
    """A name that Slurm still counts on is not taken by a second worker."""
    of = world(nodeset(1), slurm=known(left))
    assert nodes_of(of, Forget) == []
    assert created(of) == makes


def test_a_worker_that_came_back_is_resumed() -> None:
    """scenario 97"""
    wanted = nodeset(1)
    down = records(0, state=("DOWN", "DYNAMIC_NORM"), reason="slurm-operator: the pod goes away")
    assert nodes_of(world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*down)), Resume) == ["gpu-0"]
    lost = records(0, state=("DOWN", "NOT_RESPONDING"), reason="slurm-operator: the pod goes away")
    assert nodes_of(world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*lost)), Resume) == []


def test_a_worker_that_came_back_on_a_kept_record_is_resumed() -> None:
    """Scaled in while a job named it, and out again. Without its drain and our reason it would stay DOWN."""
    wanted = nodeset(1, status=told("gpu-0"))
    going = "slurm-operator: worker pod is going away"
    back = known(*records(0, state=("DOWN", "DRAIN", "DYNAMIC_NORM"), reason=going))
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=back)
    assert nodes_of(of, Undrain) == []
    assert nodes_of(of, Resume) == ["gpu-0"]
    silent = known(*records(0, state=("DOWN", "DRAIN", "NOT_RESPONDING"), reason=going))
    assert nodes_of(replace(of, slurm=silent), Undrain) == nodes_of(replace(of, slurm=silent), Resume) == []


def test_scale_in_leaves_no_record_behind() -> None:
    """scenario 150"""
    drains = (Recorded(cause="scale-in", nodes="gpu-1", since=at(-60)),)
    wanted = nodeset(1, status=NodeSetStatus(drains=drains))
    left = record("gpu-1", "DOWN", "DRAIN", reason=OURS)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0), left))
    assert nodes_of(of, Forget) == ["gpu-1"]


# Claiming


def test_orphans_are_adopted_and_relabelled_pods_released() -> None:
    """scenario 21, scenario 22"""
    wanted = nodeset(2)
    rev = revision(wanted)
    orphan = pod("gpu-1", owner=OwnerReference(kind="X", uid="x", controller=False), revision=rev)
    moved = pod("gpu-0", labels={names.LABEL_INSTANCE: "other"}, revision=rev)
    patches = [a for a in planned(world(wanted, moved, orphans=(orphan,)), Patch) if a.resource.kind == "Pod"]
    assert {a.name: a.patch["metadata"]["ownerReferences"] is None for a in patches} == {"gpu-1": False, "gpu-0": True}


# Cordon


def test_a_cordoned_node_drains_its_worker_with_one_event() -> None:
    """scenario 81, scenario 92"""
    wanted = nodeset(1)
    only = pods(0, rev=revision(wanted))
    of = world(wanted, *only, slurm=known(*records(0)))
    cordoned = replace(of, nodes={"k8s-0": node("k8s-0", cordoned=True)})
    assert [drain.reason for drain in planned(cordoned, Drain)] == ["slurm-operator: Kubernetes node k8s-0 is cordoned"]
    assert events(cordoned).count("NodeCordon") == 1
    drains = (Recorded(cause="node-cordon", nodes="gpu-0", since=at(-1)),)
    later = nodeset(1, status=NodeSetStatus(drains=drains, desired=1, node_set_hash=revision(wanted)))
    drained = known(*records(0, state=DRAINED, reason="slurm-operator: Kubernetes node k8s-0 is cordoned"))
    again = replace(cordoned, nodeset=later, slurm=drained)
    assert events(again) == []
    assert nodes_of(again, Drain) == deleted(again) == []
    uncordoned = replace(again, nodes={"k8s-0": node("k8s-0")})
    assert nodes_of(uncordoned, Undrain) == ["gpu-0"]


@pytest.mark.parametrize("text", ["true", "True", "1"])
@pytest.mark.parametrize("strategy", ["RollingUpdate", "OnDelete"])
def test_a_users_cordon_stays_theirs(text: str, strategy: str) -> None:
    """scenario 90"""
    wanted = nodeset(1, updateStrategy={"type": strategy})
    marked = pod("gpu-0", annotations={names.ANNOTATION_POD_CORDON: text}, revision=revision(wanted))
    assert nodes_of(world(wanted, marked, slurm=known(record("gpu-0"))), Drain) == ["gpu-0"]
    drained = record("gpu-0", *DRAINED, reason="slurm-operator: the pod is cordoned by its annotation")
    of = world(wanted, marked, slurm=known(drained))
    assert nodes_of(of, Undrain) == nodes_of(of, Drain) == []
    assert [a for a in planned(of, Patch) if a.resource.kind == "Pod"] == []


def test_a_changed_reason_is_brought_up_to_date_if_it_is_ours() -> None:
    """scenario 95"""
    wanted = nodeset(1)
    marked = node("k8s-0", cordoned=True)
    marked.metadata.annotations[names.ANNOTATION_NODE_CORDON_REASON] = "GPU 3 fell off the bus"
    drained = records(0, state=DRAINED, reason="slurm-operator: Kubernetes node k8s-0 is cordoned")
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*drained))
    cordoned = replace(of, nodes={"k8s-0": marked})
    assert [drain.reason for drain in planned(cordoned, Drain)] == ["slurm-operator: GPU 3 fell off the bus"]


# Deletion


def test_a_deleted_nodeset_drains_and_waits_for_its_jobs() -> None:
    wanted = nodeset(2, deleting=True)
    of = world(wanted, *pods(0, 1, rev="r"), slurm=known(*records(0), *records(1, state=BUSY)))
    assert nodes_of(of, Drain) == ["gpu-0", "gpu-1"]
    assert deleted(of) == created(of) == []
    assert "jobs on gpu-1 to end" in condition(of, "Progressing")["message"]


def test_a_deleted_nodeset_is_let_go_when_its_workers_are() -> None:
    (release,) = planned(world(nodeset(1, deleting=True)), Patch)
    assert release.patch["metadata"]["finalizers"] == []


def test_a_deleted_nodeset_is_held_while_slurm_may_have_records_of_its_workers() -> None:
    """A record that a reservation names stays; slurmrestd fails to answer once; the record must not be left behind."""
    named = known(*records(0, state=DRAINED, reason=OURS))
    asked = Unknown(NOW, "slurmrestd does not answer", Unreachable("GET nodes/", "refused"), named)
    of = world(nodeset(1, deleting=True, status=told("gpu-0", "delete")), slurm=asked)
    assert planned(of, Patch) == []
    assert "Slurm to say whether it still has gpu-0" in condition(of, "Progressing")["message"]
    just_started = replace(of, slurm=Unknown(NOW, "not read yet"))
    assert planned(just_started, Patch) == []
    never_known = replace(of, slurm=replace(asked, last=None))
    assert len(planned(never_known, Patch)) == 1
    refused = replace(of, slurm=named, kept_records=frozenset({"gpu-0"}))
    assert len(planned(refused, Patch)) == 1
    assert planned(replace(refused, jobs=None), Patch) == []


def test_a_cluster_that_is_gone_for_good_holds_nothing() -> None:
    """Its pods are deleted first: garbage collection leaves them to their second owner."""
    of = world(nodeset(1, deleting=True), *pods(0, rev="r"), slurm=Gone("no RestApi"))
    assert planned(of, Patch) == []
    assert deleted(of) == ["gpu-0"]
    going = world(nodeset(1, deleting=True), *pods(0, rev="r", deleting=True), slurm=Gone("no RestApi"))
    (release,) = planned(going, Patch)
    assert release.patch["metadata"]["finalizers"] == []
    assert deleted(going) == []


def test_a_nodeset_is_held_before_anything_else() -> None:
    (hold,) = [a for a in planned(world(nodeset(1, held=False)), Patch) if a.resource.kind == "NodeSet"]
    assert hold.patch["metadata"]["finalizers"] == [names.FINALIZER_WORKERS]


# DaemonSet mode


def test_one_worker_per_node_that_fits() -> None:
    """scenario 67"""
    template = {"spec": {"nodeSelector": {"gpu": "yes"}}}
    bare = world(nodeset(1, scalingMode="DaemonSet", template=template))
    nodes = {name: node(name, labels={"gpu": "yes" if name != "c" else "no"}) for name in ("a", "b", "c")}
    of = replace(bare, nodes=nodes)
    assert created(of) == ["gpu-a", "gpu-b"]
    assert "NoSchedule" not in str(condition(of, "Ready"))


def test_old_mode_pods_leave_only_after_their_successors_exist() -> None:
    """scenario 64"""
    wanted = nodeset(1, scalingMode="DaemonSet")
    old = pod("gpu-0", node="a", revision=revision(wanted))
    nodes = {"a": node("a")}
    of = world(wanted, old, slurm=known(record("gpu-0")))
    before = replace(of, nodes=nodes)
    assert created(before) == ["gpu-a"]
    assert nodes_of(before, Drain) == []
    new = pod("gpu-a", node="a", phase="Pending", ready=None, ip="", labels={names.LABEL_SCALING_MODE: "DaemonSet"})
    after = replace(before, pods=(old, new))
    assert nodes_of(after, Drain) == ["gpu-0"]


@pytest.mark.parametrize(("host_network", "drained"), [(True, []), (False, ["k8s-1"])])
def test_a_hostname_override_renames_no_worker_with_the_network_of_its_node(
    host_network: bool, drained: list[str]
) -> None:
    """With hostNetwork slurmd has the name of the Node; a new pod would have it again."""
    wanted = nodeset(1, scalingMode="DaemonSet", template={"spec": {"hostNetwork": host_network}})
    labels = {names.LABEL_SCALING_MODE: "DaemonSet", names.LABEL_POD_HOSTNAME: "k8s-1"}
    worker = pod("gpu-k8s-1", revision=revision(wanted), labels=labels)
    worker = msgspec.structs.replace(worker, spec=PodSpec(node_name="k8s-1", host_network=host_network))
    renamed = ObjectMeta(name="k8s-1", annotations={names.ANNOTATION_HOSTNAME_OVERRIDE: "alpha"})
    place = msgspec.structs.replace(node("k8s-1"), metadata=renamed)
    of = replace(world(wanted, worker, slurm=known(record("k8s-1"))), nodes={"k8s-1": place})
    assert nodes_of(of, Drain) == drained

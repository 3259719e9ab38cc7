"""What the operator would do about a NodeSet: each test is a small world and the plan for it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain as Recorded
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import ControllerRevision, Pod
from slurm_operator.kube.model import OwnerReference
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.slurm_actions import Drain, Forget, RemoveDrained, Resume, Undrain
from slurm_operator.nodeset.world import Failures, Gone, World
from slurm_operator.runtime.actions import ApplyStatus, Create, Delete, Patch, RecordEvent
from slurm_operator.runtime.plan import InOrder
from slurm_operator.slurm.errors import Unreachable
from slurm_operator.slurm.known import Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from tests.unit.nodeset.make import NOW, at, known, node, nodeset, pod, record, revision, world

DRAINED = ("IDLE", "DRAIN", "DYNAMIC_NORM")
BUSY = ("MIXED", "DYNAMIC_NORM")
OURS = "slurm-operator: NodeSet slurm/gpu is scaled in"


def flat(plan: Any) -> list[Any]:
    return [part for action in plan.actions for part in (action.actions if isinstance(action, InOrder) else (action,))]


def planned(of: World, kind: type) -> list[Any]:
    return [action for action in flat(decide(of)) if isinstance(action, kind)]


def created(of: World) -> list[str]:
    return [a.manifest["metadata"]["name"] for a in planned(of, Create) if a.resource.kind == "Pod"]


def deleted(of: World) -> list[str]:
    return [a.name for a in planned(of, Delete) if a.resource.kind == "Pod"]


def nodes_of(of: World, kind: type) -> list[str]:
    return sorted(name for action in planned(of, kind) for name in action.nodes)


def events(of: World) -> list[str]:
    return [action.reason for action in planned(of, RecordEvent)]


def condition(of: World, kind: str) -> dict[str, Any]:
    (status,) = [a.manifest["status"] for a in planned(of, ApplyStatus)][:1]
    found: dict[str, Any] = next(c for c in status["conditions"] if c["type"] == kind)
    return found


def pods(*ordinals: int, rev: str, **more: Any) -> tuple[Pod, ...]:
    return tuple(pod(f"gpu-{n}", node=f"k8s-{n}", ip=f"10.0.0.{n}", revision=rev, **more) for n in ordinals)


def records(*ordinals: int, state: tuple[str, ...] = ("IDLE",), reason: str = "") -> tuple[SlurmNode, ...]:
    return tuple(record(f"gpu-{n}", *state, reason=reason, ip=f"10.0.0.{n}") for n in ordinals)


def told(nodes: str, cause: str = "scale-in") -> NodeSetStatus:
    """The status of a NodeSet that has written down that these go."""
    return NodeSetStatus(drains=(Recorded(cause=cause, nodes=nodes, since=at(-60)),))


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
    of = World(nodeset=bare.nodeset, controller=None, pods=(), slurm=bare.slurm, now=NOW)
    assert created(of) == []
    assert "ControllerRefFailed" in events(of)


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


# Scale in


def test_an_idle_victim_is_drained_first_and_the_cause_is_written_down_before() -> None:
    """scenario 50"""
    wanted = nodeset(1)
    of = world(wanted, *pods(0, 1, 2, rev=revision(wanted)), slurm=known(*records(0, 1, 2)))
    assert nodes_of(of, Drain) == ["gpu-1", "gpu-2"]
    assert deleted(of) == []
    (ordered,) = [action for action in decide(of).actions if isinstance(action, InOrder)]
    first, *rest = ordered.actions
    assert isinstance(first, ApplyStatus)
    assert first.manifest["status"]["drains"][0]["nodes"] == "gpu-[1-2]"
    assert [drain.reason for drain in rest if isinstance(drain, Drain)] == [OURS]


def test_a_drained_victim_loses_its_record_and_then_its_pod() -> None:
    """scenario 50, scenario 150"""
    wanted = nodeset(1, status=told("gpu-1"))
    both = pods(0, 1, rev=revision(wanted))
    drained = world(wanted, *both, slurm=known(*records(0), *records(1, state=DRAINED, reason=OURS)))
    assert nodes_of(drained, Forget) == ["gpu-1"]
    assert deleted(drained) == []
    assert deleted(world(wanted, *both, slurm=known(*records(0)))) == ["gpu-1"]


def test_a_busy_victim_stays_until_its_job_has_ended() -> None:
    """scenario 51"""
    wanted = nodeset(0)
    for state in (BUSY, ("ALLOCATED",), ("IDLE", "COMPLETING"), ("MIXED", "DRAIN"), ("IDLE", "DRAIN", "COMPLETING")):
        of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0, state=state, reason=OURS)))
        assert deleted(of) == [], state
        assert nodes_of(of, Forget) == [], state


def test_a_cancelled_scale_in_is_undrained() -> None:
    """scenario 52"""
    wanted = nodeset(2)
    draining = records(1, state=("MIXED", "DRAIN"), reason=OURS)
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=known(*records(0), *draining))
    assert nodes_of(of, Undrain) == ["gpu-1"]


@pytest.mark.parametrize(
    "slurm", [Unknown(NOW, "timeout"), known(*records(0, 1, state=DRAINED, reason=OURS), age=3600)], ids=["no", "old"]
)
def test_on_unknown_or_old_news_nothing_is_taken_away(slurm: Any) -> None:
    """scenario 55"""
    wanted = nodeset(0)
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=slurm)
    assert deleted(of) == nodes_of(of, Forget) == nodes_of(of, Undrain) == []
    assert "Slurm to say what runs on" in condition(of, "Progressing")["message"]


def test_what_we_only_believe_to_be_drained_does_not_count() -> None:
    wanted = nodeset(0)
    slurm = known(*records(0, state=DRAINED, reason=OURS), pending=["gpu-0"])
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=slurm)
    assert deleted(of) == nodes_of(of, Forget) == []


def test_a_pod_that_never_started_goes_at_once() -> None:
    """scenario 57"""
    wanted = nodeset(0, status=told("gpu-0"))
    stuck = pod("gpu-0", phase="Pending", ready=None, ip="", revision=revision(wanted))
    assert deleted(world(wanted, stuck, slurm=Unknown(NOW, "down"))) == ["gpu-0"]


def test_no_pod_is_taken_before_it_is_written_down_that_it_goes() -> None:
    wanted = nodeset(0)
    stuck = pod("gpu-0", phase="Pending", ready=None, ip="", revision=revision(wanted))
    of = world(wanted, stuck, slurm=known())
    assert deleted(of) == []
    (written,) = planned(of, ApplyStatus)[:1]
    assert written.manifest["status"]["drains"][0]["nodes"] == "gpu-0"


def test_a_worker_wanted_back_after_its_record_was_deleted_is_replaced() -> None:
    """Its slurmd does not register again by itself."""
    wanted = nodeset(1, status=told("gpu-0"))
    assert deleted(world(wanted, *pods(0, rev=revision(wanted)), slurm=known())) == ["gpu-0"]


def test_a_pod_that_just_became_ready_may_have_registered_since_the_read() -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    fresh = pod("gpu-0", ready_at=-2, revision=revision(wanted))
    assert deleted(world(wanted, fresh, slurm=known(age=1))) == []
    assert deleted(world(wanted, pod("gpu-0", ready_at=-60, revision=revision(wanted)), slurm=known(age=1))) == [
        "gpu-0"
    ]


def test_the_record_of_an_earlier_pod_of_that_name_proves_nothing() -> None:
    wanted = nodeset(0)
    of = world(
        wanted,
        pod("gpu-0", created=-3, ready_at=-1, ip="10.0.0.9", revision=revision(wanted)),
        slurm=known(record("gpu-0", *DRAINED, reason=OURS, ip="10.0.0.1", started=-9000)),
    )
    assert deleted(of) == nodes_of(of, Forget) == []


def test_terminating_pods_are_not_counted_twice() -> None:
    """scenario 59: pod-0 is leaving already, so scaling from 3 to 2 takes nobody else"""
    wanted = nodeset(2)
    leaving = pod("gpu-0", deleting=True, revision=revision(wanted))
    of = world(wanted, leaving, *pods(1, 2, rev=revision(wanted)), slurm=known(*records(1, 2)))
    assert deleted(of) == nodes_of(of, Drain) == created(of) == []


def test_a_foreign_drain_is_neither_changed_nor_owned() -> None:
    """scenario 85"""
    wanted = nodeset(1, status=told("gpu-1"))
    foreign = records(1, state=DRAINED, reason="bad disk")
    both = pods(0, 1, rev=revision(wanted))
    leaving = world(wanted, *both, slurm=known(*records(0), *foreign))
    assert nodes_of(leaving, Drain) == nodes_of(leaving, Forget) == []
    assert [action.node for action in planned(leaving, RemoveDrained)] == ["gpu-1"]
    staying = world(nodeset(2), *both, slurm=known(*records(0), *foreign))
    assert nodes_of(staying, Undrain) == nodes_of(staying, Drain) == []


def test_a_node_that_somebody_took_down_is_drained_without_touching_the_reason() -> None:
    wanted = nodeset(0)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0, state=("DOWN",), reason="broken fan")))
    assert [(drain.nodes, drain.reason) for drain in planned(of, Drain)] == [(("gpu-0",), "")]


def test_a_record_that_slurm_will_not_delete_does_not_hold_the_pod() -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    slurm = known(*records(0, state=DRAINED, reason=OURS))
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=slurm, kept_records=frozenset({"gpu-0"}))
    assert [action.node for action in planned(of, RemoveDrained)] == ["gpu-0"]


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
    "left",
    [
        record("gpu-0", "ALLOCATED", "NOT_RESPONDING"),
        record("gpu-0", "DOWN", "DRAIN", reason="bad memory"),
        record("gpu-0", "IDLE"),
    ],
    ids=["job", "foreign", "answering"],
)
def test_a_record_with_a_job_or_somebody_elses_word_stays(left: SlurmNode) -> None:
    of = world(nodeset(1), slurm=known(left))
    assert nodes_of(of, Forget) == []
    assert created(of) == ["gpu-0"]


def test_a_worker_that_came_back_is_resumed() -> None:
    """scenario 97"""
    wanted = nodeset(1)
    down = records(0, state=("DOWN", "DYNAMIC_NORM"), reason="slurm-operator: the pod goes away")
    assert nodes_of(world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*down)), Resume) == ["gpu-0"]
    lost = records(0, state=("DOWN", "NOT_RESPONDING"), reason="slurm-operator: the pod goes away")
    assert nodes_of(world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*lost)), Resume) == []


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


# Rolling update


def updating(count: int = 4, **spec: Any) -> Any:
    return nodeset(count, **spec)


def test_no_more_healthy_workers_leave_than_allowed() -> None:
    """scenario 116, scenario 117: 50 % of 4 are 2"""
    wanted = updating(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}})
    of = world(wanted, *pods(0, 1, 2, 3, rev="old"), slurm=known(*records(0, 1, 2, 3)))
    assert nodes_of(of, Drain) == ["gpu-2", "gpu-3"]


@pytest.mark.parametrize(
    "newcomer",
    [{"ready": False}, {"phase": "Pending", "ready": None, "ip": ""}],
    ids=["not ready", "pending"],
)
def test_an_unavailable_new_worker_uses_the_budget(newcomer: dict[str, Any]) -> None:
    """scenario 117, scenario 118"""
    wanted = updating(updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    fresh = pod("gpu-3", revision=revision(wanted), **{"ip": "10.0.0.3", **newcomer})
    of = world(wanted, *pods(0, 1, 2, rev="old"), fresh, slurm=known(*records(0, 1, 2)))
    assert nodes_of(of, Drain) == deleted(of) == []


def test_a_missing_worker_uses_the_budget() -> None:
    """scenario 117"""
    wanted = updating(updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    leaving = pod("gpu-3", deleting=True, revision="old")
    of = world(wanted, *pods(0, 1, 2, rev="old"), leaving, slurm=known(*records(0, 1, 2)))
    assert nodes_of(of, Drain) == []


def test_unhealthy_old_workers_go_outside_of_the_budget() -> None:
    """scenario 117"""
    wanted = updating(updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    ill = pod("gpu-0", ready=False, ip="10.0.0.0", revision="old")
    fresh = pod("gpu-3", ready=False, ip="10.0.0.3", revision=revision(wanted))
    of = world(wanted, ill, *pods(1, 2, rev="old"), fresh, slurm=known(*records(0, 1, 2)))
    assert nodes_of(of, Drain) == ["gpu-0"]


def test_the_next_victim_waits_for_min_ready_seconds() -> None:
    """scenario 128"""
    wanted = updating(2, minReadySeconds=60, updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    fresh = pod("gpu-1", ready_at=-30, ip="10.0.0.1", revision=revision(wanted))
    of = world(wanted, *pods(0, rev="old"), fresh, slurm=known(*records(0, 1)))
    assert nodes_of(of, Drain) == []
    assert decide(of).after == pytest.approx(30.1)


def test_an_update_begun_is_finished_before_the_next_begins() -> None:
    drains = (Recorded(cause="update", nodes="gpu-0", since=at(-60)),)
    wanted = updating(2, status=NodeSetStatus(drains=drains), updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    reason = "slurm-operator: NodeSet slurm/gpu is being updated"
    busy = record("gpu-0", "MIXED", "DRAIN", reason=reason, ip="10.0.0.0")
    of = world(wanted, *pods(0, 1, rev="old"), slurm=known(busy, *records(1)))
    assert nodes_of(of, Drain) == nodes_of(of, Undrain) == []


def test_on_delete_replaces_nobody() -> None:
    """scenario 120"""
    wanted = updating(updateStrategy={"type": "OnDelete"})
    of = world(wanted, *pods(0, 1, 2, 3, rev="old"), slurm=known(*records(0, 1, 2, 3)))
    assert nodes_of(of, Drain) == deleted(of) == []


@pytest.mark.parametrize(
    ("change", "rolls"),
    [
        ({"partition": {"enabled": True, "config": "State=UP"}}, False),
        ({"updateStrategy": {"type": "OnDelete"}}, False),
        ({"extraConf": "Features=a"}, True),
        ({"slurmd": {"image": "other"}}, True),
        ({"logfile": {"image": "other"}}, True),
        ({"ordinalPadding": 2}, True),
        ({"oversubscribeNode": True}, True),
        ({"ssh": {"enabled": True, "sssdConfRef": {"name": "s", "key": "k"}}}, True),
    ],
)
def test_what_makes_a_new_revision(change: dict[str, Any], rolls: bool) -> None:
    """scenario 124"""
    assert (revision(nodeset(1, **change)) != revision(nodeset(3))) is rolls


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


def test_a_cluster_that_is_gone_for_good_holds_nothing() -> None:
    of = world(nodeset(1, deleting=True), *pods(0, rev="r"), slurm=Gone("no RestApi"))
    (release,) = planned(of, Patch)
    assert release.patch["metadata"]["finalizers"] == []
    assert deleted(of) == []


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


# Rest


def settled(count: int = 2) -> World:
    wanted = nodeset(count)
    ordinals = range(count)
    of = world(wanted, *pods(*ordinals, rev=revision(wanted)), slurm=known(*records(*ordinals)))
    (status,) = [a.manifest["status"] for a in planned(of, ApplyStatus)]
    (made,) = [a.manifest for a in planned(of, Create) if a.resource.kind == "ControllerRevision"]
    reported = nodeset(count, status=msgspec.convert(status, NodeSetStatus))
    return replace(of, nodeset=reported, revisions=(msgspec.convert(made, ControllerRevision),))


def test_at_rest_there_is_nothing_to_do() -> None:
    """scenario 112"""
    of = settled()
    assert decide(of).actions == ()
    assert of.nodeset.status.condition("Ready").status == "True"  # type: ignore[union-attr] # it is there


def test_losing_slurm_changes_the_report_and_nothing_else() -> None:
    of = settled()
    lost = replace(of, slurm=Unknown(NOW, "slurmrestd does not answer", error=Unreachable("GET nodes/")))
    assert [type(action) for action in decide(lost).actions] == [ApplyStatus]
    assert condition(lost, "SlurmReachable")["message"] == "slurmrestd does not answer"
    assert condition(lost, "Ready")["status"] == "True"


def test_a_new_process_repeats_what_the_last_one_said_until_slurm_has_had_time_to_answer() -> None:
    """The first pass after a restart writes nothing."""
    asking = replace(settled(), slurm=Unknown(NOW - 1, "not read yet"))
    assert decide(asking).actions == ()
    assert decide(asking).after == pytest.approx(9)
    assert condition(replace(asking, slurm=Unknown(NOW - 11, "not read yet")), "SlurmReachable")["status"] == "False"

"""Which evidence lets a worker, its record or its name go. Each case would have cost a running or a waiting job."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api import names
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import RUNNING, ContainerState, ContainerStatus, Pod, PodSpec, Taint, Waiting
from slurm_operator.kube.model import Condition
from slurm_operator.nodeset.decide import WAITING_SECONDS, decide
from slurm_operator.nodeset.slurm_actions import Drain, Forget, RemoveDrained, Undrain
from slurm_operator.nodeset.world import FRESH_SECONDS, Standing
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.known import Unknown
from tests.unit.nodeset.make import NOW, at, job_list, known, node, nodeset, pod, record, revision, world
from tests.unit.nodeset.plans import (
    BUSY,
    DRAINED,
    OURS,
    condition,
    created,
    deleted,
    nodes_of,
    planned,
    pods,
    records,
    told,
)

NOT_RESPONDING = "Not responding"


def with_status(of: Pod, **change: Any) -> Pod:
    return msgspec.structs.replace(of, status=msgspec.structs.replace(of.status, **change))


# Records that jobs and reservations name


@pytest.mark.parametrize(
    ("users", "said"),
    [
        ({"naming": {"gpu-1": (12,)}}, "job 12"),
        ({"holding": {"gpu-1": (13,)}}, "job"),
        ({"reserved": {"gpu-1": ("exam",)}}, "reservation exam"),
        ({"skipped": (14,)}, "job 14"),
    ],
)
def test_a_record_that_is_named_stays(users: dict[str, Any], said: str) -> None:
    """At the next reconfigure slurmctld would end the job, or change the reservation."""
    wanted = nodeset(1, status=told("gpu-1"))
    drained = known(*records(0), *records(1, state=DRAINED, reason=OURS))
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=drained, jobs=job_list(**users))
    assert nodes_of(of, Forget) == []
    gone = world(wanted, *pods(0, rev=revision(wanted)), slurm=drained, jobs=job_list(**users))
    assert nodes_of(gone, Forget) == []
    assert said in condition(gone, "Progressing")["message"]
    after = decide(gone).after
    assert after is not None
    assert after <= 60
    (status,) = [a for a in planned(gone, object) if type(a).__name__ == "ApplyStatus"]
    assert [entry["nodes"] for entry in status.manifest["status"]["drains"]] == ["gpu-1"]


def test_scaled_in_the_pod_goes_and_the_named_record_stays_drained() -> None:
    wanted = nodeset(1, status=told("gpu-1"))
    drained = known(*records(0), *records(1, state=DRAINED, reason=OURS))
    named = job_list(naming={"gpu-1": (12,)})
    of = world(wanted, *pods(0, 1, rev=revision(wanted)), slurm=drained, jobs=named)
    assert [action.node for action in planned(of, RemoveDrained)] == ["gpu-1"]
    gone = world(wanted, *pods(0, rev=revision(wanted)), slurm=drained, jobs=named)
    assert nodes_of(gone, Undrain) == nodes_of(gone, Forget) == []
    free = replace(gone, jobs=job_list())
    assert nodes_of(free, Forget) == ["gpu-1"]


def test_a_rolling_update_leaves_a_named_worker_in_service_and_goes_on_with_others() -> None:
    wanted = nodeset(2, updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    named = job_list(naming={"gpu-0": (12,)}, reserved={"gpu-0": ("exam",)})
    of = world(wanted, *pods(0, 1, rev="old"), slurm=known(*records(0, 1)), jobs=named)
    assert nodes_of(of, Drain) == ["gpu-1"]
    assert "job 12, reservation exam to end, which name gpu-0" in condition(of, "Progressing")["message"]
    undrained = world(
        nodeset(2, status=told("gpu-0", "update"), updateStrategy={"rollingUpdate": {"maxUnavailable": 1}}),
        *pods(0, 1, rev="old"),
        slurm=known(*records(0, state=DRAINED, reason=OURS), *records(1)),
        jobs=named,
    )
    assert nodes_of(undrained, Undrain) == ["gpu-0"]  # a pending job that asks for it could never run otherwise


def test_a_broken_worker_that_is_named_is_replaced_and_its_record_stays() -> None:
    """Otherwise the pending job would wait for the worker, and the worker for the job."""
    strategy = {"rollingUpdate": {"maxUnavailable": 1}}
    named = job_list(naming={"gpu-0": (12,)})
    wanted = nodeset(1, updateStrategy=strategy)
    down = known(*records(0, state=("DOWN", "NOT_RESPONDING"), reason=NOT_RESPONDING))
    assert nodes_of(world(wanted, *pods(0, rev="old"), slurm=down, jobs=named), Drain) == ["gpu-0"]
    drained = known(*records(0, state=("DOWN", "DRAIN", "NOT_RESPONDING"), reason=OURS))
    going = nodeset(1, updateStrategy=strategy, status=told("gpu-0", "update"))
    of = world(going, *pods(0, rev="old"), slurm=drained, jobs=named)
    assert [action.node for action in planned(of, RemoveDrained)] == ["gpu-0"]
    assert nodes_of(of, Forget) == []


def test_a_job_that_asked_for_the_node_it_runs_on_does_not_stop_its_update() -> None:
    wanted = nodeset(1)
    own = job_list(naming={"gpu-0": (12,)}, holding={"gpu-0": (12,)})
    of = world(wanted, *pods(0, rev="old"), slurm=known(*records(0, state=BUSY)), jobs=own)
    assert nodes_of(of, Drain) == ["gpu-0"]


def test_a_deleted_nodeset_stays_until_no_job_names_its_records() -> None:
    wanted = nodeset(1, deleting=True, status=told("gpu-0", "delete"))
    left = known(*records(0, state=DRAINED, reason=OURS))
    assert "patch NodeSet" not in str(decide(world(wanted, slurm=left, jobs=job_list(naming={"gpu-0": (12,)}))))
    assert "patch NodeSet" in str(decide(world(wanted, slurm=known())))


# What is hidden by the node's state


def test_a_suspended_job_holds_its_node_although_the_node_shows_idle() -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    drained = known(*records(0, state=DRAINED, reason=OURS))
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=drained, jobs=job_list(holding={"gpu-0": (7,)}))
    assert of.workers[0].standing is Standing.BUSY
    assert deleted(of) == nodes_of(of, Forget) == planned(of, RemoveDrained) == []


@pytest.mark.parametrize("began", [None, 899.0], ids=["not read", "read before the drain"])
def test_nothing_goes_before_the_jobs_were_listed_after_the_drain(began: float | None) -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    drained = known(*records(0, state=DRAINED, reason=OURS))
    jobs = None if began is None else replace(job_list(), began_at=began)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=drained, jobs=jobs)
    assert of.workers[0].standing is Standing.UNLISTED
    assert deleted(of) == nodes_of(of, Forget) == planned(of, RemoveDrained) == []
    assert "the list of jobs" in condition(of, "Progressing")["message"]


# The record outranks the phase


def stuck_sidecar(rev: str) -> Pod:
    """A pod whose slurmd runs beside a sidecar that cannot be pulled: the kubelet reports Pending."""
    statuses = (
        ContainerStatus(name="slurmd", ready=True, state=ContainerState(running=RUNNING)),
        ContainerStatus(name="exporter", state=ContainerState(waiting=Waiting(reason="ImagePullBackOff"))),
    )
    return with_status(pod("gpu-0", phase="Pending", ready=False, revision=rev), container_statuses=statuses)


@pytest.mark.parametrize("slurm", [known(record("gpu-0", "ALLOCATED")), Unknown(NOW, "slurmrestd is down")])
def test_a_pending_pod_whose_slurmd_runs_is_no_pod_that_never_started(slurm: Any) -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    of = world(wanted, stuck_sidecar(revision(wanted)), slurm=slurm)
    assert of.workers[0].standing is not Standing.NEVER_STARTED
    assert deleted(of) == []


def test_workers_with_a_stuck_sidecar_are_replaced_within_the_budget() -> None:
    wanted = nodeset(4)
    four = [
        msgspec.structs.replace(p, status=msgspec.structs.replace(stuck_sidecar("old").status, pod_ip=p.status.pod_ip))
        for p in pods(0, 1, 2, 3, rev="old")
    ]
    of = world(wanted, *four, slurm=known(*records(0, 1, 2, 3)))
    assert len(nodes_of(of, Drain)) == 1


def test_a_pending_pod_that_slurm_knows_is_judged_by_its_record() -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    of = world(
        wanted,
        pod("gpu-0", phase="Pending", ready=False, revision=revision(wanted)),
        slurm=known(record("gpu-0", "ALLOCATED")),
    )
    assert of.workers[0].standing is Standing.BUSY


# Workers in the network of their Node


def test_a_worker_in_the_hosts_network_is_found_under_the_nodes_name() -> None:
    wanted = nodeset(0, status=told("k8s-1"))
    shared = pod("gpu-0", node="k8s-1.example.com", ip="192.0.2.11", revision=revision(wanted))
    shared = msgspec.structs.replace(shared, spec=PodSpec(node_name="k8s-1.example.com", host_network=True))
    of = world(wanted, shared, slurm=known(record("k8s-1", "ALLOCATED", ip="192.0.2.11")))
    assert of.workers[0].name == "k8s-1"
    assert of.workers[0].standing is Standing.BUSY
    assert deleted(of) == []


def test_a_pod_at_the_address_of_a_record_is_registered_under_whatever_name() -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    of = world(
        wanted,
        pod("gpu-0", ip="192.0.2.11", revision=revision(wanted)),
        slurm=known(record("renamed", "ALLOCATED", ip="192.0.2.11")),
    )
    assert of.workers[0].standing is Standing.UNSURE
    assert deleted(of) == []
    assert "node renamed at the same address 192.0.2.11" in condition(of, "Progressing")["message"]


@pytest.mark.parametrize(("users", "goes"), [({}, ["gpu-0"]), ({"holding": {"gpu-7": (3,)}}, [])])
def test_a_kept_record_does_not_hold_a_later_pod_at_its_address(users: dict[str, Any], goes: list[str]) -> None:
    """A reservation for next year names gpu-7, whose pod is gone; the address was given to another pod."""
    wanted = nodeset(0, status=told("gpu-0"))
    kept = record("gpu-7", *DRAINED, reason=OURS, ip="192.0.2.11")
    jobs = job_list(reserved={"gpu-7": ("exam",)}, **users)
    of = world(wanted, pod("gpu-0", ip="192.0.2.11", revision=revision(wanted)), slurm=known(kept), jobs=jobs)
    assert deleted(of) == goes


# No record is believed late, and not against other evidence


def test_a_read_before_the_start_of_slurmd_proves_nothing() -> None:
    """The pod started long ago and pulled images; slurmd started after the read began."""
    wanted = nodeset(0, status=told("gpu-0"))
    late = with_status(pod("gpu-0", ready=False, created=-200, revision=revision(wanted)), slurmd_started_at=at(-10))
    assert deleted(world(wanted, late, slurm=known(age=12.0))) == []
    assert deleted(world(wanted, late, slurm=known(age=1.0))) == ["gpu-0"]


def test_our_own_deletion_is_no_proof_until_a_read_confirms_it() -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    one = pods(0, rev=revision(wanted))
    assert deleted(world(wanted, *one, slurm=known(pending=["gpu-0"]))) == []
    assert deleted(world(wanted, *one, slurm=known())) == ["gpu-0"]


@pytest.mark.parametrize("by", ["label", "condition"])
def test_a_slurmctld_that_lost_its_state_does_not_outweigh_what_the_pod_says(by: str) -> None:
    wanted = nodeset(0, status=told("gpu-0"))
    labels = {names.LABEL_POD_PROTECT: names.TRUE} if by == "label" else {}
    busy = pod("gpu-0", revision=revision(wanted), labels=labels)
    if by == "condition":
        allocated = Condition(type="SlurmNodeStateAllocated", status="True")
        busy = with_status(busy, conditions=(*busy.status.conditions, allocated))
    of = world(wanted, busy, slurm=known())
    assert deleted(of) == []
    assert "restore slurmctld's state" in condition(of, "Progressing")["message"]


def test_a_record_stays_while_its_pod_says_that_jobs_run() -> None:
    """Otherwise the label could never be taken off again: without a record there is no proof that the job has ended."""
    wanted = nodeset(0, status=told("gpu-0"))
    drained = known(*records(0, state=DRAINED, reason=OURS))
    marked = pod("gpu-0", ip="10.0.0.0", revision=revision(wanted), labels={names.LABEL_POD_PROTECT: names.TRUE})
    assert nodes_of(world(wanted, marked, slurm=drained), Forget) == []


# Names that live elsewhere


@pytest.mark.parametrize("state", [("ALLOCATED",), ("IDLE",), ("IDLE", "NOT_RESPONDING")])
def test_a_name_that_lives_elsewhere_is_not_taken(state: tuple[str, ...]) -> None:
    wanted = nodeset(2)
    of = world(wanted, slurm=known(record("gpu-0", *state, ip="10.9.9.9")))
    assert created(of) == ["gpu-1"]
    assert nodes_of(of, Forget) == []
    assert "gpu-0 to be free: a Slurm node at 10.9.9.9" in condition(of, "Progressing")["message"]
    assert condition(of, "Ready")["status"] == "False"
    assert created(replace(of, departed=frozenset({"10.9.9.9"}))) == ["gpu-0", "gpu-1"]


def test_the_record_of_a_stranger_is_not_deleted_while_it_does_not_answer() -> None:
    of = world(nodeset(1), slurm=known(record("gpu-0", "IDLE", "NOT_RESPONDING", ip="10.9.9.9")))
    assert nodes_of(of, Forget) == []
    assert nodes_of(replace(of, departed=frozenset({"10.9.9.9"})), Forget) == ["gpu-0"]


def test_a_twin_of_another_nodeset_is_reported() -> None:
    of = world(nodeset(1), neighbours={"gpu-0": "Pod b-0 of NodeSet b"})
    assert created(of) == []
    degraded = condition(of, "Degraded")
    assert degraded["reason"] == "NameTaken"
    assert "Pod b-0 of NodeSet b has that name in Slurm" in degraded["message"]
    assert "template.spec.hostname" in degraded["message"]


def test_two_nodes_of_one_short_name_get_one_worker() -> None:
    nodes = {name: node(name) for name in ("n1.east", "n1.west", "n2.east")}
    of = replace(world(nodeset(0, scalingMode="DaemonSet")), nodes=nodes)
    assert created(of) == ["gpu-n1.east", "gpu-n2.east"]
    assert "a worker n1 cannot be created: Pod gpu-n1.east has that name" in condition(of, "Degraded")["message"]


# Nodes that are gone


def test_a_worker_keeps_its_drain_when_its_node_vanishes() -> None:
    wanted = nodeset(1)
    drained = known(*records(0, state=DRAINED, reason="slurm-operator: Kubernetes node k8s-0 is cordoned"))
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=drained)
    assert nodes_of(of, Undrain) == ["gpu-0"]
    assert nodes_of(replace(of, nodes={}), Undrain) == []


@pytest.mark.parametrize("gone", ["deleted", "out of service"])
def test_a_worker_on_a_dead_node_goes_once_slurm_has_given_up_its_jobs(gone: str) -> None:
    wanted = nodeset(1)
    out = node("k8s-0", taints=(Taint(key=names.TAINT_OUT_OF_SERVICE, effect="NoExecute"),))
    nodes = {} if gone == "deleted" else {"k8s-0": out}

    def of(*state: str, holding: dict[str, tuple[int, ...]] | None = None) -> Any:
        slurm = known(*records(0, state=state, reason=NOT_RESPONDING))
        jobs = job_list(holding=holding or {})
        return replace(world(wanted, *pods(0, rev=revision(wanted)), slurm=slurm, jobs=jobs), nodes=nodes)

    assert deleted(of("ALLOCATED")) == deleted(of("ALLOCATED", "NOT_RESPONDING")) == deleted(of("IDLE")) == []
    assert deleted(of("DOWN", "NOT_RESPONDING", holding={"gpu-0": (1,)})) == []
    assert deleted(of("DOWN", "NOT_RESPONDING", "COMPLETING")) == []
    given_up = of("DOWN", "NOT_RESPONDING")
    assert deleted(given_up) == ["gpu-0"]
    old = known(*records(0, state=("DOWN", "NOT_RESPONDING"), reason=NOT_RESPONDING), age=FRESH_SECONDS + 1)
    assert deleted(replace(given_up, slurm=old)) == []
    for jobs in (None, JobList(999.0 - FRESH_SECONDS)):
        unlisted = replace(given_up, jobs=jobs)
        assert deleted(unlisted) == []
        assert decide(unlisted).after == WAITING_SECONDS


def test_a_node_that_cannot_be_read_is_not_gone() -> None:
    wanted = nodeset(1)
    slurm = known(*records(0, state=("DOWN", "NOT_RESPONDING"), reason=NOT_RESPONDING))
    of = replace(world(wanted, *pods(0, rev=revision(wanted)), slurm=slurm), nodes={})
    assert deleted(of) == ["gpu-0"]
    assert deleted(replace(of, unreadable_nodes=frozenset({"k8s-0"}))) == []


def test_a_silent_node_alone_costs_no_worker() -> None:
    wanted = nodeset(1)
    slurm = known(*records(0, state=("DOWN", "NOT_RESPONDING"), reason=NOT_RESPONDING))
    assert deleted(world(wanted, *pods(0, rev=revision(wanted)), slurm=slurm)) == []


# Objects that cannot be read


def test_nothing_goes_comes_or_is_undrained_while_a_pod_cannot_be_read() -> None:
    wanted = nodeset(3, deleting=True, status=NodeSetStatus())
    assert "patch NodeSet" not in str(decide(world(wanted, unreadable=("gpu-0",))))
    staying = nodeset(3, status=told("gpu-2"))
    drained = known(*records(1, state=DRAINED, reason=OURS), *records(2, state=DRAINED, reason=OURS))
    of = world(staying, *pods(1, rev=revision(staying)), slurm=drained, unreadable=("gpu-0",))
    assert created(of) == deleted(of) == nodes_of(of, Undrain) == nodes_of(of, Forget) == []
    assert condition(of, "Degraded")["reason"] == "UnreadablePod"


def test_no_other_pod_is_removed_while_one_cannot_be_read() -> None:
    scaled_in = nodeset(0, status=told("gpu-0"))
    unregistered = world(scaled_in, *pods(0, rev=revision(scaled_in)), slurm=known())
    down = known(*records(0, state=("DOWN", "NOT_RESPONDING"), reason=NOT_RESPONDING))
    lost = replace(world(nodeset(1), *pods(0, rev=revision(nodeset(1))), slurm=down), nodes={})
    for of in (unregistered, lost):
        assert deleted(of) == ["gpu-0"]
        assert deleted(replace(of, unreadable=("gpu-1",))) == []


def test_a_pod_that_cannot_be_read_is_looked_at_again() -> None:
    """Its changes wake no reconciler."""
    wanted = nodeset(1)
    of = world(wanted, *pods(0, rev=revision(wanted)), slurm=known(*records(0)))
    assert decide(of).after is None
    assert decide(replace(of, unreadable=("gpu-1",))).after == WAITING_SECONDS


# What administrators set


@pytest.mark.parametrize("state", [("DOWN",), ("IDLE", "FAIL"), ("IDLE", "DRAIN")])
def test_an_administrators_claim_keeps_its_reason(state: tuple[str, ...]) -> None:
    wanted = nodeset(0)
    claimed = known(record("gpu-0", *state, reason="GPU 3 fell off the bus"))
    of = world(wanted, pod("gpu-0", revision=revision(wanted)), slurm=claimed)
    assert [drain.reason for drain in planned(of, Drain)] in ([], [""])


def test_the_record_of_a_worker_that_an_administrator_took_down_stays() -> None:
    down = known(record("gpu-0", "DOWN", reason="burnt"))
    assert nodes_of(world(nodeset(0, status=told("gpu-0")), slurm=down), Forget) == []
    silent = known(record("gpu-0", "DOWN", "NOT_RESPONDING", reason=NOT_RESPONDING))
    assert nodes_of(world(nodeset(0, status=told("gpu-0")), slurm=silent), Forget) == ["gpu-0"]


@pytest.mark.parametrize(("by", "reasons"), [("slurm", [OURS]), ("root", [])])
def test_a_worker_that_slurmctld_rejected_is_in_no_administrators_hands(by: str, reasons: list[str]) -> None:
    """Its drain becomes ours, so that its record goes and a corrected successor registers anew."""
    wanted = nodeset(0)
    rejected = record("gpu-0", "IDLE", "DRAIN", "INVALID_REG", reason="Low RealMemory")
    rejected = msgspec.structs.replace(rejected, reason_set_by_user=by)
    of = world(wanted, pod("gpu-0", revision=revision(wanted)), slurm=known(rejected))
    assert [drain.reason for drain in planned(of, Drain)] == reasons

"""Why pods do not run, in words that name the object and the cure."""

import pytest

from slurm_operator.api import names
from slurm_operator.kube.kinds import (
    ContainerState,
    ContainerStatus,
    Deployment,
    Pod,
    PodSpec,
    PodStatus,
    StatefulSet,
    Terminated,
    Waiting,
    WorkloadSpec,
)
from slurm_operator.kube.model import Condition, ObjectMeta
from slurm_operator.runtime.daemon import Daemon
from slurm_operator.runtime.trouble import trouble_of


def pod(
    *,
    terminating: bool = False,
    name: str = "p",
    init: bool = False,
    labels: dict[str, str] | None = None,
    **status: object,
) -> Pod:
    gone = "2027-01-15T08:00:00Z" if terminating else None
    containers = status.pop("container", None)
    if containers is not None:
        status["init_container_statuses" if init else "container_statuses"] = (containers,)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="slurm", deletion_timestamp=gone, labels=labels or {}),
        spec=PodSpec(node_name="k8s-1"),
        status=PodStatus(**status),  # type: ignore[arg-type]  # a table of fields
    )


def waiting(
    reason: str, restarts: int = 5, exit_code: int | None = None, message: str = "", log: str = ""
) -> ContainerStatus:
    ended = Terminated(exit_code=exit_code or 0, message=log)
    last = ContainerState(terminated=ended) if exit_code is not None else ContainerState()
    state = ContainerState(waiting=Waiting(reason=reason, message=message))
    return ContainerStatus(name="main", state=state, last_state=last, restart_count=restarts)


def running(restarts: int, exit_code: int, *, ready: bool = False) -> ContainerStatus:
    """One that was started again, and may be on its way to the next end."""
    last = ContainerState(terminated=Terminated(exit_code=exit_code))
    return ContainerStatus(name="slurmd", ready=ready, restart_count=restarts, last_state=last)


WORKER = {names.LABEL_APP: names.APP_SLURMD}
APART = Condition(
    type="PodScheduled",
    status="False",
    reason="Unschedulable",
    message="0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules",
)
LOG = "[2026-11-16T12:11:23.321] error: odd\n[2026-11-16T12:11:24.097] fatal: bad\nbye\n"
UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no CPU")
UNKNOWN = Condition(type="Ready", status="Unknown")


@pytest.mark.parametrize(
    ("found", "reason", "named"),
    [
        (pod(), "", ""),
        (pod(conditions=(UNSCHEDULABLE,)), "Unschedulable", "pod slurm/p fits no node: no CPU"),
        (pod(conditions=(APART,), labels=WORKER), "Unschedulable", "oversubscribeNode: true lets workers share a node"),
        (pod(conditions=(UNKNOWN,)), "NodeLost", "its node k8s-1 does not answer"),
        (pod(conditions=(UNKNOWN,), terminating=True), "NodeLost", "k8s-1"),
        (pod(reason="NodeLost"), "NodeLost", "k8s-1"),
        (pod(container=waiting("ErrImagePull", message="not found")), "ErrImagePull", "not found"),
        (pod(container=waiting("ErrImagePull"), init=True), "ErrImagePull", "container main"),
        (pod(container=waiting("ErrImagePull"), terminating=True), "", ""),
        (pod(container=waiting("CreateContainerConfigError")), "CreateContainerConfigError", "create the Secret"),
        (pod(container=waiting("CrashLoopBackOff", 1)), "", ""),
        (pod(container=waiting("CrashLoopBackOff", 2, exit_code=3)), "CrashLoopBackOff", "again with exit code 3; see"),
        (
            pod(container=waiting("CrashLoopBackOff", 2, 1, "back-off", LOG)),
            "CrashLoopBackOff",
            "1: error: odd; fatal: bad; see",
        ),
        (pod(container=waiting("CrashLoopBackOff", 2, 1, "back-off", "\n")), "CrashLoopBackOff", "code 1; see"),
        (pod(container=running(2, exit_code=1)), "CrashLoopBackOff", "container slurmd"),
        (pod(container=running(2, exit_code=1)), "CrashLoopBackOff", "check extraConf"),
        (pod(container=running(2, exit_code=1, ready=True)), "", ""),
        (pod(container=running(2, exit_code=0)), "", ""),
        (pod(container=running(1, exit_code=1)), "", ""),
        (pod(container=waiting("ContainerCreating")), "", ""),
        (pod(container=ContainerStatus(name="main")), "", ""),
        (pod(phase="Failed", reason="Evicted", message="disk full"), "Evicted", "disk full"),
        (pod(phase="Failed"), "PodFailed", "see its events"),
    ],
)
def test_what_keeps_a_pod_from_running(found: Pod, reason: str, named: str) -> None:
    trouble = trouble_of([found])
    assert (trouble.reason if trouble else "") == reason
    assert named in (trouble.message if trouble else "")


def test_only_workers_are_told_to_share_a_node() -> None:
    """The field of a NodeSet is no help for slurmctld, which may have anti-affinity of its own."""
    found = trouble_of([pod(conditions=(APART,))])
    assert found is not None
    assert "oversubscribeNode" not in found.message


def test_a_node_that_is_known_to_be_lost_is_named_whatever_the_pod_says() -> None:
    running = pod(conditions=(Condition(type="Ready", status="False"),), terminating=True)
    assert trouble_of([running]) is None
    trouble = trouble_of([running], lost={"k8s-1"})
    assert trouble is not None
    assert trouble.reason == "NodeLost"
    assert "delete the Node once the machine is certainly off" in trouble.message


def test_the_most_common_trouble_stands_for_all() -> None:
    pods = [pod(conditions=(UNSCHEDULABLE,), name="a")]
    pods += [pod(container=waiting("ErrImagePull"), name=name) for name in ("b", "c", "d")]
    trouble = trouble_of(pods)
    assert trouble is not None
    assert trouble.reason == "ErrImagePull"
    assert "pod slurm/b" in trouble.message
    assert trouble.message.endswith("(and 2 more like it)")


@pytest.mark.parametrize(
    ("workload", "others", "reason"),
    [
        (Deployment(spec=WorkloadSpec(replicas=1)), (pod(phase="Running"),), None),
        (Deployment(spec=WorkloadSpec(replicas=2)), (pod(phase="Running"),), "Evicted"),
        (Deployment(spec=WorkloadSpec(replicas=1)), (pod(phase="Running", terminating=True),), "Evicted"),
        (Deployment(spec=WorkloadSpec(replicas=1)), (), "Evicted"),
        (StatefulSet(), (pod(phase="Running"),), "Evicted"),
        (None, (pod(phase="Running"),), "Evicted"),
    ],
)
def test_a_failed_pod_that_a_deployment_has_replaced_is_no_trouble(
    workload: Deployment | StatefulSet | None, others: tuple[Pod, ...], reason: str | None
) -> None:
    """A Deployment leaves its failed pods behind; a StatefulSet replaces them under the same name."""
    failed = pod(phase="Failed", reason="Evicted", name="old")
    found = Daemon(workload=workload, pods=(failed, *others)).trouble
    assert (found.reason if found else None) == reason

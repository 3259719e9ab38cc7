"""What a worker pod says of its Slurm node, and when that may wait for more important writes."""

import pytest

from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain as Recorded
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import Pod
from slurm_operator.nodeset import podstate
from slurm_operator.nodeset.podstate import LINGERING, WHILE_GROWING, PodWrites
from slurm_operator.slurm.known import Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from tests.unit.nodeset.make import NOW, at, known, pod, record
from tests.unit.nodeset.plans import BUSY, DRAINED, OURS


def writes(of: Pod, *records: SlurmNode, protection: bool = True) -> PodWrites:
    return podstate.decide(of, known(*records), protection=protection, now=NOW)


def wait(of: Pod, found: PodWrites, *, growing: bool = False, drains: tuple[Recorded, ...] = ()) -> float:
    return podstate.can_wait(of, found, NodeSetStatus(drains=drains), growing=growing, now=NOW)


def told(found: PodWrites) -> dict[str, str]:
    assert found.conditions is not None
    return {condition["type"]: condition["message"] for condition in found.conditions["status"]["conditions"]}


def leaving(since: float, cause: str = "scale-in", nodes: str = "gpu-[0-9]") -> tuple[Recorded, ...]:
    return (Recorded(cause=cause, nodes=nodes, since=at(since)),)


def test_a_pod_says_what_slurm_says() -> None:
    prefix = names.POD_CONDITION_PREFIX
    assert told(writes(pod(), record("gpu-0", "IDLE"))) == {f"{prefix}Idle": ""}
    assert told(writes(pod(), record("gpu-0", *DRAINED, reason=OURS))) == {
        f"{prefix}Idle": OURS,
        f"{prefix}Drain": OURS,
    }


@pytest.mark.parametrize("protection", [True, False])
def test_a_busy_worker_is_protected_if_that_is_wanted(protection: bool) -> None:
    assert writes(pod(), record("gpu-0", *BUSY), protection=protection).protect is (True if protection else None)


def test_while_slurm_is_unknown_what_the_pod_says_stays() -> None:
    assert podstate.decide(pod(), Unknown(NOW, "down"), protection=True, now=NOW) == PodWrites()


def test_the_first_word_of_a_new_worker_waits_while_many_others_are_made() -> None:
    found = writes(pod(), record("gpu-0", "IDLE"))
    assert wait(pod(), found, growing=True) == WHILE_GROWING
    assert wait(pod(), found) == 0


def test_a_worker_that_is_about_to_go_is_not_written_to_unless_it_lingers() -> None:
    found = writes(pod(), record("gpu-0", *DRAINED, reason=OURS))
    assert wait(pod(), found, drains=leaving(-2)) == pytest.approx(LINGERING - 2, abs=1)
    assert wait(pod(), found, drains=leaving(-60)) == 0
    assert wait(pod(), found, drains=leaving(-2, nodes="gpu-[1-9]")) == 0
    assert wait(pod(), found, drains=leaving(-2, nodes="gpu-[")) == 0


def test_a_cordoned_worker_stays_and_says_so_at_once() -> None:
    found = writes(pod(), record("gpu-0", *DRAINED, reason=OURS))
    assert wait(pod(), found, drains=leaving(-2, cause="node-cordon")) == 0


@pytest.mark.parametrize("protection", [True, False])
def test_what_is_about_jobs_never_waits(protection: bool) -> None:
    busy = writes(pod(), record("gpu-0", "MIXED", "DRAIN", reason=OURS), protection=protection)
    assert wait(pod(), busy, growing=True, drains=leaving(-2)) == 0


def test_nothing_to_write_is_nothing_to_wait_for() -> None:
    assert wait(pod(), PodWrites(), growing=True, drains=leaving(-2)) == 0

"""What a worker pod says of its Slurm node, and when that may wait for more important writes."""

import msgspec
import pytest

from slurm_operator.api import names
from slurm_operator.api.nodeset import Drain as Recorded
from slurm_operator.api.nodeset import NodeSetStatus
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.model import Condition
from slurm_operator.nodeset import podstate
from slurm_operator.nodeset.podstate import LINGERING, WHILE_GROWING, PodWrites
from slurm_operator.runtime.times import seconds_of
from slurm_operator.slurm.known import Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from tests.unit.nodeset.make import NOW, at, known, pod, record
from tests.unit.nodeset.plans import DRAINED, OURS


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


def test_only_the_pod_that_was_seen_is_told() -> None:
    """A worker that was replaced has a successor of the same name, which is not in the state of its predecessor."""
    seen = pod()
    found = writes(seen, record("gpu-0", "ALLOCATED")).conditions
    assert found is not None
    assert found["metadata"]["uid"] == seen.metadata.uid


def showing(*conditions: Condition) -> Pod:
    """A pod that shows these conditions beside Ready."""
    shown = pod()
    status = msgspec.structs.replace(shown.status, conditions=(*shown.status.conditions, *conditions))
    return msgspec.structs.replace(shown, status=status)


def condition(state: str, since: float) -> Condition:
    return Condition(type=names.POD_CONDITION_PREFIX + state, status="True", last_transition_time=at(since))


def test_conditions_follow_the_state_and_keep_their_time() -> None:
    """scenario 105: what is over is left out, what goes on keeps its time, and others' conditions are not written."""
    lost = record("gpu-0", "DOWN", "DRAIN", "NOT_RESPONDING")
    found = writes(showing(condition("Idle", -90), condition("Drain", -60)), lost)
    assert found.conditions is not None
    stated = {c["type"].removeprefix(names.POD_CONDITION_PREFIX): c for c in found.conditions["status"]["conditions"]}
    assert set(stated) == {"Down", "Drain", "NotResponding"}
    assert stated["Drain"]["lastTransitionTime"] == at(-60)
    assert seconds_of(stated["Down"]["lastTransitionTime"], absent=0) == NOW
    same = showing(*(condition(state, -60) for state in ("Down", "Drain", "NotResponding")))
    assert writes(same, lost).conditions is None, "the same state again is no news"


@pytest.mark.parametrize("protection", [True, False])
@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("state", ["ALLOCATED", "MIXED", "IDLE COMPLETING", "IDLE"])
def test_a_busy_worker_is_protected_if_that_is_wanted(state: str, is_marked: bool, protection: bool) -> None:
    """scenario 100: switched off, the label of a busy worker goes too."""
    of = pod(labels={names.LABEL_POD_PROTECT: names.TRUE} if is_marked else {})
    wanted = protection and state != "IDLE"
    found = writes(of, record("gpu-0", *state.split()), protection=protection).protect
    assert found is (wanted if wanted != is_marked else None)


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

"""What is remembered between two passes: failures, places and refused records, and no longer than they count."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.kube.kinds import Pod
from slurm_operator.nodeset.decide import RETRY_LONGEST
from slurm_operator.nodeset.hands import DEPARTED_SECONDS, FAILURE_SECONDS, STABLE_SECONDS, Memory
from tests.unit.nodeset.make import NOW, at, pod


def ended(number: int, name: str = "gpu-0", *, deleting: bool = False, phase: str = "Failed") -> Pod:
    """A pod that lived for a minute."""
    found = pod(name, phase=phase, created=-60, deleting=deleting)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, uid=f"uid-{name}-{number}"))


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_ends_by_itself_counts_once(phase: str) -> None:
    memory = Memory()
    for _ in range(3):
        memory.note_failures([ended(1, phase=phase)], NOW)
    assert memory.note_failures([ended(2, phase=phase)], NOW)["gpu-0"].count == 2


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_was_deleted_has_not_failed(phase: str) -> None:
    """The containers of a worker that is replaced end with an error, or without: its successor need not wait."""
    memory = Memory()
    assert memory.note_failures([ended(1, phase=phase, deleting=True)], NOW) == {}
    assert memory.failed_pods == set()


def test_a_failed_pod_that_is_then_deleted_still_counts() -> None:
    memory = Memory()
    memory.note_failures([ended(1)], NOW)
    assert memory.note_failures([ended(1, deleting=True)], NOW)["gpu-0"].count == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 2 * FAILURE_SECONDS)), min_size=1, max_size=60))
def test_no_more_is_remembered_than_what_is_there_and_what_failed_of_late(history: list[tuple[int, float]]) -> None:
    memory, now = Memory(), NOW
    for number, (name, later) in enumerate(history):
        now += later
        memory.note_failures([ended(number, f"gpu-{name}")], now)
        assert len(memory.failed_pods) == 1
        assert all(now - failed.last < FAILURE_SECONDS for failed in memory.failures.values())
    memory.note_failures([], now + FAILURE_SECONDS)
    assert memory == Memory()


def test_a_failure_is_remembered_while_it_counts() -> None:
    """The longest back-off, and then a life that is just too short to be a stable one."""
    memory = Memory()
    memory.note_failures([ended(1)], NOW)
    later = NOW + RETRY_LONGEST + STABLE_SECONDS
    short = msgspec.structs.replace(
        ended(2), status=msgspec.structs.replace(ended(2).status, start_time=at(RETRY_LONGEST))
    )
    assert memory.note_failures([short], later)["gpu-0"].count == 2


def test_the_place_of_a_pod_that_is_gone_is_forgotten_in_time() -> None:
    memory = Memory()
    here, gone = pod("gpu-0", ip="10.0.0.1"), pod("gpu-1", ip="10.0.0.2")
    memory.note_places((here, gone), lambda node: True, NOW)
    for seconds in (0.0, 0.5, 0.99):
        assert memory.note_places((here,), lambda node: True, NOW + seconds * DEPARTED_SECONDS) == {"10.0.0.2"}
    assert memory.note_places((here,), lambda node: True, NOW + DEPARTED_SECONDS) == frozenset()
    assert (set(memory.places), memory.departed, memory.ended) == ({"uid-gpu-0"}, {}, {})


def test_a_record_that_could_not_be_deleted_is_forgotten_in_time() -> None:
    memory = Memory(kept={"gpu-0": NOW + 60})
    assert memory.kept_records(NOW) == {"gpu-0"}
    assert memory.kept_records(NOW + 60) == frozenset()
    assert memory.kept == {}

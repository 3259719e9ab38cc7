"""Who goes first: the nine keys, one after the other, and the worked examples."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api import names
from slurm_operator.kube.kinds import Pod
from slurm_operator.nodeset.order import deletion_cost, is_available, pod_deadline, victim_key
from tests.unit.nodeset.make import NOW, at, pod

CORDON = {names.ANNOTATION_POD_CORDON: "true"}


def cost(value: int | str) -> dict[str, str]:
    return {names.ANNOTATION_POD_DELETION_COST: str(value)}


def deadline(seconds: float) -> dict[str, str]:
    return {names.ANNOTATION_POD_DEADLINE: at(seconds)}


def key_of(candidate: Pod) -> object:
    cordoned = candidate.metadata.annotations.get(names.ANNOTATION_POD_CORDON) == "true"
    return victim_key(candidate, cordoned=cordoned, job_end=pod_deadline(candidate))


def ordered(pods: list[Pod], seed: int = 7) -> list[Pod]:
    shuffled = list(pods)
    random.Random(seed).shuffle(shuffled)
    return sorted(shuffled, key=key_of)  # type: ignore[arg-type]  # the key is opaque here


PAIRS = {
    "unassigned before assigned": (pod(node="", phase="Running"), pod(phase="Pending")),
    "Pending before Unknown": (pod(phase="Pending"), pod(phase="Unknown")),
    "Unknown before Running": (pod(phase="Unknown"), pod(phase="Running")),
    "any other phase weighs like Pending": (pod(phase="Failed"), pod(phase="Unknown")),
    "not ready before ready": (pod(ready=False), pod(ready=True)),
    "cheaper before dearer": (pod(annotations=cost(-1)), pod(annotations=cost(0))),
    "cost counts before the deadline": (
        pod(annotations={**cost(-1), **deadline(3600)}),
        pod(annotations=cost(0)),
    ),
    "idle before a pod with a job": (pod("gpu-0"), pod("gpu-9", annotations=deadline(60))),
    "earlier end before later end": (pod(annotations=deadline(60)), pod("gpu-9", annotations=deadline(120))),
    "cordoned before not cordoned": (pod("gpu-0", annotations=CORDON), pod("gpu-9")),
    "higher ordinal before lower": (pod("gpu-10"), pod("gpu-9")),
    "recently ready before long ready": (
        pod(ready_at=-10),
        pod(ready_at=-20),
    ),
    "ready without a time counts as just now": (pod(ready_at=None), pod(ready_at=-1)),
    "newer before older": (pod(created=-10), pod(created=-20)),
    "no creation time counts as newest": (pod(created=None), pod(created=-1)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_each_key_decides(name: str) -> None:
    """scenario 46, scenario 48"""
    first, second = PAIRS[name]
    assert key_of(first) < key_of(second)  # type: ignore[operator]  # the key is opaque here


def test_worked_example_by_cost_cordon_and_deadline() -> None:
    """scenario 46"""
    wanted = [
        pod("gpu-2", annotations=cost(-10)),
        pod("gpu-3", annotations=CORDON),
        pod("gpu-1"),
        pod("gpu-0"),
        pod("gpu-4", annotations={**CORDON, **deadline(0)}),
        pod("gpu-5", annotations=deadline(0)),
        pod("gpu-6", annotations={**CORDON, **deadline(3600)}),
        pod("gpu-7", annotations=deadline(3600)),
        pod("gpu-8", annotations=cost(1)),
        pod("gpu-9", annotations={**CORDON, **deadline(60), **cost(100)}),
    ]
    for seed in range(50):
        assert [p.metadata.name for p in ordered(wanted, seed)] == [p.metadata.name for p in wanted]


def test_worked_example_by_state_and_age() -> None:
    """scenario 46"""
    wanted = [
        pod("gpu-0", node="", phase="Pending", ready=None),
        pod("gpu-0", phase="Pending", ready=None),
        pod("gpu-0", phase="Unknown", ready=False),
        pod("gpu-0", ready=False),
        pod("gpu-0", annotations=CORDON),
        pod("gpu-1"),
        pod("gpu-0", ready_at=None),
        pod("gpu-0", ready_at=-10),
        pod("gpu-0", ready_at=-100, created=-50),
        pod("gpu-0", ready_at=-100, created=-90000),
        pod("gpu-0", annotations=deadline(10)),
        pod("gpu-0", annotations=cost(1)),
    ]
    for seed in range(50):
        assert ordered(wanted, seed) == wanted


@given(st.permutations([pod(f"gpu-{n}", annotations=CORDON) for n in range(6)]))
def test_cordoned_pods_go_by_ordinal_whatever_the_order_they_come_in(pods: list[Pod]) -> None:
    """scenario 47"""
    assert [p.metadata.name for p in ordered(pods)] == [f"gpu-{n}" for n in (5, 4, 3, 2, 1, 0)]


ANY_POD = st.builds(
    pod,
    st.sampled_from(["gpu-0", "gpu-1", "gpu-10"]),
    node=st.sampled_from(["", "k8s-1"]),
    phase=st.sampled_from(["Pending", "Unknown", "Running", "Failed"]),
    ready=st.sampled_from([True, False, None]),
    ready_at=st.sampled_from([None, -1, -10]),
    created=st.sampled_from([None, -10, -20]),
    annotations=st.sampled_from([{}, CORDON, cost(-1), deadline(60), {**cost(1), **deadline(9), **CORDON}]),
)


@given(ANY_POD, ANY_POD, ANY_POD)
def test_the_order_is_a_strict_weak_ordering(a: Pod, b: Pod, c: Pod) -> None:
    """scenario 47"""

    def before(one: Pod, other: Pod) -> bool:
        return bool(key_of(one) < key_of(other))  # type: ignore[operator]  # the key is opaque here

    assert not before(a, a)
    assert not (before(a, b) and before(b, a))
    assert before(a, c) or not (before(a, b) and before(b, c))
    alike = not before(a, b) and not before(b, a) and not before(b, c) and not before(c, b)
    assert not alike or not (before(a, c) or before(c, a)), "what ties with the same ties with each other"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [("1", 1), ("-5", -5), ("0", 0), ("+10", 0), ("008", 0), ("1_2", 0), (" ", 0), ("", 0), ("9" * 20, 0), ("-0", 0)],
)
def test_deletion_cost_that_makes_no_sense_counts_as_none(text: str, meaning: int) -> None:
    """scenario 18"""
    assert deletion_cost(pod(annotations=cost(text))) == meaning


@pytest.mark.parametrize("text", ["soon", "", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00"])
def test_malformed_deadline_is_no_deadline(text: str) -> None:
    """scenario 48"""
    assert pod_deadline(pod(annotations={names.ANNOTATION_POD_DEADLINE: text})) is None


def test_available_after_min_ready_seconds() -> None:
    """scenario 109"""
    fresh = pod(ready_at=-10)
    assert is_available(fresh, 0, NOW)
    assert not is_available(fresh, 30, NOW)
    assert is_available(fresh, 30, NOW + 20)

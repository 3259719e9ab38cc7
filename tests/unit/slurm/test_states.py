"""What a node's state words mean for us."""

import pytest

from slurm_operator.api.names import POD_BASE_STATES, POD_FLAG_STATES
from slurm_operator.slurm import states
from slurm_operator.slurm.reasons import LONGEST_REASON, is_ours, our_reason, sanitised
from slurm_operator.slurm.states import DrainOwner, claim_owner, drain_owner


@pytest.mark.parametrize(
    ("state", "drained"),
    [
        ("IDLE", False),
        ("MIXED", False),
        ("DOWN", False),
        ("IDLE DRAIN", True),
        ("MIXED DRAIN", False),
        ("ALLOCATED DRAIN", False),
        ("DOWN DRAIN", True),
        ("IDLE COMPLETING", False),
        ("IDLE DRAIN COMPLETING", False),
        ("IDLE DRAIN UNDRAIN", False),
    ],
)
def test_drained(state: str, drained: bool) -> None:
    """scenario 54"""
    assert states.is_drained(state.split()) is drained


@pytest.mark.parametrize(
    ("state", "conditions"),
    [
        ("IDLE DYNAMIC_NORM", ["Idle"]),
        ("IDLE DRAIN COMPLETING EXTERNAL", ["Idle", "Completing", "Drain"]),
        ("DOWN NOT_RESPONDING", ["Down", "NotResponding"]),
        ("ALLOCATED DOWN", ["Allocated"]),
        ("MIXED MAINTENANCE FAIL INVALID INVALID_REG UNDRAIN", ["Mixed", *sorted(POD_FLAG_STATES[2:6]), "Undrain"]),
        ("SOMETHING_NEW", []),
        ("", []),
    ],
)
def test_conditions_of_the_pod(state: str, conditions: list[str]) -> None:
    assert list(states.pod_conditions(state.split())) == [f"SlurmNodeState{name}" for name in conditions]


@pytest.mark.parametrize("base", POD_BASE_STATES)
def test_every_base_state_has_its_condition_and_its_place(base: str) -> None:
    """scenarios 105 and 107: of several base states the first of the fixed order counts."""
    later = POD_BASE_STATES[POD_BASE_STATES.index(base) :]
    assert states.base_state([base.upper()]) == base
    for other in later:
        assert states.base_state([other.upper(), base.upper()]) == base
        assert list(states.pod_conditions([other.upper(), base.upper()])) == [f"SlurmNodeState{base}"]


def test_every_flag_has_its_condition() -> None:
    words = ["COMPLETING", "DRAIN", "FAIL", "INVALID", "INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "UNDRAIN"]
    assert states.flag_states(words) == POD_FLAG_STATES
    assert set(states.pod_conditions([*words, "IDLE"])) <= states.known_conditions()


@pytest.mark.parametrize(
    ("state", "reason", "owner"),
    [
        ("IDLE", "slurm-operator: old", DrainOwner.NOBODY),
        ("IDLE DRAIN", "slurm-operator: scale-in", DrainOwner.OURS),
        ("IDLE DRAIN", "bad disk", DrainOwner.FOREIGN),
        ("IDLE DRAIN", "see slurm-operator: x", DrainOwner.FOREIGN),
        ("IDLE DRAIN", "", DrainOwner.FOREIGN),
        ("MIXED DRAIN UNDRAIN", "bad disk", DrainOwner.NOBODY),
    ],
)
def test_whose_drain_it_is(state: str, reason: str, owner: DrainOwner) -> None:
    assert drain_owner(state.split(), reason) is owner


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\r\nc", "a b  c"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07bell\x07", "bell"),
        ("a\x00b\x7fc\x85", "abc"),
        ("  trimmed ", "trimmed"),
        ("\u00e9\u4e2d" * 200, "\u00e9\u4e2d" * 128),
        ("", ""),
    ],
)
def test_a_reason_is_one_harmless_line(text: str, expected: str) -> None:
    """scenario 84"""
    assert sanitised(text) == expected
    assert len(sanitised(text)) <= LONGEST_REASON


@pytest.mark.parametrize(
    ("text", "expected"),
    [("why", "slurm-operator: why"), ("\n", "slurm-operator: unknown"), ("slurm-operator: why", "slurm-operator: why")],
)
def test_our_reasons_are_recognised(text: str, expected: str) -> None:
    assert our_reason(text) == expected
    assert is_ours(our_reason(text))


@pytest.mark.parametrize(
    ("state", "reason", "owner"),
    [
        ("IDLE", "old words", DrainOwner.NOBODY),
        ("IDLE DRAIN", "bad disk", DrainOwner.FOREIGN),
        ("IDLE FAIL", "GPU 3 fell off the bus", DrainOwner.FOREIGN),
        ("DOWN", "burnt", DrainOwner.FOREIGN),
        ("DOWN", "", DrainOwner.FOREIGN),
        ("DOWN NOT_RESPONDING", "", DrainOwner.NOBODY),
        ("DOWN DRAIN NOT_RESPONDING", "", DrainOwner.FOREIGN),
        ("DOWN NOT_RESPONDING", "Not responding", DrainOwner.NOBODY),
        ("DOWN FAIL", "Not responding", DrainOwner.FOREIGN),
        ("DOWN DRAIN NOT_RESPONDING", "Not responding", DrainOwner.FOREIGN),
        ("DOWN DRAIN NOT_RESPONDING", "slurm-operator: scaled in : Not responding", DrainOwner.OURS),
        ("DOWN DRAIN", "slurm-operator: worker pod is going away", DrainOwner.OURS),
    ],
)
def test_whose_claim_keeps_a_node_out_of_service(state: str, reason: str, owner: DrainOwner) -> None:
    assert claim_owner(state.split(), reason) is owner

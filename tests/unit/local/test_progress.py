"""What a person sees: plain lines where nobody watches, and never a line wider than a terminal."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_local.progress import Progress, running_line, spoken


def test_without_a_terminal_there_are_plain_lines_only() -> None:
    stream = io.StringIO()

    with Progress(stream).step("making things", usual=60):
        pass

    lines = stream.getvalue().splitlines()
    assert lines[0] == "making things (usually 60 s) ..."
    assert lines[1].startswith("making things: 0.")
    assert "\x1b" not in stream.getvalue()


def test_a_step_that_fails_says_so_and_lets_the_failure_through() -> None:
    stream = io.StringIO()

    with pytest.raises(OSError), Progress(stream).step("making things", usual=1):
        raise OSError

    assert "making things: failed after" in stream.getvalue()


@given(st.text(st.characters(codec="ascii"), max_size=200), st.floats(0, 5000), st.floats(0, 5000))
def test_the_running_line_fits_a_terminal(what: str, usual: float, elapsed: float) -> None:
    assert len(running_line(what, usual, elapsed)) <= 80


@pytest.mark.parametrize(("seconds", "text"), [(0.44, "0.4 s"), (12.3, "12 s"), (99, "99 s"), (420, "7 min")])
def test_durations_are_spoken(seconds: float, text: str) -> None:
    assert spoken(seconds) == text

"""Durations, quantities and percentages as Kubernetes reads them."""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api.nodeset import RollingUpdate
from slurm_operator.api.values import (
    DURATION_PATTERN,
    QUANTITY_PATTERN,
    parse_duration,
    parse_quantity,
    resolve_count,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("30m", 1800), ("1h15m", 4500), ("0", 0), ("0s", 0), ("-1m", -60), ("1.5h", 5400), (".5s", 0.5), ("1.s", 1)],
        *[("100ms", 0.1), ("3us", 3e-6), ("3µs", 3e-6), ("7ns", 7e-9), ("+2s", 2)],
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)
    assert re.search(DURATION_PATTERN, text)


@pytest.mark.parametrize("text", ["", "5", "m", "1d", "1h-5m", "1 h", "h1", ".s", "1h5", "--1s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse_duration(text)
    assert not re.search(DURATION_PATTERN, text)


def test_no_value_takes_for_ever() -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration("9" * 100_000 + "h")


@given(st.text("0123456789.-+nuµmsh \n", max_size=8))
def test_the_pattern_of_durations_is_what_the_parser_reads(text: str) -> None:
    try:
        parse_duration(text)
    except ValueError:
        assert not re.fullmatch(DURATION_PATTERN, text)
    else:
        assert re.fullmatch(DURATION_PATTERN, text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *[("4Gi", 4 * 2**30), ("500m", "0.5"), (2, 2), ("1e3", 1000), ("1.5k", 1500), ("-1", -1), ("1E", 10**18)],
        *[("5u", "0.000005"), ("1E3", 1000), (0.5, "0.5"), ("2Ei", 2 * 2**60)],
    ],
)
def test_quantities(text: str | int | float, amount: int | str) -> None:
    assert parse_quantity(text) == Decimal(amount)
    assert re.search(QUANTITY_PATTERN, str(text))


@pytest.mark.parametrize(
    "text", ["", "Gi", "4gi", "1.2.3", "four", "4 Gi", "-", ".", "1e", "True", "1e999999999", "9" * 65]
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse_quantity(text)


def test_percentages_round_up() -> None:
    """scenario 8"""
    assert (resolve_count("50%", 10), resolve_count("25%", 3)) == (5, 1)
    assert RollingUpdate().limit(100) == 25, "of a missing value the default"
    assert [resolve_count("25%", total) for total in (0, 1, 4, 5, 1000)] == [0, 1, 1, 2, 250]
    assert resolve_count(3, 10) == 3
    assert resolve_count("100%", 7) == 7
    assert resolve_count("9" * 400 + "%", 100) == int("9" * 400)


@pytest.mark.parametrize("text", ["", "%", "3", "three", "-5%", "²%", "5 %"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        resolve_count(text, 10)

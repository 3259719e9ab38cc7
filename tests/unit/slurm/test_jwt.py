"""Tokens that Slurm accepts, and that never reach it expired."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.slurm.jwt import (
    LONGEST_LIFE,
    OPERATOR_LIFE,
    InvalidTokenError,
    TokenSource,
    new_claims,
    sign,
    verify,
)

KEY, OTHER = b"k" * 32, b"o" * 32
NOW = 1_800_000_000.0


class Time:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def payload(token: str) -> dict[str, object]:
    words = token.split(".")
    decoded: dict[str, object] = json.loads(base64.urlsafe_b64decode(words[1] + "=="))
    return decoded


def test_claims_and_signature() -> None:
    """scenario 159"""
    token = sign(KEY, new_claims("alice", 600, NOW))
    claims = payload(token)
    assert json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "==")) == {"alg": "HS256", "typ": "JWT"}
    assert set(claims) == {"jti", "iss", "iat", "nbf", "exp", "sun"}
    assert claims["iss"] == "slurm-operator"
    assert claims["iat"] == claims["nbf"] == NOW
    assert claims["exp"] == NOW + 600
    assert claims["sun"] == "alice"
    assert verify(token, KEY, NOW).sun == "alice"


def test_every_token_is_another() -> None:
    assert new_claims("slurm", 1, NOW).jti != new_claims("slurm", 1, NOW).jti


@given(st.integers(-(10**12), 10**12))
def test_lifetime_is_clamped_to_what_slurm_can_count(lifetime: int) -> None:
    """scenario 159"""
    claims = new_claims("slurm", lifetime, NOW)
    assert claims.exp - claims.iat == min(max(lifetime, 0), LONGEST_LIFE)


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c", "a.b.c.d", "..", "\u00e9.b.c"])
def test_what_is_no_token_fails(token: str) -> None:
    """scenario 159"""
    with pytest.raises(InvalidTokenError):
        verify(token, KEY, NOW)


def test_wrong_key_fails() -> None:
    """scenario 159"""
    with pytest.raises(InvalidTokenError, match="not signed with this key"):
        verify(sign(KEY, new_claims("slurm", 600, NOW)), OTHER, NOW)


@pytest.mark.parametrize("now", [NOW - 1, NOW + 600])
def test_a_token_is_valid_only_in_its_time(now: float) -> None:
    with pytest.raises(InvalidTokenError, match="expired"):
        verify(sign(KEY, new_claims("slurm", 600, NOW)), KEY, now)


@given(st.binary(min_size=1, max_size=64), st.text(max_size=40), st.integers(1, 10**6))
def test_round_trip(key: bytes, user: str, lifetime: int) -> None:
    claims = new_claims(user, lifetime, NOW)
    assert verify(sign(key, claims), key, NOW) == claims


def test_renewed_at_four_fifths_of_its_life() -> None:
    """scenario 162"""
    time = Time()
    source = TokenSource(KEY, time)
    first = source.token()
    time.now = NOW + 0.79 * OPERATOR_LIFE
    assert source.token() == first
    time.now = NOW + 0.81 * OPERATOR_LIFE
    assert source.token() != first


@given(st.lists(st.floats(0, 5000), max_size=20))
def test_however_long_it_idles_the_token_is_valid(pauses: list[float]) -> None:
    """scenario 162"""
    time = Time()
    source = TokenSource(KEY, time)
    for pause in pauses:
        time.now += pause
        assert verify(source.token(), KEY, time.now).sun == "slurm"


def test_a_clock_that_jumps_back_gets_a_new_token() -> None:
    time = Time()
    source = TokenSource(KEY, time)
    source.token()
    time.now -= 3600
    assert verify(source.token(), KEY, time.now).iat == time.now


def test_another_key_signs_the_next_token() -> None:
    """scenario 161"""
    source = TokenSource(KEY, Time())
    source.token()
    assert source.set_key(OTHER)
    assert verify(source.token(), OTHER, NOW).iat == NOW


def test_the_same_key_changes_nothing() -> None:
    source = TokenSource(KEY, Time())
    before = source.token()
    assert not source.set_key(KEY)
    assert source.token() == before

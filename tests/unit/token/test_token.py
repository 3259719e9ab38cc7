"""Decisions about one Token."""

from base64 import b64decode
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api import Token
from slurm_operator.kube.kinds import Secret
from slurm_operator.kube.model import OwnerReference
from slurm_operator.runtime.times import rfc3339
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.jwt import Claims, new_claims, sign, verify
from slurm_operator.token import Seen, decide
from tests.unit.controller.make import (
    NOW,
    applied,
    degraded,
    deleted,
    deleting,
    ready,
    refs,
    secret,
    status,
    verdict,
    with_status,
)
from tests.unit.desired import examples

KEY = b"j" * 32
TARGET = "alice-jwt-alice"
LIFE = 900
ONCE = "refresh: false\n"


def written(age: float = 0, *, key: bytes = KEY, user: str = "alice", ours: bool = True, **fields: Any) -> Secret:
    """The Secret with a token that was issued `age` seconds ago."""
    jwt = sign(key, new_claims(user, LIFE, NOW - age))
    found = secret(TARGET, {"SLURM_JWT": jwt.encode()}, **fields)
    owner = OwnerReference(kind="Token", uid=examples.META["uid"] if ours else "of-another", controller=True)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, owner_references=(owner,)))


def seen(of: Token | None = None, found: Secret | None = None, **fields: Any) -> Seen:
    standard = {"refs": refs({"slurm-auth-jwt": {"jwt.key": KEY}}), "refusals": (), "now": NOW}
    return Seen(token=of if of is not None else examples.token(), written=found, **{**standard, **fields})


def signed(plan: Any, key: bytes = KEY) -> Claims | None:
    """The claims of the token that would be written."""
    manifest = applied(plan).get(f"Secret/{TARGET}")
    return verify(b64decode(manifest["data"]["SLURM_JWT"]).decode(), key, NOW) if manifest else None


def test_a_first_token() -> None:
    """scenario 184: written, for the right user and life; reported once it is seen, and looked at again at 80 %."""
    plan = decide(seen())
    claims = signed(plan)
    assert claims is not None
    assert (claims.sun, claims.iat, claims.exp) == ("alice", int(NOW), int(NOW) + LIFE)
    assert status(plan) == {}
    plan = decide(seen(None, written(0)))
    assert signed(plan) is None
    assert status(plan)["issuedAt"] == rfc3339(NOW)
    assert ready(plan)
    assert plan.after == 0.8 * LIFE


@pytest.mark.parametrize(
    ("extra", "found", "signs", "after", "reason"),
    [
        ("", written(0), False, 720, ""),
        ("", written(719), False, 1, ""),
        ("", written(720), True, None, ""),
        ("", written(899), True, None, ""),
        ("", written(901), True, None, ""),
        ("", written(0, key=b"rotated" * 5), True, None, ""),
        ("", written(0, user="bob"), True, None, ""),
        ("", secret(TARGET, {"SLURM_JWT": b"\xff\xfe"}), True, None, ""),
        ("", secret(TARGET, {"other": b""}), True, None, ""),
        ("lifetime: 10s\n", written(0), True, None, ""),
        (ONCE, None, True, None, ""),
        (ONCE, written(800), False, 100, ""),
        (ONCE, written(901), False, None, "Expired"),
        (ONCE, written(0, key=b"rotated" * 5), False, None, "Expired"),
    ],
)
def test_when_a_token_is_signed(
    extra: str, found: Secret | None, signs: bool, after: float | None, reason: str
) -> None:
    """scenario 184: the wait is always positive; a rotated key is followed at once; refresh=false is never renewed."""
    plan = decide(seen(examples.token(extra), found))
    assert (signed(plan) is not None) == signs
    if signs:
        assert status(plan) == {}, "what is not written yet is not reported"
        return
    assert plan.after == after
    assert degraded(plan) == reason
    assert ready(plan) == (reason == "")


def test_a_token_that_may_not_be_written_is_not_ready() -> None:
    plan = decide(seen(refusals=(Trouble("NameTaken", "Secret slurm/alice-jwt-alice was not made by us"),)))
    assert (ready(plan), degraded(plan)) == (False, "NameTaken")


def test_a_token_that_is_never_renewed_cannot_be_changed() -> None:
    """scenario 184"""
    assert applied(decide(seen(examples.token(ONCE))))[f"Secret/{TARGET}"]["immutable"] is True
    assert "immutable" not in applied(decide(seen()))[f"Secret/{TARGET}"]


def test_an_unchangeable_token_of_ours_is_made_anew_once_it_may_be_renewed() -> None:
    plan = decide(seen(None, written(800, immutable=True)))
    assert deleted(plan) == [f"Secret/{TARGET}"]
    assert applied(plan) == {}
    others = decide(seen(None, written(800, immutable=True, ours=False)))
    assert deleted(others) == []


def test_nothing_is_said_twice() -> None:
    first = seen(None, written(100))
    plan = decide(first)
    assert decide(replace(first, token=with_status(first.token, plan))).actions == ()


@pytest.mark.parametrize(
    ("secrets", "reason", "named"),
    [
        ({}, "SecretNotFound", "Secret slurm/slurm-auth-jwt"),
        ({"slurm-auth-jwt": {"other": b""}}, "SecretKeyNotFound", "jwtKeyRef"),
    ],
)
def test_without_its_key_nothing_is_written(secrets: dict[str, dict[str, bytes]], reason: str, named: str) -> None:
    plan = decide(seen(None, written(0), refs=refs(secrets)))
    assert applied(plan) == {}
    assert (ready(plan), degraded(plan)) == (False, reason)
    assert named in verdict(plan, "Degraded")[2]


def test_without_a_key_reference_it_waits() -> None:
    plan = decide(seen(examples.make(Token, "alice", "username: alice\n")))
    assert applied(plan) == {}
    assert not ready(plan)


def test_nothing_is_done_for_one_that_goes_or_is_not_known_yet() -> None:
    assert decide(seen(deleting(examples.token()))).actions == ()
    loading = decide(seen(refs=refs({}, loading=True)))
    assert loading.actions == ()
    assert loading.after


def test_what_may_not_be_read_is_reported_and_nothing_is_made() -> None:
    refused = Trouble("Forbidden", "Secret slurm/given may not be read: grant it")
    plan = decide(seen(refs=refs({}, loading=True, refused=refused)))
    assert (ready(plan), verdict(plan, "Degraded")) == (False, ("True", refused.reason, refused.message))
    assert (applied(plan), deleted(plan)) == ({}, [])

"""Decisions about one LoginSet."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_operator.api import LoginSet, names
from slurm_operator.kube.kinds import CONFIG_MAPS, SECRETS, Deployment, Secret
from slurm_operator.loginset import MakeHostKeys, Seen, decide
from slurm_operator.runtime.children import Children
from slurm_operator.runtime.daemon import Daemon
from slurm_operator.runtime.trouble import Trouble
from tests.unit.controller.make import (
    KEYS,
    NOW,
    applied,
    degraded,
    deleted,
    deleting,
    deployment,
    events,
    pod,
    ready,
    refs,
    ring,
    secret,
    status,
    verdict,
    with_status,
)
from tests.unit.desired import examples

NAME = "slurm-login-slinky"
GIVEN = {**KEYS, "slurm-sssd-conf": {"sssd.conf": b"[sssd]\n"}}
HOST_KEYS = secret(f"{NAME}-ssh-host-keys", {"ssh_host_rsa_key": b"rsa"})


def seen(
    of: LoginSet | None = None,
    workload: Deployment | None = None,
    *,
    alone: bool = False,
    host_keys: Secret | None = HOST_KEYS,
    children: Children = (),
    **fields: Any,
) -> Seen:
    standard = {"refs": refs(GIVEN), "ring": ring(), "refusals": (), "now": NOW, "domain": "cluster.local"}
    return Seen(
        loginset=of if of is not None else examples.loginset(),
        controller=None if alone else examples.controller(),
        host_keys=host_keys,
        login=Daemon(workload, (pod(f"{NAME}-x", container="login"),) if workload else (), children),
        **{**standard, **fields},
    )


def annotations(plan: Any) -> dict[str, str]:
    found: dict[str, str] = applied(plan)[f"Deployment/{NAME}"]["spec"]["template"]["metadata"]["annotations"]
    return found


def test_host_keys_come_first_and_once() -> None:
    """scenario 183: made once, and never again while they are there."""
    plan = decide(seen(host_keys=None))
    assert [action for action in plan.actions if isinstance(action, MakeHostKeys)]
    assert applied(plan) == {}
    plan = decide(seen(children=((SECRETS, HOST_KEYS),)))
    assert not [action for action in plan.actions if isinstance(action, MakeHostKeys)]
    assert set(applied(plan)) == {f"ConfigMap/{NAME}-ssh-config", f"Service/{NAME}", f"Deployment/{NAME}"}
    assert deleted(plan) == []


def test_making_host_keys_is_one_line_for_people() -> None:
    action = MakeHostKeys(examples.loginset())
    assert action.describe() == {"action": f"make ssh host keys for LoginSet slurm/{NAME}"}


def test_ready_and_then_silent() -> None:
    first = seen(None, deployment(NAME))
    plan = decide(first)
    assert verdict(plan, "Ready") == ("True", "Ready", "the login pod is ready")
    assert status(plan)["replicas"] == 1
    assert status(plan)["selector"] == f"app.kubernetes.io/instance={NAME},app.kubernetes.io/name=login"
    assert status(decide(replace(first, loginset=with_status(first.loginset, plan)))) == {}


def test_none_at_all_is_as_good_as_many() -> None:
    """scenario 183: the scale subresource, zero included."""
    plan = decide(seen(examples.loginset("replicas: 0\n"), deployment(NAME, 0)))
    assert ready(plan)
    assert status(plan)["replicas"] == 0
    assert verdict(plan, "Ready")[2] == "0 login pods are ready"


@pytest.mark.parametrize(
    "change",
    [
        {"refs": refs({**GIVEN, "slurm-sssd-conf": {"sssd.conf": b"[sssd]\ndebug_level = 9\n"}})},
        {"host_keys": secret(HOST_KEYS.metadata.name, {"ssh_host_rsa_key": b"other"})},
        {"of": examples.loginset("extraSshdConfig: PermitRootLogin no\n")},
    ],
)
def test_what_rolls_the_login_pods(change: dict[str, Any]) -> None:
    """scenario 183"""
    assert annotations(decide(seen())) == annotations(decide(seen()))
    assert annotations(decide(seen(**change))) != annotations(decide(seen()))


def test_a_new_key_ends_nobodys_session() -> None:
    """scenario 187: sackd reads it in place."""
    assert annotations(decide(seen(ring=ring(b"n" * 32, "another")))) == annotations(decide(seen()))


def test_without_a_key_ring_nothing_is_touched() -> None:
    plan = decide(seen(None, deployment(NAME), ring=None))
    assert (applied(plan), deleted(plan)) == ({}, [])


@pytest.mark.parametrize(
    ("fields", "reason", "named"),
    [
        ({"alone": True}, names.EVENT_CONTROLLER_REF_FAILED, "Controller slurm/slurm does not exist"),
        ({"refs": refs(KEYS)}, "SecretNotFound", "sssdConfRef"),
        ({"refs": refs({"slurm-sssd-conf": {"sssd.conf": b""}})}, "SecretNotFound", "slurmKeyRef of Controller slurm"),
        (
            {"of": examples.loginset("service: {spec: {ports: [{name: login, port: 1}]}}\n")},
            "InvalidSpec",
            "login",
        ),
    ],
)
def test_what_is_wrong_is_named_and_people_stay_logged_in(fields: dict[str, Any], reason: str, named: str) -> None:
    """scenario 183: a missing Controller is an event and a condition"""
    left = ((CONFIG_MAPS, deployment("left")),)
    plan = decide(seen(workload=deployment(NAME), children=left, **fields))
    assert (ready(plan), degraded(plan)) == (False, reason)
    assert named in verdict(plan, "Degraded")[2]
    assert (applied(plan), deleted(plan)) == ({}, [])
    assert events(plan) == [reason]


def test_without_a_controller_no_keys_are_made() -> None:
    plan = decide(seen(alone=True, host_keys=None))
    assert not [action for action in plan.actions if isinstance(action, MakeHostKeys)]


def test_nothing_is_done_for_one_that_goes_or_is_not_known_yet() -> None:
    assert decide(seen(deleting(examples.loginset()))).actions == ()
    loading = decide(seen(refs=refs({}, loading=True)))
    assert loading.actions == ()
    assert loading.after


def test_what_may_not_be_read_is_reported_and_nothing_is_made() -> None:
    refused = Trouble("Forbidden", "Secret slurm/given may not be read: grant it")
    plan = decide(seen(refs=refs({}, loading=True, refused=refused)))
    assert (ready(plan), verdict(plan, "Degraded")) == (False, ("True", refused.reason, refused.message))
    assert (applied(plan), deleted(plan)) == ({}, [])

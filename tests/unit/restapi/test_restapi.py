"""Decisions about one RestApi."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_operator.api import Controller, RestApi, names
from slurm_operator.kube.kinds import DEPLOYMENTS, SERVICES, Deployment
from slurm_operator.restapi import Seen, decide
from slurm_operator.runtime.children import Children
from slurm_operator.runtime.daemon import Daemon
from slurm_operator.slurm.conf.writer import stamped
from tests.unit.controller.make import (
    NOW,
    applied,
    config_map,
    degraded,
    deleted,
    deleting,
    deployment,
    events,
    pod,
    ready,
    status,
    verdict,
    with_status,
)
from tests.unit.desired import examples

CONF = {"slurm.conf": "ClusterName=slurm\n"}


def seen(
    of: RestApi | None = None,
    workload: Deployment | None = None,
    *,
    controller: Controller | None = None,
    alone: bool = False,
    conf: dict[str, str] | None = CONF,
    children: Children = (),
    **fields: Any,
) -> Seen:
    standard = {"refusals": (), "now": NOW}
    return Seen(
        restapi=of if of is not None else examples.restapi(),
        controller=None if alone else controller or examples.controller(),
        config=config_map("slurm-config", conf) if conf is not None else None,
        slurmrestd=Daemon(workload, (pod("slurm-restapi-x"),) if workload else (), children),
        **{**standard, **fields},
    )


def annotations(plan: Any) -> dict[str, str]:
    found: dict[str, str] = applied(plan)["Deployment/slurm-restapi"]["spec"]["template"]["metadata"]["annotations"]
    return found


def test_everything_is_made_and_then_ready_and_silent() -> None:
    """scenario 182"""
    assert set(applied(decide(seen()))) == {"Service/slurm-restapi", "Deployment/slurm-restapi"}
    first = seen(None, deployment("slurm-restapi"))
    plan = decide(first)
    assert verdict(plan, "Ready") == ("True", "Ready", "slurmrestd answers")
    assert status(decide(replace(first, restapi=with_status(first.restapi, plan)))) == {}


def test_a_new_slurm_conf_restarts_slurmrestd() -> None:
    """scenario 182; a new key needs no restart, as slurmrestd holds none."""
    before = annotations(decide(seen()))
    assert annotations(decide(seen())) == before
    volumes = applied(decide(seen()))["Deployment/slurm-restapi"]["spec"]["template"]["spec"]["volumes"]
    assert not [source for volume in volumes for source in volume["projected"]["sources"] if "secret" in source]
    assert annotations(decide(seen(conf={"slurm.conf": "ClusterName=other\n"}))) != before
    assert annotations(decide(seen(conf={**CONF, "cgroup.conf": "x"}))) == before
    delivered = [stamped(CONF["slurm.conf"], config_hash) for config_hash in ("1" * 64, "2" * 64)]
    assert [annotations(decide(seen(conf={"slurm.conf": text}))) for text in delivered] == [before, before], (
        "the hash in its last line changes with other files too"
    )


def test_without_configuration_it_waits_for_its_controller() -> None:
    plan = decide(seen(conf=None))
    assert applied(plan) == {}
    assert degraded(plan) == ""
    assert "waiting for Controller slurm" in verdict(plan, "Progressing")[2]


@pytest.mark.parametrize(
    ("fields", "reason", "named"),
    [
        ({"alone": True}, names.EVENT_CONTROLLER_REF_FAILED, "Controller slurm/slurm"),
        (
            {"of": examples.restapi("service: {spec: {ports: [{name: slurmrestd, port: 1}]}}\n")},
            "InvalidSpec",
            "slurmrestd",
        ),
    ],
)
def test_what_is_wrong_is_named_and_slurmrestd_runs_on(fields: dict[str, Any], reason: str, named: str) -> None:
    workload = deployment("slurm-restapi")
    plan = decide(seen(workload=workload, children=((DEPLOYMENTS, workload),), **fields))
    assert (ready(plan), degraded(plan)) == (False, reason)
    assert named in verdict(plan, "Degraded")[2]
    assert (applied(plan), deleted(plan)) == ({}, [])
    assert events(plan) == [reason]


def test_an_external_controller_needs_no_key_of_ours() -> None:
    """scenario 188: slurmrestd runs here, against a slurmctld elsewhere."""
    outside = examples.make(Controller, "slurm", "external: true\nexternalConfig: {host: ctl, port: 6817}\n")
    assert set(applied(decide(seen(controller=outside)))) == {"Service/slurm-restapi", "Deployment/slurm-restapi"}


def test_what_is_no_longer_asked_for_goes() -> None:
    left = deployment("left-behind")
    plan = decide(seen(None, deployment("slurm-restapi"), children=((SERVICES, left),)))
    assert deleted(plan) == ["Service/left-behind"]


def test_nothing_is_done_for_one_that_goes() -> None:
    assert decide(seen(deleting(examples.restapi()))).actions == ()

"""Decisions about one Controller, from what exists to what to do and what to say."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from slurm_operator.api import Controller, names
from slurm_operator.controller.claims import templates_in_force
from slurm_operator.controller.decide import decide
from slurm_operator.controller.observe import Seen
from slurm_operator.desired.config import ControllerFacts, config_hash, configuration, delivered_files
from slurm_operator.desired.controller import claim_templates
from slurm_operator.desired.metadata import content_hash
from slurm_operator.kube.apply import APPLIED_HASH, digest_of
from slurm_operator.kube.kinds import STATEFUL_SETS, ConfigMap, Pod, StatefulSet
from slurm_operator.kube.model import Condition
from slurm_operator.runtime.actions import Delete
from slurm_operator.runtime.children import SERVICE_MONITORS
from slurm_operator.runtime.daemon import Daemon
from slurm_operator.runtime.trouble import Trouble
from tests.unit.controller.make import (
    KEYS,
    NOW,
    actions,
    applied,
    config_map,
    degraded,
    deleted,
    deleting,
    events,
    patched,
    pod,
    ready,
    refs,
    ring,
    stateful_set,
    status,
    verdict,
    with_status,
)
from tests.unit.desired import examples

HA = """
ha: {enabled: true, backups: 1}
persistence: {enabled: true, existingClaim: shared}
"""
INPLACE = "inplaceReconfigure: true\n"
JWT = {"slurm-auth-jwt": KEYS["slurm-auth-jwt"]}
EXTERNAL = "external: true\nexternalConfig: {host: ctl.example.com, port: 7817}\n"
MONITORED = "metrics: {enabled: true, serviceMonitor: {enabled: true}}\n"
CHILDREN = {
    "Service/slurm-controller-internal",
    "Service/slurm-logins-slurm",
    "Service/slurm-controller",
    "ConfigMap/slurm-config",
    "StatefulSet/slurm-controller",
}


def seen(
    of: Controller | None = None,
    workload: StatefulSet | None = None,
    *pods: Pod,
    config: ConfigMap | None = None,
    **fields: Any,
) -> Seen:
    controller = of if of is not None else examples.controller()
    children = ((STATEFUL_SETS, workload),) if workload is not None else ()
    facts = fields.pop("facts", ControllerFacts(claim_templates=templates_in_force(controller, workload)))
    lost = fields.pop("lost", frozenset())
    standard = {"refs": refs(), "ring": ring(), "monitors": False, "refusals": (), "now": NOW}
    slurmctld = Daemon(workload, pods, fields.pop("children", children), lost)
    return Seen(controller=controller, facts=facts, config=config, slurmctld=slurmctld, **{**standard, **fields})


def test_everything_is_made_and_told() -> None:
    """scenario 171: its Services, a ConfigMap and a StatefulSet; it is on its way, and an event tells of each."""
    plan = decide(seen())
    assert set(applied(plan)) == CHILDREN
    assert events(plan) == [names.EVENT_CREATE_SUCCEEDED] * len(CHILDREN)
    assert verdict(plan, "Ready") == ("False", "NotReady", "waiting for slurmctld to be created")
    assert verdict(plan, "Progressing")[0] == "True"
    assert degraded(plan) == ""


def test_ready_once_slurmctld_answers() -> None:
    plan = decide(seen(None, live(), pod()))
    assert verdict(plan, "Ready") == ("True", "Ready", "slurmctld answers")
    assert verdict(plan, "Progressing") == ("False", "Settled", "")
    assert "Ready" in events(plan)


def test_a_change_is_not_reported_before_it_is_made() -> None:
    """The old slurmctld is ready, but that says nothing about the spec that has just been read."""
    made = applied(decide(seen()))["StatefulSet/slurm-controller"]
    current, outdated = (labelled(live(), {APPLIED_HASH: digest}) for digest in (digest_of(made), "of another spec"))
    assert ready(decide(seen(None, current, pod())))
    plan = decide(seen(None, outdated, pod()))
    assert "StatefulSet/slurm-controller" in applied(plan)
    assert status(plan) == {}
    refused = decide(seen(None, outdated, pod(), refusals=(Trouble("Forbidden", "not allowed"),)))
    assert (ready(refused), degraded(refused)) == (False, "Forbidden")


def labelled(workload: StatefulSet, annotations: dict[str, str]) -> StatefulSet:
    meta = msgspec.structs.replace(workload.metadata, annotations=annotations)
    return msgspec.structs.replace(workload, metadata=meta)


def test_without_a_key_ring_nothing_is_touched() -> None:
    plan = decide(seen(None, live(), pod(), ring=None))
    assert (applied(plan), deleted(plan)) == ({}, [])
    assert verdict(plan, "Ready")[2].startswith("waiting for Secret slurm-auth-slurm-ring")


def test_a_rotation_that_does_not_get_on_is_told_while_slurmctld_answers() -> None:
    """scenario 187"""
    stuck = ring()
    stuck.metadata.annotations[names.ANNOTATION_RING_WAITING] = "pod slurm/small-0 has not read the new keys yet"
    plan = decide(seen(None, live(), pod(), ring=stuck))
    assert (ready(plan), degraded(plan)) == (True, "KeyRotationWaits")
    assert "small-0" in verdict(plan, "Degraded")[2]


def live(of: Controller | None = None, **fields: Any) -> StatefulSet:
    """The StatefulSet as the server holds it, defaults filled in."""
    templates = tuple(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**template["metadata"], "creationTimestamp": None},
            "spec": {**template["spec"], "volumeMode": "Filesystem"},
            "status": {"phase": "Pending"},
        }
        for template in claim_templates(of or examples.controller())
    )
    return stateful_set(**{"volume_claim_templates": templates, **fields})


def test_nothing_is_said_twice() -> None:
    """What was reported is not reported again, and no event repeats it."""
    first = seen(None, live(), pod())
    plan = decide(first)
    again = decide(replace(first, controller=with_status(first.controller, plan)))
    assert status(again) == {}
    assert [event for event in events(again) if event != names.EVENT_CREATE_SUCCEEDED] == []


@pytest.mark.parametrize(
    ("controller", "fields", "reason", "named"),
    [
        ("", {"refs": refs({})}, "SecretNotFound", "slurm-auth-slurm"),
        ("", {"refs": refs({"slurm-auth-slurm": {"other": b""}})}, "SecretKeyNotFound", "slurm.key"),
        ("", {"refs": refs({"slurm-auth-slurm": {"slurm.key": b"short"}, **JWT})}, "KeyTooShort", "5 bytes"),
        ("accountingRef: {name: books}\n", {}, "AccountingNotFound", "Accounting slurm/books"),
        ("configFileRefs: [{name: files}]\n", {}, "ConfigMapNotFound", "ConfigMap slurm/files"),
        ("prologScriptRefs: [{name: scripts}]\n", {}, "ConfigMapNotFound", "the script references"),
        ("jwksKeyRef: {name: jwks, key: jwks.json}\n", {}, "ConfigMapNotFound", "jwksKeyRef"),
        (
            "jwksKeyRef: {name: jwks, key: jwks.json}\n",
            {"refs": refs(config_maps={"jwks": {"other": ""}})},
            "ConfigMapKeyNotFound",
            "jwks.json",
        ),
        ("service: {spec: {ports: [{port: 6817}]}}\n", {}, "InvalidSpec", "6817"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_touched(
    controller: str, fields: dict[str, Any], reason: str, named: str
) -> None:
    plan = decide(seen(examples.controller(controller), live(), pod(), **fields))
    assert (degraded(plan), ready(plan)) == (reason, False)
    assert named in verdict(plan, "Degraded")[2]
    assert applied(plan) == {}
    assert deleted(plan) == []
    assert events(plan) == [reason]


def test_a_configuration_that_would_end_slurmctld_is_kept_away_from_it() -> None:
    controller = examples.controller('extraConf: "SlurmctldPort=many"\n')
    running = config_map("slurm-config", {"slurm.conf": "ClusterName=old\n"})
    plan = decide(seen(controller, live(), pod(), config=running))
    assert degraded(plan) == "ConfigurationRejected"
    assert "stays in force" in verdict(plan, "Degraded")[2]
    assert set(applied(plan)) == {child for child in CHILDREN if child.startswith("Service/")}
    fresh = decide(seen(controller))
    assert "nothing was started" in verdict(fresh, "Degraded")[2]


@pytest.mark.parametrize(
    ("controller", "facts", "place"),
    [
        ('extraConf: "# Extra\\nMinJobAge=300\\nSlurmctldPort=many"\n', ControllerFacts(), "extraConf line 3: "),
        ('extraConf: "MinJobAge=300\\n\\nMinJobAg=300\\n"\n', ControllerFacts(), "extraConf line 3: "),
        (
            "extraConf: Include site.conf\nconfigFileRefs: [{name: files}]\n",
            ControllerFacts(config_maps={"files": {"site.conf": "# first\nMinJobAg=3\n"}}),
            "ConfigMap files, site.conf line 2: ",
        ),
        (
            "",
            ControllerFacts(nodesets=(examples.nodeset("partition: {enabled: true, config: MaxTim=3}\n"),)),
            "partition.config of NodeSet slurm-worker-slinky: ",
        ),
    ],
)
def test_a_rejected_line_is_named_as_its_author_knows_it(controller: str, facts: ControllerFacts, place: str) -> None:
    maps = {name: dict(files) for name, files in facts.config_maps.items()}
    plan = decide(seen(examples.controller(controller), live(), pod(), facts=facts, refs=refs(config_maps=maps)))
    assert degraded(plan) == "ConfigurationRejected"
    assert verdict(plan, "Degraded")[2].startswith(place)


def test_a_rejected_configuration_leaves_the_hash_of_the_one_in_force() -> None:
    good = seen(None, live(), pod())
    reported = with_status(good.controller, decide(good))
    assert reported.status.config_hash == content_hash(configuration(good.controller, good.facts))
    bad = examples.controller('extraConf: "SlurmctldPort=many"\n')
    plan = decide(seen(with_status(bad, decide(good)), live(), pod()))
    assert status(plan)["configHash"] == reported.status.config_hash


def test_pods_are_touched_once_the_files_are_there() -> None:
    """In place: the kubelet brings new files at once, but not before they are in the ConfigMap."""
    controller = examples.controller(INPLACE)
    files = delivered_files(controller, ControllerFacts())
    digest = config_hash(controller, ControllerFacts())
    note = {"metadata": {"annotations": {names.ANNOTATION_CONFIG_GENERATION: digest}, "uid": "uid-slurm-controller-0"}}

    def touched(config: ConfigMap | None, of: Controller = controller, **about: Any) -> dict[str, Any]:
        return patched(decide(seen(of, live(of), pod(**about), config=config)))

    there = config_map("slurm-config", files)
    assert touched(there) == {"slurm-controller-0": note}
    assert touched(there, annotations={names.ANNOTATION_CONFIG_GENERATION: digest}) == {}
    assert touched(there, terminating=True) == {}
    assert touched(config_map("slurm-config", {"slurm.conf": "old"})) == {}
    assert touched(None) == {}
    assert touched(there, of=examples.controller()) == {}


# The StatefulSet and its claims


def recreated(workload: StatefulSet, *, ours: bool = True) -> list[tuple[str, str]]:
    children = ((STATEFUL_SETS, workload),) if ours else ()
    plan = decide(seen(None, workload, pod(), children=children))
    assert ("StatefulSet/slurm-controller" in applied(plan)) == (not deleted(plan))
    return [(action.name, action.propagation) for action in actions(plan) if isinstance(action, Delete)]


def test_an_old_stateful_set_is_made_anew() -> None:
    """scenario 172: with another Service the pods go too; with another policy they stay, and slurmctld runs on."""
    assert recreated(live()) == []
    assert recreated(live(service_name="slurm-controller")) == [("slurm-controller", "")]
    assert recreated(live(pod_management_policy="OrderedReady")) == [("slurm-controller", "Orphan")]
    assert recreated(live(pod_management_policy="OrderedReady", terminating=True)) == []
    assert recreated(live(service_name="theirs"), ours=False) == []


def test_a_pod_below_another_service_is_replaced() -> None:
    """A StatefulSet adopts a pod that its predecessor left behind, but never gives it its new name in the DNS."""

    def gone(subdomain: str, workload: StatefulSet | None, **about: Any) -> list[str]:
        found = pod(**about)
        found = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, subdomain=subdomain))
        return deleted(decide(seen(None, workload, found)))

    assert gone("slurm-controller", live()) == ["Pod/slurm-controller-0"]
    assert gone("slurm-controller-internal", live()) == []
    assert gone("", live()) == []
    assert gone("slurm-controller", live(), terminating=True) == []
    assert gone("slurm-controller", None) == []
    assert gone("slurm-controller", live(service_name="slurm-controller")) == ["StatefulSet/slurm-controller"]


def test_a_claim_that_was_asked_for_differently_stays_and_is_told() -> None:
    """Kubernetes refuses to change claim templates, so that everything else would be refused with it."""
    bigger = examples.controller("persistence: {enabled: true, resources: {requests: {storage: 9Gi}}}\n")
    plan = decide(seen(bigger, live(), pod()))
    (claim,) = applied(plan)["StatefulSet/slurm-controller"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"] == {"storage": "4Gi"}
    assert ready(plan)
    assert "cannot change claim templates" in verdict(plan, "Ready")[2]


@pytest.mark.parametrize(
    ("asked", "stays"),
    [
        ("resources: {requests: {storage: 4Gi}}", True),
        ("resources: {requests: {storage: 4096Mi}}", True),
        ("resources: {requests: {storage: 5Gi}}", False),
        ("storageClassName: fast", False),
        ("accessModes: [ReadWriteMany]", False),
    ],
)
def test_the_same_claim_in_other_words_is_the_same(asked: str, stays: bool) -> None:
    controller = examples.controller(f"persistence: {{enabled: true, {asked}}}\n")
    assert (templates_in_force(controller, live()) is None) == stays


def test_before_there_is_a_stateful_set_the_claim_is_as_asked() -> None:
    assert templates_in_force(examples.controller(), None) is None


# High availability


def standby(name: str, revision: str, *, active: bool) -> Pod:
    return pod(name, labels={"controller-revision-hash": revision}, ready=active)


@pytest.mark.parametrize(
    ("pods", "replaced"),
    [
        ([("a-0", "old", True), ("a-1", "old", False)], ["Pod/a-1"]),
        ([("a-0", "old", True), ("a-1", "new", False)], ["Pod/a-0"]),
        ([("a-0", "new", False), ("a-1", "new", True)], []),
        ([("a-0", "old", False), ("a-1", "old", False)], []),
        ([("a-1", "old", True)], []),
    ],
)
def test_standbys_are_replaced_before_the_active_one(pods: list[tuple[str, str, bool]], replaced: list[str]) -> None:
    """One at a time, never without an active one, and never while one is missing."""
    controller = examples.controller(HA)
    workload = live(controller, replicas=2, ready=1, revision="new")
    found = [standby(name, revision, active=active) for name, revision, active in pods]
    assert deleted(decide(seen(controller, workload, *found))) == replaced


def test_nothing_is_replaced_before_kubernetes_has_seen_the_change() -> None:
    controller = examples.controller(HA)
    workload = live(controller, replicas=2, ready=1)
    pods = [standby("a-0", "old", active=True), standby("a-1", "old", active=False)]
    assert deleted(decide(seen(controller, workload, *pods))) == []


def test_one_ready_slurmctld_is_enough() -> None:
    """A standby is never ready."""
    controller = examples.controller(HA)
    assert ready(decide(seen(controller, live(controller, replicas=2, ready=1))))


# Trouble


def test_a_pod_on_a_node_that_does_not_answer_is_never_deleted() -> None:
    """Two slurmctld on one state destroy it. The condition names the node."""
    for gone in (False, True):
        plan = decide(seen(None, live(ready=0), pod(terminating=gone), lost=frozenset({"k8s-1"})))
        assert degraded(plan) == "NodeLost"
        assert "node k8s-1 does not answer" in verdict(plan, "Degraded")[2]
        assert deleted(plan) == []


def test_a_lost_standby_is_noticed_while_slurmctld_answers() -> None:
    controller = examples.controller(HA)
    workload = live(controller, replicas=2, ready=1)
    plan = decide(seen(controller, workload, pod("a-0"), pod("a-1", node="k8s-2"), lost=frozenset({"k8s-2"})))
    assert (ready(plan), degraded(plan)) == (True, "NodeLost")


@pytest.mark.parametrize(
    ("told", "extra", "reason", "named"),
    [
        (
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims",
            "",
            "ClaimNotBound",
            "slurm/statesave-slurm-controller-0",
        ),
        ('0/3 nodes are available: persistentvolumeclaim "shared" not found', HA, "ClaimNotBound", "slurm/shared"),
        (
            "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind",
            "",
            "ClaimNotBound",
            "persistence.storageClassName",
        ),
        ("0/3 nodes are available: 3 Insufficient cpu", "", "Unschedulable", "Insufficient cpu"),
    ],
)
def test_a_pod_that_waits_for_its_volume_names_the_claim(told: str, extra: str, reason: str, named: str) -> None:
    waiting = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=told)
    plan = decide(seen(examples.controller(extra), live(ready=0), pod("slurm-controller-0", waiting)))
    assert degraded(plan) == reason
    assert named in verdict(plan, "Degraded")[2]


def test_a_missing_image_is_named() -> None:
    plan = decide(seen(None, live(ready=0), pod(ready=False, waiting="ErrImagePull")))
    assert degraded(plan) == "ErrImagePull"
    assert "container slurmctld" in verdict(plan, "Degraded")[2]


def test_a_name_that_is_taken_is_told_and_not_ready() -> None:
    taken = Trouble("NameTaken", "Service slurm/slurm-controller was not made by us; rename or delete it")
    plan = decide(seen(None, live(), pod(), refusals=(taken,)))
    assert (ready(plan), degraded(plan)) == (False, "NameTaken")
    assert verdict(plan, "Ready")[2] == taken.message
    assert verdict(plan, "Progressing")[1] == "Blocked"


# External, monitors, the ends of life


def test_an_external_controller_makes_nothing_but_a_configuration() -> None:
    """scenario 188: no slurmctld of ours; what an internal one left behind goes."""
    controller = examples.controller(EXTERNAL)
    plan = decide(seen(controller, live()))
    assert set(applied(plan)) == {"ConfigMap/slurm-config"}
    conf = applied(plan)["ConfigMap/slurm-config"]["data"]["slurm.conf"]
    assert "ctl.example.com" in conf
    assert deleted(plan) == ["StatefulSet/slurm-controller"]
    assert verdict(plan, "Ready")[2] == "slurmctld runs elsewhere, at ctl.example.com:7817"
    assert "configHash" not in status(plan)


def test_an_external_controller_without_address_is_told() -> None:
    plan = decide(seen(examples.controller("external: true\n")))
    assert degraded(plan) == "InvalidSpec"
    assert "externalConfig" in verdict(plan, "Degraded")[2]


def test_a_monitor_only_where_its_kind_is_known() -> None:
    """scenario 171"""
    monitor = "ServiceMonitor/slurm-controller"
    controller = examples.controller(MONITORED)
    assert monitor in applied(decide(seen(controller, monitors=True)))
    assert monitor not in applied(decide(seen(controller, monitors=False)))


def test_a_monitor_goes_when_it_is_switched_off() -> None:
    """scenario 171"""
    workload = live()
    monitor = (SERVICE_MONITORS, stateful_set())
    plan = decide(seen(None, workload, pod(), children=((STATEFUL_SETS, workload), monitor), monitors=True))
    assert deleted(plan) == ["ServiceMonitor/slurm-controller"]


def test_nothing_is_done_for_one_that_goes() -> None:
    plan = decide(seen(deleting(examples.controller())))
    assert (plan.actions, plan.after) == ((), None)


def test_nothing_is_said_to_be_missing_before_the_answer_is_in() -> None:
    plan = decide(seen(refs=refs({}, loading=True)))
    assert plan.actions == ()
    assert plan.after is not None
    assert plan.after > 0

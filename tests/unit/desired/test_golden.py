"""Every generated object of one example per kind, as a file to read; UPDATE_GOLDEN=1 writes them anew."""

import os
from pathlib import Path

import pytest
import yaml

from slurm_operator.desired.accounting import AccountingFacts, accounting_objects
from slurm_operator.desired.config import ControllerFacts
from slurm_operator.desired.controller import controller_objects, service_monitor
from slurm_operator.desired.loginset import LoginSetFacts, host_keys_secret, loginset_objects
from slurm_operator.desired.restapi import RestApiFacts, restapi_objects
from slurm_operator.desired.revision import controller_revision
from slurm_operator.desired.token import token_secret
from slurm_operator.desired.worker import (
    WorkerFacts,
    node_slot,
    ordinal_slot,
    ssh_config,
    worker_claims,
    worker_pod,
    worker_template,
)
from slurm_operator.desired.workers import workers_objects
from slurm_operator.kube.resource import Manifest
from tests.unit.desired import examples
from tests.unit.desired.examples import login_pod

BUDGET_UID = "99999999-2222-3333-4444-555555555555"
GOLDEN = Path(__file__).parent / "golden"
HA = """
ha: {enabled: true, backups: 1}
inplaceReconfigure: true
jwksKeyRef: {name: jwks, key: jwks.json}
configFileRefs: [{name: extra}]
prologSlurmctldScriptRefs: [{name: scripts}]
accountingRef: {name: slurm}
persistence: {enabled: true, existingClaim: shared}
metrics: {enabled: true, serviceMonitor: {enabled: true, interval: 30s}}
"""
SSH = """
ssh: {enabled: true, sssdConfRef: {name: slurm-sssd-conf, key: sssd.conf}}
partition: {enabled: true, config: State=UP}
volumeClaimTemplates:
- metadata: {name: scratch}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""


def controller_case() -> list[Manifest]:
    facts = ControllerFacts(nodesets=(examples.nodeset(),), slurm_key_hash="aaa", jwt_key_hash="bbb")
    return controller_objects(examples.controller(), facts)


def high_availability_case() -> list[Manifest]:
    controller = examples.controller(HA)
    facts = ControllerFacts(
        accounting=examples.accounting(),
        nodesets=(examples.nodeset(SSH),),
        config_maps={"extra": {"gres.conf": "AutoDetect=off\n"}, "scripts": {"p.sh": "#!/bin/sh\n"}},
    )
    monitor = service_monitor(controller)
    assert monitor is not None
    return [*controller_objects(controller, facts), monitor]


def external_case() -> list[Manifest]:
    external = examples.controller("external: true\nexternalConfig: {host: ctl.example.com, port: 7000}\n")
    return controller_objects(external, ControllerFacts())


def accounting_case() -> list[Manifest]:
    return accounting_objects(examples.accounting(), AccountingFacts(password="p#ss word"))


def restapi_case() -> list[Manifest]:
    facts = RestApiFacts(controller=examples.controller(), slurm_conf_hash="ccc")
    return restapi_objects(examples.restapi(), facts)


def loginset_case() -> list[Manifest]:
    loginset = examples.loginset()
    facts = LoginSetFacts(
        controller=examples.controller(),
        sssd_conf=b"[sssd]",
        host_keys_hash="ddd",
        pods=(login_pod("login-x", "10.0.0.2"),),
    )
    return [host_keys_secret(loginset, {"ssh_host_rsa_key": b"private"}), *loginset_objects(loginset, facts)]


def nodeset_case() -> list[Manifest]:
    nodeset = examples.nodeset()
    template = worker_template(nodeset, WorkerFacts(controller=examples.controller()))
    pod = worker_pod(nodeset, template, ordinal_slot(nodeset, 0), "abc", BUDGET_UID)
    return [pod, controller_revision(nodeset, 1), *workers_objects("slurm", "slurm")]


def daemon_case() -> list[Manifest]:
    nodeset = examples.nodeset(SSH + "scalingMode: DaemonSet\nslurmd: {image: slurmd:26.05}\n")
    template = worker_template(nodeset, WorkerFacts(controller=examples.controller(), sssd_conf=b"[sssd]"))
    slot = node_slot(nodeset, "node1.us-west-2.example.com")
    config = ssh_config(nodeset)
    assert config is not None
    return [config, *worker_claims(nodeset, slot), worker_pod(nodeset, template, slot, "abc", BUDGET_UID)]


def token_case() -> list[Manifest]:
    return [token_secret(examples.token(), "a.b.c")]


CASES = {
    "controller": controller_case,
    "controller-ha": high_availability_case,
    "controller-external": external_case,
    "accounting": accounting_case,
    "restapi": restapi_case,
    "loginset": loginset_case,
    "nodeset": nodeset_case,
    "nodeset-daemon": daemon_case,
    "token": token_case,
}


class Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, and no references between objects."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(str, _text)


@pytest.mark.parametrize("name", CASES)
def test_generated_objects(name: str) -> None:
    objects = CASES[name]()
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.dump_all(objects, Dumper=Dumper, sort_keys=True, width=120), encoding="utf-8")
    assert list(yaml.safe_load_all(path.read_text(encoding="utf-8"))) == objects


@pytest.mark.parametrize("name", CASES)
def test_the_same_input_gives_the_same_objects(name: str) -> None:
    """scenario 177"""
    assert CASES[name]() == CASES[name]()


@pytest.mark.parametrize("name", CASES)
def test_every_object_is_owned_and_named(name: str) -> None:
    for manifest in CASES[name]():
        if manifest["kind"] == "PersistentVolumeClaim":
            continue  # claims are owned by policy
        assert manifest["metadata"]["name"]
        assert manifest["metadata"]["namespace"] == "slurm"
        if manifest in workers_objects("slurm", "slurm"):
            continue  # shared by all NodeSets, and deleted after the last worker
        assert manifest["metadata"]["ownerReferences"][0]["uid"] == examples.META["uid"]


@pytest.mark.parametrize("name", CASES)
def test_selectors_match_their_pods(name: str) -> None:
    for manifest in CASES[name]():
        spec = manifest.get("spec", {})
        if "template" in spec:
            wanted = spec["selector"]["matchLabels"].items()
            assert wanted <= spec["template"]["metadata"]["labels"].items()

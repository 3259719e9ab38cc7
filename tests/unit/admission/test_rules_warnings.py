"""What works but is unwise gets a word, and what is fine gets none."""

from typing import Any

import pytest

from slurm_operator.admission.defaults import admitted, default_patch
from slurm_operator.admission.problem import Facts
from slurm_operator.admission.warnings import warnings
from tests.unit.admission.examples import BY_NAME, Manifest, manifest

IMAGES: dict[str, Manifest] = {
    "Controller": {"slurmctld": {"image": "a"}, "logfile": {"image": "b"}},
    "Accounting": {"slurmdbd": {"image": "a"}},
    "NodeSet": {"slurmd": {"image": "a", "resources": {"limits": {"cpu": 4}}}, "logfile": {"image": "b"}},
    "LoginSet": {"login": {"image": "a"}, "initconf": {"image": "b"}},
    "RestApi": {"slurmrestd": {"image": "a"}},
    "Token": {},
}
HOST_NETWORK: Manifest = {"template": {"spec": {"hostNetwork": True}}}
EXTERNAL: Manifest = {"external": True, "externalConfig": {"host": "a", "port": 1}}

OPTIONAL: Manifest = {"name": "a", "key": "b", "optional": True}
SCHEDULED: Manifest = {
    "type": "ScheduledUpdate",
    "scheduledUpdate": {"startTime": "2030-01-31T22:00:00Z", "duration": "1h"},
}


def warned(kind: str, patch: Manifest, facts: Facts | None = None) -> list[str]:
    complete = manifest(kind, {**IMAGES[kind], **patch})
    return [warning.path for warning in warnings(BY_NAME[kind], complete, facts)]


@pytest.mark.parametrize("kind", IMAGES)
def test_a_good_object_gets_no_warning(kind: str) -> None:
    assert warned(kind, {}) == []


@pytest.mark.parametrize(
    ("kind", "patch", "path"),
    [
        ("Controller", {"jwtHs256KeyRef": {"name": "a", "key": "b"}}, "spec.jwtHs256KeyRef"),
        ("Accounting", {"jwtKeyRef": ..., "jwtHs256KeyRef": {"name": "a", "key": "b"}}, "spec.jwtHs256KeyRef"),
        ("Token", {"jwtHs256KeyRef": {"name": "a", "key": "b"}}, "spec.jwtHs256KeyRef"),
        ("Controller", {"slurmKeyRef": {"name": "", "key": "a"}}, "spec.slurmKeyRef.name"),
        ("Token", {"jwtKeyRef": {"name": ..., "key": "a"}}, "spec.jwtKeyRef.name"),
        ("Controller", {"service": {"spec": {"externalIPs": ["1.2.3.4"]}}}, "spec.service.spec.externalIPs"),
        ("Accounting", {"service": {"spec": {"externalIPs": ["1.2.3.4"]}}}, "spec.service.spec.externalIPs"),
        ("LoginSet", {"service": {"spec": {"externalIPs": ["1.2.3.4"]}}}, "spec.service.spec.externalIPs"),
        ("RestApi", {"service": {"spec": {"externalIPs": ["1.2.3.4"]}}}, "spec.service.spec.externalIPs"),
        ("Controller", HOST_NETWORK, "spec.template.spec.hostNetwork"),
        ("Accounting", HOST_NETWORK, "spec.template.spec.hostNetwork"),
        ("NodeSet", HOST_NETWORK, "spec.template.spec.hostNetwork"),
        ("NodeSet", {"slurmd": {"image": "a"}}, "spec.slurmd.resources.limits"),
        ("NodeSet", {"scalingMode": "DaemonSet", "replicas": 3}, "spec.replicas"),
        ("NodeSet", {"scalingMode": "DaemonSet", "pinToNode": True}, "spec.pinToNode"),
        ("NodeSet", {"pruneSlurmNodeRecords": "NodeNotFound"}, "spec.pruneSlurmNodeRecords"),
        (
            "NodeSet",
            {"scalingMode": "DaemonSet", "pruneSlurmNodeRecords": "NodeNotFound"},
            "spec.pruneSlurmNodeRecords",
        ),
        ("NodeSet", {"pinToNode": True}, "spec.pinToNode"),
        (
            "NodeSet",
            {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}},
            "spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
        ),
        (
            "NodeSet",
            {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}},
            "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
        ),
        ("NodeSet", {"updateStrategy": SCHEDULED}, "spec.updateStrategy.scheduledUpdate"),
        ("NodeSet", {"ssh": {"enabled": True, "sssdConfRef": OPTIONAL}}, "spec.ssh.sssdConfRef.optional"),
        ("LoginSet", {"sssdConfRef": OPTIONAL}, "spec.sssdConfRef.optional"),
        ("Controller", {"slurmKeyRef": OPTIONAL}, "spec.slurmKeyRef.optional"),
        ("Controller", {"jwksKeyRef": OPTIONAL}, "spec.jwksKeyRef.optional"),
        ("Accounting", {"jwtKeyRef": OPTIONAL}, "spec.jwtKeyRef.optional"),
        ("Token", {"jwtKeyRef": OPTIONAL}, "spec.jwtKeyRef.optional"),
        ("NodeSet", {"template": {"spec": {"hostname": "a.b-"}}}, "spec.template.spec.hostname"),
        ("NodeSet", {"logfile": {}}, "spec.logfile.image"),
        ("NodeSet", {"taintKubeNodes": True}, "spec.taintKubeNodes"),
        ("NodeSet", {"updateStrategy": {"rolingUpdate": {}}}, "spec.updateStrategy.rolingUpdate"),
        ("NodeSet", {"controllerRef": {"name": "a", "namespace": "b"}}, "spec.controllerRef.namespace"),
        ("NodeSet", {"template": {"spec": {"tolerationz": []}}}, "spec.template.spec.tolerationz"),
        ("Controller", {"configFileRefs": [{"nam": "a", "name": "b"}]}, "spec.configFileRefs[0].nam"),
        ("Controller", {"slurmctld": {"image": "a", "name": "mine"}}, "spec.slurmctld.name"),
        ("Controller", {"slurmctld": {"image": "a", "imagePullPolice": "x"}}, "spec.slurmctld.imagePullPolice"),
        ("Controller", {"inplaceReconfigure": True}, "spec.reconfigure.image"),
        ("Controller", {"clusterName": "Prod"}, "spec.clusterName"),
        ("Controller", {"extraConf": "MinJobAge=2\nThis is not a line\n"}, "spec.extraConf"),
        ("Controller", {"extraConf": "MinJabAge=2\n"}, "spec.extraConf"),
        ("Controller", {**EXTERNAL, "ha": {"enabled": True}, "persistence": {"existingClaim": "a"}}, "spec.ha"),
        ("Accounting", {"storageConfig": ...}, "spec.storageConfig"),
        ("Accounting", {"extraConf": "PurgeJobAfterr=1month\n"}, "spec.extraConf"),
        ("RestApi", {"controllerRef": {"name": ""}}, "spec.controllerRef.name"),
        ("Token", {"lifetime": "0s"}, "spec.lifetime"),
    ],
)
def test_one_word_of_warning(kind: str, patch: Manifest, path: str) -> None:
    assert warned(kind, patch) == [path]


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("Controller", {"extraConf": "Include extra.conf\nMinJobAge=2\nPartitionName=all Nodes=ALL Default=YES\n"}),
        ("Controller", {**EXTERNAL, "slurmctld": {}, "logfile": {}}),
        ("Accounting", {**EXTERNAL, "slurmdbd": {}, "storageConfig": ...}),
        ("NodeSet", {"slurmd": {"image": "a"}, "template": {"spec": {"resources": {"limits": {"cpu": 1}}}}}),
        ("NodeSet", {"scalingMode": "DaemonSet"}),
        ("NodeSet", {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}),
        ("NodeSet", {"updateStrategy": {**SCHEDULED, "type": "OnDelete"}}),
        ("Controller", {"slurmKeyRef": {**OPTIONAL, "optional": False}}),
    ],
)
def test_no_word_too_many(kind: str, patch: Manifest) -> None:
    assert warned(kind, patch) == []


@pytest.mark.parametrize("argument", ["-Z", "--conf", "--conf-server=x:1", "-N"])
def test_arguments_that_the_operator_passes_itself(argument: str) -> None:
    slurmd = {**IMAGES["NodeSet"]["slurmd"], "args": ["-v", argument]}
    assert warned("NodeSet", {"slurmd": slurmd}) == ["spec.slurmd.args[1]"]


def test_files_that_slurm_does_not_know() -> None:
    facts = Facts(config_maps={"files": frozenset({"gres.conf", "gress.conf", "topology.yaml"})})
    found = warnings(
        BY_NAME["Controller"],
        manifest("Controller", {**IMAGES["Controller"], "configFileRefs": [{"name": "files"}]}),
        facts,
    )
    assert [str(warning) for warning in found] == [
        "spec.configFileRefs[0].name: ConfigMap files: Slurm does not know a file gress.conf"
    ]


def test_a_misspelt_field_is_told_from_the_right_one() -> None:
    found = warnings(BY_NAME["Token"], manifest("Token", {"lifeTime": "1h"}))
    assert [str(warning) for warning in found] == ["spec.lifeTime: unknown field, ignored; did you mean lifetime?"]


def test_unreadable_objects_are_left_to_validation() -> None:
    assert warnings(BY_NAME["NodeSet"], {**manifest("NodeSet"), "spec": 7}) == []


def test_defaults_are_written_as_a_patch_of_their_own_fields() -> None:
    written: Any = {**manifest("Token"), "status": {"issuedAt": None}}
    assert default_patch(BY_NAME["Token"], written) == [{"op": "add", "path": "/spec/refresh", "value": True}]
    assert default_patch(BY_NAME["Token"], admitted(BY_NAME["Token"], written)) == []


def test_defaults_below_what_is_there() -> None:
    patch = default_patch(BY_NAME["NodeSet"], manifest("NodeSet", {"updateStrategy": {"rollingUpdate": {}}}))
    assert {"op": "add", "path": "/spec/updateStrategy/type", "value": "RollingUpdate"} in patch
    assert {"op": "add", "path": "/spec/updateStrategy/rollingUpdate/maxUnavailable", "value": "25%"} in patch
    assert default_patch(BY_NAME["NodeSet"], {"metadata": {}}) == []


@pytest.mark.parametrize(
    ("note", "value", "warned"),
    [
        ("report-waiting-after", "30m", False),
        ("report-waiting-after", "0", False),
        ("report-waiting-after", "soon", True),
        ("report-waiting-after", "-1h", True),
        ("waiting-is-degraded", "true", False),
        ("waiting-is-degraded", "false", False),
        ("waiting-is-degraded", "maybe", True),
    ],
)
def test_annotations_that_cannot_be_read(note: str, value: str, warned: bool) -> None:
    key = f"nodeset.slinky.slurm.net/{note}"
    found = warnings(BY_NAME["NodeSet"], manifest("NodeSet", IMAGES["NodeSet"], annotations={key: value}))
    assert [warning.path for warning in found] == ([f"metadata.annotations[{key}]"] if warned else [])

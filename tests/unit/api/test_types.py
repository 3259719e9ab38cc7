"""The types as readers meet them: whatever old or odd object comes, the values in force are right."""

import msgspec
import pytest

from slurm_operator.api import KINDS, Accounting, Controller, Kind, NodeSet, Object, Token
from slurm_operator.api.common import SecretKeySelector


def decode(kind: type[Object], text: str) -> Object:
    return msgspec.json.decode(text, type=kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_object_without_anything_loads(kind: Kind[Object]) -> None:
    for text in ('{"metadata": {"name": "a"}}', '{"metadata": {"name": "a"}, "spec": null, "status": null}'):
        assert decode(kind.type, text).metadata.name == "a"


def test_nulls_are_defaults_and_unknown_fields_are_nobody_s_business() -> None:
    text = """{"metadata": {"name": "a", "namespace": "b", "selfLink": "x"}, "spec": {
        "configFileRefs": null, "service": null, "slurmctld": null, "persistence": null,
        "metrics": {"serviceMonitor": null},
        "template": {"metadata": {"labels": null}, "spec": null}, "clusterName": null, "taints": [1]}}"""
    new = decode(Controller, text)
    assert isinstance(new, Controller)
    assert new.spec.config_file_refs == ()
    assert new.spec.service.port == 0
    assert new.spec.slurmctld == {}
    assert new.spec.persistence.enabled
    assert new.spec.template.metadata.labels == {}
    assert new.cluster_name == "b_a"


def test_free_parts_come_through_untouched() -> None:
    pod = {"containers": [{"name": "x", "new": None}], "zero": 0, "no": False, "empty": {}, "list": [None]}
    raw = {"metadata": {"name": "a"}, "spec": {"template": {"spec": pod}, "slurmd": pod, "volumeClaimTemplates": [pod]}}
    new = decode(NodeSet, msgspec.json.encode(raw).decode())
    assert isinstance(new, NodeSet)
    assert new.spec.template.spec == pod
    assert new.spec.slurmd == pod
    assert new.spec.volume_claim_templates == (pod,)


def test_no_two_objects_share_a_mutable_default() -> None:
    first = decode(NodeSet, '{"spec": {}}')
    second = decode(NodeSet, '{"spec": {"slurmd": null}}')
    assert isinstance(first, NodeSet)
    assert isinstance(second, NodeSet)
    assert first.spec.slurmd is not second.spec.slurmd


def test_all_annotations_of_users_are_kept() -> None:
    new = decode(Controller, '{"metadata": {"name": "a", "annotations": {"example.com/x": "y"}}}')
    assert new.metadata.annotations == {"example.com/x": "y"}


def test_controller_values_in_force() -> None:
    text = """{"metadata": {"name": "a"}, "spec": {"ha": {"enabled": true}, "accountingRef": {},
        "jwtHs256KeyRef": {"name": "old", "key": "k"}}}"""
    new = decode(Controller, text)
    assert isinstance(new, Controller)
    assert new.spec.replicas == 2
    assert new.spec.accounting_name == ""
    assert new.spec.jwt_key == SecretKeySelector(name="old", key="k")


def test_an_absurd_number_of_backups_asks_for_few_pods() -> None:
    new = decode(Controller, '{"spec": {"ha": {"enabled": true, "backups": 2147483647}}}')
    assert isinstance(new, Controller)
    assert new.spec.replicas == 64


def test_claim_spec_is_only_the_claim() -> None:
    text = """{"spec": {"persistence": {"enabled": true, "existingClaim": "x", "accessModes": ["ReadWriteOnce"],
        "storageClassName": "", "resources": {"requests": {"storage": "4Gi"}}}}}"""
    new = decode(Controller, text)
    assert isinstance(new, Controller)
    assert new.spec.persistence.claim_spec() == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "4Gi"}},
    }


def test_accounting_values_in_force() -> None:
    new = decode(Accounting, '{"spec": {"storageConfig": {"host": "db", "port": 0, "database": ""}}}')
    assert isinstance(new, Accounting)
    assert new.spec.storage_config is not None
    assert new.spec.storage_config.effective_port == 3306
    assert new.spec.storage_config.effective_database == "slurm_acct_db"


@pytest.mark.parametrize(
    ("hostname", "name"), [("gpu-", "gpu"), ("gpu", "gpu"), ("", "workers"), ("-", "workers"), ("a-b--", "a-b")]
)
def test_name_of_a_nodeset_within_slurm(hostname: str, name: str) -> None:
    raw = {"metadata": {"name": "workers"}, "spec": {"template": {"spec": {"hostname": hostname}}}}
    new = decode(NodeSet, msgspec.json.encode(raw).decode())
    assert isinstance(new, NodeSet)
    assert new.slurm_name == name


@pytest.mark.parametrize(("value", "limit"), [("25%", 3), (2, 2), ("1%", 1), (0, 1), ("0%", 1), ("nonsense", 1)])
def test_at_least_one_worker_may_go(value: int | str, limit: int) -> None:
    raw = {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": value}}}}
    new = decode(NodeSet, msgspec.json.encode(raw).decode())
    assert isinstance(new, NodeSet)
    assert new.spec.update_strategy.rolling_update.limit(10) == limit


@pytest.mark.parametrize(
    ("spec", "secret", "key", "seconds"),
    [
        ({"username": "bob"}, "t-jwt-bob", "SLURM_JWT", 900),
        ({"username": "", "lifetime": "1h"}, "t-jwt-nobody", "SLURM_JWT", 3600),
        ({"username": "x", "secretRef": {"name": "s", "key": "k"}, "lifetime": "-1s"}, "s", "k", 0),
        ({"username": "x", "secretRef": {"key": "k"}, "lifetime": "9999999h"}, "t-jwt-x", "k", 2**31 - 2),
        ({"username": "x", "lifetime": "what an old version let through"}, "t-jwt-x", "SLURM_JWT", 900),
    ],
)
def test_token_values_in_force(spec: dict[str, object], secret: str, key: str, seconds: int) -> None:
    new = decode(Token, msgspec.json.encode({"metadata": {"name": "t"}, "spec": spec}).decode())
    assert isinstance(new, Token)
    assert (new.target.name, new.target.key) == (secret, key)
    assert new.spec.lifetime_seconds == seconds

"""What becomes of a user's template: honoured where it says something, harmless where it does not."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.desired.merge import merge_container, merge_pod_spec

CONTAINER: dict[str, Any] = {
    "name": "slurmd",
    "args": ["-Z"],
    "env": [{"name": "POD_CPUS", "value": "2"}, {"name": "TOPOLOGY", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
    "ports": [{"name": "slurmd", "containerPort": 6818, "protocol": "TCP"}],
    "startupProbe": {"httpGet": {"path": "/livez", "port": "slurmd"}, "periodSeconds": 10, "failureThreshold": 6},
    "lifecycle": {"preStop": {"exec": {"command": ["sh"]}}},
    "securityContext": {"privileged": True, "capabilities": {"add": ["BPF", "SYS_ADMIN"]}},
    "volumeMounts": [{"name": "slurm-etc", "mountPath": "/etc/slurm", "readOnly": True}],
}
POD: dict[str, Any] = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 401},
    "tolerations": [{"key": "worker", "operator": "Equal", "value": "", "effect": "NoExecute"}],
    "dnsConfig": {"searches": ["slurm-workers-slurm.slurm.svc.cluster.local"]},
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "hostname"}]}},
    "initContainers": [{"name": "logfile", "restartPolicy": "Always"}],
    "containers": [CONTAINER],
    "volumes": [
        {"name": "slurm-etc", "projected": {"defaultMode": 384, "sources": [{"secret": {"name": "key"}}]}},
        {"name": "slurm-logfile", "emptyDir": {"medium": "Memory"}},
    ],
}


def changed(part: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**deepcopy(part), **fields}


@pytest.mark.parametrize(
    "noise",
    [
        {},
        {"imagePullSecrets": None, "priorityClassName": "", "affinity": {}, "resources": {}, "initContainers": []},
        {"tolerations": [], "volumes": [], "nodeSelector": None, "securityContext": {}, "dnsConfig": {"searches": []}},
        {"containers": None, "securityContext": {"runAsUser": None}, "affinity": {"podAntiAffinity": {}}},
    ],
)
def test_what_charts_emit_for_nothing_changes_nothing(noise: dict[str, Any]) -> None:
    assert merge_pod_spec(POD, noise) == POD


@pytest.mark.parametrize("noise", [{"args": [], "env": [], "resources": {}, "image": ""}, {"env": None, "ports": None}])
def test_what_charts_emit_for_an_unset_container_changes_nothing(noise: dict[str, Any]) -> None:
    assert merge_container(CONTAINER, noise) == CONTAINER


def test_false_and_zero_are_meant() -> None:
    users = {"securityContext": {"privileged": False, "runAsUser": 0}, "startupProbe": {"initialDelaySeconds": 0}}
    merged = merge_container(CONTAINER, users)
    assert merged["securityContext"]["privileged"] is False
    assert merged["securityContext"]["runAsUser"] == 0
    assert merged["startupProbe"]["initialDelaySeconds"] == 0
    assert merge_pod_spec(POD, {"enableServiceLinks": True, "terminationGracePeriodSeconds": 0}) == changed(
        POD, enableServiceLinks=True, terminationGracePeriodSeconds=0
    )


def test_asking_for_root_lifts_our_ban_on_root_unless_it_is_asked_for_too() -> None:
    assert merge_pod_spec(POD, {"securityContext": {"runAsUser": 0}})["securityContext"] == {
        "runAsNonRoot": False,
        "runAsUser": 0,
    }
    users = {"securityContext": {"runAsUser": 0, "runAsNonRoot": True}}
    assert merge_pod_spec(POD, users)["securityContext"]["runAsNonRoot"] is True


def test_arguments_come_after_ours_and_the_command_is_replaced() -> None:
    """scenario 39"""
    merged = merge_container(CONTAINER, {"args": ["-vvv"], "command": ["/bin/sh"]})
    assert merged["args"] == ["-Z", "-vvv"]
    assert merged["command"] == ["/bin/sh"]


def test_a_handler_replaces_ours_and_keeps_our_thresholds() -> None:
    """scenario 39"""
    probe = merge_container(CONTAINER, {"startupProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3}})
    assert probe["startupProbe"] == {"exec": {"command": ["true"]}, "periodSeconds": 3, "failureThreshold": 6}


def test_thresholds_alone_keep_our_handler() -> None:
    probe = merge_container(CONTAINER, {"startupProbe": {"failureThreshold": 60}})["startupProbe"]
    assert probe == {"httpGet": {"path": "/livez", "port": "slurmd"}, "periodSeconds": 10, "failureThreshold": 60}


def test_a_hook_of_the_user_replaces_ours() -> None:
    merged = merge_container(CONTAINER, {"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}})
    assert merged["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}


def test_a_variable_has_one_source() -> None:
    users = {"env": [{"name": "TOPOLOGY", "value": ""}, {"name": "MINE", "value": "1"}]}
    assert merge_container(CONTAINER, users)["env"] == [
        {"name": "POD_CPUS", "value": "2"},
        {"name": "TOPOLOGY", "value": ""},
        {"name": "MINE", "value": "1"},
    ]


def test_a_volume_has_one_source() -> None:
    users = [{"name": "slurm-etc", "hostPath": {"path": "/x"}}, {"name": "slurm-logfile", "emptyDir": {"sizeLimit": 1}}]
    assert merge_pod_spec(POD, {"volumes": users})["volumes"] == [
        {"name": "slurm-etc", "hostPath": {"path": "/x"}},
        {"name": "slurm-logfile", "emptyDir": {"medium": "Memory", "sizeLimit": 1}},
    ]


def test_ports_and_mounts_meet_by_their_identity() -> None:
    users = {
        "ports": [{"containerPort": 6818, "hostPort": 6818}, {"containerPort": 9000}],
        "volumeMounts": [{"mountPath": "/etc/slurm", "readOnly": False}, {"name": "home", "mountPath": "/home"}],
    }
    merged = merge_container(CONTAINER, users)
    assert merged["ports"] == [
        {"name": "slurmd", "containerPort": 6818, "protocol": "TCP", "hostPort": 6818},
        {"containerPort": 9000},
    ]
    assert merged["volumeMounts"] == [
        {"name": "slurm-etc", "mountPath": "/etc/slurm", "readOnly": False},
        {"name": "home", "mountPath": "/home"},
    ]


def test_tolerations_search_domains_and_affinity_are_added_to_ours() -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    zone = {"topologyKey": "zone"}
    users = {
        "tolerations": [toleration],
        "dnsConfig": {"searches": ["example.com"], "options": [{"name": "ndots", "value": "2"}]},
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [zone]},
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}},
        },
    }
    merged = merge_pod_spec(POD, users)
    assert merged["tolerations"] == [*POD["tolerations"], toleration]
    assert merged["dnsConfig"]["searches"] == [*POD["dnsConfig"]["searches"], "example.com"]
    anti = merged["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert anti == [{"topologyKey": "hostname"}, zone]
    assert "nodeAffinity" in merged["affinity"]


def test_a_container_named_like_ours_is_merged_into_it_and_others_come_after() -> None:
    """scenario 39"""
    users = {"containers": [{"name": "side", "image": "x"}, {"name": "slurmd", "resources": {"limits": {"cpu": 2}}}]}
    containers = merge_pod_spec(POD, users)["containers"]
    assert [container["name"] for container in containers] == ["slurmd", "side"]
    assert containers[0] == changed(CONTAINER, resources={"limits": {"cpu": 2}})


def test_capability_lists_are_replaced() -> None:
    users = {"securityContext": {"capabilities": {"add": ["SYS_NICE"]}}}
    assert merge_container(CONTAINER, users)["securityContext"] == {
        "privileged": True,
        "capabilities": {"add": ["SYS_NICE"]},
    }


def test_the_name_of_our_container_stays() -> None:
    assert merge_container(CONTAINER, {"name": "other"})["name"] == "slurmd"


NAMES = st.sampled_from(["slurmd", "logfile", "slurm-etc", "slurm-logfile", "POD_CPUS", "other"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["", "a", "b"]))
ITEMS = st.fixed_dictionaries(
    {"name": NAMES}, optional={"value": SCALARS, "mountPath": SCALARS, "containerPort": SCALARS}
)
CONTEXT = st.dictionaries(st.sampled_from(["privileged", "runAsUser", "runAsNonRoot"]), SCALARS, max_size=3)
CONTAINERS = st.fixed_dictionaries(
    {},
    optional={
        "env": st.lists(ITEMS, max_size=3),
        "ports": st.lists(ITEMS, max_size=3),
        "volumeMounts": st.lists(ITEMS, max_size=3),
        "securityContext": CONTEXT,
        "startupProbe": st.dictionaries(st.sampled_from(["periodSeconds", "failureThreshold"]), st.integers(0, 3)),
        "image": SCALARS,
    },
)
PODS = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.lists(st.builds(lambda name, fields: {"name": name, **fields}, NAMES, CONTAINERS), max_size=3),
        "volumes": st.lists(st.builds(lambda name: {"name": name, "emptyDir": {"medium": ""}}, NAMES), max_size=3),
        "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES}), max_size=3),
        "securityContext": CONTEXT,
        "affinity": st.just({}),
        "hostNetwork": SCALARS,
    },
)


@given(PODS)
def test_merging_again_changes_nothing_and_inputs_stay_as_they_were(users: dict[str, Any]) -> None:
    ours, wish = deepcopy(POD), deepcopy(users)
    once = merge_pod_spec(ours, wish)
    assert (ours, wish) == (POD, users)
    assert merge_pod_spec(once, wish) == once
    assert merge_pod_spec(once, {}) == once


@given(CONTAINERS)
def test_no_identity_appears_twice(users: dict[str, Any]) -> None:
    merged = merge_container(CONTAINER, users)
    for field, key in (("env", "name"), ("ports", "containerPort"), ("volumeMounts", "mountPath")):
        identities = [item.get(key) for item in merged[field]]
        assert len(identities) == len(set(identities))

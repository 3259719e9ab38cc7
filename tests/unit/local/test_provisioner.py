"""Which claims get a volume, what it looks like, and when it goes."""

import msgspec
import pytest

from slurm_local.addons import LOCAL_CLASS, PROVISIONER, SHARED_CLASS
from slurm_local.provisioner import (
    PROVISIONED_BY,
    SELECTED_NODE,
    Claim,
    ClaimSpec,
    Metadata,
    Volume,
    VolumeSpec,
    VolumeStatus,
    is_done_with,
    volume_for,
)


def claim(storage_class: str, *, node: str = "", volume: str = "") -> Claim:
    annotations = {SELECTED_NODE: node} if node else {}
    return Claim(
        metadata=Metadata(name="data", namespace="default", uid="u-1", annotations=annotations),
        spec=ClaimSpec(
            storage_class_name=storage_class,
            volume_name=volume,
            access_modes=("ReadWriteOnce",),
            resources={"requests": {"storage": "5Gi"}},
        ),
    )


def test_a_local_volume_lies_on_the_node_of_its_pod_and_is_tied_to_its_claim() -> None:
    volume = volume_for(claim(LOCAL_CLASS, node="node-2"))

    assert volume is not None
    spec = volume["spec"]
    assert spec["capacity"] == {"storage": "5Gi"}
    assert spec["claimRef"]["uid"] == "u-1"
    expression = spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
    assert expression == {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"]}


@pytest.mark.parametrize(
    "waiting",
    [claim(LOCAL_CLASS), claim("other", node="node-1"), claim(SHARED_CLASS, volume="pvc-u-1"), claim("")],
    ids=["no node yet", "another class", "bound", "no class"],
)
def test_other_claims_are_left_alone(waiting: Claim) -> None:
    assert volume_for(waiting) is None


def test_a_shared_volume_needs_no_pod_and_can_be_mounted_everywhere() -> None:
    volume = volume_for(claim(SHARED_CLASS))

    assert volume is not None
    expression = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
    assert expression["key"] == "kubernetes.io/os"


def released(**changes: str) -> Volume:
    return Volume(
        metadata=Metadata(name="pvc-u-1", annotations={PROVISIONED_BY: changes.get("by", PROVISIONER)}),
        spec=VolumeSpec(persistent_volume_reclaim_policy=changes.get("policy", "Delete")),
        status=VolumeStatus(phase=changes.get("phase", "Released")),
    )


def test_only_a_released_volume_of_ours_goes_and_only_if_its_policy_says_so() -> None:
    assert is_done_with(released())
    assert not is_done_with(released(by="someone-else"))
    assert not is_done_with(released(policy="Retain"))
    assert not is_done_with(released(phase="Bound"))
    leaving = released()
    metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    assert not is_done_with(msgspec.structs.replace(leaving, metadata=metadata))

"""Whom to ask about a cluster, and what its NodeSets share."""

import msgspec
import pytest

from slurm_operator.api import NodeSet, RestApi
from slurm_operator.cluster import choose_restapi, in_cluster, shared_objects
from tests.unit.controller.make import applied, deleting
from tests.unit.desired import examples


def restapi(name: str, created: str = "2027-01-15T08:00:00Z", *, gone: bool = False) -> RestApi:
    found = examples.restapi()
    meta = msgspec.structs.replace(found.metadata, name=name, creation_timestamp=created)
    found = msgspec.structs.replace(found, metadata=meta)
    return deleting(found) if gone else found


OLDER = "2027-01-15T07:00:00Z"


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        ([], ""),
        ([restapi("a")], "a"),
        ([restapi("a"), restapi("b", OLDER)], "b"),
        ([restapi("b"), restapi("a")], "a"),
        ([restapi("a", OLDER, gone=True), restapi("b")], "b"),
        ([restapi("a", gone=True)], ""),
    ],
)
def test_which_rest_api_is_asked(candidates: list[RestApi], chosen: str) -> None:
    """scenario 160: the oldest, then the first by name; one on its way out never"""
    found = choose_restapi(candidates)
    assert (found.metadata.name if found else "") == chosen


def test_what_node_sets_share() -> None:
    """Made with the first NodeSet; garbage collection takes it with the last, so one that goes asks for nothing."""
    key = ("slurm", "slurm")
    both: list[NodeSet] = [examples.nodeset(), examples.nodeset(name="other")]
    names = {"Service/slurm-workers-slurm", "PodDisruptionBudget/slurm-workers-pdb-slurm"}
    assert set(applied(shared_objects(key, both))) == names
    one = applied(shared_objects(key, [deleting(both[0]), both[1]]))
    owners = one["Service/slurm-workers-slurm"]["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == ["other"]
    assert shared_objects(key, [deleting(found) for found in both]).actions == ()


def test_where_slurmrestd_is_within_the_cluster() -> None:
    assert in_cluster(examples.restapi()) == "http://slurm-restapi.slurm:6820"
    assert in_cluster(examples.restapi("service: {port: 80}\n")) == "http://slurm-restapi.slurm:80"

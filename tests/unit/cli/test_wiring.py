"""The operator as it is put together, without a server."""

from collections.abc import AsyncIterator

import pytest

from slurm_operator.cli.manifests import READ, cluster_rules
from slurm_operator.cli.wiring import Operator, Settings
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from slurm_operator.nodeset.reconcile import PATIENCE_SECONDS
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.slurm.views import SlurmViews


@pytest.fixture
async def caches() -> AsyncIterator[Caches]:
    async with Client(KubeConfig("http://127.0.0.1:1")) as client:
        yield Caches(client)


@pytest.fixture
def operator(caches: Caches) -> Operator:
    clock = SystemClock()
    return Operator(caches._client, caches, SlurmViews(clock), clock, lambda restapi: "", Settings("cluster.local"))


async def test_every_kind_that_is_followed_may_be_read(caches: Caches, operator: Operator) -> None:
    """A watch that is refused would keep the operator from its start."""
    assert operator.controllers
    readable = {
        (group, plural)
        for rule in cluster_rules()
        if {*READ} <= {*rule["verbs"]}
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    assert PERSISTENT_VOLUME_CLAIMS in caches.followed
    assert {(kind.group, kind.plural) for kind in caches.followed} <= readable


async def test_a_pass_of_a_nodeset_has_time_to_ask_to_remove_and_to_report(operator: Operator) -> None:
    """Of a slurmctld that takes as long as it may for both."""
    (nodesets,) = [found for found in operator.controllers if found.name == "nodeset"]
    assert nodesets.deadline > 2 * PATIENCE_SECONDS

"""Pods that the API server refuses to create for a StatefulSet or a Deployment: the whole operator in memory."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from slurm_operator.api import names
from slurm_operator.runtime import uncreated
from tests.simulation.control_plane import World, example, keys, not_allowed, until, world

HERE = "slurm"
BACKBONE = ("Controller", "Accounting", "RestApi")


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as found:
        found.create(keys(found.slurms[HERE, "slurm"]), HERE)
        found.create_all(example(*BACKBONE, "ConfigMap"), HERE)
        yield found


def is_told(here: World, kind: str) -> bool:
    return here.degraded(kind, "slurm", HERE) == names.EVENT_FAILED_CREATE


async def test_a_quota_that_forbids_pods_is_told_until_it_is_raised(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uncreated, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(uncreated, "AGAIN_SECONDS", 0.2)
    here.quota = "pods is forbidden: exceeded quota: small"
    async with here.operator() as running:
        for kind in BACKBONE:
            await until(partial(is_told, here, kind))
            told = here.condition(kind, "slurm", HERE, "Degraded")["message"]
            assert "exceeded quota: small; raise the ResourceQuota" in told
            assert not here.ready(kind, "slurm", HERE)
        await running.quiet()
    reported, read = len(here.server.writes), len(here.server.log("list", "events"))
    async with here.operator() as restarted:
        await until(lambda: len(here.server.log("list", "events")) >= read + 2)
        await restarted.quiet()
        assert here.server.writes[reported:] == [], "a restart of the operator is no news"
        here.quota = ""
        await until(lambda: here.all_ready(HERE))
        assert not any(is_told(here, kind) for kind in BACKBONE)
    assert not_allowed(here.server.requests) == set()

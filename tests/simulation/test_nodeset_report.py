"""What a NodeSet reports while requests fail: the whole operator on an in-memory Kubernetes and an in-memory Slurm."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from slurm_operator.nodeset import decide, slurm_actions
from tests.fakes import slurmrestd as fake
from tests.fakes.apiserver.faults import Refuse
from tests.fakes.slurmrestd import FakeSlurm
from tests.simulation.control_plane import World, example, keys, until, world

HERE = "slurm"
NODES_BUSY = 2016


@pytest_asyncio.fixture
async def here() -> AsyncIterator[World]:
    async with world((HERE, "slurm")) as found:
        found.create(keys(found.slurms[HERE, "slurm"]), HERE)
        found.create_all(example("ConfigMap", "Controller", "RestApi", "NodeSet"), HERE)
        found.change("Controller", "slurm", HERE, {"spec": {"accountingRef": None}})
        yield found


async def test_one_refused_request_leaves_no_report_behind(here: World) -> None:
    """The pass that succeeds is followed by one that says so, also if no other change follows."""
    sssd = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sssd"}, "stringData": {"sssd.conf": "[sssd]"}}
    here.create(sssd, HERE)
    async with here.operator() as running:
        await until(lambda: here.ready("NodeSet", "small", HERE))
        here.change("NodeSet", "small", HERE, {"spec": {"updateStrategy": {"type": "OnDelete"}}})
        await running.quiet()
        here.server.inject(Refuse(422, "Invalid", "one hiccup"), "patch|create|apply", "configmaps", times=1)
        ssh = {"enabled": True, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}
        here.change("NodeSet", "small", HERE, {"spec": {"ssh": ssh}})
        await until(lambda: ("NodeSet", "Refused") in here.events(HERE))
        await until(lambda: here.find("ConfigMap", "small-ssh-config", HERE))
        await until(lambda: not here.degraded("NodeSet", "small", HERE))


async def test_a_record_that_slurm_refuses_to_delete_is_reported_once(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again and again; the report and the event do not change with each try."""
    monkeypatch.setattr(slurm_actions, "KEPT_SECONDS", 0.3)
    monkeypatch.setattr(decide, "NAMED_SECONDS", 0.1)
    slurm, seen = here.slurms[HERE, "slurm"], [""]

    def tries(number: int) -> bool:
        degraded = here.degraded("NodeSet", "small", HERE)
        if degraded != seen[-1]:
            seen.append(degraded)
        return _deletions(slurm) >= number

    async with here.operator():
        await until(lambda: here.ready("NodeSet", "small", HERE))
        with slurm.failing(replace(fake.refuse(422, NODES_BUSY), only=lambda call: call.startswith("DELETE node/"))):
            here.change("NodeSet", "small", HERE, {"spec": {"replicas": 1}})
            await until(lambda: tries(7))
            assert seen == ["", "Refused"]
            assert here.events(HERE).count(("NodeSet", "Refused")) == 1
        await until(lambda: "small-1" not in slurm.nodes)
        await until(lambda: not here.degraded("NodeSet", "small", HERE))


def _deletions(slurm: FakeSlurm) -> int:
    return slurm.count("DELETE node/")

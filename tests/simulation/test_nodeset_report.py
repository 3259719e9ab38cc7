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


async def test_a_job_that_is_waited_for_is_named_and_goes_on(here: World) -> None:
    """The report names the user; the job runs on until it ends by itself, and the report ends with it."""
    slurm = here.slurms[HERE, "slurm"]
    async with here.operator(report_waiting_after=0.0) as running:
        await until(lambda: here.ready("NodeSet", "small", HERE))
        slurm.start_job(7, "small-[0-1]")
        here.change("NodeSet", "small", HERE, {"spec": {"replicas": 0}})
        await until(
            lambda: "user alice" in here.condition("NodeSet", "small", HERE, "WaitingForJobs").get("message", "")
        )
        told = here.condition("NodeSet", "small", HERE, "WaitingForJobs")
        assert "job 7 of user alice on small-" in told["message"]
        assert "`scancel 7` ends it" in told["message"]
        await until(lambda: ("NodeSet", "WaitingForJobs") in here.events(HERE))
        asked = slurm.count("GET job/")
        running.look_again(HERE)
        await running.quiet()
        assert slurm.count("GET job/") == asked
        assert (slurm.jobs[7].state, sorted(slurm.nodes)) == ("RUNNING", ["big-0", "small-0", "small-1"])
        slurm.end_job(7)
        await until(lambda: not here.condition("NodeSet", "small", HERE, "WaitingForJobs"))


def _deletions(slurm: FakeSlurm) -> int:
    return slurm.count("DELETE node/")

"""The whole operator in memory: records of workers that vanish, and workers and revisions that are adopted."""

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from slurm_operator.nodeset import decide, unregistered
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.reasons import our_reason
from tests.simulation.control_plane import World, example, keys, until, world

HERE = "slurm"
CLUSTER = (HERE, "slurm")
WORKERS = ["small-0", "small-1"]


def small() -> dict[str, Any]:
    (found,) = [manifest for manifest in example("NodeSet") if manifest["metadata"]["name"] == "small"]
    return found


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """A cluster with the NodeSet `small`."""
    async with world(CLUSTER) as found:
        found.create(keys(found.slurms[CLUSTER]), HERE)
        found.create_all(example("ConfigMap", "Controller", "RestApi"), HERE)
        found.change("Controller", "slurm", HERE, {"spec": {"accountingRef": None}})
        found.create(copy.deepcopy(small()), HERE)
        yield found


def uids(here: World) -> list[str]:
    return [here.uid("Pod", name, HERE) for name in WORKERS]


def said(here: World) -> str:
    return str(here.condition("NodeSet", "small", HERE, "Degraded").get("message", ""))


async def test_workers_whose_records_vanish_are_reported_and_stay(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld lost its state: what ran on them is not known."""
    monkeypatch.setattr(unregistered, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(decide, "NAMED_SECONDS", 0.2)
    slurm = here.slurms[CLUSTER]
    async with here.operator():
        await until(lambda: here.ready("NodeSet", "small", HERE))
        slurm.start_job(1, "small-0")

        def marked() -> bool:
            conditions = here.get("Pod", "small-0", HERE)["status"]["conditions"]
            return any(found["type"] == "SlurmNodeStateAllocated" for found in conditions)

        await until(marked)
        pods, addresses = uids(here), [slurm.nodes[name].address for name in WORKERS]
        slurm.nodes.clear()
        slurm.jobs.clear()
        slurm.touch()
        await until(lambda: here.degraded("NodeSet", "small", HERE) == "SlurmNodeNotRegistered")
        assert "no record any more of worker small-0, on which jobs were running" in said(here)
        assert "no record of worker small-1" in said(here)
        await until(lambda: ("NodeSet", "SlurmNodeNotRegistered") in here.events(HERE))
        assert here.condition("NodeSet", "small", HERE, "Ready")["status"] == "False"
        assert uids(here) == pods
        for name, address in zip(WORKERS, addresses, strict=True):
            slurm.add_nodes(name, address=address, slurmd_start=int(slurm.boot), features=["small"])
        await until(lambda: not here.degraded("NodeSet", "small", HERE))
        assert uids(here) == pods


async def test_an_orphaned_revision_is_adopted(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, on a quiet cluster: no other change and no timer begins a pass."""
    monkeypatch.setattr(decide, "WAITING_SECONDS", 0.2)
    async with here.operator() as running:
        await until(lambda: here.ready("NodeSet", "small", HERE))
        await running.quiet(1.0)
        (revision,) = here.all("ControllerRevision", HERE)
        (before,) = revision["metadata"]["ownerReferences"]
        name = revision["metadata"]["name"]
        here.change("ControllerRevision", name, HERE, {"metadata": {"ownerReferences": None}})

        def owners() -> list[Any]:
            return list(here.get("ControllerRevision", name, HERE)["metadata"].get("ownerReferences") or ())

        await until(lambda: owners() == [before])
        await running.quiet()
        (nodesets,) = [found for found in running.operator.controllers if found.name == "nodeset"]
        assert nodesets.stats.results["error"] == 0
        assert not here.degraded("NodeSet", "small", HERE)


async def test_a_nodeset_that_is_created_again_keeps_its_workers_and_their_records(here: World) -> None:
    """One worker is DOWN with a reason of ours when its new NodeSet adopts it."""
    slurm = here.slurms[CLUSTER]
    async with here.operator() as running:
        await until(lambda: here.ready("NodeSet", "small", HERE))
        view = running.views.get(CLUSTER)
        assert view is not None
        pods, old = uids(here), here.uid("NodeSet", "small", HERE)
        kind = here.cluster.kind("NodeSet")
        here.cluster.delete(kind, "small", HERE, {"propagationPolicy": "Orphan"})
        await until(lambda: here.find("NodeSet", "small", HERE) is None)
        slurm.nodes["small-0"].down, slurm.nodes["small-0"].reason = True, our_reason("worker pod is going away")
        slurm.touch()

        def is_seen() -> bool:
            return isinstance(view.state, Known) and "DOWN" in view.state.nodes["small-0"].state

        await until(is_seen)
        await view.read_jobs(0.0)  # as any other NodeSet that removes workers makes it do
        slurm.calls.clear()
        here.create(copy.deepcopy(small()), HERE)
        await until(lambda: here.ready("NodeSet", "small", HERE) and not slurm.nodes["small-0"].down)
        assert here.uid("NodeSet", "small", HERE) != old
        assert uids(here) == pods
        assert not [call for call in slurm.calls if call.startswith("DELETE")]

"""The whole operator in memory: the claims of workers, which are deleted by users or with their namespace."""

import copy
from collections.abc import AsyncIterator

import pytest

from slurm_operator.nodeset import decide
from tests.simulation.control_plane import World, example, keys, until, world

HERE = "slurm"
CLUSTER = (HERE, "slurm")
CLAIM = {
    "metadata": {"name": "scratch"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """A cluster with one worker that has a claim of its own."""
    async with world() as found:
        found.create(keys(found.slurms[CLUSTER]), HERE)
        found.create_all(example("ConfigMap", "Controller", "RestApi"), HERE)
        found.change("Controller", "slurm", HERE, {"spec": {"accountingRef": None}})
        small = copy.deepcopy(next(one for one in example("NodeSet") if one["metadata"]["name"] == "small"))
        small["spec"] |= {"replicas": 1, "volumeClaimTemplates": [CLAIM]}
        found.create(small, HERE)
        yield found


async def test_a_claim_that_was_deleted_is_made_again_with_the_next_worker_of_that_name(here: World) -> None:
    def workers() -> list[str]:
        return [pod["metadata"]["name"] for pod in here.all("Pod", HERE) if pod["metadata"]["name"] == "small-0"]

    async with here.operator():
        await until(lambda: here.ready("NodeSet", "small", HERE))
        before = here.uid("PersistentVolumeClaim", "scratch-small-0", HERE)
        assert before
        here.change("NodeSet", "small", HERE, {"spec": {"replicas": 0}})
        await until(lambda: not workers())
        assert here.uid("PersistentVolumeClaim", "scratch-small-0", HERE) == before
        here.delete("PersistentVolumeClaim", "scratch-small-0", HERE)
        here.change("NodeSet", "small", HERE, {"spec": {"replicas": 1}})
        await until(workers)
        assert here.uid("PersistentVolumeClaim", "scratch-small-0", HERE) not in ("", before)


async def test_the_claim_of_a_pod_that_waits_for_a_node_is_made_again(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes keeps the claims of placed pods only: a pod that has no node yet would wait for its claim for ever.

    No other change and no timer begins a pass.
    """
    monkeypatch.setattr(World, "_run_pod", lambda _self, _pod: None)
    monkeypatch.setattr(decide, "WAITING_SECONDS", 0.2)
    async with here.operator() as running:
        await until(lambda: here.find("Pod", "small-0", HERE))
        await running.quiet(1.0)
        before = here.uid("PersistentVolumeClaim", "scratch-small-0", HERE)
        here.delete("PersistentVolumeClaim", "scratch-small-0", HERE)
        await until(lambda: here.uid("PersistentVolumeClaim", "scratch-small-0", HERE) not in ("", before))

"""The NodeSet with the last node records of a cluster goes, although slurmctld hides that the records are gone."""

from collections.abc import AsyncIterator

import pytest

from slurm_operator.api import names
from tests.fakes.slurmrestd import FakeSlurm
from tests.simulation.control_plane import Running, World, example, keys, until, world

NAMESPACE = "slurm"
WORKERS = ("small-0", "small-1")


@pytest.fixture
async def made() -> AsyncIterator[World]:
    """A cluster with a single NodeSet."""
    async with world((NAMESPACE, "slurm")) as found:
        found.create(keys(found.slurms[NAMESPACE, "slurm"]), NAMESPACE)
        found.create_all(example("ConfigMap", "Controller", "RestApi"), NAMESPACE)
        nodeset = next(one for one in example("NodeSet") if one["metadata"]["name"] == "small")
        found.create(nodeset, NAMESPACE)
        found.change("Controller", "slurm", NAMESPACE, {"spec": {"accountingRef": None}})
        async with found.operator() as running:
            await until(lambda: found.ready("NodeSet", "small", NAMESPACE))
            await quiet_second(running)
            yield found


async def quiet_second(running: Running) -> None:
    """Slurm tells changes apart by the second: wait for a list of a later one than the last change."""
    view = running.views.get((NAMESPACE, "slurm"))
    assert view is not None
    await until(lambda: view._last_update > running.world.slurms[NAMESPACE, "slurm"]._changed)


def slurm_of(made: World) -> FakeSlurm:
    return made.slurms[NAMESPACE, "slurm"]


def pods(made: World) -> list[str]:
    found = made.all("Pod", NAMESPACE)
    return [pod["metadata"]["name"] for pod in found if pod["metadata"]["labels"][names.LABEL_APP] == names.APP_SLURMD]


async def test_the_only_nodeset_is_deleted(made: World) -> None:
    made.delete("NodeSet", "small", NAMESPACE)
    await until(lambda: made.find("NodeSet", "small", NAMESPACE) is None)
    assert (slurm_of(made).nodes, pods(made)) == ({}, [])


async def test_an_administrator_deleted_the_last_records_before(made: World) -> None:
    slurm_of(made).delete_nodes(WORKERS)
    made.delete("NodeSet", "small", NAMESPACE)
    await until(lambda: made.find("NodeSet", "small", NAMESPACE) is None, 60)
    assert pods(made) == []

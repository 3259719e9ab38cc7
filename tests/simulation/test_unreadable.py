"""The whole operator in memory: what other programs and users write never costs a running job or stops the operator."""

from collections.abc import AsyncIterator

import pytest

from slurm_operator.slurm.known import Known
from tests.simulation.control_plane import STATUS, World, example, keys, until, world

HERE = "slurm"
CLUSTER = (HERE, "slurm")
JOB = 1


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """The example's control plane and workers, without accounting."""
    async with world() as found:
        found.create(keys(found.slurms[CLUSTER]), HERE)
        found.create_all(example("ConfigMap", "Controller", "RestApi", "NodeSet"), HERE)
        found.change("Controller", "slurm", HERE, {"spec": {"accountingRef": None}})
        yield found


def workers(here: World) -> list[str]:
    return [name for pod in here.all("Pod", HERE) if (name := pod["metadata"]["name"]).startswith("small-")]


def add_condition(here: World, pod: str, status: str) -> None:
    before = here.get("Pod", pod, HERE)["status"]["conditions"]
    conditions = [*before, {"type": "example.com/gate", "status": status}]
    here.cluster.patch(here.cluster.kind("Pod"), pod, HERE, {"status": {"conditions": conditions}}, writer=STATUS)


@pytest.mark.parametrize("status", ["true", ""])
async def test_busy_pods_with_a_strange_condition_survive_a_restart_while_their_nodeset_is_deleted(
    here: World, status: str
) -> None:
    slurm = here.slurms[CLUSTER]
    async with here.operator() as running:
        await until(lambda: here.ready("NodeSet", "small", HERE))
        slurm.start_job(JOB, "small-[0-1]")
        here.delete("NodeSet", "small", HERE)
        await until(lambda: "job 1" in here.condition("NodeSet", "small", HERE, "Progressing").get("message", ""))
        for pod in workers(here):
            add_condition(here, pod, status)
        await running.quiet()
    async with here.operator() as running:
        await until(lambda: isinstance(running.views.state(CLUSTER), Known) and running.passes()["nodeset"])
        running.look_again(HERE)
        await running.quiet(1.5)
        assert workers(here) == ["small-0", "small-1"]
        assert here.find("NodeSet", "small", HERE)
        slurm.end_job(JOB)
        await until(lambda: not here.find("NodeSet", "small", HERE))
        await until(lambda: not workers(here))


async def test_a_job_whose_name_is_not_utf8_holds_up_no_scale_in(here: World) -> None:
    slurm = here.slurms[CLUSTER]
    async with here.operator():
        await until(lambda: here.ready("NodeSet", "small", HERE))
        slurm.start_job(JOB, "small-1").name = "j\udcffb"
        slurm.nodes["small-0"].comment = "d\udce9faut"
        here.change("NodeSet", "small", HERE, {"spec": {"replicas": 0}})
        await until(lambda: workers(here) == ["small-1"])
        await until(lambda: "DRAIN" in slurm.nodes["small-1"].flags)
        slurm.end_job(JOB)
        await until(lambda: not workers(here))

"""The whole operator in memory: what other programs and users write never costs a running job or stops the operator."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from slurm_operator import cluster as shared
from slurm_operator.slurm.known import Known
from tests.fakes.apiserver import Refuse
from tests.simulation.control_plane import STATUS, Running, World, example, keys, until, world

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


def is_degraded(here: World, kind: str, name: str, reason: str) -> bool:
    return here.degraded(kind, name, HERE) == reason


def add_condition(here: World, pod: str, status: str) -> None:
    before = here.get("Pod", pod, HERE)["status"]["conditions"]
    conditions = [*before, {"type": "example.com/gate", "status": status}]
    here.cluster.patch(here.cluster.kind("Pod"), pod, HERE, {"status": {"conditions": conditions}}, writer=STATUS)


def spoil(here: World, pod: str, message: object = 7) -> None:
    """Give a pod a status that does not fit its type, or a good one again."""
    here.cluster.patch(here.cluster.kind("Pod"), pod, HERE, {"status": {"message": message}}, writer=STATUS)


async def has_looked(running: Running) -> None:
    """Until a new operator knows Slurm, has looked at everything and has nothing more to do."""
    await until(lambda: isinstance(running.views.state(CLUSTER), Known) and running.passes()["nodeset"])
    running.look_again(HERE)
    await running.quiet(1.5)


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
        await has_looked(running)
        assert workers(here) == ["small-0", "small-1"]
        assert here.find("NodeSet", "small", HERE)
        slurm.end_job(JOB)
        await until(lambda: not here.find("NodeSet", "small", HERE))
        await until(lambda: not workers(here))


async def test_busy_pods_that_cannot_be_read_survive_a_restart_while_their_nodeset_is_deleted(here: World) -> None:
    slurm = here.slurms[CLUSTER]
    async with here.operator() as running:
        await until(lambda: here.ready("NodeSet", "small", HERE))
        slurm.start_job(JOB, "small-[0-1]")
        here.delete("NodeSet", "small", HERE)
        await until(lambda: "job 1" in here.condition("NodeSet", "small", HERE, "Progressing").get("message", ""))
        await running.quiet()
    for pod in workers(here):
        spoil(here, pod)
    async with here.operator() as running:
        await has_looked(running)
        assert workers(here) == ["small-0", "small-1"]
        assert here.degraded("NodeSet", "small", HERE) == "UnreadablePod"
        slurm.end_job(JOB)
        for pod in workers(here):
            spoil(here, pod, "")
        await until(lambda: not here.find("NodeSet", "small", HERE) and not workers(here))


async def test_a_worker_whose_node_cannot_be_read_is_not_lost(here: World) -> None:
    slurm = here.slurms[CLUSTER]
    here.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}, "")
    async with here.operator() as running:
        await until(lambda: here.ready("NodeSet", "small", HERE))
        here.cluster.bind("small-0", HERE, "n1")
        await running.quiet()
    before = here.uid("Pod", "small-0", HERE)
    here.change("Node", "n1", "", {"spec": {"unschedulable": "perhaps"}})
    slurm.nodes["small-0"].down, slurm.nodes["small-0"].reason = True, "Not responding"
    slurm.nodes["small-0"].flags.append("NOT_RESPONDING")
    slurm.touch()
    async with here.operator() as running:
        await has_looked(running)
        assert here.uid("Pod", "small-0", HERE) == before
        here.delete("Node", "n1", "")
        await until(lambda: here.uid("Pod", "small-0", HERE) != before)


@pytest.mark.parametrize("left", ["worker", "unreadable worker", "unreadable NodeSet"])
async def test_what_workers_share_stays_while_it_may_be_needed(
    here: World, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget is the second owner of the workers: without it garbage collection takes them."""
    monkeypatch.setattr(shared, "UNREADABLE_SECONDS", 0.3)
    async with here.operator() as running:
        await until(lambda: here.ready("NodeSet", "small", HERE) and here.ready("NodeSet", "big", HERE))
        await running.quiet()
    for nodeset in ("small", "big"):
        if left == "unreadable NodeSet":
            here.change("NodeSet", nodeset, HERE, {"spec": {"replicas": "many"}})
        else:
            here.change("NodeSet", nodeset, HERE, {"metadata": {"finalizers": None}})
            here.delete("NodeSet", nodeset, HERE)
    for pod in ("big-0", "small-0", "small-1"):
        if left == "unreadable NodeSet" or pod != "small-1":
            here.delete("Pod", pod, HERE)
    if left == "unreadable worker":
        spoil(here, "small-1")
    await until(lambda: workers(here) == (["small-1"] if "worker" in left else []))
    async with here.operator() as running:
        await until(lambda: isinstance(running.views.state(CLUSTER), Known) and running.passes()["cluster"])
        running.look_again(HERE)
        await running.quiet(1.5)
        for kind, name in (("Service", "slurm-workers-slurm"), ("PodDisruptionBudget", "slurm-workers-pdb-slurm")):
            assert "deletionTimestamp" not in here.get(kind, name, HERE)["metadata"]
        assert workers(here) == (["small-1"] if "worker" in left else [])
        if "worker" in left:
            here.delete("Pod", "small-1", HERE)
        else:
            for nodeset in ("small", "big"):
                here.change("NodeSet", nodeset, HERE, {"metadata": {"finalizers": None}})
                here.delete("NodeSet", nodeset, HERE)
        await until(lambda: not here.find("PodDisruptionBudget", "slurm-workers-pdb-slurm", HERE))


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


async def test_a_missing_right_is_told_on_the_objects_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account may not watch single Secrets: no object is made from what is not known, and all go on once it may."""
    monkeypatch.setattr("slurm_operator.runtime.references.REFUSED", 0.2)
    monkeypatch.setattr("slurm_operator.nodeset.decide.WAITING_SECONDS", 0.2)
    monkeypatch.setattr("slurm_operator.kube.reflector.BACKOFF_SECONDS", (0.05, 0.2))
    said = 'secrets is forbidden: User "operator" cannot watch resource "secrets"'
    needy = (("Controller", "slurm"), ("NodeSet", "small"))
    async with world() as here, here.operator() as running:
        await until(lambda: here.server.log("watch", "secrets"))
        await running.quiet()
        here.server.inject(Refuse(403, "Forbidden", said), "list|watch", "secrets", times=None)
        here.create(keys(here.slurms[CLUSTER]), HERE)
        here.create_all(example("ConfigMap", "Controller", "RestApi", "NodeSet"), HERE)
        here.change("Controller", "slurm", HERE, {"spec": {"accountingRef": None}})
        for kind, name in needy:
            await until(partial(is_degraded, here, kind, name, "Forbidden"))
            message = here.condition(kind, name, HERE, "Degraded")["message"]
            assert message.startswith(f"Secret {HERE}/slurm-keys may not be read")
            assert "grant this account the verb 'watch' on 'secrets'" in message
        assert here.all("StatefulSet", HERE) == []
        here.server.faults.clear()
        await until(lambda: here.all_ready(HERE))
        for kind, name in needy:
            await until(partial(is_degraded, here, kind, name, ""))

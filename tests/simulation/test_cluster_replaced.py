"""A NodeSet that is being deleted waits for its jobs, whatever else of its cluster is deleted or replaced meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from slurm_operator.api import names
from slurm_operator.nodeset import observe
from tests.fakes.slurmrestd import FakeSlurm
from tests.simulation.control_plane import World, example, keys, until, world

NAMESPACE = "slurm"


def workers(of: World) -> list[str]:
    found = (pod["metadata"]["name"] for pod in of.all("Pod", NAMESPACE))
    return sorted(name for name in found if name.startswith("small"))


@asynccontextmanager
async def waiting_for_a_job() -> AsyncIterator[tuple[World, FakeSlurm]]:
    """NodeSet `small` is deleted while job 1 runs on both of its workers."""
    async with world((NAMESPACE, "slurm")) as made:
        slurm = made.slurms[NAMESPACE, "slurm"]
        made.create(keys(slurm), NAMESPACE)
        made.create_all(example("ConfigMap", "Controller", "RestApi", "NodeSet"), NAMESPACE)
        made.change("Controller", "slurm", NAMESPACE, {"spec": {"accountingRef": None}})
        async with made.operator():
            await until(lambda: made.ready("NodeSet", "small", NAMESPACE))
            slurm.start_job(1, "small-[0-1]")
            made.delete("NodeSet", "small", NAMESPACE)
            await until(lambda: all("DRAIN" in slurm.nodes[name].flags for name in ("small-0", "small-1")))
            yield made, slurm


def is_external(of: World, pod: str) -> bool:
    notes = of.get("Pod", pod, NAMESPACE)["metadata"].get("annotations", {})
    return bool(notes.get("nodeset.slinky.slurm.net/external-slurmctld") == "true")


def reachable(of: World) -> str:
    return str(of.condition("NodeSet", "small", NAMESPACE, "SlurmReachable").get("status"))


@pytest.mark.parametrize("kind", ["RestApi", "Controller"])
async def test_a_replaced_restapi_or_controller_costs_no_worker(kind: str) -> None:
    async with waiting_for_a_job() as (made, slurm):
        old = made.get(kind, "slurm", NAMESPACE)
        made.delete(kind, "slurm", NAMESPACE)
        await until(lambda: reachable(made) == "False")
        assert workers(made) == ["small-0", "small-1"]
        made.create(
            {**{key: old[key] for key in ("apiVersion", "kind", "spec")}, "metadata": {"name": "slurm"}}, NAMESPACE
        )
        await until(lambda: reachable(made) == "True")
        assert workers(made) == ["small-0", "small-1"]
        slurm.end_job(1)
        await until(lambda: made.find("NodeSet", "small", NAMESPACE) is None)
        assert workers(made) == []


async def test_a_nodeset_goes_once_slurmctld_itself_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "GONE_SECONDS", 1.0)
    async with waiting_for_a_job() as (made, _):
        made.delete("RestApi", "slurm", NAMESPACE)
        made.delete("Controller", "slurm", NAMESPACE)
        await until(lambda: made.find("NodeSet", "small", NAMESPACE) is None)


SLURMCTLD = names.selector(names.APP_SLURMCTLD, "slurm")
STRANGE: dict[str, tuple[str, str, dict[str, object]]] = {
    "Controller": ("slinky.slurm.net/v1beta1", "slurm", {"slurmKeyRef": 7}),
    "StatefulSet": ("apps/v1", "slurm-controller", {"replicas": 0, "serviceName": 7}),
    "Pod": ("v1", "slurm-controller-0", {"hostname": 7, "containers": [{"name": "slurmctld"}]}),
}


@pytest.mark.parametrize("kind", STRANGE)
async def test_what_cannot_be_read_may_be_slurmctld(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "GONE_SECONDS", 1.0)
    version, name, spec = STRANGE[kind]
    async with waiting_for_a_job() as (made, _):
        made.delete("RestApi", "slurm", NAMESPACE)
        made.delete("Controller", "slurm", NAMESPACE)
        meta = {"name": name, "labels": SLURMCTLD}
        await until(lambda: made.find(kind, name, NAMESPACE) is None)
        made.create({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}, NAMESPACE)
        await until(lambda: reachable(made) == "False")
        await asyncio.sleep(2.5)  # longer than it would take to be let go
        assert workers(made) == ["small-0", "small-1"]


async def test_an_external_slurmctld_does_not_end_with_its_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "GONE_SECONDS", 0.5)
    async with waiting_for_a_job() as (made, _):
        elsewhere = {"external": True, "externalConfig": {"host": "ctl.example.com", "port": 7817}}
        made.change("Controller", "slurm", NAMESPACE, {"spec": elsewhere})
        await until(lambda: all(is_external(made, name) for name in workers(made)))
        made.delete("RestApi", "slurm", NAMESPACE)
        made.delete("Controller", "slurm", NAMESPACE)

        def said() -> bool:
            message = made.condition("NodeSet", "small", NAMESPACE, "Progressing").get("message", "")
            return "its slurmctld runs elsewhere" in message

        await until(said)
        await until(lambda: reachable(made) == "False")
        await asyncio.sleep(2.0)  # longer than it would take to be let go
        assert workers(made) == ["small-0", "small-1"]

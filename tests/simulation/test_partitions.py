"""The whole operator in memory: a partition never leaves slurm.conf while a job names it."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from slurm_operator.controller import decide, observe
from slurm_operator.controller import partitions as partitions_module
from slurm_operator.slurm import view
from slurm_operator.slurm.conf.parser import parse
from tests.fakes.slurmrestd import FakeSlurm
from tests.simulation.control_plane import World, example, keys, until, world

HERE = "slurm"
CLUSTER = (HERE, "slurm")
RENAMED = {"spec": {"template": {"spec": {"hostname": "node-"}}}}
DISABLED = {"spec": {"partition": {"enabled": False}}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are read, and slurmctld is asked, every half second."""
    monkeypatch.setattr(view, "JOBS_MAX_AGE_SECONDS", 0.5)
    monkeypatch.setattr(decide, "CLOSING_SECONDS", 0.2)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as found:
        found.create(keys(found.slurms[CLUSTER]), HERE)
        found.create_all(example("ConfigMap", "Controller", "RestApi", "NodeSet"), HERE)
        found.change("Controller", "slurm", HERE, {"spec": {"accountingRef": None}})
        yield found


def conf(here: World) -> str:
    return str(here.get("ConfigMap", "slurm-config", HERE)["data"]["slurm.conf"])


def partitions(here: World) -> dict[str, str]:
    """State of each partition in slurm.conf."""
    return {line.value: line.get("State") or "" for line in parse(conf(here)).all("PartitionName")}


def progress(here: World) -> str:
    return str(here.condition("Controller", "slurm", HERE, "Progressing").get("message", ""))


def state(slurm: FakeSlurm, *jobs: int) -> list[str]:
    return [slurm.jobs[job].state for job in jobs]


async def test_a_partition_stays_until_no_job_names_it(here: World) -> None:
    """A hostname changed, a partition disabled; the operator restarts in between."""
    slurm = here.slurms[CLUSTER]
    async with here.operator():
        await until(lambda: here.all_ready(HERE))
        assert partitions(here) == {"big": "UP", "small": "UP", "all": "UP"}
        slurm.start_job(1, "small-[0-1]", partition="small")
        slurm.start_job(2, "big-0", partition="big")
        slurm.start_job(3, "", partition="all,small", state="PENDING")
        here.change("NodeSet", "small", HERE, RENAMED)
        here.change("NodeSet", "big", HERE, DISABLED)
        await until(lambda: "jobs 1 and 3" in progress(here) and "job 2" in progress(here))
        assert partitions(here) == {"big": "DRAIN", "small": "DRAIN", "node": "UP", "all": "UP"}
        assert here.ready("Controller", "slurm", HERE)
    async with here.operator() as running:
        await until(lambda: slurm.partitions == partitions(here))
        await running.quiet(1.5)
        assert partitions(here) == {"big": "DRAIN", "small": "DRAIN", "node": "UP", "all": "UP"}
        assert state(slurm, 1, 2, 3) == ["RUNNING", "RUNNING", "PENDING"]
        slurm.end_job(1)
        slurm.end_job(2)
        await until(lambda: partitions(here) == {"small": "DRAIN", "node": "UP", "all": "UP"})
        await until(lambda: "job 3 names it" in progress(here))
        slurm.end_job(3)
        await until(lambda: partitions(here) == {"node": "UP", "all": "UP"})
        assert state(slurm, 1, 2, 3) == ["COMPLETED"] * 3
        await until(lambda: progress(here) == "" and here.all_ready(HERE), 60)
        await running.quiet()
        before = len(here.server.writes)
        running.look_again(HERE)
        await running.quiet()
        assert len(here.server.writes) == before


async def test_a_partition_of_extra_conf_stays_until_no_job_names_it(here: World) -> None:
    slurm = here.slurms[CLUSTER]
    extra = str(here.get("Controller", "slurm", HERE)["spec"]["extraConf"])
    mine = f"{extra}PartitionName=DEFAULT MaxTime=60\nPartitionName=night Nodes=small Default=NO State=UP\n"
    here.change("Controller", "slurm", HERE, {"spec": {"extraConf": mine}})
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        slurm.start_job(1, "small-0", partition="night")
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": extra}})
        await until(lambda: "partition night is kept because job 1 names it" in progress(here))
        assert partitions(here)["night"] == "DRAIN"
        assert "PartitionName=night MaxTime=60 Nodes=small State=DRAIN\n" in conf(here)
        assert "NodeSet=night" not in conf(here)
        await until(lambda: slurm.partitions == partitions(here))
        assert state(slurm, 1) == ["RUNNING"]
    async with here.operator() as running:
        await running.quiet(1.5)
        assert partitions(here)["night"] == "DRAIN"
        slurm.end_job(1)
        await until(lambda: "night" not in partitions(here))
        assert state(slurm, 1) == ["COMPLETED"]
        await until(lambda: progress(here) == "" and here.all_ready(HERE), 60)


async def test_a_partition_of_extra_conf_goes_with_its_nodes(here: World) -> None:
    """slurmctld ends with a partition whose nodes nothing defines any more."""
    extra = str(here.get("Controller", "slurm", HERE)["spec"]["extraConf"])
    mine = f"{extra}NodeSet=special Feature=special\nPartitionName=night Nodes=special State=UP\n"
    here.change("Controller", "slurm", HERE, {"spec": {"extraConf": mine}})
    async with here.operator():
        await until(lambda: here.all_ready(HERE) and "night" in partitions(here))
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": extra}})
        await until(lambda: "NodeSet=special" not in conf(here))
        assert "special" not in conf(here)


async def test_a_partition_that_slurmctld_refused_does_not_stand_in_the_way_of_its_removal(here: World) -> None:
    extra = str(here.get("Controller", "slurm", HERE)["spec"]["extraConf"])
    bad = f"{extra}PartitionName=night Nodes=small MaxTime=2x\n"
    async with here.operator():
        await until(lambda: here.all_ready(HERE))
        here.refuse, here.bad_word = "refused {}: Bad value", "MaxTime=2x"
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": bad}})
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "ConfigurationRefused")
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": extra}})
        await until(lambda: "MaxTime=2x" not in conf(here))
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "" and here.all_ready(HERE))
        await until(lambda: "night" not in partitions(here), 60)


def steps(here: World) -> int:
    """Number of writes so far, without events."""
    return sum(not line.resource.startswith("events") for line in here.server.writes)


async def test_an_operator_that_dies_after_each_write_takes_a_partition_away(here: World) -> None:
    """What a new process has not found out yet is no news, else two texts alternate for ever. scenario 193"""
    slurm = here.slurms[CLUSTER]
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        slurm.start_job(1, "big-0", partition="big")
        slurm.start_job(2, "small-1", partition="small")
        here.change("NodeSet", "big", HERE, DISABLED)
        here.change("NodeSet", "small", HERE, {"spec": {"replicas": 0}})
        await running.quiet()

    async def live(wanted: Callable[[], bool]) -> int:
        """Start operators, one after another, until what is wanted holds and one has nothing to write."""
        for starts in range(40):
            if not await dies(wanted):
                return starts
        raise AssertionError(f"40 operators died: {here.server.writes[-6:]}")

    async def dies(wanted: Callable[[], bool]) -> bool:
        """Run an operator until it has written, or until it has nothing to write and what is wanted holds."""
        before = steps(here)
        async with here.operator() as running:
            await until(lambda: steps(here) > before or wanted())
            if steps(here) == before:
                await running.quiet(1.5)
        return steps(here) > before

    def waits() -> bool:
        going = here.condition("NodeSet", "small", HERE, "Progressing")["message"]
        return "job 1 names it" in progress(here) and "job 2 on small-1" in going and len(workers()) == 2

    def workers() -> list[str]:
        return [name for name in ("small-0", "small-1", "big-0") if here.find("Pod", name, HERE)]

    await live(waits)
    assert await live(waits) == 0, "a restart alone is no news"
    slurm.end_job(1)
    slurm.end_job(2)
    await live(lambda: "big" not in partitions(here) and progress(here) == "" and workers() == ["big-0"])
    assert state(slurm, 1, 2) == ["COMPLETED", "COMPLETED"]


async def test_a_partition_that_is_wanted_again_is_open_again(here: World) -> None:
    slurm = here.slurms[CLUSTER]
    async with here.operator():
        await until(lambda: here.all_ready(HERE))
        slurm.start_job(1, "big-0", partition="big")
        here.change("NodeSet", "big", HERE, DISABLED)
        await until(lambda: partitions(here)["big"] == "DRAIN")
        here.change("NodeSet", "big", HERE, {"spec": {"partition": {"enabled": True}}})
        await until(lambda: partitions(here)["big"] == "UP")
        await until(lambda: progress(here) == "")
        assert state(slurm, 1) == ["RUNNING"]


async def test_the_partition_of_a_deleted_node_set_waits_for_pending_jobs(here: World) -> None:
    slurm = here.slurms[CLUSTER]
    async with here.operator():
        await until(lambda: here.all_ready(HERE))
        slurm.start_job(1, "", partition="big", state="PENDING")
        here.delete("NodeSet", "big", HERE)
        await until(lambda: here.find("NodeSet", "big", HERE) is None)
        await until(lambda: "job 1 names it" in progress(here))
        slurm.end_job(1)
        await until(lambda: "big" not in partitions(here))


async def test_a_partition_waits_for_an_administrator_while_a_reservation_may_name_it(here: World) -> None:
    slurm = here.slurms[CLUSTER]
    slurm.reservations["maint"] = {"name": "maint", "node_list": "big-0", "partition": ""}
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        here.change("NodeSet", "small", HERE, DISABLED)
        await until(lambda: "reservation maint may name it in AllowedPartitions" in progress(here))
        await running.quiet(1.5)
        assert partitions(here)["small"] == "DRAIN"
        note = {"metadata": {"annotations": {"controller.slinky.slurm.net/unreserved-partitions": "other, small"}}}
        here.change("Controller", "slurm", HERE, note)
        await until(lambda: "small" not in partitions(here) and progress(here) == "")


async def test_old_evidence_does_not_take_a_partition_away(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was proven free while the configuration could not be written, then opened by hand and used again."""
    monkeypatch.setattr(partitions_module, "FRESH_SECONDS", 2.0)
    monkeypatch.setattr(observe, "FRESH_SECONDS", 2.0)
    slurm = here.slurms[CLUSTER]
    async with here.operator():
        await until(lambda: here.all_ready(HERE))
        slurm.start_job(2, "big-0", partition="big")
        here.change("NodeSet", "big", HERE, DISABLED)
        await until(lambda: "job 2" in progress(here))
        extra = here.get("Controller", "slurm", HERE)["spec"]["extraConf"]
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": f"{extra}NoSuchKey=1\n"}})
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "ConfigurationRejected")
        slurm.end_job(2)
        await asyncio.sleep(2.0)  # the list without job 2 is read
        slurm.partitions["big"] = "UP"
        slurm.start_job(5, "big-0", partition="big")
        await asyncio.sleep(2.5)  # and becomes old
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": extra}})
        await until(lambda: "job 5" in progress(here))
        assert state(slurm, 5) == ["RUNNING"]


async def test_no_partition_leaves_while_slurm_is_unknown(here: World) -> None:
    slurm = here.slurms[CLUSTER]
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        slurm.controller_up = False
        here.change("NodeSet", "big", HERE, DISABLED)
        await until(lambda: "until Slurm can be asked" in progress(here))
        await running.quiet(1.5)
        assert partitions(here)["big"] == "DRAIN"
        slurm.controller_up = True
        await until(lambda: "big" not in partitions(here))
        here.delete("RestApi", "slurm", HERE)
        here.change("NodeSet", "small", HERE, DISABLED)
        await until(lambda: "until Slurm can be asked" in progress(here))
        await running.quiet(1.5)
        assert partitions(here)["small"] == "DRAIN"


async def test_a_partition_that_moves_to_extra_conf_is_not_defined_twice(here: World) -> None:
    async with here.operator():
        await until(lambda: here.all_ready(HERE))
        own = "PartitionName=big Nodes=big State=INACTIVE\n"
        here.change("Controller", "slurm", HERE, {"spec": {"extraConf": own}})
        here.change("NodeSet", "big", HERE, DISABLED)
        await until(lambda: partitions(here) == {"small": "UP", "big": "INACTIVE"})
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "")
        assert len(parse(conf(here)).all("PartitionName")) == 2


async def test_a_node_set_that_cannot_be_read_keeps_its_partition(here: World) -> None:
    """As after a downgrade: neither the configuration nor what NodeSets share changes at the start of the operator."""
    shared = (("Service", "slurm-workers-slurm"), ("PodDisruptionBudget", "slurm-workers-pdb-slurm"))
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        await running.quiet()
    before = conf(here)
    uids = [here.uid(kind, name, HERE) for kind, name in shared]
    here.change("NodeSet", "big", HERE, {"spec": {"updateStrategy": {"type": "BlueGreen"}}})
    async with here.operator() as running:
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "UnreadableNodeSet")
        assert "NodeSet slurm/big" in here.condition("Controller", "slurm", HERE, "Degraded")["message"]
        await running.quiet()
        assert conf(here) == before
        assert [here.uid(kind, name, HERE) for kind, name in shared] == uids
        assert here.ready("Controller", "slurm", HERE)
        here.change("NodeSet", "big", HERE, {"spec": {"updateStrategy": {"type": "RollingUpdate"}}})
        await until(lambda: here.degraded("Controller", "slurm", HERE) == "")
        assert conf(here) == before


async def test_a_controller_that_cannot_be_read_costs_no_job(here: World) -> None:
    """Its configuration, slurmctld and the workers of a NodeSet that is being deleted stay as they are."""
    slurm = here.slurms[CLUSTER]
    async with here.operator() as running:
        await until(lambda: here.all_ready(HERE))
        slurm.start_job(1, "big-0", partition="big")
        here.delete("NodeSet", "big", HERE)
        await until(lambda: "big-0" in here.condition("NodeSet", "big", HERE, "Progressing").get("message", ""))
        await running.quiet()
    before = conf(here)
    here.change("Controller", "slurm", HERE, {"spec": {"inplaceReconfigure": "sometimes"}})
    kept = [("Pod", "big-0"), ("Pod", "slurm-controller-0"), ("NodeSet", "big"), ("Deployment", "slurm-restapi")]
    uids = [here.uid(kind, name, HERE) for kind, name in kept]
    async with here.operator() as running:
        await until(lambda: here.degraded("RestApi", "slurm", HERE))
        running.look_again(HERE)
        await running.quiet(1.5)
        assert [here.uid(kind, name, HERE) for kind, name in kept] == uids
        assert conf(here) == before
        assert state(slurm, 1) == ["RUNNING"]

"""A NodeSet is not Ready while slurmctld refuses new jobs for its partition."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.partition import CLOSED_SECONDS, is_asked, is_closed
from slurm_operator.nodeset.world import World
from slurm_operator.slurm.client import SlurmClient
from tests.fakes import slurmrestd as fake
from tests.fakes.clock import FakeClock, run_virtual
from tests.fakes.slurmrestd import FakeSlurm, FakeTransport
from tests.unit.nodeset.make import known, nodeset, record, revision, world
from tests.unit.nodeset.plans import condition, pods


def of(partition: dict[str, Any] | None = None, workers: int = 2, **spec: Any) -> World:
    wanted = nodeset(2, partition={"enabled": True} if partition is None else partition, **spec)
    found = [record(f"gpu-{number}", "IDLE", partitions=("all", "gpu")) for number in range(workers)]
    return world(wanted, *pods(*range(workers), rev=revision(wanted)), slurm=known(*found))


def test_a_closed_partition_keeps_the_nodeset_from_being_ready() -> None:
    opened = of()
    assert condition(opened, "Ready")["status"] == "True"
    closed = replace(opened, partition_is_closed=True)
    told = condition(closed, "Ready")
    assert (told["status"], told["reason"]) == ("False", "PartitionClosed")
    assert "slurmctld to open partition gpu again" in told["message"]
    assert condition(closed, "Progressing")["status"] == "True"
    assert decide(closed).after == CLOSED_SECONDS


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (True, of()),
        (True, of({"enabled": True, "config": "MaxTime=5 State=up"})),
        (False, of({"enabled": True, "config": "State=DRAIN"})),
        (False, of({"enabled": False})),
        (False, of(workers=1)),
        (False, of(workers=0)),
    ],
)
def test_slurmctld_is_asked_only_if_nothing_else_is_missing(asked: bool, found: World) -> None:
    assert is_asked(found) is asked


@pytest.mark.parametrize(
    ("state", "fault", "closed"),
    [("UP", None, False), ("DRAIN", None, True), ("DRAIN", fake.hang(), False), ("DRAIN", fake.refuse(500), False)],
)
def test_what_slurmctld_says_of_the_partition(state: str, fault: fake.Fault | None, closed: bool) -> None:
    """Without an answer it counts as open: nothing else is known to be wrong."""

    async def main() -> None:
        clock = FakeClock()
        slurm = FakeSlurm(clock.now)
        slurm.reconfigure({"gpu": state, "other": "DRAIN"})
        slurm.fault = fault or slurm.fault
        async with SlurmClient("http://slurm", slurm.key, clock, transport=FakeTransport(slurm)) as client:
            assert await is_closed(client, "gpu") is closed

    run_virtual(main())

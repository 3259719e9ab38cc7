"""What slurmd's registrations do to records that we deleted, undrained or resumed."""

import asyncio

import pytest

from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.states import is_responding
from tests.unit.slurm.view.conftest import Watched


async def test_a_registration_under_way_makes_a_deleted_record_again(cluster: Watched) -> None:
    """What we wrote does not hide it, not even for the next read."""
    await cluster.view.drain(["w-1"], "slurm-operator: x")
    await cluster.view.delete(["w-1"])
    cluster.slurm.register("w-1")
    assert cluster.seen("w-1").node is None
    await cluster.until(lambda state: not cluster.known.pending)
    found = cluster.seen("w-1")
    assert found.node is not None
    assert "DRAIN" not in found.node.state
    assert (found.confirmed, found.drained_since) == (True, None)


async def test_the_last_record_is_made_again_by_a_registration_under_way(cluster: Watched) -> None:
    await cluster.view.delete([f"w-{number}" for number in range(5)])
    await cluster.until(lambda state: not cluster.known.pending)
    assert cluster.known.nodes == {}
    cluster.slurm.register("w-1")
    await asyncio.sleep(2)
    assert cluster.known.nodes.keys() == {"w-1"}


@pytest.mark.parametrize("word", ["UNDRAIN", "RESUME"])
async def test_a_node_back_in_service_does_not_respond_until_it_registers(cluster: Watched, word: str) -> None:
    cluster.slurm.registration_seconds = 20.0
    await cluster.view.drain(["w-1"], "slurm-operator: x")
    await cluster.view.update(["w-1"], NodeUpdate(state=(word,), reason=""))
    await cluster.until(lambda state: not cluster.known.pending)
    assert not is_responding(cluster.known.nodes["w-1"].state)
    assert 17 < await cluster.until(lambda state: is_responding(cluster.known.nodes["w-1"].state)) < 22

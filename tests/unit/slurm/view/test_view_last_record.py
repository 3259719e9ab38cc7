"""slurmctld does not count the deletion of its last records as a change: "nothing changed" is then not true."""

import asyncio
from dataclasses import replace

import pytest

from slurm_operator.slurm.errors import NotFound, Unreachable
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.ledger import Ledger
from slurm_operator.slurm.model import Node
from tests.fakes import slurmrestd as fake
from tests.fakes.clock import FakeClock
from tests.unit.slurm.view.conftest import Watched

ALL = [f"w-{number}" for number in range(5)]


async def settled(cluster: Watched) -> Known:
    """Return what is known long after all answers that were under way."""
    await asyncio.sleep(60)
    return cluster.known


async def test_the_last_records_go(cluster: Watched) -> None:
    await cluster.view.delete(ALL)
    found = await settled(cluster)
    assert (found.nodes, found.pending) == ({}, frozenset())


async def test_the_last_records_go_while_a_list_is_under_way(cluster: Watched) -> None:
    """That list still shows them, and its time makes every later answer "nothing changed"."""
    cluster.slurm.list_seconds = 3.0
    cluster.slurm.touch()
    await asyncio.sleep(2.0)
    await cluster.view.delete(ALL)
    found = await settled(cluster)
    assert (found.nodes, found.pending) == ({}, frozenset())


async def test_the_answer_to_the_last_deletion_is_lost_while_a_list_is_under_way(
    cluster: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = cluster.slurm._serve

    def lose(method: str, target: str, token: str | None, body: bytes | None) -> fake.FakeAnswer:
        answer = serve(method, target, token, body)
        if method == "DELETE":
            raise Unreachable("", "connection reset")
        return answer

    monkeypatch.setattr(cluster.slurm, "_serve", lose)
    cluster.slurm.list_seconds = 3.0
    cluster.slurm.touch()
    await asyncio.sleep(2.0)
    with pytest.raises(Unreachable):
        await cluster.view.delete(ALL)
    assert (await settled(cluster)).nodes == {}


async def test_the_list_after_the_last_deletion_is_asked_for_again_if_it_fails(cluster: Watched) -> None:
    lists = replace(fake.refuse(500), only=lambda call: call == "GET nodes/")
    with cluster.slurm.failing(lists):
        await cluster.view.delete(ALL)
        await asyncio.sleep(3)
    assert (await settled(cluster)).nodes == {}


async def test_a_last_look_that_finds_no_record_is_news(cluster: Watched) -> None:
    """An administrator has deleted the last records, which the polls do not show."""
    cluster.slurm.delete_nodes(ALL)
    await asyncio.sleep(10)
    assert cluster.known.nodes.keys() == {*ALL}
    assert await cluster.view.look(ALL) == {}
    await asyncio.sleep(2)
    assert cluster.known.nodes == {}


async def test_the_list_after_a_look_that_finds_no_record_is_asked_for_again_if_it_fails(cluster: Watched) -> None:
    lists = replace(fake.refuse(500), only=lambda call: call == "GET nodes/")
    cluster.slurm.delete_nodes(ALL)
    with cluster.slurm.failing(lists):
        await cluster.view.look(ALL)
        await cluster.until(lambda state: not isinstance(state, Known))
    await cluster.until(lambda state: isinstance(state, Known), within=15)
    assert cluster.known.nodes == {}


async def test_the_last_records_are_missed_in_time_without_a_look(cluster: Watched) -> None:
    """Once in a while a list that costs little is read whole."""
    cluster.slurm.delete_nodes(ALL)
    await asyncio.sleep(62)
    assert cluster.known.nodes == {}


async def test_a_look_at_many_nodes_that_finds_no_record_is_news(cluster: Watched) -> None:
    many = [f"big-{number}" for number in range(40)]
    cluster.slurm.add_nodes("big-[0-39]")
    await cluster.change()
    cluster.slurm.delete_nodes([*ALL, *many])
    assert await cluster.view.look(many) == {}
    await asyncio.sleep(2)
    assert cluster.known.nodes == {}


@pytest.mark.parametrize("write", ["drain", "delete"])
async def test_a_write_that_slurm_refuses_for_want_of_a_record_is_news(cluster: Watched, write: str) -> None:
    cluster.slurm.delete_nodes(ALL)
    await asyncio.sleep(10)
    refused = cluster.view.drain(ALL[:1], "slurm-operator: x") if write == "drain" else cluster.view.delete(ALL[:1])
    with pytest.raises(NotFound):
        await refused
    await asyncio.sleep(2)
    assert cluster.known.nodes == {}


async def test_an_empty_slurmctld_is_not_believed_because_a_look_finds_no_record(cluster: Watched) -> None:
    """It may have lost its state: records are gone when a list of a slurmctld that has settled lacks them."""
    cluster.slurm.restart(empty=True)
    assert await cluster.view.look(ALL[:1]) == {}
    await asyncio.sleep(2)
    assert not isinstance(cluster.view.state, Known)


async def test_nothing_changed_confirms_no_write(clock: FakeClock) -> None:
    ledger = Ledger(clock, 30.0)
    read = ledger.begin_list()
    read.add([Node(name="w-0"), Node(name="w-1")])
    ledger.took_list(read, 1)
    ledger.wrote(["w-0"], None)
    ledger.took_no_change(ledger.begin_list())
    assert isinstance(ledger.state, Known)
    assert ledger.state.nodes.keys() == {"w-1"}
    assert ledger.state.pending == {"w-0"}


async def test_after_a_write_a_quiet_cluster_is_asked_for_changes_alone(cluster: Watched) -> None:
    cluster.slurm.whole_lists = 0
    await cluster.view.drain(["w-1"], "slurm-operator: x")
    await cluster.until(lambda state: not cluster.known.pending)
    await asyncio.sleep(50)
    assert cluster.slurm.whole_lists == 1

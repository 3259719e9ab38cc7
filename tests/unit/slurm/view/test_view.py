"""The view while all is well: fresh, quiet, and honest about what was read when."""

import asyncio
from collections.abc import Collection

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.known import Change, Known, Unknown
from slurm_operator.slurm.ledger import NOT_READ_YET
from slurm_operator.slurm.model import NodeUpdate
from slurm_operator.slurm.view import SlurmView
from tests.fakes import slurmrestd as fake
from tests.fakes.clock import FakeClock
from tests.fakes.slurmrestd import KEY, FakeSlurm, FakeTransport
from tests.unit.slurm.view.conftest import Watched


async def test_before_the_first_read_nothing_is_known(clock: FakeClock) -> None:
    slurm = FakeSlurm(clock.now)
    view = SlurmView(SlurmClient("http://slurm", KEY, clock, transport=FakeTransport(slurm)), clock)
    assert view.state == Unknown(clock.now(), NOT_READ_YET)


async def test_at_rest_it_asks_less_than_once_a_second_and_tells_nobody(cluster: Watched) -> None:
    await asyncio.sleep(60)
    assert 55 <= len(cluster.slurm.calls) <= 61
    assert cluster.slurm.count("GET nodes/") >= len(cluster.slurm.calls) - 1
    assert cluster.changes == []


async def test_at_rest_the_view_stays_fresh(cluster: Watched) -> None:
    await asyncio.sleep(60)
    assert cluster.clock.monotonic() - cluster.known.began_at <= 1.0


async def test_a_change_is_known_with_the_next_answer(cluster: Watched) -> None:
    """scenario 168"""
    cluster.slurm.nodes["w-2"].flags.append("DRAIN")
    cluster.slurm.nodes["w-2"].reason = "bad disk"
    cluster.slurm.touch()
    before = cluster.clock.monotonic()
    change = await cluster.change()
    assert cluster.clock.monotonic() - before <= 1.0
    assert change.names == {"w-2"}
    assert isinstance(change.old, Known)
    assert "DRAIN" not in change.old.nodes["w-2"].state
    assert cluster.seen("w-2").node is not None
    assert cluster.known.nodes["w-2"].reason == "bad disk"


async def test_nodes_that_come_and_go_are_told(cluster: Watched) -> None:
    cluster.slurm.add_nodes("new-1")
    assert (await cluster.change()).names == {"new-1"}
    del cluster.slurm.nodes["w-0"]
    cluster.slurm.touch()
    assert (await cluster.change()).names == {"w-0"}
    assert cluster.seen("w-0").node is None
    assert cluster.seen("never-heard-of").node is None


async def test_a_full_list_without_news_is_no_news(cluster: Watched) -> None:
    """cpu_load changes make slurmctld send everything"""
    nodes = cluster.known.nodes
    for _ in range(5):
        cluster.slurm.touch()
        await asyncio.sleep(1)
    assert cluster.changes == []
    assert all(cluster.known.nodes[name] is nodes[name] for name in nodes)


async def test_what_was_read_is_dated_when_the_read_began(cluster: Watched) -> None:
    cluster.slurm.touch()
    with cluster.slurm.failing(fake.slow(20)):
        await asyncio.sleep(1.5)
        asked_at = cluster.known.began_at
        await asyncio.sleep(19)
    assert isinstance(cluster.view.state, Known)
    assert cluster.known.began_at <= asked_at + 1.1


async def test_one_bad_subscriber_does_not_blind_the_others(cluster: Watched) -> None:
    def bad(change: Change) -> None:
        raise RuntimeError("mistake")

    cluster.view._subscribers.insert(0, bad)
    cluster.slurm.add_nodes("new-1")
    assert (await cluster.change()).names == {"new-1"}


async def test_unsubscribed_is_not_called(cluster: Watched) -> None:
    heard: list[Change] = []
    cluster.view.subscribe(heard.append)()
    cluster.slurm.add_nodes("new-1")
    await cluster.change()
    assert heard == []


# --- writes -------------------------------------------------------------------------------------------------------


async def test_a_drain_counts_as_seen_but_not_as_confirmed(cluster: Watched) -> None:
    await cluster.view.drain(["w-1"], "slurm-operator: scale-in")
    seen = cluster.seen("w-1")
    assert seen.node is not None
    assert "DRAIN" in seen.node.state
    assert not seen.confirmed
    assert cluster.seen("w-2").confirmed


async def test_a_write_is_read_back_at_once_and_its_confirmation_told(cluster: Watched) -> None:
    await cluster.view.drain(["w-1"], "slurm-operator: scale-in")
    acked = cluster.clock.monotonic()
    change = await cluster.change()
    assert cluster.clock.monotonic() - acked < 0.5
    assert change.names == {"w-1"}
    assert cluster.seen("w-1").confirmed
    assert cluster.seen("w-1").began_at > acked - 1e-9


async def test_draining_a_thousand_is_one_request(cluster: Watched) -> None:
    cluster.slurm.add_nodes("big-[0-999]")
    await cluster.change()
    cluster.slurm.calls.clear()
    await cluster.view.drain([f"big-{at}" for at in range(1000)], "slurm-operator: scale-in")
    await cluster.until(lambda state: not cluster.known.pending)
    assert cluster.slurm.count("POST") == 1
    assert len(cluster.slurm.calls) <= 4


async def test_an_answer_under_way_does_not_undo_a_write(cluster: Watched) -> None:
    """A list that began before the drain was acknowledged shows the node undrained: that is no news."""
    cluster.slurm.touch()
    answer = cluster.slurm._serve

    def late(*args: object) -> fake.FakeAnswer:
        given = answer(*args)  # type: ignore[arg-type] # handed through
        cluster.slurm.nodes["w-1"].flags.append("DRAIN")
        cluster.view._ledger.wrote(["w-1"], NodeUpdate(state=("DRAIN",)))
        cluster.slurm._serve = answer  # type: ignore[method-assign] # once
        return given

    cluster.slurm._serve = late  # type: ignore[method-assign, assignment] # once
    await asyncio.sleep(1.01)
    assert cluster.slurm._serve == answer
    assert "DRAIN" in cluster.known.nodes["w-1"].state


async def test_a_write_that_failed_is_not_seen(cluster: Watched) -> None:
    with cluster.slurm.failing(fake.refuse(422, 2010)), pytest.raises(errors.NotPermitted):
        await cluster.view.drain(["w-1"], "slurm-operator: x")
    assert "DRAIN" not in cluster.known.nodes["w-1"].state
    assert cluster.seen("w-1").confirmed


async def test_a_half_applied_write_is_read_back(cluster: Watched) -> None:
    with pytest.raises(errors.HalfApplied):
        await cluster.view.drain(["w-1", "none"], "slurm-operator: x")
    assert (await cluster.change()).names == {"w-1"}
    assert "DRAIN" in cluster.known.nodes["w-1"].state


async def test_undrain_and_delete(cluster: Watched) -> None:
    await cluster.view.drain(["w-1"], "slurm-operator: x")
    await cluster.view.undrain(["w-1"])
    assert "DRAIN" not in cluster.known.nodes["w-1"].state
    await cluster.view.delete(["w-1"])
    assert cluster.seen("w-1").node is None
    assert not cluster.seen("w-1").confirmed
    await cluster.until(lambda state: not cluster.known.pending)
    assert cluster.seen("w-1").node is None


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_deletion_without_an_answer_is_not_known_before_the_next_read(
    cluster: Watched, monkeypatch: pytest.MonkeyPatch, carried_out: bool
) -> None:
    async def lose(names: Collection[str]) -> None:
        if carried_out:
            cluster.slurm.delete_nodes(names)
        raise errors.Unreachable("DELETE node/", "connection reset")

    monkeypatch.setattr(cluster.client, "delete_nodes", lose)
    with pytest.raises(errors.Unreachable):
        await cluster.view.delete(["w-1"])
    assert cluster.seen("w-1").node is not None
    assert not cluster.seen("w-1").confirmed
    assert cluster.seen("w-2").confirmed
    await cluster.until(lambda state: not cluster.known.pending)
    assert (cluster.seen("w-1").node is None) is carried_out


async def test_writing_to_nobody_asks_nothing(cluster: Watched) -> None:
    cluster.slurm.calls.clear()
    await cluster.view.drain([], "x")
    await cluster.view.delete([])
    assert cluster.slurm.calls == []

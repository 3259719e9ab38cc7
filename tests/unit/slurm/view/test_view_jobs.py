"""The list of jobs and reservations: read on demand, shared, and never in the way of anything else."""

import asyncio

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.ledger import Ledger
from slurm_operator.slurm.model import Node
from tests.fakes import slurmrestd as fake
from tests.fakes.clock import FakeClock
from tests.unit.slurm.view.conftest import Watched


async def test_jobs_are_read_only_on_demand(cluster: Watched) -> None:
    cluster.slurm.start_job(1, "w-[1-2]", minutes=30)
    await asyncio.sleep(10)
    assert cluster.slurm.count("GET jobs") == 0
    ends = await cluster.view.read_jobs(30.0)
    assert ends.latest == dict.fromkeys(["w-1", "w-2"], cluster.slurm.jobs[1].start + 1800)
    assert cluster.view.jobs == ends


async def test_job_ends_are_shared_and_aged(cluster: Watched) -> None:
    cluster.slurm.start_job(1, "w-1")
    first, second = await asyncio.gather(cluster.view.read_jobs(30.0), cluster.view.read_jobs(30.0))
    assert first is second
    await asyncio.sleep(40)
    later = await cluster.view.read_jobs(30.0)
    assert later.latest == first.latest
    assert later.began_at > first.began_at
    assert cluster.slurm.count("GET jobs") == 2
    cluster.slurm.end_job(1)
    assert (await cluster.view.read_jobs(0)).latest == {}


async def test_a_watched_list_stays_fresh_and_is_told(cluster: Watched) -> None:
    cluster.view.watch_jobs("a", True)
    await asyncio.sleep(5)
    assert [change.jobs for change in cluster.changes] == [True]
    cluster.slurm.start_job(1, "", state="PENDING", partition="p1")
    await asyncio.sleep(40)
    assert cluster.view.jobs is not None
    assert cluster.view.jobs.partitions == {"p1": (1,)}
    reads = cluster.slurm.count("GET jobs")
    cluster.view.watch_jobs("a", False)
    await asyncio.sleep(120)
    assert cluster.slurm.count("GET jobs") <= reads + 1


async def test_nothing_changed_keeps_the_jobs_and_renews_the_reservations(cluster: Watched) -> None:
    cluster.slurm.start_job(1, "w-1")
    await cluster.view.read_jobs(0)
    await asyncio.sleep(40)
    cluster.slurm.reservations["exam"] = {"name": "exam", "node_list": "w-2"}
    later = await cluster.view.read_jobs(30.0)
    assert later.holding == {"w-1": (1,)}
    assert later.reserved == {"w-2": ("exam",)}


async def test_a_list_that_hangs_delays_each_caller_by_its_patience_once(cluster: Watched) -> None:
    """Five NodeSets ask while `jobs/` hangs: the first waits two seconds, the others not at all."""
    with cluster.slurm.failing(fake.Fault(delay=1e9, only=lambda call: call.startswith("GET jobs/"))):
        before = cluster.clock.monotonic()
        for _ in range(5):
            with pytest.raises(errors.SlurmError):
                await cluster.view.read_jobs(30.0, patience=2.0)
        assert cluster.clock.monotonic() - before <= 2.1
        await asyncio.sleep(60)  # the read has reached its own deadline
        before = cluster.clock.monotonic()
        with pytest.raises(errors.SlurmError):
            await cluster.view.read_jobs(30.0, patience=2.0)
        assert cluster.clock.monotonic() - before <= 0.1
    await asyncio.sleep(60)
    assert (await cluster.view.read_jobs(30.0, patience=2.0)).holding == {}


async def test_a_caller_that_needs_a_later_read_does_not_get_the_one_under_way(cluster: Watched) -> None:
    with cluster.slurm.failing(fake.Fault(delay=5.0, only=lambda call: call.startswith("GET jobs/"))):
        first = asyncio.create_task(cluster.view.read_jobs(0))
        await asyncio.sleep(1)
        asked = cluster.clock.monotonic()
        second = await cluster.view.read_jobs(0)
    assert (await first).began_at < asked <= second.began_at


async def test_a_read_under_way_ends_with_the_view(clock: FakeClock) -> None:
    watched = Watched(clock)
    running = asyncio.create_task(watched.view.run())
    await watched.until(lambda state: isinstance(state, Known))
    before = asyncio.all_tasks()
    with watched.slurm.failing(fake.Fault(delay=1e9, only=lambda call: call.startswith("GET jobs/"))):
        with pytest.raises(errors.SlurmError):
            await watched.view.read_jobs(30.0, patience=2.0)
        reading = asyncio.all_tasks() - before
        running.cancel()
        await asyncio.wait([running])
    assert reading
    assert all(task.done() for task in reading)


async def test_a_new_slurmctld_has_no_list_yet(cluster: Watched) -> None:
    await cluster.view.read_jobs(0)
    assert cluster.view.jobs is not None
    await asyncio.sleep(2)
    cluster.slurm.restart()
    await asyncio.sleep(3)
    assert cluster.view.jobs is None


# --- since when a node is drained -------------------------------------------------------------------------------------


async def test_the_first_read_that_shows_a_drain_counts_while_it_lasts(cluster: Watched) -> None:
    assert cluster.seen("w-1").drained_since is None
    await cluster.view.drain(["w-1"], "slurm-operator: test")
    assert cluster.seen("w-1").drained_since is None  # no read has shown it yet
    await asyncio.sleep(2)
    since = cluster.seen("w-1").drained_since
    assert since is not None
    await asyncio.sleep(30)
    assert cluster.seen("w-1").drained_since == since
    await cluster.view.undrain(["w-1"])
    await asyncio.sleep(2)
    assert cluster.seen("w-1").drained_since is None


async def test_a_drain_counts_from_the_end_of_the_read_that_shows_it(clock: FakeClock) -> None:
    """It may have been set during the read, after a list of jobs that began meanwhile, and after a last job."""
    ledger = Ledger(clock, settle=30.0)
    read = ledger.begin_list()
    read.add([Node(name="w-1", state=("IDLE", "DRAIN"))])
    await asyncio.sleep(5)
    ended = clock.monotonic()
    ledger.took_list(read, boot=1)
    await asyncio.sleep(5)
    ledger.took_nodes({"w-1": (ledger.begin(), Node(name="w-1", state=("IDLE", "DRAIN")))})
    assert isinstance(ledger.state, Known)
    assert ledger.state.seen("w-1").drained_since == ended


async def test_a_drain_counts_anew_after_an_outage_in_which_nodes_changed(cluster: Watched) -> None:
    """It may have been lifted, a job may have started, and the drain may have been set again."""
    await cluster.view.drain(["w-1"], "slurm-operator: test")
    await asyncio.sleep(2)
    since = cluster.seen("w-1").drained_since
    with cluster.slurm.failing(fake.killed()):
        await cluster.until(lambda state: isinstance(state, Unknown))
    await cluster.until(lambda state: isinstance(state, Known))
    assert cluster.seen("w-1").drained_since == since  # slurmctld said that nothing had changed
    with cluster.slurm.failing(fake.killed()):
        await cluster.until(lambda state: isinstance(state, Unknown))
        cluster.slurm.touch()
        back = cluster.clock.monotonic()
    await cluster.until(lambda state: isinstance(state, Known))
    again = cluster.seen("w-1").drained_since
    assert again is not None
    assert again >= back


async def test_a_last_look_shows_nodes_as_they_are(cluster: Watched) -> None:
    cluster.slurm.nodes["w-1"].reason = "bad disk"
    found = await cluster.view.look(["w-1", "gone"])
    assert {name: node.reason for name, node in found.items()} == {"w-1": "bad disk"}


async def test_a_last_look_at_many_nodes_is_one_request(cluster: Watched) -> None:
    cluster.slurm.add_nodes("n-[1-40]")
    before = len(cluster.slurm.calls)
    found = await cluster.view.look([f"n-{number}" for number in range(1, 31)] + ["gone"])
    assert len(found) == 30
    assert len(cluster.slurm.calls) == before + 1


async def test_the_deletion_of_the_last_records_is_seen(cluster: Watched) -> None:
    """slurmctld answers "nothing changed" to a reader that asks for changes."""
    names = list(cluster.slurm.nodes)
    await cluster.view.drain(names, "slurm-operator: test")
    await asyncio.sleep(3)
    await cluster.view.delete(names)
    await asyncio.sleep(3)
    assert cluster.known.nodes == {}
    assert all(cluster.seen(name).confirmed for name in names)


async def test_a_slow_slurmctld_lists_jobs_and_reservations_in_the_time_of_one_answer(cluster: Watched) -> None:
    cluster.slurm.start_job(1, "w-1")
    cluster.slurm.reservations["exam"] = {"name": "exam", "node_list": "w-2"}
    with cluster.slurm.failing(fake.slow(12)):
        for _ in range(2):  # all jobs, then changes only
            began = cluster.clock.monotonic()
            found = await cluster.view.read_jobs(0)
            assert cluster.clock.monotonic() - began <= 12.1
            assert (found.holding, found.reserved) == ({"w-1": (1,)}, {"w-2": ("exam",)})
            await asyncio.sleep(60)


@pytest.mark.parametrize("call", ["GET jobs/", "GET reservations/", "GET diag/"])
async def test_no_list_without_one_of_its_parts(cluster: Watched, call: str) -> None:
    with cluster.slurm.failing(fake.Fault(status=500, only=lambda made: made == call)):
        with pytest.raises(errors.ServerFailed):
            await cluster.view.read_jobs(0)
        assert cluster.view.jobs is None


@pytest.mark.parametrize("answered", ["before the list", "after the list"])
async def test_a_clock_that_is_set_back_during_a_read_hides_no_job(
    cluster: Watched, answered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is of the time before, or of the time after; slurmctld's clock was read on the other side."""
    slurm, ahead = cluster.slurm, [600.0]
    slurm.now = lambda: cluster.clock.now() + ahead[0]
    slurm.start_job(1, "w-1")
    serve, set_back_by = slurm._serve, "/jobs/" if answered == "after the list" else "/diag/"

    def set_back(method: str, target: str, token: str | None, body: bytes | None) -> fake.FakeAnswer:
        given = serve(method, target, token, body)
        if set_back_by in target:
            ahead[0] = 0.0
        return given

    monkeypatch.setattr(slurm, "_serve", set_back)
    late = "GET diag/" if answered == "after the list" else "GET jobs/"
    with slurm.failing(fake.Fault(delay=1.0, only=lambda made: made == late)):
        await cluster.view.read_jobs(0)
    await asyncio.sleep(60)
    slurm.start_job(2, "w-2")
    assert (await cluster.view.read_jobs(0)).holding == {"w-1": (1,), "w-2": (2,)}


async def test_a_list_that_takes_long_is_asked_for_changes_the_next_time(
    cluster: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is later than that of slurmctld's clock, which was told at once: the clock is asked again."""
    asked: list[str] = []
    serve = cluster.slurm._serve

    def noted(method: str, target: str, token: str | None, body: bytes | None) -> fake.FakeAnswer:
        if "/jobs/" in target:
            asked.append(target)
        return serve(method, target, token, body)

    monkeypatch.setattr(cluster.slurm, "_serve", noted)
    cluster.slurm.start_job(1, "w-1")
    with cluster.slurm.failing(fake.Fault(delay=5.0, only=lambda made: made == "GET jobs/")):
        await cluster.view.read_jobs(0)
    await asyncio.sleep(60)
    assert (await cluster.view.read_jobs(0)).holding == {"w-1": (1,)}
    assert ["update_time" in target for target in asked] == [False, True]

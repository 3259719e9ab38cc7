"""Leadership: one at a time, handed over quickly, and given up before anyone else can take it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slurm_operator.kube import CONFIG_MAPS, LEASES, Client, Elector, Forbidden, LeadershipLost, NotLeading
from tests.fakes.apiserver import Disconnect, FakeApiServer, Hang, Refuse
from tests.fakes.clock import FakeClock
from tests.unit.kube.conftest import running


def elector(client: Client, clock: FakeClock, identity: str) -> Elector:
    return Elector(client, "default", "slurm-operator", identity, clock=clock)


@asynccontextmanager
async def leading(candidate: Elector) -> AsyncIterator["asyncio.Task[None]"]:
    async with running(candidate.run()) as [task]:
        await asyncio.wait_for(candidate.leading.wait(), 60)
        yield task


async def holder(client: Client) -> str:
    return (await client.get(LEASES, "slurm-operator", "default")).spec.holder_identity


async def test_the_first_leads_and_renews(server: FakeApiServer, client: Client, clock: FakeClock) -> None:
    async with leading(elector(client, clock, "a")):
        assert await holder(client) == "a"
        first = (await client.get(LEASES, "slurm-operator", "default")).spec
        begin = len(server.requests)
        await asyncio.sleep(21)
        requests = server.requests[begin:]
        last = (await client.get(LEASES, "slurm-operator", "default")).spec
    assert last.acquire_time == first.acquire_time
    assert (last.renew_time or "") > (first.renew_time or "")
    assert last.lease_transitions == 0
    assert {line.verb for line in requests} == {"patch"}, "at rest nothing is read"
    assert 9 <= len(requests) <= 11


async def test_the_second_waits_until_the_first_is_dead(client: Client, clock: FakeClock) -> None:
    first, second = elector(client, clock, "a"), elector(client, clock, "b")
    async with leading(first) as task, running(second.run()):
        await asyncio.sleep(60)
        assert not second.leading.is_set()
        assert second.holder == "a"
        with pytest.MonkeyPatch.context() as patch:
            # It dies without a word: no release.
            patch.setattr(first, "_release", lambda: asyncio.sleep(0))
            task.cancel()
            await asyncio.wait([task])
        died = clock.monotonic()
        await asyncio.wait_for(second.leading.wait(), 60)
        assert 13 <= clock.monotonic() - died <= 20
        assert await holder(client) == "b"
        assert (await client.get(LEASES, "slurm-operator", "default")).spec.lease_transitions == 1


async def test_a_clean_end_hands_over_at_once(client: Client, clock: FakeClock) -> None:
    first, second = elector(client, clock, "a"), elector(client, clock, "b")
    async with leading(first) as task, running(second.run()):
        task.cancel()
        await asyncio.wait([task])
        assert not first.leading.is_set()
        assert await holder(client) == ""
        start = clock.monotonic()
        await asyncio.wait_for(second.leading.wait(), 60)
        assert clock.monotonic() - start <= 2.5


@pytest.mark.parametrize("fault", [Hang(), Refuse(500), Disconnect()], ids=["hang", "500", "disconnect"])
async def test_losing_the_server_ends_leadership_before_the_lease(
    server: FakeApiServer, client: Client, clock: FakeClock, fault: Hang | Refuse | Disconnect
) -> None:
    candidate = elector(client, clock, "a")
    async with leading(candidate) as task:
        await asyncio.sleep(10)
        server.inject(fault, resource="leases", times=None)
        since = clock.monotonic()
        with pytest.raises(LeadershipLost, match="not renewed for 10 s"):
            await asyncio.wait_for(task, 60)
        assert 8 <= clock.monotonic() - since < 15
        assert not candidate.leading.is_set()


async def test_a_short_hiccup_is_survived(server: FakeApiServer, client: Client, clock: FakeClock) -> None:
    candidate = elector(client, clock, "a")
    async with leading(candidate) as task:
        server.inject(Refuse(500), "patch", "leases", times=3)
        await asyncio.sleep(30)
        assert not task.done()
        server.inject(Disconnect(after_effect=True), "patch", "leases", times=2)
        await asyncio.sleep(30)
        assert not task.done(), "its own renewal, of which no answer came, is not somebody else's"
        assert await holder(client) == "a"


@pytest.mark.parametrize("seconds", [1.0, 4.9, 5.5, 60.0])
async def test_one_late_answer_is_survived(
    client: Client, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """The renewal took effect, so the next one is refused as a conflict: a new look must follow at once."""
    real, answers = client.patch, 0

    async def late(*args: Any, **options: Any) -> Any:
        nonlocal answers
        answer = await real(*args, **options)
        answers += 1
        if answers == 2:
            await asyncio.sleep(seconds)
        return answer

    monkeypatch.setattr(client, "patch", late)
    async with leading(elector(client, clock, "a")) as task:
        await asyncio.sleep(120)
        assert not task.done()
        assert await holder(client) == "a"


async def test_a_lease_taken_by_another_ends_leadership(client: Client, clock: FakeClock) -> None:
    async with leading(elector(client, clock, "a")) as task:
        thief = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}}
        await client.patch(LEASES, "slurm-operator", thief, "default")
        with pytest.raises(LeadershipLost, match="was taken by 'thief'"):
            await asyncio.wait_for(task, 60)


async def test_a_deleted_lease_is_made_again(client: Client, clock: FakeClock) -> None:
    """By the next renewal, and not one later: a standby takes a lease that is missing."""
    async with leading(elector(client, clock, "a")) as task:
        await client.delete(LEASES, "slurm-operator", "default")
        await asyncio.sleep(3)
        assert await holder(client) == "a"
        await asyncio.sleep(10)
        assert not task.done()
        assert await holder(client) == "a"


async def test_a_wrong_wall_clock_matters_to_nobody(client: Client, clock: FakeClock) -> None:
    hasty = FakeClock(start=0.0)
    async with leading(elector(client, clock, "a")) as task, running(elector(client, hasty, "b").run()):
        clock.jump(-86400)
        hasty.jump(1e9)
        await asyncio.sleep(120)
        assert not task.done()
        assert await holder(client) == "a"


async def test_without_permission_it_says_so(server: FakeApiServer, client: Client, clock: FakeClock) -> None:
    server.inject(Refuse(403, "Forbidden", "User cannot get resource"), "get", "leases", times=None)
    with pytest.raises(Forbidden, match="cannot get leases"):
        await elector(client, clock, "a").run()


async def test_a_release_that_fails_is_only_a_warning(
    server: FakeApiServer, client: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with leading(elector(client, clock, "a")):
        server.inject(Hang(), "patch", "leases", times=None)
    assert caplog.records[-1].levelno == logging.WARNING
    assert "not released" in caplog.records[-1].message


class PausedClock(FakeClock):
    """The time of a process that is stopped and resumed: its timers notice only later."""

    paused_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.paused_seconds


async def test_a_leader_that_was_paused_writes_nothing(server: FakeApiServer, client: Client) -> None:
    clock = PausedClock()
    candidate = elector(client, clock, "a")
    client.may_write = candidate.may_write
    made = {"metadata": {"name": "c", "namespace": "default"}}
    with pytest.raises(NotLeading):
        await client.create(CONFIG_MAPS, made)
    async with leading(candidate) as task:
        await client.create(CONFIG_MAPS, made)
        clock.paused_seconds = 60.0
        for write in (
            client.create(CONFIG_MAPS, {"metadata": {"name": "d", "namespace": "default"}}),
            client.patch(CONFIG_MAPS, "c", {"data": {"by": "a"}}, "default"),
            client.apply(CONFIG_MAPS, made, manager="a"),
            client.delete(CONFIG_MAPS, "c", "default"),
        ):
            with pytest.raises(NotLeading, match="another process may lead"):
                await write
        await client.get(CONFIG_MAPS, "c", "default")  # reading is not forbidden
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(task, 60)
    assert [line.verb for line in server.writes if line.resource == "configmaps"] == ["create"]


async def test_a_write_that_waits_is_not_sent_after_the_lease(server: FakeApiServer, client: Client) -> None:
    clock = PausedClock()
    candidate = elector(client, clock, "a")
    client.may_write = candidate.may_write
    async with leading(candidate):
        server.inject(Refuse(429, retry_after=1), "create", "configmaps")
        write = asyncio.ensure_future(client.create(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "default"}}))
        while not server.log("create", "configmaps"):  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)
        clock.paused_seconds = 60.0
        with pytest.raises(NotLeading):
            await write
        assert len(server.log("create", "configmaps")) == 1


async def test_a_write_is_not_sent_if_its_credentials_came_after_the_lease(
    server: FakeApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A credential plugin may run for longer than the lease lasts."""
    clock = PausedClock()
    candidate = elector(client, clock, "a")
    client.may_write = candidate.may_write
    real = client._credentials.header

    async def late() -> str:
        clock.paused_seconds = 60.0
        return await real()

    async with leading(candidate):
        monkeypatch.setattr(client._credentials, "header", late)
        with pytest.raises(NotLeading):
            await client.create(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "default"}})
        assert server.log("create", "configmaps") == []

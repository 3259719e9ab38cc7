"""The client against a slurmrestd on loopback that behaves, and misbehaves, as the real one does."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from slurm_operator.slurm import errors
from slurm_operator.slurm.client import Listing, NotChanged, SlurmClient
from slurm_operator.slurm.jwt import verify
from slurm_operator.slurm.model import Job, Node, NodeUpdate, Number, ReservationRequest
from slurm_operator.slurm.rest import VERSIONS, Cost
from tests.fakes import slurmrestd as fake
from tests.fakes.slurmrestd import KEY, FakeSlurm, FakeSlurmrestd


class Clock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


@pytest.fixture
async def server() -> AsyncIterator[FakeSlurmrestd]:
    slurm = FakeSlurm(time.time)
    slurm.add_nodes("w-[0-9]")
    async with FakeSlurmrestd(slurm) as running:
        yield running


@pytest.fixture
def slurm(server: FakeSlurmrestd) -> FakeSlurm:
    return server.slurm


@pytest.fixture
def costs() -> list[Cost]:
    return []


@pytest.fixture
async def client(server: FakeSlurmrestd, costs: list[Cost]) -> AsyncIterator[SlurmClient]:
    async with SlurmClient(server.url, KEY, Clock(), deadline=2.0, observe=costs.append) as connected:
        yield connected


async def all_nodes(client: SlurmClient) -> list[Node]:
    nodes: list[Node] = []
    await client.nodes(nodes.extend)
    return nodes


async def test_reads_every_node(client: SlurmClient) -> None:
    assert [node.name for node in await all_nodes(client)] == [f"w-{at}" for at in range(10)]


async def test_thousands_of_nodes(server: FakeSlurmrestd, slurm: FakeSlurm) -> None:
    slurm.add_nodes("big-[0-2999]")
    async with SlurmClient(server.url, KEY, Clock()) as patient:
        assert len(await all_nodes(patient)) == 3010


async def test_nothing_changed(client: SlurmClient, slurm: FakeSlurm, costs: list[Cost]) -> None:
    assert isinstance(await client.nodes(list[Node]().extend, int(time.time()) + 2), NotChanged)
    assert costs[-1].outcome == "304"
    assert costs[-1].size == 0


async def test_a_change_in_the_second_of_the_last_answer_is_not_missed(client: SlurmClient, slurm: FakeSlurm) -> None:
    answer = await client.nodes(list[Node]().extend)
    assert isinstance(answer, Listing)
    slurm.touch()
    assert isinstance(await client.nodes(list[Node]().extend, answer.last_update), Listing)


async def test_one_node(client: SlurmClient, slurm: FakeSlurm) -> None:
    slurm.start_job(1, "w-3", cpus=2)
    await client.recount()
    node = await client.node("w-3")
    assert (node.name, node.state, node.alloc_cpus) == ("w-3", ("MIXED", "DYNAMIC_NORM"), 2)


async def test_unknown_node_is_not_found(client: SlurmClient) -> None:
    """scenario 163: a 200 without nodes, with an error text"""
    with pytest.raises(errors.NotFound, match="GET node/none"):
        await client.node("none")


@pytest.mark.parametrize("text", [b"no such thing", b'{"errors":[{"error_number":2018,"error":"Invalid node name"}]}'])
async def test_http_404_is_not_found_too(client: SlurmClient, slurm: FakeSlurm, text: bytes) -> None:
    """scenario 163: whatever the 404 looks like, as long as the data parser itself is there"""

    def not_found(method: str, target: str, token: str | None, body: bytes | None) -> fake.FakeAnswer:
        return fake.FakeAnswer(404, text) if "/node/" in target else serve(method, target, token, body)

    serve, slurm._serve = slurm._serve, not_found  # type: ignore[method-assign] # the fake never answers so by itself
    with pytest.raises(errors.NotFound):
        await client.node("w-1")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (fake.refuse(401), errors.AuthFailed),
        (fake.refuse(403), errors.AuthFailed),
        (fake.refuse(511, 1007), errors.AuthFailed),
        (fake.refuse(422, 2010), errors.NotPermitted),
        (fake.refuse(422, 2018), errors.NotFound),
        (fake.refuse(422, 2178), errors.InvalidRequest),
        (fake.refuse(500), errors.ServerFailed),
        (fake.refuse(500, 9207), errors.InvalidRequest),
        (fake.refuse(502, 1800), errors.ControllerDown),
        (fake.refuse(502, 7000), errors.DatabaseDown),
        (fake.refuse(503), errors.ServerFailed),
        (fake.refuse(504, 5004), errors.ControllerBusy),
        (fake.garbage(), errors.Garbage),
        (fake.garbage(b"<html>welcome to nginx</html>"), errors.Garbage),
        (fake.garbage(b"{}"), errors.Garbage),
        (fake.garbage(b'{"nodes":[{"name":"another"}]}'), errors.Garbage),
        (fake.killed(), errors.Unreachable),
        (fake.hang(), errors.DeadlineExceeded),
    ],
)
async def test_every_failure_has_its_type(
    client: SlurmClient, slurm: FakeSlurm, fault: fake.Fault, expected: type[errors.SlurmError]
) -> None:
    """scenario 163: anything but a clear "not found" is an error; scenario 165: a hang ends at our deadline"""
    await client.ping()
    with slurm.failing(fault), pytest.raises(errors.SlurmError) as caught:
        await client.node("w-1")
    assert type(caught.value) is expected
    assert "GET node/w-1" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [b"{}", b'{"errors":[]}', b"[]", b'"x"', b'{"nodes": 7}', b'{"nodes":[{"state":[]}]}'])
async def test_a_list_without_the_list_is_not_an_empty_list(client: SlurmClient, slurm: FakeSlurm, text: bytes) -> None:
    with slurm.failing(fake.Fault(text=text, only=lambda call: "nodes" in call)), pytest.raises(errors.Garbage):
        await all_nodes(client)


async def test_a_list_with_an_error_is_an_error(client: SlurmClient, slurm: FakeSlurm) -> None:
    text = b'{"nodes":[],"errors":[{"error_number":1800,"error":"no contact"}]}'
    with slurm.failing(fake.garbage(text)), pytest.raises(errors.ControllerDown):
        await all_nodes(client)


async def test_dead_server(server: FakeSlurmrestd, client: SlurmClient) -> None:
    await client.ping()
    await server.stop()
    with pytest.raises(errors.Unreachable):
        await client.ping()
    await server.start()
    assert (await client.ping())[0].up


async def test_server_that_dies_in_the_middle(client: SlurmClient) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(half, "127.0.0.1", 0) as dying:
        client.set_url(f"http://127.0.0.1:{dying.sockets[0].getsockname()[1]}")
        with pytest.raises(errors.Unreachable, match="middle"):
            await client.ping()


async def test_something_that_is_no_http(client: SlurmClient) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(rude, "127.0.0.1", 0) as ssh:
        client.set_url(f"http://127.0.0.1:{ssh.sockets[0].getsockname()[1]}")
        with pytest.raises(errors.Garbage, match="SSH"):
            await client.ping()


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_proxy_in_between(client: SlurmClient, chunked: bool) -> None:
    """It may cut the body into chunks of its own, or end it by hanging up."""
    pings = b'{"pings":[{"hostname":"c","responding":true}]}'
    framed = b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + pings[:5] + b"\r\n%x\r\n" % (len(pings) - 5)
    framed += pings[5:] + b"\r\n0\r\n\r\n"

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + (framed if chunked else b"\r\n" + pings))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        client.set_url(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert (await client.ping())[0].hostname == "c"


async def test_bulk_update_is_one_request(client: SlurmClient, slurm: FakeSlurm) -> None:
    slurm.add_nodes("big-[0-999]")
    await client.ping()
    slurm.calls.clear()
    await client.update_nodes([f"big-{at}" for at in range(1000)], NodeUpdate(state=("DRAIN",), reason="why"))
    assert slurm.calls == ["POST nodes/"]
    assert all("DRAIN" in slurm.nodes[f"big-{at}"].flags for at in range(1000))


async def test_bulk_update_with_unknown_names_is_half_applied(client: SlurmClient, slurm: FakeSlurm) -> None:
    with pytest.raises(errors.HalfApplied):
        await client.update_nodes(["w-1", "none"], NodeUpdate(comment="seen"))
    assert slurm.nodes["w-1"].comment == "seen"


async def test_update_leaves_alone_what_it_does_not_name(client: SlurmClient, slurm: FakeSlurm) -> None:
    slurm.nodes["w-1"].reason = "admin's"
    await client.update_nodes(["w-1"], NodeUpdate(comment="", features=("a",), features_act=("a",)))
    assert (slurm.nodes["w-1"].reason, slurm.nodes["w-1"].features) == ("admin's", ["a"])


async def test_delete(client: SlurmClient, slurm: FakeSlurm) -> None:
    slurm.start_job(1, "w-9")
    await client.delete_nodes(["w-0", "w-1"])
    assert "w-0" not in slurm.nodes
    with pytest.raises(errors.Busy):
        await client.delete_nodes(["w-9"])
    with pytest.raises(errors.NotFound):
        await client.delete_nodes(["w-0"])


async def test_jobs(client: SlurmClient, slurm: FakeSlurm) -> None:
    slurm.start_job(7, "w-[1-2]", minutes=None)
    jobs: list[Any] = []
    answer = await client.jobs(jobs.extend)
    assert isinstance(answer, Listing)
    assert [(job.job_id, job.nodes, job.time_limit.infinite) for job in jobs] == [(7, "w-[1-2]", True)]
    assert isinstance(await client.jobs(jobs.extend, answer.last_update + 1), NotChanged)
    assert [(job.job_id, job.state) for job in await client.job_states()] == [("7", ("RUNNING",))]


@pytest.mark.parametrize(("answered", "found"), [([8, 7], 7), ([8], None)], ids=["an array", "another job"])
async def test_one_job_is_the_one_that_was_asked_for(
    client: SlurmClient, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, answered: list[int], found: int | None
) -> None:
    """Asked for the first job of an array, slurmrestd answers with all of them."""
    answer = fake._json({"jobs": [{"job_id": number} for number in answered]})
    monkeypatch.setattr(slurm, "_get_job", lambda *request: answer)
    if found is None:
        with pytest.raises(errors.Garbage):
            await client.job(7)
    else:
        assert (await client.job(7)).job_id == found


async def test_an_empty_list_of_changed_jobs_does_not_mean_that_there_are_none(
    client: SlurmClient, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """26.05 shows by `last_update` 0 that nothing changed. Whatever a version shows, all jobs are then asked for."""
    serve = slurm._get_jobs

    def unchanged(rest: str, query: dict[str, str], body: Any) -> fake.FakeAnswer:
        if "update_time" in query:
            return fake._json({"jobs": [], "last_update": fake._number(int(time.time())), "warnings": [{}]})
        return serve(rest, query, body)

    slurm.start_job(7, "w-3")
    monkeypatch.setattr(slurm, "_get_jobs", unchanged)
    jobs: list[Job] = []
    assert isinstance(await client.jobs(jobs.extend, int(time.time()) + 2), Listing)
    assert [job.job_id for job in jobs] == [7]


async def test_no_jobs_at_all_is_an_answer(client: SlurmClient, slurm: FakeSlurm) -> None:
    slurm.start_job(7, "w-1")
    slurm.jobs.clear()
    assert isinstance(await client.jobs(list[Any]().extend, 5), Listing)


async def test_reservations(client: SlurmClient) -> None:
    start = int(time.time()) + 600
    request = ReservationRequest(
        name="maint",
        node_list=("w-1", "w-2"),
        users=("slurm",),
        flags=("MAINT",),
        start_time=Number(set=True, number=start),
        duration=Number(set=True, number=30),
    )
    with pytest.raises(errors.NotFound):
        await client.reservation("maint")
    await client.put_reservation(request)
    found = await client.reservation("maint")
    assert (found.node_list, found.start_time.value, found.end_time.value) == ("w-[1-2]", start, start + 1800)
    assert await client.reservations() == (found,)
    with pytest.raises(errors.NotFound):
        await client.reservation("other")
    await client.delete_reservation("maint")
    with pytest.raises(errors.NotFound):
        await client.delete_reservation("maint")


async def test_the_daemons(client: SlurmClient, slurm: FakeSlurm) -> None:
    assert (await client.diag()).counting_since == slurm.boot
    assert [(part.name, part.nodes.total) for part in await client.partitions()] == [("all", 10)]
    await client.reconfigure()
    slurm.controller_up = False
    assert not (await client.ping())[0].up


async def test_accounting_that_is_not_there_is_unsupported(client: SlurmClient) -> None:
    with pytest.raises(errors.Unsupported, match="no such path"):
        await client.accounting_clusters()


@pytest.mark.parametrize("newest", range(len(VERSIONS)))
async def test_speaks_the_newest_version_that_both_know(client: SlurmClient, slurm: FakeSlurm, newest: int) -> None:
    """scenario 167"""
    slurm.versions = ("v0.0.99", *VERSIONS[newest:], "v0.0.41")
    await client.node("w-1")
    assert client.version == VERSIONS[newest]


async def test_says_that_a_server_is_unsupported(client: SlurmClient, slurm: FakeSlurm) -> None:
    """scenario 167"""
    slurm.versions = ("v0.0.40", "v0.0.41")
    with pytest.raises(errors.Unsupported, match=r"none of the data parsers v0\.0\.42 to v0\.0\.45"):
        await client.node("w-1")


async def test_follows_an_upgrade_and_a_downgrade(client: SlurmClient, slurm: FakeSlurm) -> None:
    await client.node("w-1")
    slurm.versions = ("v0.0.43",)
    assert (await client.node("w-1")).name == "w-1"
    assert client.version == "v0.0.43"


async def test_connections_are_reused(client: SlurmClient, server: FakeSlurmrestd) -> None:
    for _ in range(20):
        await client.node("w-1")
    assert server.connections == 1


async def test_at_most_four_calls_are_in_flight(client: SlurmClient, server: FakeSlurmrestd, slurm: FakeSlurm) -> None:
    most = running = 0
    answer = slurm.answer

    async def counted(*args: Any) -> fake.FakeAnswer:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return await answer(*args)

    slurm.answer = counted  # type: ignore[method-assign,assignment] # to see inside
    await asyncio.gather(*(client.node("w-1") for _ in range(20)))
    assert most == 4


async def test_new_key_signs_the_next_request(client: SlurmClient, slurm: FakeSlurm, server: FakeSlurmrestd) -> None:
    """scenario 161"""
    await client.node("w-1")
    slurm.key = b"another key of any length"
    with pytest.raises(errors.AuthFailed):
        await client.node("w-1")
    client.set_key(slurm.key)
    await client.node("w-1")
    assert verify(slurm.tokens[-1], slurm.key, time.time()).sun == "slurm"


async def test_the_circuit_opens_and_closes(client: SlurmClient, slurm: FakeSlurm) -> None:
    await client.ping()
    with slurm.failing(fake.refuse(502, 1800)):
        for _ in range(3):
            with pytest.raises(errors.ControllerDown):
                await client.node("w-1")
        calls = len(slurm.calls)
        with pytest.raises(errors.CircuitOpen, match="cannot reach slurmctld") as caught:
            await client.node("w-1")
        assert len(slurm.calls) == calls
    await asyncio.sleep(caught.value.retry_after)
    await client.node("w-1")
    await client.node("w-1")


async def test_refusals_do_not_open_the_circuit(client: SlurmClient) -> None:
    for _ in range(10):
        with pytest.raises(errors.NotFound):
            await client.node("none")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda client: client.node("w-1"), "GET node"),
        (lambda client: client.nodes([].extend), "GET nodes"),
        (lambda client: client.job_states(), "GET jobs/state"),
        (lambda client: client.update_nodes(["w-1", "w-2"], NodeUpdate(comment="c")), "POST nodes"),
    ],
)
async def test_costs_are_told_per_kind_of_call(
    client: SlurmClient, costs: list[Cost], call: Callable[[SlurmClient], Any], kind: str
) -> None:
    await client.ping()
    await call(client)
    assert costs[-1].call == kind
    assert costs[-1].outcome == "200"

"""Bytes that are not UTF-8, as any user may write them into a job's name and slurmrestd sends them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_operator.api.names import REASON_PREFIX
from slurm_operator.slurm import errors
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.model import Job, Node, Nodes
from slurm_operator.slurm.reasons import is_ours, our_reason
from slurm_operator.slurm.states import DrainOwner, drain_owner
from slurm_operator.slurm.stream import ListStream
from slurm_operator.slurm.view import SlurmView
from tests.fakes.slurmrestd import KEY, FakeAnswer, FakeSlurm, FakeSlurmrestd


class Clock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


@pytest.fixture
def slurm() -> FakeSlurm:
    slurm = FakeSlurm(time.time)
    slurm.add_nodes("w-[0-9]")
    return slurm


@pytest.fixture
async def client(slurm: FakeSlurm) -> AsyncIterator[SlurmClient]:
    async with FakeSlurmrestd(slurm) as server, SlurmClient(server.url, KEY, Clock(), deadline=5.0) as client:
        yield client


async def test_a_reason_in_another_encoding_hides_no_node(client: SlurmClient, slurm: FakeSlurm) -> None:
    slurm.add_nodes("big-[0-999]", extra="x" * 200)
    slurm.nodes["big-500"].reason = "d\udce9faut"
    found: list[Node] = []
    await client.nodes(found.extend)
    assert len(found) == 1010
    assert {node.name: node.reason for node in found if node.reason} == {"big-500": "d\ufffdfaut"}
    assert (await client.node("big-500")).reason == "d\ufffdfaut"


async def test_a_name_in_another_encoding_hides_no_job(client: SlurmClient, slurm: FakeSlurm) -> None:
    for job in range(300):
        slurm.start_job(job, "w-1")
    slurm.jobs[7].name = "j\udcffb"
    found: list[Job] = []
    await client.jobs(found.extend)
    assert len(found) == 300
    assert {job.job_id: job.name for job in found if job.name != "fake"} == {7: "j\ufffdb"}


async def test_the_view_stays_known(client: SlurmClient, slurm: FakeSlurm) -> None:
    slurm.nodes["w-3"].reason = "d\udce9faut"
    view = SlurmView(client, Clock())
    heard = asyncio.Event()
    view.subscribe(lambda change: heard.set())
    running = asyncio.create_task(view.run())
    try:
        await asyncio.wait_for(heard.wait(), 5)
        assert isinstance(view.state, Known)
        assert view.state.nodes["w-3"].reason == "d\ufffdfaut"
        slurm.start_job(7, "w-1").name = "j\udcffb"
        assert (await view.read_jobs(0)).holding == {"w-1": (7,)}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("text", "kind", "detail"),
    [
        (b'{"errors":[{"error_number":2010,"description":"d\xe9faut"}]}', errors.NotPermitted, "d\ufffdfaut"),
        (b"d\xe9faut", errors.ServerFailed, "HTTP 500"),
        (b'{"x":' + b"[" * 100_000, errors.ServerFailed, "HTTP 500"),
    ],
    ids=["json", "text", "deep"],
)
async def test_an_error_in_another_encoding_is_the_error(
    slurm: FakeSlurm, client: SlurmClient, text: bytes, kind: type[errors.SlurmError], detail: str
) -> None:
    await client.ping()
    slurm._serve = lambda *_: FakeAnswer(500, text)  # type: ignore[method-assign] # what no fake Slurm says
    with pytest.raises(kind) as caught:
        await client.node("w-1")
    assert caught.value.detail == detail


@pytest.mark.parametrize(
    "text", [b'{"x":' + b"[" * 100_000, b'{"nodes":[{"name":"\xff', b"\xff\xff", b'{"nodes":"\xff"}']
)
async def test_an_answer_that_is_no_answer_is_garbage(slurm: FakeSlurm, client: SlurmClient, text: bytes) -> None:
    await client.ping()
    slurm._serve = lambda *_: FakeAnswer(200, text)  # type: ignore[method-assign] # what no fake Slurm says
    with pytest.raises(errors.Garbage):
        await client.nodes(list[Node]().extend)
    with pytest.raises(errors.Garbage):
        await client.node("w-1")


HEADS = [
    "HTTP/1.1 ²³¹ odd\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: \xff\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\xff\r\n",
    "\xff\xfe\r\n\r\n",
]


@pytest.mark.parametrize("head", HEADS)
async def test_headers_that_are_no_headers_are_garbage(head: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode("latin-1"))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with SlurmClient(url, KEY, Clock(), deadline=5.0) as client:
            with pytest.raises(errors.Garbage):
                await client.ping()


NAMES = st.lists(st.binary(max_size=6) | st.text(max_size=6).map(str.encode), min_size=1, max_size=40)


@settings(max_examples=60)
@given(NAMES, st.sampled_from([None, 2]), st.integers(1, 40_000))
def test_any_bytes_in_any_pieces(reasons: list[bytes], indent: int | None, chunk: int) -> None:
    """Whole characters survive any cut, other bytes are replaced, and every item is there."""
    plain = bytes(range(0x20, 0x80)).translate(None, b'"\\').decode()
    wanted = [{"name": f"w-{at}", "pad": "p" * 9000, "reason": f"MARK{at}."} for at in range(len(reasons))]
    text = json.dumps({"nodes": wanted, "last_update": {"set": True, "number": 7}}, indent=indent).encode()
    readable = [bytes(byte for byte in reason if byte >= 0x80 or chr(byte) in plain) for reason in reasons]
    for at, reason in enumerate(readable):
        text = text.replace(b"MARK%d." % at, reason)
    pieces: list[Sequence[Node]] = []
    stream = ListStream("nodes", msgspec.json.Decoder(tuple[Node, ...]), msgspec.json.Decoder(Nodes), pieces.append)
    for start in range(0, len(text), chunk):
        stream.feed(text[start : start + chunk])
    answer = stream.finish()
    assert isinstance(answer.nodes, tuple)
    found = [node for piece in pieces for node in piece] + list(answer.nodes)
    assert [node.reason for node in found] == [reason.decode(errors="replace") for reason in readable]


def test_a_long_list_with_such_bytes_is_still_read_in_pieces() -> None:
    nodes = b",".join(b'{"name":"w-%d","reason":"\xff","pad":"%s"}' % (at, b"p" * 9000) for at in range(50))
    pieces: list[Sequence[Node]] = []
    stream = ListStream("nodes", msgspec.json.Decoder(tuple[Node, ...]), msgspec.json.Decoder(Nodes), pieces.append)
    stream.feed(b'{"meta":"\xff","nodes":[' + nodes + b"]}")
    assert sum(map(len, pieces)) > 40


def test_a_reason_that_was_replaced_is_never_ours() -> None:
    assert not is_ours(f"{REASON_PREFIX}d\ufffdfaut")
    assert drain_owner(("IDLE", "DRAIN"), f"{REASON_PREFIX}d\ufffdfaut") is DrainOwner.FOREIGN


def test_we_never_write_the_replacement_character() -> None:
    for text in ("d\ufffdfaut", f"{REASON_PREFIX}d\ufffdfaut"):
        assert our_reason(text) == f"{REASON_PREFIX}d?faut"
        assert is_ours(our_reason(text))

"""Several clusters at once: no cross-talk, and a sick one holds up nobody."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from slurm_operator.slurm.known import Change, Known, Unknown
from slurm_operator.slurm.views import ClusterKey, SlurmViews
from tests.fakes import slurmrestd as fake
from tests.fakes.clock import FakeClock
from tests.fakes.slurmrestd import KEY, FakeAnswer, FakeSlurm, FakeTransport

RED, BLUE = ("red", "slurm"), ("blue", "slurm")


class ByHost:
    """Several Slurms behind one transport, told apart by the host in the URL."""

    def __init__(self, slurms: dict[str, FakeSlurm]) -> None:
        self._slurms = slurms

    def request(self, method: str, url: str, headers: dict[str, str], body: bytes | None):  # type: ignore[no-untyped-def] # as FakeTransport's
        return FakeTransport(self._slurms[url.split("/")[2]]).request(method, url, headers, body)

    async def close(self) -> None:
        return


class Both:
    def __init__(self, clock: FakeClock) -> None:
        self.red, self.blue = FakeSlurm(clock.now), FakeSlurm(clock.now, key=b"blue")
        self.red.add_nodes("w-[0-1]")
        self.blue.add_nodes("w-[0-2]")
        self.views = SlurmViews(clock, transport=lambda: ByHost({"red": self.red, "blue": self.blue}))
        self.heard: list[tuple[ClusterKey, Change]] = []
        self.views.subscribe(lambda cluster, change: self.heard.append((cluster, change)))


@pytest.fixture
async def both(clock: FakeClock) -> AsyncIterator[Both]:
    both = Both(clock)
    both.views.set(RED, "http://red", KEY)
    both.views.set(BLUE, "http://blue", b"blue")
    await asyncio.sleep(5)
    both.heard.clear()
    yield both
    await both.views.close()


def nodes(both: Both, cluster: ClusterKey) -> set[str]:
    state = both.views.state(cluster)
    assert isinstance(state, Known)
    return set(state.nodes)


async def test_equal_names_do_not_mix(both: Both) -> None:
    """scenario 170"""
    assert nodes(both, RED) == {"w-0", "w-1"}
    assert nodes(both, BLUE) == {"w-0", "w-1", "w-2"}
    view = both.views.get(BLUE)
    assert view
    await view.drain(["w-0"], "slurm-operator: x")
    assert "DRAIN" not in both.red.nodes["w-0"].flags
    assert "DRAIN" in both.blue.nodes["w-0"].flags


@pytest.mark.parametrize("fault", [fake.hang(), fake.killed(), fake.garbage(), fake.refuse(511, 1007)])
async def test_a_sick_cluster_holds_up_nobody(both: Both, fault: fake.Fault) -> None:
    """scenario 165"""
    with both.red.failing(fault):
        for _ in range(30):
            await asyncio.sleep(2)
            state = both.views.state(BLUE)
            assert isinstance(state, Known)
            assert state.began_at > asyncio.get_running_loop().time() - 1.5
        assert isinstance(both.views.state(RED), Unknown)
    assert {cluster for cluster, _ in both.heard} == {RED}


async def test_a_cluster_without_a_rest_api_is_unknown(both: Both) -> None:
    """scenario 160"""
    await both.views.remove(RED)
    state = both.views.state(RED)
    assert isinstance(state, Unknown)
    assert "no RestApi" in state.why
    assert both.heard[-1][0] == RED
    assert isinstance(both.heard[-1][1].new, Unknown)
    assert both.views.get(RED) is None
    assert RED not in both.views
    both.red.calls.clear()
    await asyncio.sleep(10)
    assert both.red.calls == []
    await both.views.remove(RED)


async def test_the_same_again_changes_nothing(both: Both) -> None:
    """scenario 161: no restart of the poller for a key or address that is the same"""
    view = both.views.get(RED)
    assert both.views.set(RED, "http://red", KEY) is view
    await asyncio.sleep(5)
    assert both.heard == []


async def test_another_key_and_another_address(both: Both) -> None:
    """scenario 161"""
    both.red.key = b"rotated"
    view = both.views.set(RED, "http://red", b"rotated")
    await asyncio.sleep(3)
    assert both.heard == []
    both.views.set(RED, "http://blue", b"blue")
    assert both.views.get(RED) is view
    await asyncio.sleep(3)
    assert nodes(both, RED) == {"w-0", "w-1", "w-2"}


async def test_a_crashed_poller_says_so_and_starts_again(both: Both, caplog: pytest.LogCaptureFixture) -> None:
    serve = both.red._serve

    def broken(*args: object) -> FakeAnswer:
        raise ZeroDivisionError

    both.red._serve = broken  # type: ignore[method-assign, assignment] # a bug of ours
    await asyncio.sleep(2)
    state = both.views.state(RED)
    assert isinstance(state, Unknown)
    assert "crashed" in state.why
    both.red._serve = serve  # type: ignore[method-assign] # repaired
    await asyncio.sleep(7)
    assert nodes(both, RED) == {"w-0", "w-1"}
    assert isinstance(both.views.state(BLUE), Known)

"""Each write to Slurm looks once more at its nodes: an administrator may have acted since the last read."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

import pytest

from slurm_operator.nodeset.slurm_actions import Drain, Forget, Resume, Undrain
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.pace import Pace
from slurm_operator.slurm.view import SlurmView
from tests.fakes import slurmrestd as fake
from tests.fakes.clock import FakeClock, VirtualLoop
from tests.fakes.slurmrestd import KEY, FakeNode, FakeSlurm, FakeTransport

OURS = "slurm-operator: NodeSet slurm/gpu is scaled in"


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}


class Shell:
    """A cluster of 20 nodes that we drained, seen by a view that reads every 14 seconds."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = FakeSlurm(self.clock.now)
        self.server.add_nodes("gpu-[0-19]", flags=["DYNAMIC_NORM", "DRAIN"], reason=OURS)
        client = SlurmClient("http://slurm", KEY, self.clock, transport=FakeTransport(self.server))
        self.slurm = SlurmView(client, self.clock, Pace(quiet=14.0))
        self.kept: set[str] = set()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def note_kept(self, names: Iterable[str]) -> None:
        self.kept.update(names)

    def node(self, name: str, **change: object) -> FakeNode:
        for field, value in change.items():
            setattr(self.server.nodes[name], field, value)
        self.server.touch()
        return self.server.nodes[name]


@pytest.fixture
async def shell() -> AsyncIterator[Shell]:
    made = Shell()
    task = asyncio.create_task(made.slurm.run())
    known = asyncio.Event()
    made.slurm.subscribe(lambda change: known.set() if isinstance(change.new, Known) else None)
    await known.wait()
    yield made
    task.cancel()
    await asyncio.wait([task])


async def test_a_drain_that_an_administrator_took_over_is_not_lifted(shell: Shell) -> None:
    shell.node("gpu-0", reason="bad GPU")
    assert (await Undrain(("gpu-0", "gpu-1")).run(shell)).wrote
    assert ("DRAIN" in shell.node("gpu-0").flags, shell.node("gpu-0").reason) == (True, "bad GPU")
    assert "DRAIN" not in shell.node("gpu-1").flags


async def test_a_node_that_an_administrator_took_down_is_not_resumed(shell: Shell) -> None:
    shell.node("gpu-0", down=True, reason="hardware")
    shell.node("gpu-1", down=True, reason="slurm-operator: worker pod is going away")
    await Resume(("gpu-0", "gpu-1")).run(shell)
    assert shell.node("gpu-0").down
    assert not shell.node("gpu-1").down


@pytest.mark.parametrize(
    "claim",
    [
        {"reason": "disk"},
        {"flags": ["DYNAMIC_NORM"], "down": True, "reason": "burnt"},
        {"flags": ["FAIL"], "reason": "x"},
    ],
)
@pytest.mark.parametrize("count", [1, 17], ids=["few", "many"])
async def test_a_drain_writes_over_no_claim(shell: Shell, claim: dict[str, object], count: int) -> None:
    claimed = shell.node("gpu-2", **claim)
    await Drain(tuple(f"gpu-{number}" for number in range(2, 2 + count)), "slurm-operator: other").run(shell)
    assert claimed.reason == claim["reason"]
    if count > 1:
        assert shell.node("gpu-3").reason == "slurm-operator: other"


async def test_a_node_that_was_resumed_meanwhile_is_not_drained_without_a_reason(shell: Shell) -> None:
    """Neither side would lift that drain: it is not the administrator's and does not look like ours."""
    shell.node("gpu-2", flags=["DYNAMIC_NORM"], reason="")
    down = shell.node("gpu-3", flags=["DYNAMIC_NORM"], down=True, reason="burnt")
    await Drain(("gpu-2", "gpu-3")).run(shell)
    assert "DRAIN" not in shell.node("gpu-2").flags
    assert ("DRAIN" in down.flags, down.reason) == (True, "burnt")


async def test_a_silent_node_that_slurmctld_took_down_becomes_ours(shell: Shell) -> None:
    """Otherwise its successor inherits a drain that the operator never lifts."""
    shell.node("gpu-2", flags=["NOT_RESPONDING"], down=True, reason="Not responding")
    await Drain(("gpu-2",), OURS).run(shell)
    assert shell.node("gpu-2").reason == OURS


async def test_a_record_that_became_named_or_claimed_is_kept(shell: Shell) -> None:
    shell.server.start_job(1, "gpu-9", required="gpu-[9-10]")
    shell.server.start_job(2, "", state="PENDING", excluded="gpu-11")
    shell.server.reservations["exam"] = {"name": "exam", "node_list": "gpu-12"}
    shell.node("gpu-13", reason="bad disk")
    shell.server.start_job(3, "gpu-14")
    shell.server.suspend_job(3)
    nodes = tuple(f"gpu-{number}" for number in range(9, 16))
    await Forget(nodes).run(shell)
    assert sorted(set(nodes) - shell.server.nodes.keys()) == ["gpu-15"]
    assert shell.kept == set(nodes) - {"gpu-15"}


async def test_no_record_is_deleted_while_the_jobs_cannot_be_listed(shell: Shell) -> None:
    with (
        shell.server.failing(fake.Fault(status=500, only=lambda call: call.startswith("GET jobs/"))),
        pytest.raises(SlurmError),
    ):
        await Forget(("gpu-0",)).run(shell)
    assert "gpu-0" in shell.server.nodes

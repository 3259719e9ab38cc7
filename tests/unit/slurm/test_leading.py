"""A process that may no longer lead reads Slurm and changes nothing."""

import time

import pytest

from slurm_operator.cli.run import _leading
from slurm_operator.kube.client import Client
from slurm_operator.kube.config import KubeConfig
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.errors import NotLeading
from slurm_operator.slurm.model import NodeUpdate
from tests.fakes.slurmrestd import KEY, FakeSlurm, FakeSlurmrestd


class Clock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


async def test_nothing_is_written_after_the_lease() -> None:
    slurm = FakeSlurm(time.time)
    slurm.add_nodes("w-0")
    drain = NodeUpdate(state=("DRAIN",), reason="ours")
    async with (
        FakeSlurmrestd(slurm) as server,
        Client(KubeConfig("http://127.0.0.1:1")) as kube,
        SlurmClient(server.url, KEY, Clock(), transport=_leading(kube)) as client,
    ):
        kube.may_write = lambda: False
        assert (await client.node("w-0")).name == "w-0"
        for write in (client.update_nodes(["w-0"], drain), client.delete_nodes(["w-0"])):
            with pytest.raises(NotLeading, match="another process may lead"):
                await write
        assert "DRAIN" not in (await client.node("w-0")).state
        kube.may_write = lambda: True
        await client.update_nodes(["w-0"], drain)
        assert "DRAIN" in (await client.node("w-0")).state

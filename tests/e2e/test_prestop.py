"""The hook of a worker pod that ends, on real Slurm: whose word stays on the node."""

import pytest

from slurm_local.lab import SlurmLab
from slurm_operator.api import names
from slurm_operator.desired.scripts import script
from slurm_operator.runtime.clock import SystemClock
from slurm_operator.slurm.client import SlurmClient

OURS = f"{names.REASON_PREFIX}worker pod is going away"
CLAIMS = {
    "w-0": ("drain", "bad disk, ticket 4711 State=IDLE"),
    "w-1": ("down", f'it\'s "odd" Reason={names.REASON_PREFIX}not ours'),
    "w-2": ("fail", "fans = loud"),
}


async def end(lab: SlurmLab, node: str) -> None:
    """Run the hook as in the pod of that node."""
    await lab.box.run("sh", "-c", f"hostname() {{ echo {node}.example.com; }}\n{script('prestop')}", timeout=11)


async def claim(lab: SlurmLab, node: str, state: str, reason: str) -> None:
    await lab.box.run("scontrol", "update", f"nodename={node}", f"state={state}", f"reason={reason}")


@pytest.mark.timeout(180)
async def test_an_administrators_word_outlives_the_pod_and_any_other_node_goes_down() -> None:
    async with SlurmLab(slurmds=5) as lab, SlurmClient(lab.url, lab.jwt_key, SystemClock()) as client:
        await lab.run("salloc --no-shell -w w-0 -n1")
        for node, (state, reason) in CLAIMS.items():
            await claim(lab, node, state, reason)
        await claim(lab, "w-3", "drain", f"{names.REASON_PREFIX}scaled in")
        for number in range(5):
            await end(lab, f"w-{number}")

        for node, (state, reason) in CLAIMS.items():
            found = await client.node(node)
            words = {"DRAIN", "DOWN", "FAIL"} & set(found.state)
            assert (words, found.reason) == ({state.upper()}, reason)
        for node in ("w-3", "w-4"):
            found = await client.node(node)
            assert "DOWN" in found.state
            assert found.reason == OURS


@pytest.mark.timeout(120)
async def test_a_slurmctld_that_does_not_answer_does_not_hold_the_pod_back() -> None:
    async with SlurmLab(slurmds=1) as lab, SlurmClient(lab.url, lab.jwt_key, SystemClock()) as client:
        lab.slurmctld.hang()
        await end(lab, "w-0")
        lab.slurmctld.resume()
        assert "DOWN" not in (await client.node("w-0")).state

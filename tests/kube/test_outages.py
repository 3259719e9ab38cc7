"""The leader dies, or the API server is away: the operator goes on by itself, and nothing is written needlessly."""

import asyncio
import statistics
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from slurm_local.apiserver import ApiServer
from slurm_local.simulation import SimulatedNodes
from slurm_operator.api import names
from slurm_operator.kube.kinds import PODS
from tests.kube import workers
from tests.kube.control_plane import Place, token, until
from tests.kube.replicas import Replica

KILLS = 5
TAKEOVER_SECONDS = 25.0
"""The lease of 15 s, two rounds of a standby that looks every 2 to 2.4 s, and the first pass."""
AWAY_SECONDS = 600.0
SETTLED_SECONDS = 60.0
WORKERS = 50
DRAINED = 5


@pytest.fixture(scope="module", autouse=True)
def pool(simulated_nodes: SimulatedNodes) -> None:
    workers.prepare(simulated_nodes, "outages")


@pytest.fixture
async def here(api_server: ApiServer, namespace: str) -> AsyncIterator[Place]:
    async with workers.cluster(api_server, namespace) as found:
        yield found


async def written(here: Place, name: str) -> bool:
    """Whether the operator has written the Secret of a Token."""
    return await here.get("Secret", names.token_secret(name, name)) is not None


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_the_leader_is_killed_and_the_other_replica_acts(here: Place, tmp_path: Path) -> None:
    """scenario 20: with signal 9, so that the lease is not given back. Prints how long it takes."""
    replicas = [Replica(here, name, tmp_path) for name in ("one", "two")]
    for replica in replicas:
        replica.start()
    took = []
    loop = asyncio.get_running_loop()
    try:
        for number in range(KILLS):
            await until(partial(_one_leads, replicas))
            await here.apply(token(f"before-{number}"))
            await until(partial(written, here, f"before-{number}"))
            leader = next(replica for replica in replicas if replica.leads)
            leader.kill()
            killed = loop.time()
            await here.apply(token(f"after-{number}"))
            await until(partial(written, here, f"after-{number}"))
            took.append(loop.time() - killed)
            leader.start()
    finally:
        for replica in replicas:
            replica.kill()
    print(f"signal 9 to the other's first write: {', '.join(f'{seconds:.1f}' for seconds in took)} s")
    assert len(took) == KILLS
    assert max(took) < TAKEOVER_SECONDS
    assert statistics.median(took) > 1.0, "a lease that was given back: the leader was not killed"


async def _one_leads(replicas: list[Replica]) -> bool:
    return sum(replica.leads for replica in replicas) == 1


@pytest.mark.long
@pytest.mark.timeout(1500)
async def test_the_api_server_is_away_for_ten_minutes(api_server: ApiServer, here: Place, tmp_path: Path) -> None:
    """No worker is lost, no object is written that did not change, and the work goes on. Prints the figures."""
    nodeset = workers.nodeset_of("outages", replicas=WORKERS, oversubscribeNode=True)
    async with Replica(here, "operator", tmp_path).kept_running() as replica:
        await here.apply(nodeset)
        await until(partial(workers.busy, here, WORKERS), seconds=180)
        await here.all_ready(("NodeSet", "gpu"))
        await here.quiet(5.0)
        before = {name: pod.metadata.uid for name, pod in (await workers.workers(here)).items()}
        api_server.apiserver.stop(patience=0)
        await asyncio.sleep(AWAY_SECONDS)
        for name in sorted(before)[:DRAINED]:
            here.slurm.nodes[name].flags.append("DRAIN")
            here.slurm.nodes[name].reason = "maintenance"
        here.slurm.touch()
        here.audit.mark()
        api_server.apiserver.start()
        await asyncio.to_thread(api_server.wait_ready)
        await until(partial(_told, here, DRAINED), seconds=SETTLED_SECONDS)
        await asyncio.sleep(SETTLED_SECONDS)
        writes = Counter(f"{request.verb} {request.resource}" for request in here.writes())
        print(f"restarts {replica.restarts}; writes within {SETTLED_SECONDS:.0f} s: {dict(writes) or 'none'}")
        after = {name: pod.metadata.uid for name, pod in (await workers.workers(here)).items()}
        assert after == before
        assert {"create pods", "delete pods"}.isdisjoint(writes)
        assert writes["patch pods"] <= DRAINED, "one for each worker whose state changed in Slurm"
        assert writes.total() - writes["patch pods"] - writes["create events"] <= DRAINED
        workers.end_jobs(here)
        await here.change("NodeSet", "gpu", {"spec": {"replicas": WORKERS - 10}})
        await until(partial(_count, here, WORKERS - 10), seconds=120)


async def _told(here: Place, count: int) -> bool:
    """Whether so many workers carry the condition that Slurm drains them."""
    found = await here.admin.list(PODS, here.namespace, labels=f"{names.LABEL_APP}={names.APP_SLURMD}")
    kinds = [{c.type for c in pod.status.conditions if c.is_true} for pod in found.items]
    return sum(any("Drain" in kind for kind in types) for types in kinds) == count


async def _count(here: Place, count: int) -> bool:
    return len(await workers.workers(here)) == count

"""Whether the partition of a NodeSet takes jobs before its workers are reported as ready.

A NodeSet that is created again finds the partition of its predecessor closed until slurmctld has read the new
configuration; the records of its nodes do not tell.
"""

import asyncio

from slurm_operator.api import names
from slurm_operator.nodeset.order import is_ready
from slurm_operator.nodeset.world import World
from slurm_operator.slurm.client import SlurmClient
from slurm_operator.slurm.conf.parser import parse
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.known import Known

CLOSED = "DRAIN"
ANSWER_SECONDS = 2.0
"""How long a pass waits for slurmctld's list of partitions; without an answer the partition counts as open."""
CLOSED_SECONDS = 1.0
"""Seconds between two questions while the partition is closed."""


def is_asked(world: World) -> bool:
    """Return whether nothing but a closed partition can keep the NodeSet from being Ready."""
    nodeset, ready = world.nodeset, world.nodeset.status.condition(names.CONDITION_READY)
    if (ready is not None and ready.is_true) or nodeset.metadata.deletion_timestamp is not None:
        return False
    if not isinstance(world.slurm, Known) or world.controller is None or world.controller.spec.external:
        return False
    live = [worker for worker in world.workers if worker.live]
    complete = len(live) >= (nodeset.spec.replicas if nodeset.spec.scaling_mode == "StatefulSet" else 1)
    inside = all(w.record is not None and nodeset.slurm_name in w.record.partitions for w in live)
    return complete and inside and all(is_ready(w.pod) for w in live) and _is_open_by_spec(world)


def _is_open_by_spec(world: World) -> bool:
    partition = world.nodeset.spec.partition
    if partition is None or not partition.enabled:
        return False
    pairs = [pair for line in parse(partition.config or "").lines for pair in line.pairs]
    states = [pair.value.upper() for pair in pairs if pair.key.lower() == "state"]
    return states[-1:] in ([], ["UP"])


async def is_closed(client: SlurmClient, name: str) -> bool:
    """Return whether slurmctld says that a partition refuses new jobs."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            found = await client.partitions()
    except (SlurmError, TimeoutError):
        return False
    return any(one.name == name and CLOSED in one.partition.state for one in found)

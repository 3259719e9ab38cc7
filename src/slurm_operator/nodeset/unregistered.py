"""Workers that run and that Slurm has no record of.

slurmd registers when it starts, and not again by itself: after `scontrol delete node`, or if slurmctld lost its state,
the worker stays away. Its pod is not replaced, since slurmd may still run jobs that slurmctld has no record of.
"""

from collections.abc import Callable, Sequence

from slurm_operator.api import names
from slurm_operator.nodeset.choose import Choice
from slurm_operator.nodeset.evidence import says_busy, slurmd_has_run, slurmd_started
from slurm_operator.nodeset.world import FRESH_SECONDS, Worker, World
from slurm_operator.runtime.times import seconds_of
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.hostlist import compress
from slurm_operator.slurm.known import Known

GRACE_SECONDS = 60.0
"""Seconds for which a running worker may be without a record before it is reported."""


def unregistered(world: World) -> list[Worker]:
    """Return running workers that a fresh read shows no record of."""
    slurm = world.slurm
    if not isinstance(slurm, Known):
        return []

    def is_certain(worker: Worker) -> bool:
        seen = slurm.seen(worker.name)
        return seen.confirmed and world.now - slurm.wall(seen.began_at) <= FRESH_SECONDS

    absent = (w for w in world.workers if w.live and w.record is None and slurmd_has_run(w.pod))
    return [worker for worker in absent if is_certain(worker)]


def not_registered(world: World, choice: Choice) -> Trouble | None:
    """Say which workers Slurm has had no record of for too long, why that may be, and what helps."""
    absent = _since_unready(world)
    overdue = [
        worker
        for worker in unregistered(world)
        if worker.pod_name not in choice.condemned
        and world.now - max(absent, slurmd_started(worker.pod)) >= GRACE_SECONDS
    ]
    marked, others = _split(overdue, lambda worker: says_busy(worker.pod))
    renamed, plain = _split(others, lambda worker: bool(world.registered_at(worker.pod)))
    said = [*_forgotten(marked), *_renamed(world, renamed), *_deleted(plain)]
    return Trouble(names.EVENT_SLURM_NODE_NOT_REGISTERED, "; ".join(said)) if said else None


def _since_unready(world: World) -> float:
    """Return since when the NodeSet is not Ready, which a worker without a record makes it; now if it is not so yet."""
    ready = world.nodeset.status.condition(names.CONDITION_READY)
    if ready is None or ready.status != "False":
        return world.now
    return seconds_of(ready.last_transition_time, absent=world.now)


def _split(workers: Sequence[Worker], holds: Callable[[Worker], bool]) -> tuple[list[Worker], list[Worker]]:
    """Return the workers of which it holds, and the others."""
    found: dict[bool, list[Worker]] = {True: [], False: []}
    for worker in workers:
        found[holds(worker)].append(worker)
    return found[True], found[False]


def _forgotten(workers: Sequence[Worker]) -> list[str]:
    if not workers:
        return []
    cure = "restore slurmctld's state, or delete its pod if these jobs may end"
    return [f"Slurm has no record any more of worker {_names(workers)}, on which jobs were running: {cure}"]


def _renamed(world: World, workers: Sequence[Worker]) -> list[str]:
    if not workers:
        return []
    other = world.registered_at(workers[0].pod)
    cure = "correct template.spec.hostname or the hostname-override annotation of its Node"
    return [f"worker {_names(workers)} is registered with Slurm as node {other}: {cure}"]


def _deleted(workers: Sequence[Worker]) -> list[str]:
    if not workers:
        return []
    cause = "its record was deleted, slurmctld lost its state, or slurmd cannot reach slurmctld"
    cure = "slurmd registers only when it starts, so see its log and delete its pod if no job runs there"
    return [f"Slurm has no record of worker {_names(workers)}: {cause}; {cure}"]


def _names(workers: Sequence[Worker]) -> str:
    return compress([worker.name for worker in workers])

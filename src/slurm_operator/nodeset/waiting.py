"""What a NodeSet waits for, in words: one entry per worker, record or answer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from slurm_operator.api import names
from slurm_operator.nodeset.choose import Choice, awaits_records
from slurm_operator.nodeset.drains import left_behind, unended, unnoticed, unseen_records
from slurm_operator.nodeset.evidence import says_busy
from slurm_operator.nodeset.ownership import awaits_budget
from slurm_operator.nodeset.world import Gone, Standing, Worker, World, users_of
from slurm_operator.slurm.known import Unknown

END_OF_TIME_SECONDS = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""Later ends cannot be shown as a date; a time limit of 8,000 years is none."""
NAMED = 3
"""Number of workers, jobs or causes that a message names before the rest is only counted."""


def awaited_by(world: World, choice: Choice) -> list[str]:
    """What keeps each worker that should go from going, and the others from coming."""
    namespace, budget = world.nodeset.metadata.namespace, names.workers_budget(world.nodeset.spec.controller_ref.name)
    unkept = choice.create and awaits_budget(world.nodeset, world.ownership, world.now)
    return [
        *([f"PodDisruptionBudget {namespace}/{budget} to be created"] if unkept else []),
        *(["Slurm to say which names are in use"] if choice.create and awaits_records(world) else []),
        *(_wait_for(world, worker) for worker in in_order(choice.going(world))),
        *(f"the old pod {name} to end" for name in choice.blocked),
        *(f"the Slurm name {held.name} to be free: {held.where} has it" for held in choice.held.values()),
        *(f"{listed(users)} to end, which name {name}" for name, users in sorted(held_back(world, choice).items())),
        *_kept_records(world),
    ]


def replaces(world: World) -> bool:
    """Return whether the update strategy promises to replace healthy workers of an earlier revision."""
    return world.nodeset.spec.update_strategy.type == "RollingUpdate"


def held_back(world: World, choice: Choice) -> Mapping[str, Sequence[str]]:
    """Return outdated workers that would be replaced now, and the jobs and reservations that name them."""
    return choice.waiting if replaces(world) else {}


def in_order(workers: Iterable[Worker]) -> list[Worker]:
    """Return workers by name, so that a message does not change with the order in which they are seen or go."""
    return sorted(workers, key=lambda worker: (len(worker.name), worker.name))


def _kept_records(world: World) -> Iterator[str]:
    """Say which records of workers that are gone stay, or may come back, and why."""
    if world.nodeset.metadata.deletion_timestamp is not None and (unseen := unseen_records(world)):
        why = world.slurm.why if isinstance(world.slurm, Unknown) else ""
        yield f"Slurm to say whether it still has {listed(sorted(unseen))} ({why})"
    if world.nodeset.metadata.deletion_timestamp is not None and (ended := unnoticed(world)):
        yield f"Slurm to notice that {listed(sorted(ended))} ended"
    if world.nodeset.metadata.deletion_timestamp is not None and (ending := unended(world)):
        yield f"{listed([worker.pod_name for worker in in_order(ending)])} to end"
    for name in sorted(left_behind(world)):
        if users := users_of(world, name):
            yield f"{listed(users)} to end, which name {name}: its record stays drained until then"


def _wait_for(world: World, worker: Worker) -> str:
    match worker.standing:
        case Standing.BUSY:
            jobs = world.jobs.holding.get(worker.name, ()) if world.jobs is not None else ()
            which = f" {', '.join(map(str, jobs[:NAMED]))}" if jobs else "s"
            return f"job{which} on {worker.name} to end{_until(world, worker)}"
        case Standing.UNSURE:
            return f"Slurm to say what runs on {worker.name} ({_why_unsure(world, worker)})"
        case Standing.UNLISTED:
            return f"the list of jobs, to see that none is on {worker.name}"
        case Standing.IN_SERVICE:
            return f"{worker.name} to be drained"
        case _:
            return f"{worker.name} to be removed"


def _why_unsure(world: World, worker: Worker) -> str:
    if isinstance(world.slurm, Unknown | Gone):
        return world.slurm.why
    if worker.record is None and says_busy(worker.pod):
        cure = "restore slurmctld's state, or delete the pod if its jobs may end"
        return f"jobs were running on it, and Slurm has no record of it any more: {cure}"
    if worker.record is not None:
        return "its state was read too long ago"
    if other := world.registered_at(worker.pod):
        return f"Slurm has no such node, but node {other} at the same address {worker.pod.status.pod_ip}"
    return "its state was not read yet"


def _until(world: World, worker: Worker) -> str:
    end = world.jobs.latest.get(worker.name) if world.jobs is not None else None
    if end is None:
        return ""
    if end >= END_OF_TIME_SECONDS:
        return ", without a time limit"
    return f", by {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M} UTC at the latest"


def listed(items: Sequence[str], separator: str = ", ") -> str:
    rest = f" and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return separator.join(items[:NAMED]) + rest

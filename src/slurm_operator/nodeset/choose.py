"""Which workers come and which go: pure choices over a world, one small function per question."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from slurm_operator.api import names
from slurm_operator.desired.worker import Slot, ordinal_slot
from slurm_operator.nodeset.fit import fit
from slurm_operator.nodeset.identity import daemon_slot, free_ordinals, ordinal_of
from slurm_operator.nodeset.order import VictimKey, is_available, is_healthy, pod_deadline, victim_key
from slurm_operator.nodeset.world import Standing, Worker, World
from slurm_operator.slurm.hostlist import HostlistError, expand
from slurm_operator.slurm.states import is_drain

YES = ("true", "True", "TRUE", "1", "t", "T")
"""Spellings of yes in the annotation that users write; all of them count, everywhere."""


class Cause(StrEnum):
    """Why a worker is drained. The first that applies gives the reason that Slurm shows."""

    NODE_CORDON = "node-cordon"
    POD_CORDON = "pod-cordon"
    DELETE = "delete"
    MODE = "mode"
    SCALE_IN = "scale-in"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Choice:
    desired: int
    create: tuple[Slot, ...]
    blocked: tuple[str, ...]
    """Pod names that are wanted again and still taken by a pod on its way out."""
    condemned: Mapping[str, Cause]
    """Pods that must go, by name."""

    def going(self, world: World) -> list[Worker]:
        return [world.by_pod[name] for name in self.condemned]


def choose(world: World, revision: str) -> Choice:
    """What the spec asks for, compared with what is there."""
    if world.nodeset.metadata.deletion_timestamp is not None:
        return Choice(0, (), (), {worker.pod_name: Cause.DELETE for worker in world.workers if worker.live})
    in_mode = [worker for worker in world.workers if worker.live and _mode(worker) == world.nodeset.spec.scaling_mode]
    out_of_mode = [
        worker for worker in world.workers if worker.live and _mode(worker) != world.nodeset.spec.scaling_mode
    ]
    by_mode = _by_node if world.nodeset.spec.scaling_mode == "DaemonSet" else _by_ordinal
    desired, slots, surplus = by_mode(world, in_mode)
    taken = {pod.metadata.name for pod in world.pods}
    condemned = {worker.pod_name: Cause.SCALE_IN for worker in surplus}
    if not slots:
        # Workers of the other mode make room only once their successors exist.
        condemned |= {worker.pod_name: Cause.MODE for worker in out_of_mode}
    staying = [worker for worker in in_mode if worker.pod_name not in condemned]
    condemned |= {worker.pod_name: Cause.UPDATE for worker in outdated(world, staying, desired, revision)}
    condemned |= {
        worker.pod_name: Cause.UPDATE for worker in forgotten(world, staying) if worker.pod_name not in condemned
    }
    return Choice(
        desired=desired,
        create=tuple(slot for slot in slots if slot.name not in taken),
        blocked=tuple(slot.name for slot in slots if slot.name in taken),
        condemned=condemned,
    )


def _by_ordinal(world: World, workers: Sequence[Worker]) -> tuple[int, list[Slot], list[Worker]]:
    spec = world.nodeset.spec
    # A pod of the other mode may hold a name as well, so its ordinal is taken too.
    used = [ordinal_of(worker.pod) for worker in world.workers if worker.live]
    slots = [
        ordinal_slot(world.nodeset, number) for number in free_ordinals(used, max(0, spec.replicas - len(workers)))
    ]
    return spec.replicas, slots, by_expendability(world, workers)[: max(0, len(workers) - spec.replicas)]


def _by_node(world: World, workers: Sequence[Worker]) -> tuple[int, list[Slot], list[Worker]]:
    slots = {name: daemon_slot(world.nodeset, node) for name, node in world.nodes.items()}
    home = {slot.name: name for name, slot in slots.items()}
    at_node: dict[str, list[Worker]] = {}
    for worker in workers:
        at_node.setdefault(worker.pod.spec.node_name or home.get(worker.pod_name, ""), []).append(worker)
    desired, wanted, surplus = 0, [], []
    for name, node in sorted(world.nodes.items()):
        here = at_node.get(name, [])
        verdict = fit(world.nodeset.spec.template.spec, node)
        desired += verdict.should_run
        if verdict.should_run and not here:
            wanted.append(slots[name])
        misnamed = [worker for worker in here if worker.name != slots[name].hostname]
        rightly = [worker for worker in by_expendability(world, here) if worker not in misnamed]
        surplus += misnamed + (rightly[:-1] if verdict.may_stay else rightly)
    return desired, wanted, surplus


def outdated(world: World, workers: Sequence[Worker], desired: int, revision: str) -> list[Worker]:
    """Workers of an old revision whose turn it is, never more healthy ones than may be away."""
    strategy = world.nodeset.spec.update_strategy
    old = [worker for worker in workers if worker.revision != revision]
    if strategy.type == "OnDelete" or not old:
        return []
    unhealthy = [worker for worker in old if not is_healthy(worker.pod)]
    if strategy.type != "RollingUpdate":
        return unhealthy
    missing = max(0, desired - len(workers))
    minimum = world.nodeset.spec.min_ready_seconds
    not_yet = [w for w in workers if w.revision == revision and not is_available(w.pod, minimum, world.now)]
    budget = max(0, strategy.rolling_update.limit(desired) - missing - len(not_yet))
    begun = recorded(world, Cause.UPDATE)
    healthy = [worker for worker in by_expendability(world, old) if is_healthy(worker.pod)]
    healthy.sort(key=lambda worker: worker.name not in begun)
    return unhealthy + healthy[:budget]


def forgotten(world: World, workers: Iterable[Worker]) -> list[Worker]:
    """Workers wanted back after we deleted their record: their slurmd does not register again by itself."""
    begun = recorded(world, Cause.SCALE_IN, Cause.MODE, Cause.UPDATE)
    return [worker for worker in workers if worker.standing is Standing.UNREGISTERED and worker.name in begun]


def by_expendability(world: World, workers: Iterable[Worker]) -> list[Worker]:
    """The most expendable first."""
    ends = world.jobs.latest if world.jobs is not None else {}
    begun = recorded(world, Cause.SCALE_IN)

    def key(worker: Worker) -> VictimKey:
        end = ends.get(worker.name, pod_deadline(worker.pod))
        if end is None and worker.standing is Standing.BUSY:
            end = float("inf")
        return victim_key(worker.pod, cordoned=is_cordoned(worker) or worker.name in begun, job_end=end)

    return sorted(workers, key=key)


def is_cordoned(worker: Worker) -> bool:
    """A person asked for it to be drained, or it is drained already."""
    return wants_cordon(worker) or (worker.record is not None and is_drain(worker.record.state))


def wants_cordon(worker: Worker) -> bool:
    return worker.pod.metadata.annotations.get(names.ANNOTATION_POD_CORDON, "") in YES


def recorded(world: World, *causes: Cause) -> set[str]:
    """Slurm nodes that we wrote down as being drained for these causes."""
    found: set[str] = set()
    for drain in world.nodeset.status.drains:
        if drain.cause in causes:
            try:
                found.update(expand(drain.nodes))
            except HostlistError:
                continue  # somebody edited the status: what we cannot read we did not write
    return found


def _mode(worker: Worker) -> str:
    return worker.pod.metadata.labels.get(names.LABEL_SCALING_MODE, "StatefulSet")

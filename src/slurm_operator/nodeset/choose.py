"""Which workers come and which go: pure choices over a world, one small function per question."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from slurm_operator.api import names
from slurm_operator.desired.worker import Slot, ordinal_slot
from slurm_operator.kube.resource import Manifest
from slurm_operator.nodeset.evidence import slurmd_is_ready, slurmd_started
from slurm_operator.nodeset.fit import fit
from slurm_operator.nodeset.identity import daemon_slot, free_ordinals, ordinal_of
from slurm_operator.nodeset.order import VictimKey, is_available, is_healthy, pod_deadline, victim_key
from slurm_operator.nodeset.template import build_template, placement_flaw
from slurm_operator.nodeset.world import FRESH_SECONDS, Standing, Worker, World
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.known import Known, Unknown
from slurm_operator.slurm.model import Node as SlurmNode
from slurm_operator.slurm.states import REJECTED, DrainOwner, is_busy, is_down, is_drain

YES = ("true", "True", "TRUE", "1", "t", "T")
"""Spellings of yes in the annotation that users write; all of them count, everywhere."""

FIRST_REGISTRATION_SECONDS = 60.0
"""Seconds that a new worker has to register before it counts as one whose record was deleted."""

UNUSABLE = REJECTED | {"UNKNOWN"}
"""State words of a record, beside DOWN, of a node that gets no jobs."""


class Cause(StrEnum):
    """Why a worker is drained. The first that applies gives the reason that Slurm shows."""

    NODE_CORDON = "node-cordon"
    POD_CORDON = "pod-cordon"
    DELETE = "delete"
    MODE = "mode"
    SCALE_IN = "scale-in"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Holder:
    """What has the Slurm name that a new worker would take."""

    name: str
    where: str
    is_worker: bool


@dataclass(frozen=True, slots=True)
class Choice:
    desired: int
    create: tuple[Slot, ...]
    blocked: tuple[str, ...]
    """Pod names that are wanted again and still taken by a pod on its way out."""
    condemned: Mapping[str, Cause]
    """Pods that must go, by name."""
    held: Mapping[str, Holder] = field(default_factory=dict)
    """Pod names of new workers whose Slurm name is not free."""
    waiting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Workers of an old revision that stay in service for now, and the jobs and reservations that name them."""
    template: Manifest = field(default_factory=dict)
    """What new workers share; empty if none is needed or none can be built."""
    flaw: Trouble | None = None
    """Why no worker can be built."""

    def going(self, world: World) -> list[Worker]:
        return [world.by_pod[name] for name in self.condemned]


@dataclass(frozen=True, slots=True)
class Rollout:
    """The workers that a rolling update or a change of the scaling mode chooses from."""

    desired: int
    revision: str
    staying: Sequence[Worker]
    """Workers of the current scaling mode that are not scaled in."""
    outdated: Sequence[Worker]
    """Those of an old revision that may be replaced."""
    out_of_mode: Sequence[Worker]
    named: Collection[str] = ()
    """Names of outdated workers that stay for now, since a job or a reservation names them."""
    begun: Collection[str] = ()
    """Names of workers that are being replaced, or have a drain of ours that no cordon asks for."""

    def away(self, world: World) -> int:
        """Return how many of the desired workers are not in service."""
        serving = [worker for worker in self.staying if not self._is_still_drained(worker)]
        present = sum(self._is_present(worker, world) for worker in (*serving, *self.out_of_mode))
        return max(0, self.desired - present)

    def vacant(self, world: World) -> int:
        """Return how many places have neither a worker to be replaced nor a successor in service."""
        new = [worker for worker in self.staying if worker.revision == self.revision]
        old = len(self.staying) - len(new) + len(self.out_of_mode)
        return max(0, self.desired - old - sum(self._is_present(worker, world) for worker in new))

    def _is_present(self, worker: Worker, world: World) -> bool:
        """Return whether a worker is in service. A new one must be ready as a whole, and for long enough."""
        if worker.record is None or not is_usable(worker.record):
            return False
        if worker.revision != self.revision:
            return _serves(worker)
        return is_available(worker.pod, world.nodeset.spec.min_ready_seconds, world.now)

    def _is_still_drained(self, worker: Worker) -> bool:
        """Return whether a worker that stays after all was drained to be replaced, and does not serve again yet."""
        stays = worker.revision == self.revision or worker.name in self.named
        return stays and worker.drain_owner is DrainOwner.OURS and not _asks_for_drain(worker)


def choose(world: World, revision: str) -> Choice:
    """What the spec asks for, compared with what is there."""
    if world.nodeset.metadata.deletion_timestamp is not None:
        return Choice(0, (), (), {worker.pod_name: Cause.DELETE for worker in world.workers if worker.live})
    mode = world.nodeset.spec.scaling_mode
    in_mode = [worker for worker in world.workers if worker.live and _mode(worker) == mode]
    out_of_mode = [worker for worker in world.workers if worker.live and _mode(worker) != mode]
    unplaced = placement_flaw(world.nodeset)
    by_mode = _by_ordinal if mode == "StatefulSet" else _by_node if unplaced is None else _as_before
    desired, slots, surplus = by_mode(world, in_mode)
    adopted = {pod.metadata.name for pod in world.orphans if not pod.metadata.terminating}
    in_the_way = ({pod.metadata.name for pod in (*world.pods, *world.orphans)} | set(world.unreadable)) - adopted
    taken = in_the_way | adopted
    condemned = {worker.pod_name: Cause.SCALE_IN for worker in surplus}
    staying = [worker for worker in in_mode if worker.pod_name not in condemned]
    waiting = named_elsewhere(world, staying, revision)
    lost = forgotten(world, (*staying, *out_of_mode))
    claims = bool(world.nodeset.spec.volume_claim_templates)
    changing = any(w.revision != revision or (claims and not w.pod.spec.node_name) for w in staying)
    template, flaw = _built(world, unplaced, bool(slots or lost) or changing)
    if flaw is None:
        replaceable = [worker for worker in staying if worker.name not in waiting]
        outdated = [worker for worker in replaceable if worker.revision != revision]
    else:  # a worker that left would have no successor
        outdated, lost = [], []
    # Workers of the other mode make room only once their successors exist.
    changes_mode = not slots and unplaced is None
    begun = recorded(world, Cause.UPDATE, Cause.MODE) | still_drained(world)
    rollout = Rollout(desired, revision, staying, outdated, out_of_mode, waiting, begun)
    turn = [*replaced(world, rollout, changes_mode=changes_mode), *lost]
    condemned |= {w.pod_name: Cause.UPDATE if _mode(w) == mode else Cause.MODE for w in turn}
    free = [slot for slot in slots if slot.name not in taken]
    held = names_in_use(world, free)
    return Choice(
        desired=desired,
        create=tuple(slot for slot in free if slot.name not in held),
        blocked=tuple(slot.name for slot in slots if slot.name in in_the_way),
        condemned=condemned,
        held=held,
        waiting=waiting,
        template=template,
        flaw=flaw,
    )


def _built(world: World, flaw: Trouble | None, needed: bool) -> tuple[Manifest, Trouble | None]:
    """Return the template of new workers, or what is wrong with it; it is built only if it may be needed."""
    if flaw is not None or not needed or world.facts is None:
        return {}, flaw
    built = build_template(world.nodeset, world.facts)
    return ({}, built) if isinstance(built, Trouble) else (built, None)


def named_elsewhere(world: World, workers: Iterable[Worker], revision: str) -> dict[str, tuple[str, ...]]:
    """Return outdated workers whose record must stay, since a pending job, a job elsewhere or a reservation names it.

    They stay in service: drained, a pending job that asks for one would wait for it for ever. One that is DOWN is
    replaced without its record.
    """
    if world.jobs is None or world.nodeset.spec.update_strategy.type == "OnDelete":
        return {}
    old = [w for w in workers if w.revision != revision and w.record is not None and not is_down(w.state)]
    users = {worker.name: world.jobs.waited_for_elsewhere(worker.name) for worker in old}
    return {name: found for name, found in users.items() if found}


def names_in_use(world: World, slots: Iterable[Slot]) -> dict[str, Holder]:
    """Return the slots whose Slurm name lives elsewhere: a twin would end the jobs of the first."""
    found: dict[str, Holder] = {}
    workers = {worker.name: f"Pod {worker.pod_name}" for worker in world.workers if worker.live}
    ours, records = recorded(world, *Cause), last_records(world)
    for slot in slots:
        name = slot.hostname
        record = records.get(name)
        if where := workers.get(name) or world.neighbours.get(name):
            found[slot.name] = Holder(name, where, is_worker=True)
        elif record is not None and record.address not in world.departed and _is_taken(record, ours=name in ours):
            where = f"a Slurm node at {record.address or 'an unknown address'} ({'+'.join(record.state)})"
            found[slot.name] = Holder(name, where, is_worker=False)
        else:
            workers[name] = f"Pod {slot.name}"
    return found


def awaits_records(world: World) -> bool:
    """Return whether the names that an external Slurm has in use have not been read yet."""
    external = world.controller is not None and world.controller.spec.external
    return external and world.has_restapi and isinstance(world.slurm, Unknown) and world.slurm.last is None


def last_records(world: World) -> Mapping[str, SlurmNode]:
    """Return the records as they were last seen: while Slurm does not answer, names are not free either."""
    last = world.slurm.last if isinstance(world.slurm, Unknown) else world.slurm
    return last.nodes if isinstance(last, Known) else {}


def _is_taken(record: SlurmNode, *, ours: bool) -> bool:
    """Return whether a second worker of the name would do harm; one that was just resumed does not answer at first.

    A worker of ours that is written down as going has made its name free unless jobs are on it.
    """
    return not is_down(record.state) and (not ours or is_busy(record.state))


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
        misnamed = [worker for worker in here if _is_misnamed(worker, slots[name])]
        ordered = by_expendability(world, here) if len(here) > 1 else here
        rightly = [worker for worker in ordered if worker not in misnamed]
        surplus += misnamed + (rightly[:-1] if verdict.may_stay else rightly)
    return desired, wanted, surplus


def _as_before(world: World, workers: Sequence[Worker]) -> tuple[int, list[Slot], list[Worker]]:
    """Leave every worker where it is, while it cannot be told where workers belong."""
    return world.nodeset.status.desired, [], []


def _is_misnamed(worker: Worker, slot: Slot) -> bool:
    """Return whether a new pod would have another name in Slurm; with hostNetwork the Node gives the name."""
    return not worker.pod.spec.host_network and worker.name != slot.hostname


def replaced(world: World, rollout: Rollout, *, changes_mode: bool) -> list[Worker]:
    """Return the workers whose turn it is to be replaced.

    One whose slurmd is not ready goes at once. One that Slurm does not use goes unless as many successors as may be
    away are not in service yet: it may be the network that keeps Slurm from using it. Of the others, never more go than
    may be away, and everything that is missing counts: otherwise each new template would cost healthy workers.
    """
    strategy = world.nodeset.spec.update_strategy
    old = rollout.outdated if strategy.type != "OnDelete" else []
    if strategy.type == "ScheduledUpdate":
        old = [worker for worker in old if not _serves(worker)]
    going = by_expendability(world, [*old, *(rollout.out_of_mode if changes_mode else ())])
    begun = recorded(world, Cause.UPDATE, Cause.MODE)
    going.sort(key=lambda worker: worker.name not in rollout.begun)
    ill = [worker for worker in going if not _serves(worker)]
    rest = [worker for worker in going if _serves(worker)]
    if not is_fresh(world):
        return ill + [worker for worker in rest if worker.name in begun]
    limit = strategy.rolling_update.limit(rollout.desired)
    unused = [worker for worker in rest if is_unused(worker)]
    unclear = [worker for worker in rest if worker.record is None and not is_unused(worker) and worker.name in begun]
    used = [worker for worker in rest if worker.record is not None and not is_unused(worker)]
    spare, budget = max(0, limit - rollout.vacant(world)), max(0, limit - rollout.away(world))
    return ill + unclear + unused[:spare] + used[:budget]


def is_fresh(world: World) -> bool:
    """Return whether Slurm answers, and was read so recently that workers may be chosen by it."""
    return isinstance(world.slurm, Known) and world.now - world.slurm.at <= FRESH_SECONDS


def is_unused(worker: Worker) -> bool:
    """Return whether Slurm certainly starts no jobs on a worker, by no decision of an administrator or of ours."""
    return worker.standing is Standing.UNREGISTERED or (worker.record is not None and not is_usable(worker.record))


def is_usable(record: SlurmNode) -> bool:
    """Return whether a node is neither DOWN nor rejected; a drain is a decision and no failure."""
    return not is_down(record.state) and not UNUSABLE & {*record.state}


def _serves(worker: Worker) -> bool:
    """Return whether slurmd is ready; the pod may be unready because of a sidecar beside it."""
    return is_healthy(worker.pod) or (worker.live and slurmd_is_ready(worker.pod))


def forgotten(world: World, workers: Iterable[Worker]) -> list[Worker]:
    """Workers wanted back after we deleted their record: their slurmd does not register again by itself.

    One that has started only now may be the successor of a worker that was scaled in, and has not registered yet.
    """
    begun = recorded(world, Cause.SCALE_IN, Cause.MODE, Cause.UPDATE)
    missing = [worker for worker in workers if worker.standing is Standing.UNREGISTERED and worker.name in begun]
    return [worker for worker in missing if world.now - slurmd_started(worker.pod) > FIRST_REGISTRATION_SECONDS]


def still_drained(world: World) -> set[str]:
    """Return workers with a drain of ours that no cordon asks for; the status may have forgotten what it was for."""
    live = (worker for worker in world.workers if worker.live)
    return {worker.name for worker in live if worker.drain_owner is DrainOwner.OURS and not _asks_for_drain(worker)}


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


def _asks_for_drain(worker: Worker) -> bool:
    """Return whether a person cordoned the pod or its Node."""
    return wants_cordon(worker) or (worker.node is not None and worker.node.spec.unschedulable)


def wants_cordon(worker: Worker) -> bool:
    return worker.pod.metadata.annotations.get(names.ANNOTATION_POD_CORDON, "") in YES


def recorded(world: World, *causes: Cause) -> set[str]:
    """Slurm nodes that we wrote down as being drained for these causes."""
    return set[str]().union(*(world.recorded.get(cause, ()) for cause in causes))


def _mode(worker: Worker) -> str:
    return worker.pod.metadata.labels.get(names.LABEL_SCALING_MODE, "StatefulSet")

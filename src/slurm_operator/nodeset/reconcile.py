"""The imperative shell around `decide`: one NodeSet, and one pod's Slurm state."""

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable

from slurm_operator.api import names
from slurm_operator.desired.revision import revision_data, revision_hash
from slurm_operator.kube.custom import NODESETS
from slurm_operator.kube.errors import NotFound
from slurm_operator.kube.kinds import PODS
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset import partition, podstate
from slurm_operator.nodeset.choose import Cause, choose, recorded
from slurm_operator.nodeset.decide import decide
from slurm_operator.nodeset.drains import REMOVAL
from slurm_operator.nodeset.hands import Hands, Memory, PatientSlurm
from slurm_operator.nodeset.job_details import JobDetails
from slurm_operator.nodeset.observe import Observer
from slurm_operator.nodeset.overdue import may_be_overdue, overdue
from slurm_operator.nodeset.waiting import NAMED
from slurm_operator.nodeset.world import Standing, Worker, World
from slurm_operator.runtime.actions import Create, Kube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.controller import without_worker
from slurm_operator.runtime.execute import execute
from slurm_operator.runtime.plan import InOrder, Result
from slurm_operator.slurm.errors import SlurmError
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.states import is_busy, is_drained
from slurm_operator.slurm.views import SlurmViews

log = logging.getLogger(__name__)

STATE_MANAGER = "slurm-operator-pod-state"
"""Field manager of the Slurm conditions on pods: the kubelet's conditions are never touched."""
JOBS_MAX_AGE_SECONDS = 30.0
JOBS_AGAIN_SECONDS = 2.0
"""Age of the list of jobs at which it is read again when it does not agree with the state of a node."""
JOBS_PATIENCE_SECONDS = 2.0
"""How long a pass waits for the list of jobs: drains must not be late because slurmctld is slow to list jobs."""
PATIENCE_SECONDS = 120.0
"""Seconds for an action: two answers of a slurmctld that needs half a minute for each, after other requests."""
DEADLINE_SECONDS = 300.0
"""Seconds for a pass: actions that ask Slurm, then those that remove workers, then the report."""
CROWD = 50
"""Making so many workers at once keeps an API server busy."""
_MAKES_POD = Create(PODS, {}).lane


class NodeSetReconciler:
    def __init__(self, observe: Observer, kube: Kube, views: SlurmViews, clock: Clock) -> None:
        self._observe = observe
        self._kube = kube
        self._views = views
        self._clock = clock
        self._memories: dict[Key, Memory] = {}
        self._details = JobDetails(clock)
        self._growing: set[Key] = set()
        self._ended: dict[Key, float | None] = {}
        self._watching: dict[Key, Key] = {}
        """The cluster whose view keeps nodes fresh for each NodeSet."""

    def is_growing(self, key: Key) -> bool:
        """Whether a crowd of workers is being made right now."""
        return key in self._growing

    def rested(self, key: Key) -> float:
        """Seconds since the last pass ended; none while one is under way."""
        ended = self._ended.get(key, float("-inf"))
        return self._clock.monotonic() - ended if ended is not None else 0.0

    async def __call__(self, key: Key) -> Result:
        memory = self._memories.setdefault(key, Memory())
        world = self._observe(key, memory)
        if world is None:
            self._forget(key)
            return Result()
        self._ended[key] = None
        try:
            return await self._pass(key, world, memory)
        finally:
            self._ended[key] = self._clock.monotonic()

    def _forget(self, key: Key) -> None:
        self._watch(key, None, ())
        self._memories.pop(key, None)
        self._details.forget(key)
        self._ended.pop(key, None)
        self._growing.discard(key)

    def _watch(self, key: Key, cluster: Key | None, names: Collection[str]) -> None:
        """Have the view of a cluster keep these nodes fresh, and that of the cluster before no more."""
        owner = "NodeSet", key
        before = self._watching.pop(key, None)
        if before is not None and before != cluster and (view := self._views.get(before)) is not None:
            view.watch_nodes(owner, ())
        if cluster is not None and (view := self._views.get(cluster)) is not None:
            view.watch_nodes(owner, names)
            self._watching[key] = cluster

    async def _pass(self, key: Key, world: World, memory: Memory) -> Result:
        cluster = key[0], world.nodeset.spec.controller_ref.name
        view = self._views.get(cluster)
        if view is not None:
            world = await self._with_details(await _with_jobs(world, PatientSlurm(view)))
            world = await self._with_partition(cluster, world)
        self._watch(key, cluster, _awaited(world))
        plan = decide(world)
        crowd = sum(action.lane == _MAKES_POD for action in plan.actions) >= CROWD
        if crowd:
            self._growing.add(key)
        hands = Hands(self._kube, view, memory, self._clock, key)
        outcome = await execute(plan.actions, hands, patience=PATIENCE_SECONDS, clock=self._clock)
        if not crowd or not outcome.left or outcome.failures:
            self._growing.discard(key)
        memory.refusals.note(plan.actions, outcome.failures, memory.kept)
        failed = _pods(failure.action for failure in outcome.failures)
        memory.refused = failed | (memory.refused & _pods(plan.actions)) - _pods(outcome.wrote)
        result = outcome.result(plan.after)
        # What was reported as refused has worked after all, or the reverse: look again, and report that.
        return result if memory.refusals.told == world.refusals else dataclasses.replace(result, after=0.0)

    async def _with_details(self, world: World) -> World:
        """Add who runs the jobs that have been waited for too long, and since when."""
        nodeset = world.nodeset
        client = self._views.client((nodeset.metadata.namespace, nodeset.spec.controller_ref.name))
        late = overdue(world, choose(world, revision_hash(revision_data(nodeset)))) if may_be_overdue(world) else ()
        if client is None or not late:
            self._details.forget(nodeset.key)
            return world
        jobs = [waited.job for waited in late[:NAMED]]
        with without_worker():
            facts = await self._details.read(nodeset.key, client, jobs)
        return dataclasses.replace(world, job_facts=facts)

    async def _with_partition(self, cluster: Key, world: World) -> World:
        """Add whether the partition is closed, before the workers are reported as ready."""
        client = self._views.client(cluster)
        if client is None or not partition.is_asked(world):
            return world
        with without_worker():
            closed = await partition.is_closed(client, world.nodeset.slurm_name)
        return dataclasses.replace(world, partition_is_closed=closed)


def _pods(actions: Iterable[object]) -> frozenset[str]:
    """Return the names of the pods that actions create, alone or between their claims and an event."""
    parts = (part for action in actions for part in (action.actions if isinstance(action, InOrder) else (action,)))
    made = (part for part in parts if isinstance(part, Create) and part.resource is PODS)
    return frozenset(part.manifest["metadata"]["name"] for part in made)


async def _with_jobs(world: World, slurm: PatientSlurm) -> World:
    """Add the list of jobs and reservations if a decision depends on it; go on without it if it takes long."""
    max_age = _jobs_needed(world)
    if max_age is None:
        return world
    try:
        return dataclasses.replace(world, jobs=await slurm.read_jobs(max_age, JOBS_PATIENCE_SECONDS))
    except SlurmError as error:
        log.info("the list of jobs cannot be read, going on without it", extra={"error": str(error)})
        return world


def _jobs_needed(world: World) -> float | None:
    """Return how old the list of jobs may be, in seconds; None if no decision depends on it."""
    slurm = world.slurm
    if not isinstance(slurm, Known):
        return None
    live = [worker for worker in world.workers if worker.live]
    removed = recorded(world, *REMOVAL)
    going = [worker for worker in live if worker.name in removed or worker.node_is_gone]
    if any(worker.standing is Standing.BUSY and not _list_agrees(world, worker) for worker in going):
        return JOBS_AGAIN_SECONDS
    drained = [worker for worker in going if is_drained(worker.state)]
    unlisted = [slurm.drained[w.name] for w in drained if w.standing is Standing.UNLISTED and w.name in slurm.drained]
    if unlisted:
        return max(0.0, min(JOBS_MAX_AGE_SECONDS, slurm.began_at - max(unlisted)))
    leaving = world.nodeset.metadata.deletion_timestamp is not None or world.nodeset.spec.replicas < len(live)
    updating = world.nodeset.status.updated_replicas < len(live)
    lost = any(worker.node_is_gone for worker in live)
    return JOBS_MAX_AGE_SECONDS if leaving or updating or removed or lost else None


def _list_agrees(world: World, worker: Worker) -> bool:
    """Return whether the list of jobs shows what the node's state shows: jobs may have started or ended since."""
    listed = world.jobs is not None and worker.name in world.jobs.holding
    return listed is is_busy(worker.state)


def _awaited(world: World) -> set[str]:
    """The nodes whose next state a pass waits for."""
    return recorded(world, *Cause)


class PodStateReconciler:
    """Keeps what a worker pod says of its Slurm node true. Keyed by pod."""

    def __init__(
        self,
        caches: Caches,
        kube: Kube,
        views: SlurmViews,
        clock: Clock,
        is_growing: Callable[[Key], bool] = lambda nodeset: False,
    ) -> None:
        self._caches = caches
        self._kube = kube
        self._views = views
        self._clock = clock
        self._is_growing = is_growing

    async def __call__(self, key: Key) -> Result:
        pod = self._caches.store(PODS).get(*key)
        if pod is None:
            return Result()
        nodeset = self._caches.store(NODESETS).get(key[0], pod.metadata.labels.get(names.LABEL_INSTANCE, ""))
        if nodeset is None:
            return Result()
        slurm = self._views.state((key[0], nodeset.spec.controller_ref.name))
        protection = nodeset.spec.workload_disruption_protection
        now = self._clock.now()
        writes = podstate.decide(pod, slurm, protection=protection, now=now)
        if wait := podstate.can_wait(pod, writes, nodeset.status, growing=self._is_growing(nodeset.key), now=now):
            return Result(after=wait)
        try:
            if writes.protect is not None:
                label = names.TRUE if writes.protect else None
                change = {"metadata": {"uid": pod.metadata.uid, "labels": {names.LABEL_POD_PROTECT: label}}}
                self._kube.saw(PODS, await self._kube.client.patch(PODS, key[1], change, key[0]))
            if writes.conditions is not None:
                applied = await self._kube.client.apply(
                    PODS, writes.conditions, manager=STATE_MANAGER, subresource="status"
                )
                self._kube.saw(PODS, applied)
        except NotFound:
            return Result()
        return Result()

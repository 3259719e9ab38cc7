"""The auth/slurm key of a cluster, replaced under running jobs: a Secret that users write, a ring that daemons read.

A rotation takes three steps: everybody believes the new key too, then everybody signs with it, then nobody believes the
old one any more. Each step reaches the workers first. A worker tells by its new start that it has read the keys, since
nobody else has a reason to restart its slurmd meanwhile; then slurmctld and slurmdbd follow. Nothing goes on before
everybody has taken the step, so two daemons that talk always share a key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from slurm_operator.api import Controller, names
from slurm_operator.desired.keyring import Member, Progress, Rings, key_ring, progress_of, rings_hash, rings_of
from slurm_operator.kube.custom import ACCOUNTINGS, CONTROLLERS, LOGINSETS
from slurm_operator.kube.indexes import BY_CLUSTER, BY_CONTROLLER, BY_INSTANCE, controller_key, instance_key
from slurm_operator.kube.kinds import PODS, SECRETS, STATEFUL_SETS, Pod, Secret, StatefulSet
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.evidence import slurmd_has_run
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.runtime.actions import Apply, HasKube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import KubeAction, delete, patch
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.conditions import rollout_of
from slurm_operator.runtime.plan import Plan
from slurm_operator.runtime.reconcile import Refusals
from slurm_operator.runtime.references import References, Refs
from slurm_operator.slurm.keys import SHORTEST_KEY, KeyRing
from slurm_operator.slurm.known import State, Unknown
from slurm_operator.slurm.states import is_down
from slurm_operator.slurm.views import SlurmViews

LOOK = 1.0
"""Seconds between two looks at a rotation under way."""
TELLING = 3
"""A worker waits five seconds after the keys have come before it starts slurmd again. What starts sooner, for instance
because slurmctld has just told everybody to, may not have read them; two seconds are left to clocks that differ."""
LONG = 120.0
"""A step that takes longer is worth a word."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Who reads the keys in place, without a new pod."""

    workers: tuple[Pod, ...]
    logins: tuple[Pod, ...]
    slurm: State


@dataclass(frozen=True, slots=True)
class Seen:
    key: Key
    """Of the Secret that users write."""
    members: tuple[Member, ...]
    refs: Refs
    ring: Secret | None
    daemons: Mapping[str, StatefulSet | None]
    """slurmctld and slurmdbd, by the name of their workload."""
    clusters: Mapping[str, Cluster]
    now: float


class Observer:
    def __init__(self, caches: Caches, references: References, views: SlurmViews, clock: Clock) -> None:
        self._caches = caches
        self._references = references
        self._views = views
        self._clock = clock

    def __call__(self, key: Key, refusals: Refusals) -> Seen | None:
        namespace, secret = key
        members = tuple(self._members(namespace, secret))
        ring = self._caches.store(SECRETS).get(namespace, names.key_ring(secret))
        if not members and ring is None:
            self._references.drop(("KeyRing", key))
            return None
        workloads = self._caches.store(STATEFUL_SETS)
        here = [workload_of(member) for member in members if not member.spec.external]
        return Seen(
            key=key,
            members=members,
            refs=self._references.read(("KeyRing", key), namespace, secrets=[secret]),
            ring=ring,
            daemons={name: workloads.get(namespace, name) for name in here},
            clusters={m.metadata.name: self._cluster(m) for m in members if isinstance(m, Controller)},
            now=self._clock.now(),
        )

    def _members(self, namespace: str, secret: str) -> Iterator[Member]:
        controllers = self._caches.store(CONTROLLERS).all(namespace)
        accountings = self._caches.store(ACCOUNTINGS).all(namespace)
        everybody: tuple[Member, ...] = (*controllers, *accountings)
        for member in everybody:
            ref = member.spec.slurm_key_ref
            if ref is not None and ref.name == secret and not member.metadata.terminating:
                yield member

    def _cluster(self, controller: Controller) -> Cluster:
        namespace, name = controller.key
        pods = self._caches.store(PODS)
        logins = self._caches.store(LOGINSETS).by_index(BY_CONTROLLER, controller_key(namespace, name))
        return Cluster(
            workers=tuple(pods.by_index(BY_CLUSTER, controller_key(namespace, name))),
            logins=tuple(
                pod
                for login in logins
                for pod in pods.by_index(BY_INSTANCE, instance_key(namespace, names.APP_LOGIN, login.metadata.name))
            ),
            slurm=self._views.state(controller.key),
        )


def workload_of(member: Member) -> str:
    name = member.metadata.name
    return names.controller(name) if isinstance(member, Controller) else names.accounting(name)


def decide(seen: Seen) -> Plan[HasKube]:
    if seen.refs.loading:
        return Plan(after=seen.refs.after)
    if not seen.members:
        return Plan((delete(SECRETS, seen.ring),) if seen.ring is not None else ())
    wanted = wanted_keys(seen)
    if not wanted:
        return Plan()  # whoever refers to a Secret that is not there, or not good, says so
    if seen.ring is None:
        rings = {name: KeyRing.of(key) for name, key in wanted.items()}
        return Plan((written(seen, rings, Progress(int(seen.now), rings_hash(rings))),))
    return next_step(seen, wanted, rings_of(seen.ring), progress_of(seen.ring))


def wanted_keys(seen: Seen) -> dict[str, bytes]:
    """What users want, unless something of it is missing or of no use."""
    refs = [member.spec.slurm_key_ref for member in seen.members]
    found = [(ref.key, seen.refs.secret(ref.name).get(ref.key, b"")) for ref in refs if ref is not None]
    return dict(found) if all(len(key) >= SHORTEST_KEY for _, key in found) else {}


def next_step(seen: Seen, wanted: Mapping[str, bytes], rings: Rings, progress: Progress) -> Plan[HasKube]:
    if unheard := {name: key for name, key in wanted.items() if name not in rings or key not in rings[name].keys}:
        # To believe one key more never hurts, whatever is under way.
        added = {name: rings[name].towards(key) if name in rings else KeyRing.of(key) for name, key in unheard.items()}
        return advanced(seen, {**rings, **added}, progress)
    following = {name: rings[name].towards(key) for name, key in wanted.items()}
    digest = rings_hash(rings)
    if digest != progress.settled:
        waiting = unread(seen, progress.since)
        if not waiting:
            return advanced(seen, rings, replace(progress, settled=digest), since=progress.since)
    elif following != rings:
        waiting = behind(seen, digest)
        if not waiting:
            return advanced(seen, following, progress)
    else:
        return Plan((written(seen, rings, replace(progress, waiting="")),))
    overdue = seen.now - progress.since > LONG
    told = written(seen, rings, replace(progress, waiting=waiting if overdue else ""))
    return Plan((told, *hurried(seen, digest)), after=LOOK)


def advanced(seen: Seen, rings: Rings, progress: Progress, since: int | None = None) -> Plan[HasKube]:
    began = int(seen.now) if since is None else since
    return Plan((written(seen, rings, Progress(began, progress.settled)),), after=0.0)


def written(seen: Seen, rings: Rings, progress: Progress) -> Apply:
    return Apply(SECRETS, key_ring(*seen.key, seen.members, rings, progress))


def unread(seen: Seen, since: int) -> str:
    """The first worker that may not have read the keys yet. One that Slurm does not count on has no job to lose."""
    for name, cluster in seen.clusters.items():
        running = [pod for pod in cluster.workers if slurmd_has_run(pod) and not _is_over(pod)]
        if running and isinstance(cluster.slurm, Unknown):
            return f"Slurm cannot be asked whether the workers of {name} have read the new keys: {cluster.slurm.why}"
        for pod in running:
            record = None if isinstance(cluster.slurm, Unknown) else cluster.slurm.nodes.get(slurm_name(pod))
            if record is None or is_down(record.state):
                continue
            if (record.slurmd_start_time.value or 0) < since + TELLING:
                return f"pod {pod.metadata.namespace}/{pod.metadata.name} has not read the new keys yet"
    return ""


def _is_over(pod: Pod) -> bool:
    return pod.metadata.terminating or pod.status.phase in ("Failed", "Succeeded")


def behind(seen: Seen, digest: str) -> str:
    """The first of slurmctld and slurmdbd that does not run with these keys yet."""
    for name, workload in seen.daemons.items():
        given = workload.spec.template.metadata.annotations if workload is not None else {}
        if given.get(names.ANNOTATION_SLURM_KEY_HASH) != digest:
            return f"StatefulSet {name} has not been given the new keys yet"
        # Of several slurmctld only the active one is ever ready.
        if waiting := rollout_of(workload, name, ready=1):
            return waiting
    return ""


def hurried(seen: Seen, digest: str) -> Iterator[KubeAction]:
    """A touched pod makes its kubelet bring the keys at once instead of within a minute or two."""
    note = {names.ANNOTATION_SLURM_KEY_HASH: digest}
    for cluster in seen.clusters.values():
        for pod in (*cluster.workers, *cluster.logins):
            if pod.metadata.annotations.get(names.ANNOTATION_SLURM_KEY_HASH) != digest and not pod.metadata.terminating:
                yield patch(PODS, pod, {"metadata": {"annotations": note}})

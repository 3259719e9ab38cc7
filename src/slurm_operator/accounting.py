"""Accounting: slurmdbd on a database, whoever runs it. Observe, decide, report."""

from collections.abc import Iterator
from dataclasses import dataclass

from slurm_operator.api import Accounting, names
from slurm_operator.desired.accounting import AccountingFacts, accounting_objects, configuration
from slurm_operator.desired.keyring import progress_of, unfit_key
from slurm_operator.desired.metadata import content_hash
from slurm_operator.kube.custom import ACCOUNTINGS
from slurm_operator.kube.kinds import SECRETS, STATEFUL_SETS, Pod, Secret, StatefulSet
from slurm_operator.kube.model import find_condition
from slurm_operator.kube.resource import Key, Manifest
from slurm_operator.runtime.actions import HasKube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import KubeAction, is_changing, kept, reported, unread, unwanted
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.conditions import rollout_of, summed_up
from slurm_operator.runtime.daemon import Daemon, look
from slurm_operator.runtime.plan import Plan
from slurm_operator.runtime.reconcile import Refusals
from slurm_operator.runtime.references import References, Refs
from slurm_operator.runtime.times import seconds_of
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.conf.lint import errors, lint_slurmdbd

SLOW_START = 30.0
"""A slurmdbd that still does not listen after so long waits for its database."""


@dataclass(frozen=True, slots=True)
class Seen:
    accounting: Accounting
    refs: Refs
    ring: Secret | None
    """The keys of auth/slurm in use."""
    slurmdbd: Daemon[StatefulSet]
    refusals: Refusals
    now: float


class Observer:
    def __init__(self, caches: Caches, references: References, clock: Clock) -> None:
        self._caches = caches
        self._references = references
        self._clock = clock

    def __call__(self, key: Key, refusals: Refusals) -> Seen | None:
        accounting = self._caches.store(ACCOUNTINGS).get(*key)
        if accounting is None:
            self._references.drop(("Accounting", key))
            return None
        name = names.accounting(accounting.metadata.name)
        ref = accounting.spec.slurm_key_ref
        return Seen(
            accounting=accounting,
            refs=self._read_refs(accounting),
            ring=self._caches.store(SECRETS).get(key[0], names.key_ring(ref.name)) if ref is not None else None,
            slurmdbd=look(self._caches, accounting, names.APP_SLURMDBD, STATEFUL_SETS, name),
            refusals=refusals,
            now=self._clock.now(),
        )

    def _read_refs(self, accounting: Accounting) -> Refs:
        spec = accounting.spec
        keys = [spec.slurm_key_ref, spec.jwt_key]
        if spec.storage_config is not None:
            keys.append(spec.storage_config.password_key_ref)
        secrets = {ref.name for ref in keys if ref is not None}
        maps = {spec.jwks_key_ref.name} if spec.jwks_key_ref is not None else set()
        owner = ("Accounting", accounting.key)
        return self._references.read(owner, accounting.metadata.namespace, secrets=secrets, config_maps=maps)


def decide(seen: Seen) -> Plan[HasKube]:
    accounting, children = seen.accounting, seen.slurmdbd.children
    if accounting.metadata.terminating:
        return Plan()
    if seen.refs.loading:
        return unread(ACCOUNTINGS, accounting, seen.refs, seen.now)
    objects, trouble = wanted(seen)
    if trouble is None and seen.ring is None and not accounting.spec.external:
        return Plan(tuple(report(seen, None)))
    actions: list[KubeAction] = list(kept(ACCOUNTINGS, accounting, children, objects))
    if trouble is None:
        actions += unwanted(children, objects)
        if is_changing(children, objects) and not seen.refusals:
            return Plan(tuple(actions))
    return Plan((*actions, *report(seen, trouble)), after=_suspicion(seen))


def wanted(seen: Seen) -> tuple[list[Manifest], Trouble | None]:
    accounting = seen.accounting
    if accounting.spec.external:
        return [], None
    if trouble := missing(seen):
        return [], trouble
    try:
        facts = _facts(seen)
        if found := errors(lint_slurmdbd(configuration(accounting, facts))):
            return [], Trouble("ConfigurationRejected", f"{found[0]}; the running configuration stays in force")
        return accounting_objects(accounting, facts), None
    except ValueError as error:
        return [], Trouble("InvalidSpec", str(error))


def missing(seen: Seen) -> Trouble | None:
    spec, namespace = seen.accounting.spec, seen.accounting.metadata.namespace
    if spec.storage_config is None:
        return Trouble("StorageConfigMissing", "storageConfig is missing: say where the database of slurmdbd is")
    password = spec.storage_config.password_key_ref
    return (
        seen.refs.missing_keys(namespace, spec)
        or unfit_key(seen.refs, spec.slurm_key_ref)
        or seen.refs.missing_secret(namespace, password, "storageConfig.passwordKeyRef")
    )


def _facts(seen: Seen) -> AccountingFacts:
    spec = seen.accounting.spec
    ref = spec.storage_config.password_key_ref if spec.storage_config is not None else None
    return AccountingFacts(
        password=seen.refs.secret(ref.name)[ref.key].decode() if ref is not None else "",
        slurm_key_hash=progress_of(seen.ring).settled if seen.ring is not None else "",
        jwt_key_hash=content_hash(seen.refs.entry(spec.jwt_key)),
    )


def report(seen: Seen, trouble: Trouble | None) -> Iterator[KubeAction]:
    spec = seen.accounting.spec
    where = spec.external_config
    if spec.external:
        waiting, done = "", f"slurmdbd runs elsewhere, at {where.host}:{where.port}" if where else ""
    else:
        waiting, done = _waiting_for(seen), "slurmdbd answers"
    verdicts = summed_up(
        waiting=waiting,
        done=done,
        blocked=trouble,
        refusals=seen.refusals,
        noticed=seen.slurmdbd.trouble or _database_trouble(seen),
    )
    yield from reported(ACCOUNTINGS, seen.accounting, verdicts, seen.now)


def _waiting_for(seen: Seen) -> str:
    waiting = rollout_of(seen.slurmdbd.workload, "slurmdbd")
    return f"{waiting}; it answers once its database {_database(seen.accounting)} does" if waiting else ""


def _database_trouble(seen: Seen) -> Trouble | None:
    """slurmdbd listens only once its database answers: one that runs and does not listen is waiting for it."""
    silences = [_silence(pod, seen.now) for pod in seen.slurmdbd.pods]
    if max(silences, default=0.0) < SLOW_START:
        return None
    cure = "check storageConfig.host and port, that the database runs, and the user's name and password"
    return Trouble("DatabaseUnreachable", f"slurmdbd cannot use {_database(seen.accounting)}: {cure}")


def _suspicion(seen: Seen) -> float | None:
    """Seconds until a slurmdbd that keeps silent is worth a word."""
    silences = [SLOW_START - silence for pod in seen.slurmdbd.pods if (silence := _silence(pod, seen.now)) > 0.0]
    return min((left for left in silences if left > 0.0), default=None)


def _silence(pod: Pod, now: float) -> float:
    """How long a slurmdbd has been running without listening."""
    daemon = next((status for status in pod.status.container_statuses if status.name == "slurmdbd"), None)
    if daemon is None or daemon.ready or pod.metadata.terminating or pod.status.phase != "Running":
        return 0.0
    ready = find_condition(pod.status.conditions, "Ready")
    since = ready.last_transition_time if ready is not None else pod.status.start_time
    # A moment at least, so that one that falls silent right now is looked at again.
    return max(0.001, now - seconds_of(since, absent=now))


def _database(accounting: Accounting) -> str:
    storage = accounting.spec.storage_config
    return f"{storage.host}:{storage.effective_port}/{storage.effective_database}" if storage is not None else "(none)"

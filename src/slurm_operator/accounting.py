"""Accounting: slurmdbd on a database, whoever runs it. Observe, decide, report."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from slurm_operator.api import Accounting, names
from slurm_operator.desired.accounting import AccountingFacts, accounting_objects, configuration
from slurm_operator.desired.keyring import progress_of, unfit_key
from slurm_operator.desired.metadata import content_hash
from slurm_operator.kube.custom import ACCOUNTINGS, CONTROLLERS
from slurm_operator.kube.kinds import SECRETS, STATEFUL_SETS, Pod, Secret, StatefulSet
from slurm_operator.kube.model import find_condition
from slurm_operator.kube.resource import Key, Manifest
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import KubeAction, is_changing, kept, reported, unread, unwanted
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.conditions import rollout_of, summed_up
from slurm_operator.runtime.controller import without_worker
from slurm_operator.runtime.daemon import Daemon, look
from slurm_operator.runtime.plan import Action, Done, Plan, Urgency, soonest
from slurm_operator.runtime.reconcile import Refusals
from slurm_operator.runtime.references import References, Refs
from slurm_operator.runtime.times import seconds_of
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.runtime.uncreated import KnowsRefusals, explained, look_in
from slurm_operator.runtime.uncreated import Refusals as RefusedPods
from slurm_operator.slurm.conf.lint import errors, lint_slurmdbd
from slurm_operator.slurm.conf.writer import extra_line
from slurm_operator.slurm.errors import DatabaseDown, SlurmError, Unsupported
from slurm_operator.slurm.known import Known
from slurm_operator.slurm.views import SlurmViews

SLOW_START = 30.0
"""A slurmdbd that still does not listen after so long waits for its database."""
ASK_SECONDS = 15.0
"""Between two questions whether the database answers."""
ASK_AGAIN_SECONDS = 5.0
"""The same while it does not."""
UNSUPPORTED_SECONDS = 300.0
"""The same where slurmrestd does not know the question."""
ANSWER_SECONDS = 5.0
LOST = "DatabaseLost"
CONFIRMED = 2
"""Failures in a row that count."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of the questions to the database."""

    at: float = -math.inf
    """Monotonic second of the last one that was answered by slurmrestd."""
    failures: int = 0
    """In a row."""
    unsupported: bool = False
    """slurmrestd runs without what accounting needs."""

    def due_in(self, now: float) -> float:
        """Return the seconds until the next question."""
        pause = ASK_AGAIN_SECONDS if self.failures else ASK_SECONDS
        return max(0.0, self.at + (UNSUPPORTED_SECONDS if self.unsupported else pause) - now)


class Databases:
    """Whether the databases behind slurmdbd answer.

    slurmdbd listens on when its database is lost, and does not say so by itself. A question that it can only answer
    from the database is asked through the slurmrestd of a cluster that uses it.
    """

    def __init__(self, views: SlurmViews, clock: Clock) -> None:
        self._views = views
        self._clock = clock
        self._asked: dict[Key, Asked] = {}

    def asked(self, accounting: Key) -> Asked:
        return self._asked.get(accounting, Asked())

    def forget(self, accounting: Key) -> None:
        self._asked.pop(accounting, None)

    async def ask(self, accounting: Key, cluster: Key) -> bool:
        """Ask once; return whether the database comes or goes. Without an answer of slurmrestd nothing changes."""
        client, before = self._views.client(cluster), self.asked(accounting)
        failures, unsupported = before.failures, False
        try:
            if client is not None:
                with without_worker():
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await client.accounting_clusters()
                failures = 0
        except DatabaseDown:
            failures += 1
        except Unsupported:
            unsupported = True
        except (SlurmError, TimeoutError):
            pass
        self._asked[accounting] = Asked(self._clock.monotonic(), failures, unsupported)
        return (failures >= CONFIRMED) != (before.failures >= CONFIRMED)


class AccountingHands(KnowsRefusals, Protocol):
    @property
    def databases(self) -> Databases: ...


@dataclass(frozen=True, slots=True)
class AskDatabase:
    """Ask slurmdbd something that only its database knows."""

    accounting: Key
    cluster: Key
    urgency: ClassVar[Urgency] = Urgency.NORMAL
    lane: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"ask whether the database of Accounting {'/'.join(self.accounting)} answers"

    def describe(self) -> dict[str, Any]:
        return {"action": str(self)}

    async def run(self, hands: AccountingHands) -> Done:
        changed = await hands.databases.ask(self.accounting, self.cluster)
        return Done(wrote=False, after=0.0 if changed else None)


@dataclass(frozen=True, slots=True)
class Seen:
    accounting: Accounting
    refs: Refs
    ring: Secret | None
    """The keys of auth/slurm in use."""
    slurmdbd: Daemon[StatefulSet]
    refusals: Refusals
    now: float
    cluster: Key | None = None
    """One that uses it and whose slurmrestd answers."""
    used: bool = True
    """A Controller refers to it."""
    database: Asked = Asked()
    ask_in: float = ASK_SECONDS
    """Seconds until the database is asked again."""


class Observer:
    def __init__(
        self,
        caches: Caches,
        references: References,
        views: SlurmViews,
        databases: Databases,
        refused_pods: RefusedPods,
        clock: Clock,
    ) -> None:
        self._views = views
        self._databases = databases
        self._refused_pods = refused_pods
        self._caches = caches
        self._references = references
        self._clock = clock

    def __call__(self, key: Key, refusals: Refusals) -> Seen | None:
        accounting = self._caches.store(ACCOUNTINGS).get(*key)
        if accounting is None:
            self._references.drop(("Accounting", key))
            self._databases.forget(key)
            return None
        name = names.accounting(accounting.metadata.name)
        ref = accounting.spec.slurm_key_ref
        asked = self._databases.asked(key)
        clusters = self._clusters(accounting)
        return Seen(
            accounting=accounting,
            refs=self._read_refs(accounting),
            ring=self._caches.store(SECRETS).get(key[0], names.key_ring(ref.name)) if ref is not None else None,
            slurmdbd=look(self._caches, accounting, names.APP_SLURMDBD, STATEFUL_SETS, name, self._refused_pods),
            refusals=refusals,
            now=self._clock.now(),
            cluster=next((key for key in clusters if isinstance(self._views.state(key), Known)), None),
            used=bool(clusters),
            database=asked,
            ask_in=asked.due_in(self._clock.monotonic()),
        )

    def _clusters(self, accounting: Accounting) -> list[Key]:
        """Return the clusters that use it."""
        return sorted(
            controller.key
            for controller in self._caches.store(CONTROLLERS).all(accounting.metadata.namespace)
            if controller.spec.accounting_name == accounting.metadata.name
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


def decide(seen: Seen) -> Plan[AccountingHands]:
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
    missing = seen.slurmdbd.missing_for
    looks: tuple[Action[AccountingHands], ...] = (*explained(seen.slurmdbd.workload, missing), *asked(seen))
    after = soonest(_suspicion(seen), look_in(missing), next_question(seen))
    return Plan((*actions, *looks, *report(seen, trouble)), after=after)


def is_asked(seen: Seen) -> bool:
    """Return whether the database is asked: slurmdbd runs, and a cluster uses it."""
    return _runs(seen) and seen.cluster is not None


def _runs(seen: Seen) -> bool:
    return seen.accounting.spec.external or not rollout_of(seen.slurmdbd.workload, "slurmdbd")


def asked(seen: Seen) -> Iterator[AskDatabase]:
    if seen.cluster is not None and is_asked(seen) and seen.ask_in <= 0.0:
        yield AskDatabase(seen.accounting.key, seen.cluster)


def next_question(seen: Seen) -> float | None:
    """Return the seconds until the database is asked again; an answer that is news is looked at at once."""
    if not is_asked(seen):
        return None
    return seen.ask_in or (ASK_AGAIN_SECONDS if seen.database.failures else ASK_SECONDS)


def wanted(seen: Seen) -> tuple[list[Manifest], Trouble | None]:
    accounting = seen.accounting
    if accounting.spec.external:
        return [], None
    if trouble := missing(seen):
        return [], trouble
    try:
        facts = _facts(seen)
        conf = configuration(accounting, facts)
        if found := errors(lint_slurmdbd(conf)):
            own = extra_line(conf, accounting.spec.extra_conf, found[0].line)
            told = str(found[0]) if own is None else found[0].told_at(f"extraConf line {own}")
            return [], Trouble("ConfigurationRejected", f"{told}; the running configuration stays in force")
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
        blocked=trouble or _lost_database(seen),
        refusals=seen.refusals,
        noticed=seen.slurmdbd.trouble or _database_trouble(seen),
    )
    yield from reported(ACCOUNTINGS, seen.accounting, verdicts, seen.now)


def _waiting_for(seen: Seen) -> str:
    waiting = rollout_of(seen.slurmdbd.workload, "slurmdbd")
    return f"{waiting}; it answers once its database {_database(seen.accounting)} does" if waiting else ""


def _lost_database(seen: Seen) -> Trouble | None:
    """A slurmdbd that answers, but not from its database; slurmctld keeps its records meanwhile.

    What was heard last counts as long as a cluster uses it, also while that cluster does not answer.
    """
    if not seen.used or not _runs(seen):
        return None
    before = seen.accounting.status.condition(names.CONDITION_DEGRADED)
    if seen.database.at == -math.inf and before is not None and before.reason == LOST:
        return Trouble(LOST, before.message)  # a restart of ours is no news: it is to be asked first
    if seen.database.failures < CONFIRMED:
        return None
    if seen.accounting.spec.external:
        where = seen.accounting.spec.external_config
        about = f"slurmdbd at {where.host}:{where.port}, or its database," if where else "slurmdbd"
        return Trouble(LOST, f"{about} does not answer: check both")
    return Trouble(LOST, f"slurmdbd has lost {_database(seen.accounting)}: check that it runs")


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

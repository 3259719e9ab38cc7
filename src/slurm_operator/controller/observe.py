"""What a decision about one Controller looks at."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from slurm_operator.api import Controller, NodeSet, names
from slurm_operator.controller.claims import templates_in_force
from slurm_operator.controller.delivery import Deliveries, Heard, is_broken
from slurm_operator.controller.partitions import (
    FRESH_SECONDS,
    ClosedPartitions,
    Evidence,
    Retired,
    leaving,
    retired,
)
from slurm_operator.desired.config import ControllerFacts, defined_partitions, wanted_groups
from slurm_operator.desired.keyring import progress_of
from slurm_operator.desired.metadata import content_hash
from slurm_operator.kube.custom import ACCOUNTINGS, CONTROLLERS, NODESETS
from slurm_operator.kube.indexes import BY_CONTROLLER, controller_key
from slurm_operator.kube.kinds import CONFIG_MAPS, SECRETS, STATEFUL_SETS, ConfigMap, Secret, StatefulSet
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import SERVICE_MONITORS
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.daemon import Daemon, look
from slurm_operator.runtime.reconcile import Refusals
from slurm_operator.runtime.references import References, Refs
from slurm_operator.runtime.uncreated import Refusals as RefusedPods
from slurm_operator.slurm.conf.groups import read_groups, read_own_partitions, stands_alone
from slurm_operator.slurm.conf.writer import NodeGroup
from slurm_operator.slurm.jobs import JobList
from slurm_operator.slurm.known import Known, still_asking
from slurm_operator.slurm.views import SlurmViews

_MAX_NODE_COUNT = re.compile(r"^MaxNodeCount=(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Seen:
    controller: Controller
    facts: ControllerFacts
    refs: Refs
    ring: Secret | None
    """The keys of auth/slurm in use."""
    config: ConfigMap | None
    slurmctld: Daemon[StatefulSet]
    monitors: bool
    """The cluster knows ServiceMonitors."""
    refusals: Refusals
    now: float
    heard: Heard | None = None
    """What the sidecar of slurmctld last said about the configuration."""
    retired: tuple[Retired, ...] = ()
    """Partitions that stay in slurm.conf although no NodeSet asks for them."""
    unreadable: tuple[str, ...] = ()
    """NodeSets of the namespace that exist and cannot be read."""

    @property
    def keys_are_there(self) -> bool:
        return self.ring is not None or self.controller.spec.slurm_key_ref is None


class Observer:
    def __init__(
        self,
        caches: Caches,
        references: References,
        views: SlurmViews,
        closed: ClosedPartitions,
        deliveries: Deliveries,
        refused_pods: RefusedPods,
        clock: Clock,
        *,
        domain: str,
        shared: Mapping[Key, Refusals],
    ) -> None:
        """`shared`: what was refused to a cluster as a whole, by Controller."""
        self._shared = shared
        self._caches = caches
        self._references = references
        self._views = views
        self._closed = closed
        self._deliveries = deliveries
        self._refused_pods = refused_pods
        self._clock = clock
        self._domain = domain

    def __call__(self, key: Key, refusals: Refusals) -> Seen | None:
        controller = self._caches.store(CONTROLLERS).get(*key)
        if controller is None:
            self._references.drop(("Controller", key))
            self._watch_jobs(key, False)
            self._closed.forget(key)
            self._deliveries.forget(key)
            return None
        namespace, name = key
        refs = self._read_refs(controller)
        config = self._caches.store(CONFIG_MAPS).get(namespace, names.config(name))
        slurmctld = look(
            self._caches, controller, names.APP_SLURMCTLD, STATEFUL_SETS, names.controller(name), self._refused_pods
        )
        ref = controller.spec.slurm_key_ref
        ring = self._caches.store(SECRETS).get(namespace, names.key_ring(ref.name)) if ref is not None else None
        facts = self._facts(controller, refs, ring, config, slurmctld.workload)
        unreadable = tuple(
            sorted(name for place, name in self._caches.store(NODESETS).unreadable if place == namespace)
        )
        in_force, own = _groups_in_force(controller, config)
        broken = is_broken(config, controller.status.delivered_config_hash, slurmctld, self._deliveries.heard(key))
        kept = self._retired(controller, facts, (*in_force, *own), unreadable, broken)
        return Seen(
            controller=controller,
            facts=replace(
                facts, retired=tuple(one.group for one in kept), standing=tuple(group.name for group in in_force)
            ),
            refs=refs,
            ring=ring,
            config=config,
            slurmctld=slurmctld,
            monitors=SERVICE_MONITORS in self._caches.followed,
            refusals=(*refusals, *self._shared.get(key, ())),
            now=self._clock.now(),
            heard=self._deliveries.heard(key),
            retired=kept,
            unreadable=unreadable,
        )

    def _retired(
        self,
        controller: Controller,
        facts: ControllerFacts,
        in_force: tuple[NodeGroup, ...],
        unreadable: tuple[str, ...],
        broken: bool,
    ) -> tuple[Retired, ...]:
        defined = defined_partitions(controller, facts.config_maps)
        wanted = wanted_groups(facts.nodesets)
        going = leaving(in_force, wanted, defined)
        stay = {group.name for group in (*wanted, *going) if not group.own}
        going = tuple(one for one in going if not one.own or stands_alone(one, controller.spec.extra_conf, stay))
        key = controller.key
        view, state = self._views.get(key), self._views.state(key)
        evidence = Evidence(
            known=isinstance(state, Known),
            jobs=self._recent(view.jobs) if view is not None else None,
            closed_at=self._closed.closed_at(key, {group.name for group in going}),
            unreadable=unreadable,
            asking=still_asking(state, self._clock.now()) > 0,
            broken=broken,
            unreserved=_unreserved(controller),
        )
        kept = retired(going, evidence)
        self._watch_jobs(key, any(one.ask for one in kept))
        return kept

    def _recent(self, jobs: JobList | None) -> JobList | None:
        """Return the list of jobs unless it was read too long ago."""
        return jobs if jobs is not None and self._clock.monotonic() - jobs.ended_at <= FRESH_SECONDS else None

    def _watch_jobs(self, key: Key, wanted: bool) -> None:
        if (view := self._views.get(key)) is not None:
            view.watch_jobs(("Controller", key), wanted)

    def _read_refs(self, controller: Controller) -> Refs:
        spec = controller.spec
        secrets = {ref.name for ref in (spec.slurm_key_ref, spec.jwt_key) if ref is not None}
        maps = {ref.name for ref in (*spec.config_file_refs, *spec.script_refs)}
        if spec.jwks_key_ref is not None:
            maps.add(spec.jwks_key_ref.name)
        owner = ("Controller", controller.key)
        return self._references.read(owner, controller.metadata.namespace, secrets=secrets, config_maps=maps)

    def _facts(
        self,
        controller: Controller,
        refs: Refs,
        ring: Secret | None,
        config: ConfigMap | None,
        live: StatefulSet | None,
    ) -> ControllerFacts:
        spec, namespace = controller.spec, controller.metadata.namespace
        nodesets: list[NodeSet] = self._caches.store(NODESETS).by_index(BY_CONTROLLER, controller_key(*controller.key))
        running = _MAX_NODE_COUNT.search(config.data.get("slurm.conf", "")) if config is not None else None
        return ControllerFacts(
            accounting=self._caches.store(ACCOUNTINGS).get(namespace, spec.accounting_name),
            nodesets=tuple(nodesets),
            config_maps={name: found.data for name, found in refs.config_maps.items() if found is not None},
            slurm_key_hash=progress_of(ring).settled if ring is not None else "",
            jwt_key_hash=content_hash(refs.entry(spec.jwt_key)),
            domain=self._domain,
            max_node_count=int(running[1]) if running else 0,
            claim_templates=templates_in_force(controller, live),
        )


def _unreserved(controller: Controller) -> frozenset[str]:
    listed = controller.metadata.annotations.get(names.ANNOTATION_UNRESERVED, "")
    return frozenset(name.strip() for name in listed.split(","))


def _groups_in_force(
    controller: Controller, config: ConfigMap | None
) -> tuple[tuple[NodeGroup, ...], tuple[NodeGroup, ...]]:
    """Return the generated groups, and the partitions of the administrator's own text."""
    if config is None or controller.spec.external:
        return (), ()
    text = config.data.get("slurm.conf", "")
    return read_groups(text), read_own_partitions(text)

"""Puts the operator together: which kinds are followed, which changes wake whom, and who does the work."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from slurm_operator import accounting, keyring, loginset, restapi, token
from slurm_operator.api import Accounting, Controller, NodeSet, names
from slurm_operator.cli.triggers import (
    accounting_of,
    changes_configuration,
    comes_or_goes,
    controller_of,
    instance_of,
    is_replaced,
    key_secret_of,
    labelled_cluster,
    node_matters,
    pod_matters,
    ring_itself,
    users_of_keys,
    worker_itself,
)
from slurm_operator.cluster import ClusterReconciler, Locate, is_worker
from slurm_operator.controller import decide as controller_decide
from slurm_operator.controller import observe as controller_observe
from slurm_operator.controller.delivery import Deliveries
from slurm_operator.controller.partitions import ClosedPartitions
from slurm_operator.kube import indexes
from slurm_operator.kube.client import Client
from slurm_operator.kube.custom import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS, TOKENS
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.kinds import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    ENDPOINT_SLICES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    ConfigMap,
    Node,
    Pod,
    PodDisruptionBudget,
    Secret,
)
from slurm_operator.kube.resource import Key, Resource
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.nodeset.observe import Observer as NodeSetObserver
from slurm_operator.nodeset.reconcile import DEADLINE_SECONDS as NODESET_DEADLINE_SECONDS
from slurm_operator.nodeset.reconcile import NodeSetReconciler, PodStateReconciler
from slurm_operator.nodeset.world import REPORT_WAITING_SECONDS
from slurm_operator.runtime.actions import Kube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import CHILD_KINDS, FOLLOWED, SERVICE_MONITORS
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.controller import DEADLINE_SECONDS
from slurm_operator.runtime.controller import Controller as Workers
from slurm_operator.runtime.queue import Backoff, Queue
from slurm_operator.runtime.reconcile import Reconciler, Refusals
from slurm_operator.runtime.references import References
from slurm_operator.runtime.sources import feed, intent_changed, itself, owner_of
from slurm_operator.runtime.uncreated import Refusals as RefusedPods
from slurm_operator.slurm.known import Change, Known
from slurm_operator.slurm.views import SlurmViews

MANAGER = "slurm-operator"
APPS = (
    names.APP_SLURMCTLD,
    names.APP_SLURMDBD,
    names.APP_SLURMRESTD,
    names.APP_SLURMD,
    names.APP_LOGIN,
    names.APP_TOKEN,
    names.APP_KEYRING,
)
OURS = f"{names.LABEL_APP} in ({','.join(APPS)})"
"""What we make carries one of these labels, so that the API server sends us nothing else."""
OUR_SLICES = f"{names.LABEL_SLICE_MANAGER}={names.SLICE_MANAGER}"
"""Kubernetes' own slices inherit the labels of our Services, and are sent anew with every worker that changes."""
BIG, BIG_REST = 500, 0.5
"""A NodeSet of so many workers is looked at twice a second at most, however many of them change."""
PATIENCE = 30.0
"""What stands in the way may be nothing that we watch: so often we see whether it is gone."""


@dataclass(frozen=True, slots=True)
class Settings:
    domain: str
    propagated_conditions: tuple[str, ...] = ()
    report_waiting_after: float = REPORT_WAITING_SECONDS
    workers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Hands:
    kube: Kube


@dataclass(frozen=True, slots=True)
class _StatefulHands(_Hands):
    refused_pods: RefusedPods


@dataclass(frozen=True, slots=True)
class _AccountingHands(_StatefulHands):
    databases: accounting.Databases


@dataclass(frozen=True, slots=True)
class _ControllerHands(_StatefulHands):
    partitions: ClosedPartitions
    deliveries: Deliveries


class Operator:
    """Everything but the process around it."""

    def __init__(
        self, client: Client, caches: Caches, views: SlurmViews, clock: Clock, locate: Locate, settings: Settings
    ) -> None:
        self.recorder = Recorder(client, MANAGER, clock=clock)
        self.controllers: list[Workers] = []
        self._caches = caches
        self._views = views
        self._clock = clock
        self._settings = settings
        self._follow()
        self._references = References(caches)
        self._kube = Kube(client, self.recorder, caches.stores, manager=MANAGER, clock=clock)
        self._refused: dict[Key, Refusals] = {}
        self._add_clusters(locate, self._add_control_plane())
        self._add_workers()

    def _follow(self) -> None:
        caches = self._caches
        caches.follow(NODES)
        caches.follow(
            PODS,
            labels=OURS,
            indexers={
                indexes.BY_OWNER: indexes.owner,
                indexes.BY_INSTANCE: indexes.instance,
                indexes.BY_NODE: indexes.node,
                indexes.BY_CLUSTER: indexes.cluster,
            },
        )
        caches.follow(CONTROLLERS)
        caches.follow(ACCOUNTINGS)
        caches.follow(TOKENS)
        caches.follow(NODESETS, indexers={indexes.BY_CONTROLLER: indexes.controller})
        caches.follow(LOGINSETS, indexers={indexes.BY_CONTROLLER: indexes.controller})
        caches.follow(RESTAPIS, indexers={indexes.BY_CONTROLLER: indexes.controller})
        owned = {indexes.BY_OWNER: indexes.owner}
        for child in FOLLOWED:
            caches.follow(child, labels=OUR_SLICES if child is ENDPOINT_SLICES else OURS, indexers=owned)
        caches.follow_if_served(SERVICE_MONITORS, labels=OURS, indexers=owned)
        caches.follow(CONTROLLER_REVISIONS, labels=OURS, indexers={**owned, indexes.BY_INSTANCE: indexes.instance})
        caches.follow(PERSISTENT_VOLUME_CLAIMS, labels=OURS, indexers={indexes.BY_INSTANCE: indexes.instance})

    def _queue(
        self, name: str, reconcile: Any, kind: str = "", deadline: float = DEADLINE_SECONDS, **options: Any
    ) -> Queue:
        queue = Queue(name, clock=self._clock, backoff=Backoff(longest=PATIENCE), **options)
        workers = self._settings.workers.get(name, 4)
        self.controllers.append(Workers(name, queue, reconcile, workers=workers, deadline=deadline, clock=self._clock))
        if kind:
            self._references.wake(kind, queue)
        return queue

    # Slurm clusters

    def _add_clusters(self, locate: Locate, controllers: Queue) -> None:
        def tell(cluster: Key, refusals: Refusals) -> None:
            """On its Controller, which has a status to say it in."""
            before = self._refused.pop(cluster, ())
            if refusals:
                self._refused[cluster] = refusals
            if before != refusals:
                controllers.add(cluster)

        reconcile = ClusterReconciler(self._caches, self._references, self._views, self._kube, locate, tell)
        queue = self._queue("cluster", reconcile, "Cluster")
        feed(queue, self._caches.store(CONTROLLERS), itself, when=intent_changed)
        feed(queue, self._caches.store(NODESETS), controller_of, when=intent_changed)
        feed(queue, self._caches.store(RESTAPIS), controller_of, when=intent_changed)
        feed(queue, self._caches.store(PODS), self._cluster_of_restd, when=pod_matters)
        feed(queue, self._caches.store(PODS), self._cluster_without_nodesets, when=pod_matters)
        for child in CHILD_KINDS:
            feed(queue, self._caches.store(child), labelled_cluster)

    def _cluster_of_restd(self, pod: Pod) -> Iterable[Key]:
        """From outside of the cluster slurmrestd is reached at its pod's address, which changes with the pod."""
        if pod.metadata.labels.get(names.LABEL_APP) != names.APP_SLURMRESTD:
            return ()
        name = pod.metadata.labels.get(names.LABEL_INSTANCE, "")
        found = self._caches.store(RESTAPIS).get(pod.metadata.namespace, name)
        return controller_of(found) if found is not None else ()

    def _cluster_without_nodesets(self, pod: Pod) -> Iterable[Key]:
        """The cluster of a worker that no NodeSet is left for: with the last one, what they shared goes."""
        if not is_worker(pod):
            return ()
        found = [
            key for key in indexes.cluster(pod) if not self._caches.store(NODESETS).by_index(indexes.BY_CONTROLLER, key)
        ]
        return [(pod.metadata.namespace, pod.metadata.labels[names.LABEL_CLUSTER])] if found else ()

    # slurmctld, slurmdbd, slurmrestd, login, tokens

    def _add_control_plane(self) -> Queue:
        caches, clock, refs, hands = self._caches, self._clock, self._references, _Hands(self._kube)
        settings = self._settings
        closed, deliveries, refused = ClosedPartitions(self._views, clock), Deliveries(), RefusedPods(clock)
        see = controller_observe.Observer(
            caches,
            refs,
            self._views,
            closed,
            deliveries,
            refused,
            clock,
            domain=settings.domain,
            shared=self._refused,
        )
        reconcile = Reconciler(see, controller_decide.decide, _ControllerHands(self._kube, refused, closed, deliveries))
        controllers = self._kind("controller", CONTROLLERS, names.APP_SLURMCTLD, reconcile)
        feed(controllers, caches.store(ACCOUNTINGS), self._controllers_using, when=intent_changed)
        feed(controllers, caches.store(NODESETS), controller_of, when=changes_configuration)

        feed(controllers, caches.store(SECRETS), users_of_keys("Controller"))

        def served(_: Resource[Any]) -> None:
            """Their ServiceMonitors can be made from now on, or no longer."""
            for controller in caches.store(CONTROLLERS):
                controllers.add(controller.key)

        caches.when_served(served)

        def jobs_changed(cluster: Key, change: Change) -> None:
            """Partitions may wait for jobs to end, or for Slurm to be known."""
            if change.jobs or _known(change.new) != _known(change.old):
                controllers.add(cluster)

        self._views.subscribe(jobs_changed)

        databases = accounting.Databases(self._views, clock)
        see_accounting = accounting.Observer(caches, refs, self._views, databases, refused, clock)
        accountings = self._kind(
            "accounting",
            ACCOUNTINGS,
            names.APP_SLURMDBD,
            Reconciler(see_accounting, accounting.decide, _AccountingHands(self._kube, refused, databases)),
        )
        feed(accountings, caches.store(SECRETS), users_of_keys("Accounting"))
        feed(accountings, caches.store(CONTROLLERS), accounting_of, when=intent_changed)

        def accounting_used(cluster: Key, change: Change) -> None:
            """The database is asked through a cluster that is known."""
            found = caches.store(CONTROLLERS).get(*cluster)
            if found is not None and _known(change.new) != _known(change.old):
                for key in accounting_of(found):
                    accountings.add(key)

        self._views.subscribe(accounting_used)

        see_restapi = restapi.Observer(caches, clock)
        restapis = self._kind("restapi", RESTAPIS, names.APP_SLURMRESTD, Reconciler(see_restapi, restapi.decide, hands))
        feed(restapis, caches.store(CONTROLLERS), self._members(RESTAPIS), when=intent_changed)
        feed(restapis, caches.store(CONFIG_MAPS), self._readers_of_config)

        see_loginset = loginset.Observer(caches, refs, clock, settings.domain)
        loginsets = self._kind("loginset", LOGINSETS, names.APP_LOGIN, Reconciler(see_loginset, loginset.decide, hands))
        feed(loginsets, caches.store(CONTROLLERS), self._members(LOGINSETS), when=intent_changed)
        feed(loginsets, caches.store(SECRETS), self._logins_with_keys)

        see_keys = keyring.Observer(caches, refs, self._views, clock)
        rings = self._queue("keyring", Reconciler(see_keys, keyring.decide, hands), "KeyRing")
        feed(rings, caches.store(CONTROLLERS), key_secret_of, when=intent_changed)
        feed(rings, caches.store(ACCOUNTINGS), key_secret_of, when=intent_changed)
        feed(rings, caches.store(SECRETS), ring_itself)

        see_token = token.Observer(caches, refs, clock)
        tokens = self._queue("token", Reconciler(see_token, token.decide, hands), "Token")
        feed(tokens, caches.store(TOKENS), itself, when=intent_changed)
        feed(tokens, caches.store(SECRETS), owner_of("Token"))
        return controllers

    def _kind(self, name: str, resource: Resource[Any], app: str, reconcile: Any) -> Queue:
        """A kind with a daemon: woken by itself, its children, its pods and the nodes below them."""
        queue = self._queue(name, reconcile, resource.kind)
        feed(queue, self._caches.store(resource), itself, when=intent_changed)
        for child in CHILD_KINDS:
            feed(queue, self._caches.store(child), owner_of(resource.kind))
        feed(queue, self._caches.store(PODS), instance_of(app), when=pod_matters)
        feed(queue, self._caches.store(NODES), self._daemons_on(app), when=comes_or_goes)
        return queue

    def _daemons_on(self, app: str) -> Callable[[Node], Iterable[Key]]:
        instance = instance_of(app)

        def keys(node: Node) -> Iterable[Key]:
            for pod in self._caches.store(PODS).by_index(indexes.BY_NODE, node.metadata.name):
                yield from instance(pod)

        return keys

    def _controllers_using(self, found: Accounting) -> Iterable[Key]:
        for controller in self._caches.store(CONTROLLERS).all(found.metadata.namespace):
            if controller.spec.accounting_name == found.metadata.name:
                yield controller.key

    def _members(self, resource: Resource[Any]) -> Callable[[Controller], Iterable[Key]]:
        def keys(controller: Controller) -> Iterable[Key]:
            found = self._caches.store(resource).by_index(
                indexes.BY_CONTROLLER, indexes.controller_key(*controller.key)
            )
            return [member.key for member in found]

        return keys

    def _logins_with_keys(self, secret: Secret) -> Iterable[Key]:
        for namespace, name in users_of_keys("Controller")(secret):
            found = self._caches.store(LOGINSETS).by_index(
                indexes.BY_CONTROLLER, indexes.controller_key(namespace, name)
            )
            yield from (login.key for login in found)

    def _readers_of_config(self, found: ConfigMap) -> Iterable[Key]:
        owner = found.metadata.controller
        if owner is None or owner.kind != "Controller" or found.metadata.name != names.config(owner.name):
            return ()
        key = indexes.controller_key(found.metadata.namespace, owner.name)
        return [member.key for member in self._caches.store(RESTAPIS).by_index(indexes.BY_CONTROLLER, key)]

    # Workers

    def _add_workers(self) -> None:
        caches, views = self._caches, self._views
        see = NodeSetObserver(
            caches,
            self._references,
            views,
            self._clock,
            domain=self._settings.domain,
            propagated_conditions=self._settings.propagated_conditions,
            report_waiting_after=self._settings.report_waiting_after,
        )
        reconcile = NodeSetReconciler(see, self._kube, views, self._clock)
        nodesets = self._queue(
            "nodeset",
            reconcile,
            "NodeSet",
            deadline=NODESET_DEADLINE_SECONDS,
            debounce=partial(self._debounce, reconcile),
        )
        feed(nodesets, caches.store(NODESETS), itself, when=intent_changed)
        feed(nodesets, caches.store(CONTROLLERS), self._members(NODESETS), when=intent_changed)
        feed(nodesets, caches.store(PODS), instance_of(names.APP_SLURMD), when=pod_matters)
        feed(nodesets, caches.store(PODS), owner_of("NodeSet"), when=pod_matters)
        feed(nodesets, caches.store(NODES), self._nodesets_on, when=node_matters)
        feed(nodesets, caches.store(CONTROLLER_REVISIONS), instance_of(names.APP_SLURMD))
        feed(nodesets, caches.store(PERSISTENT_VOLUME_CLAIMS), instance_of(names.APP_SLURMD), when=is_replaced)
        feed(nodesets, caches.store(POD_DISRUPTION_BUDGETS), self._kept_by, when=is_replaced)

        states = self._queue(
            "pod-state", PodStateReconciler(caches, self._kube, views, self._clock, reconcile.is_growing)
        )
        feed(states, caches.store(PODS), worker_itself)

        def slurm_changed(cluster: Key, change: Change) -> None:
            for pod in self._pods_concerned(cluster, change):
                states.add((pod.metadata.namespace, pod.metadata.name))
            for nodeset in self._nodesets_concerned(cluster, change):
                nodesets.add(nodeset.key)

        views.subscribe(slurm_changed)

    def _kept_by(self, budget: PodDisruptionBudget) -> Iterable[Key]:
        """The NodeSets whose workers have this budget as second owner."""
        for namespace, cluster in labelled_cluster(budget):
            key = indexes.controller_key(namespace, cluster)
            yield from (nodeset.key for nodeset in self._caches.store(NODESETS).by_index(indexes.BY_CONTROLLER, key))

    def _debounce(self, reconcile: NodeSetReconciler, key: Key) -> float:
        nodeset = self._caches.store(NODESETS).get(*key)
        big = nodeset is not None and nodeset.status.replicas >= BIG
        return max(0.0, BIG_REST - reconcile.rested(key)) if big else 0.0

    def _pods_concerned(self, cluster: Key, change: Change) -> Iterable[Pod]:
        pods = self._caches.store(PODS).by_index(indexes.BY_CLUSTER, indexes.controller_key(*cluster))
        if isinstance(change.new, Known) and not isinstance(change.old, Known):
            return pods
        return [pod for pod in pods if slurm_name(pod) in change.names] if change.names else ()

    def _nodesets_concerned(self, cluster: Key, change: Change) -> Iterable[NodeSet]:
        """All of them when Slurm was lost or found; else those whose pods, or leftover records, changed."""
        found = self._caches.store(NODESETS).by_index(indexes.BY_CONTROLLER, indexes.controller_key(*cluster))
        if isinstance(change.new, Known) != isinstance(change.old, Known):
            return found
        owners = {pod.metadata.labels.get(names.LABEL_INSTANCE) for pod in self._pods_concerned(cluster, change)}
        return [nodeset for nodeset in found if nodeset.metadata.name in owners or nodeset.status.drains]

    def _nodesets_on(self, node: Node) -> Iterable[Key]:
        """Those with a worker there, and those that may want one."""
        for pod in self._caches.store(PODS).by_index(indexes.BY_NODE, node.metadata.name):
            if pod.metadata.labels.get(names.LABEL_APP) == names.APP_SLURMD:
                yield pod.metadata.namespace, pod.metadata.labels.get(names.LABEL_INSTANCE, "")
        for nodeset in self._caches.store(NODESETS):
            if nodeset.spec.scaling_mode == "DaemonSet":
                yield nodeset.key


def _known(state: object) -> bool:
    return isinstance(state, Known)

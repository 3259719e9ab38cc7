"""Puts the operator together: which kinds are followed, which changes wake whom, and who does the work."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from slurm_operator import accounting, keyring, loginset, restapi, token
from slurm_operator.api import Accounting, Controller, NodeSet, RestApi, names
from slurm_operator.cluster import ClusterReconciler, Locate
from slurm_operator.controller import decide as controller_decide
from slurm_operator.controller import observe as controller_observe
from slurm_operator.kube import indexes
from slurm_operator.kube.client import Client
from slurm_operator.kube.custom import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS, TOKENS
from slurm_operator.kube.events import Recorder
from slurm_operator.kube.kinds import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    ENDPOINT_SLICES,
    NODES,
    PODS,
    SECRETS,
    ConfigMap,
    Node,
    Pod,
    Secret,
)
from slurm_operator.kube.model import ObjectMeta, find_condition
from slurm_operator.kube.resource import Key, Resource
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.nodeset.observe import Observer as NodeSetObserver
from slurm_operator.nodeset.reconcile import NodeSetReconciler, PodStateReconciler
from slurm_operator.runtime.actions import Kube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import CHILD_KINDS, FOLLOWED
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.controller import Controller as Workers
from slurm_operator.runtime.queue import Backoff, Queue
from slurm_operator.runtime.reconcile import Reconciler, Refusals
from slurm_operator.runtime.references import References
from slurm_operator.runtime.sources import feed, intent_changed, itself, owner_of
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
    monitors: bool = False
    propagated_conditions: tuple[str, ...] = ()
    workers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Hands:
    kube: Kube


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
        for child in (*self._children, CONTROLLER_REVISIONS):
            labels = OUR_SLICES if child is ENDPOINT_SLICES else OURS
            caches.follow(child, labels=labels, indexers={indexes.BY_OWNER: indexes.owner})

    @property
    def _children(self) -> tuple[Resource[Any], ...]:
        return CHILD_KINDS if self._settings.monitors else FOLLOWED

    def _queue(self, name: str, reconcile: Any, kind: str = "", **options: Any) -> Queue:
        queue = Queue(name, clock=self._clock, backoff=Backoff(longest=PATIENCE), **options)
        workers = self._settings.workers.get(name, 4)
        self.controllers.append(Workers(name, queue, reconcile, workers=workers, clock=self._clock))
        if kind:
            self._references.wake(kind, queue)
        return queue

    # Slurm clusters

    def _add_clusters(self, locate: Locate, controllers: Queue) -> None:
        def tell(cluster: Key, refusals: Refusals) -> None:
            """On its Controller, which has a status to say it in."""
            if self._refused.get(cluster, ()) != refusals:
                self._refused[cluster] = refusals
                controllers.add(cluster)

        reconcile = ClusterReconciler(self._caches, self._references, self._views, self._kube, locate, tell)
        queue = self._queue("cluster", reconcile, "Cluster")
        feed(queue, self._caches.store(CONTROLLERS), itself, when=intent_changed)
        feed(queue, self._caches.store(NODESETS), _controller_of, when=intent_changed)
        feed(queue, self._caches.store(RESTAPIS), _controller_of, when=intent_changed)
        feed(queue, self._caches.store(PODS), self._cluster_of_restd, when=_pod_matters)
        for child in self._children:
            feed(queue, self._caches.store(child), _labelled_cluster)

    def _cluster_of_restd(self, pod: Pod) -> Iterable[Key]:
        """From outside of the cluster slurmrestd is reached at its pod's address, which changes with the pod."""
        if pod.metadata.labels.get(names.LABEL_APP) != names.APP_SLURMRESTD:
            return ()
        name = pod.metadata.labels.get(names.LABEL_INSTANCE, "")
        found = self._caches.store(RESTAPIS).get(pod.metadata.namespace, name)
        return _controller_of(found) if found is not None else ()

    # slurmctld, slurmdbd, slurmrestd, login, tokens

    def _add_control_plane(self) -> Queue:
        caches, clock, refs, hands = self._caches, self._clock, self._references, _Hands(self._kube)
        settings = self._settings
        see = controller_observe.Observer(
            caches, refs, clock, domain=settings.domain, monitors=settings.monitors, shared=self._refused
        )
        controllers = self._kind(
            "controller", CONTROLLERS, names.APP_SLURMCTLD, Reconciler(see, controller_decide.decide, hands)
        )
        feed(controllers, caches.store(ACCOUNTINGS), self._controllers_using, when=intent_changed)
        feed(controllers, caches.store(NODESETS), _controller_of, when=_changes_configuration)

        feed(controllers, caches.store(SECRETS), _users_of_keys("Controller"))

        see_accounting = accounting.Observer(caches, refs, clock)
        accountings = self._kind(
            "accounting", ACCOUNTINGS, names.APP_SLURMDBD, Reconciler(see_accounting, accounting.decide, hands)
        )
        feed(accountings, caches.store(SECRETS), _users_of_keys("Accounting"))

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
        feed(rings, caches.store(CONTROLLERS), _key_of, when=intent_changed)
        feed(rings, caches.store(ACCOUNTINGS), _key_of, when=intent_changed)
        feed(rings, caches.store(SECRETS), _ring_itself)

        see_token = token.Observer(caches, refs, clock)
        tokens = self._queue("token", Reconciler(see_token, token.decide, hands), "Token")
        feed(tokens, caches.store(TOKENS), itself, when=intent_changed)
        feed(tokens, caches.store(SECRETS), owner_of("Token"))
        return controllers

    def _kind(self, name: str, resource: Resource[Any], app: str, reconcile: Any) -> Queue:
        """A kind with a daemon: woken by itself, its children, its pods and the nodes below them."""
        queue = self._queue(name, reconcile, resource.kind)
        feed(queue, self._caches.store(resource), itself, when=intent_changed)
        for child in self._children:
            feed(queue, self._caches.store(child), owner_of(resource.kind))
        feed(queue, self._caches.store(PODS), _instance_of(app), when=_pod_matters)
        feed(queue, self._caches.store(NODES), self._daemons_on(app), when=_comes_or_goes)
        return queue

    def _daemons_on(self, app: str) -> Callable[[Node], Iterable[Key]]:
        instance = _instance_of(app)

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
        for namespace, name in _users_of_keys("Controller")(secret):
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
        )
        reconcile = NodeSetReconciler(see, self._kube, views, self._clock)
        nodesets = self._queue("nodeset", reconcile, "NodeSet", debounce=partial(self._debounce, reconcile))
        feed(nodesets, caches.store(NODESETS), itself, when=intent_changed)
        feed(nodesets, caches.store(CONTROLLERS), self._members(NODESETS), when=intent_changed)
        feed(nodesets, caches.store(PODS), _instance_of(names.APP_SLURMD), when=_pod_matters)
        feed(nodesets, caches.store(PODS), owner_of("NodeSet"), when=_pod_matters)
        feed(nodesets, caches.store(NODES), self._nodesets_on, when=_node_matters)
        feed(nodesets, caches.store(CONTROLLER_REVISIONS), owner_of("NodeSet"))

        states = self._queue(
            "pod-state", PodStateReconciler(caches, self._kube, views, self._clock, reconcile.is_growing)
        )
        feed(states, caches.store(PODS), _worker_itself)

        def slurm_changed(cluster: Key, change: Change) -> None:
            for pod in self._pods_concerned(cluster, change):
                states.add((pod.metadata.namespace, pod.metadata.name))
            for nodeset in self._nodesets_concerned(cluster, change):
                nodesets.add(nodeset.key)

        views.subscribe(slurm_changed)

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


def _controller_of(member: NodeSet | RestApi) -> Iterable[Key]:
    return ((member.metadata.namespace, member.spec.controller_ref.name),)


def _key_of(member: Controller | Accounting) -> Iterable[Key]:
    """The Secret that its key of auth/slurm comes from."""
    ref = member.spec.slurm_key_ref
    return ((member.metadata.namespace, ref.name),) if ref is not None else ()


def _ring_itself(secret: Secret) -> Iterable[Key]:
    """The Secret that a ring is made from."""
    ring = secret.metadata.labels.get(names.LABEL_APP) == names.APP_KEYRING
    return ((secret.metadata.namespace, names.key_ring_source(secret.metadata.name)),) if ring else ()


def _users_of_keys(kind: str) -> Callable[[Secret], Iterable[Key]]:
    def keys(secret: Secret) -> Iterable[Key]:
        if secret.metadata.labels.get(names.LABEL_APP) != names.APP_KEYRING:
            return ()
        return [(secret.metadata.namespace, ref.name) for ref in secret.metadata.owner_references if ref.kind == kind]

    return keys


def _labelled_cluster(child: Any) -> Iterable[Key]:
    meta: ObjectMeta = child.metadata
    cluster = meta.labels.get(names.LABEL_CLUSTER)
    return ((meta.namespace, cluster),) if cluster and meta.controller is None else ()


def _instance_of(app: str) -> Callable[[Pod], Iterable[Key]]:
    def keys(pod: Pod) -> Iterable[Key]:
        labels = pod.metadata.labels
        return (
            ((pod.metadata.namespace, labels.get(names.LABEL_INSTANCE, "")),)
            if labels.get(names.LABEL_APP) == app
            else ()
        )

    return keys


def _worker_itself(pod: Pod) -> Iterable[Key]:
    is_worker = pod.metadata.labels.get(names.LABEL_APP) == names.APP_SLURMD
    return ((pod.metadata.namespace, pod.metadata.name),) if is_worker else ()


def _pod_matters(old: Pod, new: Pod) -> bool:
    """Not when only the Slurm conditions changed, which we write ourselves."""
    return _pod_facts(old) != _pod_facts(new)


def _pod_facts(pod: Pod) -> tuple[object, ...]:
    status = pod.status
    conditions = [c for c in status.conditions if not c.type.startswith(names.POD_CONDITION_PREFIX)]
    labels = {key: value for key, value in pod.metadata.labels.items() if key != names.LABEL_POD_PROTECT}
    about = (labels, pod.metadata.annotations, pod.metadata.deletion_timestamp, pod.metadata.owner_references)
    return (*about, pod.spec, status.phase, status.pod_ip, status.container_statuses, conditions)


def _node_matters(old: Node, new: Node) -> bool:
    """A heartbeat is no news."""
    return _node_facts(old) != _node_facts(new)


def _comes_or_goes(old: Node, new: Node) -> bool:
    """Whether its kubelet answers."""
    before, now = (find_condition(node.status.conditions, "Ready") for node in (old, new))
    return before is None or now is None or before.status != now.status


def _node_facts(node: Node) -> tuple[object, ...]:
    conditions = [(condition.type, condition.status, condition.message) for condition in node.status.conditions]
    return node.spec, node.metadata.labels, node.metadata.annotations, conditions


def _changes_configuration(old: NodeSet, new: NodeSet) -> bool:
    return intent_changed(old, new) or old.status.desired != new.status.desired

"""Gathers the world of one NodeSet from memory alone."""

from collections.abc import Iterator, Mapping, Sequence

from slurm_operator.api import Controller, NodeSet, names
from slurm_operator.desired.worker import WorkerFacts, ordinal_slot
from slurm_operator.kube.custom import CONTROLLERS, NODESETS
from slurm_operator.kube.indexes import (
    BY_CLUSTER,
    BY_CONTROLLER,
    BY_INSTANCE,
    BY_OWNER,
    controller_key,
    instance_key,
)
from slurm_operator.kube.kinds import (
    CONTROLLER_REVISIONS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    STATEFUL_SETS,
    Pod,
)
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.hands import Memory
from slurm_operator.nodeset.identity import slurm_name
from slurm_operator.nodeset.ownership import is_released, ownership_of
from slurm_operator.nodeset.world import REPORT_WAITING_SECONDS, Gone, Slurm, World
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.references import References, Refs
from slurm_operator.runtime.trouble import Trouble, is_silent, no_controller
from slurm_operator.slurm.known import Unknown
from slurm_operator.slurm.views import SlurmViews

GONE_SECONDS = 30.0
"""Seconds for which neither a Controller nor a pod of slurmctld exists before slurmctld counts as gone.

A Controller that is deleted and created again (kubectl replace --force) is back sooner.
"""


class Observer:
    def __init__(
        self,
        caches: Caches,
        references: References,
        views: SlurmViews,
        clock: Clock,
        *,
        domain: str,
        propagated_conditions: Sequence[str] = (),
        report_waiting_after: float = REPORT_WAITING_SECONDS,
    ) -> None:
        self._caches = caches
        self._references = references
        self._views = views
        self._clock = clock
        self._domain = domain
        self._propagated = tuple(propagated_conditions)
        self._report_waiting_after = report_waiting_after

    def __call__(self, key: Key, memory: Memory) -> World | None:
        nodeset = self._caches.store(NODESETS).get(*key)
        if nodeset is None:
            self._references.drop(("NodeSet", key))
            return None
        namespace, name = key
        now = self._clock.now()
        controller = self._caches.store(CONTROLLERS).get(namespace, nodeset.spec.controller_ref.name)
        pods, revisions = self._caches.store(PODS), self._caches.store(CONTROLLER_REVISIONS)
        labelled = pods.by_index(BY_INSTANCE, instance_key(namespace, names.APP_SLURMD, name))
        loose = [pod for pod in labelled if pod.metadata.controller is None]
        released = [pod for pod in loose if is_released(pod, nodeset)]
        mine = [*pods.by_index(BY_OWNER, nodeset.metadata.uid), *released]
        budget_name = names.workers_budget(nodeset.spec.controller_ref.name)
        ownership = ownership_of(
            nodeset,
            bool(released),
            revisions.by_index(BY_INSTANCE, instance_key(namespace, names.APP_SLURMD, name)),
            self._caches.store(POD_DISRUPTION_BUDGETS).get(namespace, budget_name),
            now,
        )
        facts, lacking = self._facts(nodeset, controller)
        view = self._views.get((namespace, nodeset.spec.controller_ref.name))
        return World(
            nodeset=nodeset,
            controller=controller,
            pods=tuple(mine),
            orphans=tuple(pod for pod in loose if not is_released(pod, nodeset)),
            ownership=ownership,
            nodes={node.metadata.name: node for node in self._caches.store(NODES)},
            revisions=tuple(revisions.by_index(BY_OWNER, nodeset.metadata.uid)),
            slurm=self._slurm(nodeset, controller, mine, memory, now),
            has_restapi=view is not None,
            jobs=view.jobs if view is not None else None,
            claims=frozenset(
                claim.metadata.name
                for claim in self._caches.store(PERSISTENT_VOLUME_CLAIMS).by_index(
                    BY_INSTANCE, instance_key(namespace, names.APP_SLURMD, name)
                )
            ),
            facts=facts,
            lacking=lacking,
            failures=memory.note_failures(mine, now),
            kept_records=memory.kept_records(now),
            departed=memory.note_places(mine, self._answers, now),
            ended=memory.ended,
            neighbours=self._neighbours(nodeset, mine, memory.ended),
            unreadable=self._unreadable_pods(nodeset),
            unreadable_nodes=frozenset(name for _, name in self._caches.store(NODES).unreadable),
            refusals=memory.refusals.told,
            refused=memory.refused,
            propagated_conditions=self._propagated,
            report_waiting_after=self._report_waiting_after,
            now=now,
        )

    def _facts(self, nodeset: NodeSet, controller: Controller | None) -> tuple[WorkerFacts | None, Trouble | None]:
        """What new pods need, or what is missing for them."""
        namespace, name = nodeset.metadata.namespace, nodeset.spec.controller_ref.name
        if controller is None:
            return None, no_controller(namespace, name)
        ssh = nodeset.spec.ssh if nodeset.spec.ssh_enabled else None
        wanted = {ref.name for ref in (controller.spec.slurm_key_ref, ssh.sssd_conf_ref if ssh else None) if ref}
        refs: Refs = self._references.read(("NodeSet", nodeset.key), namespace, secrets=wanted)
        if refs.loading:
            return None, refs.refused
        if ssh is not None and (trouble := refs.missing_secret(namespace, ssh.sssd_conf_ref, "ssh.sssdConfRef")):
            return None, trouble
        key = controller.spec.slurm_key_ref
        if trouble := refs.missing_secret(namespace, key, f"slurmKeyRef of Controller {name}"):
            return None, trouble
        sssd = refs.secret(ssh.sssd_conf_ref.name).get(ssh.sssd_conf_ref.key, b"") if ssh is not None else b""
        return WorkerFacts(controller=controller, domain=self._domain, sssd_conf=sssd), None

    def _slurm(
        self, nodeset: NodeSet, controller: Controller | None, pods: Sequence[Pod], memory: Memory, now: float
    ) -> Slurm:
        """Return what is known of the cluster. For a NodeSet that is being deleted, slurmctld may be gone for good.

        A missing RestApi or Controller alone means unknown: slurmctld, its jobs and its state may still be there.
        """
        namespace, name = nodeset.metadata.namespace, nodeset.spec.controller_ref.name
        state = self._views.state((namespace, name))
        deleting = nodeset.metadata.deletion_timestamp is not None
        if not deleting or controller is not None or self._has_slurmctld(namespace, name):
            memory.no_slurmctld_since = None
            return state
        if memory.no_slurmctld_since is None:
            memory.no_slurmctld_since = now
        since = memory.no_slurmctld_since
        if any(pod.metadata.annotations.get(names.ANNOTATION_EXTERNAL) == names.TRUE for pod in pods):
            cure = "create the Controller and a RestApi again, or delete the pods"
            return Unknown(since, f"Controller {namespace}/{name} is deleted, but its slurmctld runs elsewhere; {cure}")
        why = f"Controller {namespace}/{name} and its slurmctld are deleted"
        if now - since < GONE_SECONDS:
            return Unknown(since, f"{why}; waiting {GONE_SECONDS:g} s for them to be created again")
        return Gone(why)

    def _has_slurmctld(self, namespace: str, name: str) -> bool:
        """Return whether anything says that a slurmctld of this Controller exists, or may exist."""
        if (namespace, name) in self._caches.store(CONTROLLERS).unreadable:
            return True
        if (namespace, names.controller(name)) in self._caches.store(STATEFUL_SETS).unreadable:
            return True
        if self._caches.store(STATEFUL_SETS).get(namespace, names.controller(name)) is not None:
            return True
        if any(
            (meta.namespace, meta.labels.get(names.LABEL_APP), meta.labels.get(names.LABEL_INSTANCE))
            == (namespace, names.APP_SLURMCTLD, name)
            for meta in self._caches.store(PODS).unreadable.values()
        ):
            return True
        return bool(self._caches.store(PODS).by_index(BY_INSTANCE, instance_key(namespace, names.APP_SLURMCTLD, name)))

    def _answers(self, node: str) -> bool:
        """Return whether the kubelet of a Node answers, so that the end of a pod there is certain."""
        found = self._caches.store(NODES).get("", node)
        return found is not None and not is_silent(found)

    def _neighbours(self, nodeset: NodeSet, mine: Sequence[Pod], ended: Mapping[str, str]) -> dict[str, str]:
        """Return the Slurm names that other NodeSets of the cluster have, if a decision may depend on them.

        That is so if new names are needed, or names of workers that are gone are still in the status or remembered. A
        name that an older NodeSet will give to a worker counts too, so that two that begin together do not collide.
        """
        spec = nodeset.spec
        live = sum(not pod.metadata.terminating for pod in mine)
        if spec.scaling_mode == "StatefulSet" and live >= spec.replicas and not nodeset.status.drains and not ended:
            return {}
        cluster = controller_key(nodeset.metadata.namespace, spec.controller_ref.name)
        found = {
            name: f"NodeSet {other.metadata.name}"
            for other in self._caches.store(NODESETS).by_index(BY_CONTROLLER, cluster)
            if _is_older(other, nodeset) and other.spec.scaling_mode == "StatefulSet"
            for name in _planned_names(other, nodeset)
        }
        for pod in self._caches.store(PODS).by_index(BY_CLUSTER, cluster):
            owner = pod.metadata.labels.get(names.LABEL_INSTANCE, "")
            if not pod.metadata.terminating and (owner != nodeset.metadata.name or _is_of_another(pod, nodeset)):
                found[slurm_name(pod)] = f"Pod {pod.metadata.name} of NodeSet {owner}"
        return found

    def _unreadable_pods(self, nodeset: NodeSet) -> tuple[str, ...]:
        """Return the pods of a NodeSet that exist and do not fit their type."""
        namespace, name = nodeset.key
        return tuple(
            key[1]
            for key, meta in self._caches.store(PODS).unreadable.items()
            if key[0] == namespace and meta.labels.get(names.LABEL_INSTANCE) == name
        )


def _is_older(other: NodeSet, nodeset: NodeSet) -> bool:
    def age(found: NodeSet) -> tuple[str, str]:
        return found.metadata.creation_timestamp or "", found.metadata.name

    return other.metadata.uid != nodeset.metadata.uid and age(other) < age(nodeset)


def _is_of_another(pod: Pod, nodeset: NodeSet) -> bool:
    """Return whether another object controls a pod: an earlier NodeSet of this name, while its references stay."""
    controller = pod.metadata.controller
    return controller is not None and controller.uid != nodeset.metadata.uid


def _planned_names(other: NodeSet, nodeset: NodeSet) -> Iterator[str]:
    """Yield the names of another NodeSet's workers if they could be names of this one's."""
    if nodeset.spec.scaling_mode == "StatefulSet" and not _same_prefix(other, nodeset):
        return
    for number in range(other.spec.replicas):
        yield ordinal_slot(other, number).hostname


def _same_prefix(one: NodeSet, other: NodeSet) -> bool:
    return ordinal_slot(one, 0).hostname.rstrip("0") == ordinal_slot(other, 0).hostname.rstrip("0")

"""Gathers the world of one NodeSet from memory alone."""

from collections.abc import Sequence

from slurm_operator.api import Controller, NodeSet, names
from slurm_operator.desired.worker import WorkerFacts
from slurm_operator.kube.custom import CONTROLLERS, NODESETS, RESTAPIS
from slurm_operator.kube.indexes import BY_CONTROLLER, BY_INSTANCE, BY_OWNER, controller_key, instance_key
from slurm_operator.kube.kinds import CONTROLLER_REVISIONS, NODES, PODS, Pod
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.hands import Memory
from slurm_operator.nodeset.world import Gone, Slurm, World
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.references import References, Refs
from slurm_operator.runtime.times import seconds_of
from slurm_operator.runtime.trouble import Trouble, no_controller
from slurm_operator.slurm.views import SlurmViews

RESTAPI_GRACE = 60.0
"""A deleted NodeSet waits so long for a RestApi to appear before it gives up asking about jobs."""


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
    ) -> None:
        self._caches = caches
        self._references = references
        self._views = views
        self._clock = clock
        self._domain = domain
        self._propagated = tuple(propagated_conditions)

    def __call__(self, key: Key, memory: Memory) -> World | None:
        nodeset = self._caches.store(NODESETS).get(*key)
        if nodeset is None:
            self._references.drop(("NodeSet", key))
            return None
        namespace, name = key
        now = self._clock.now()
        controller = self._caches.store(CONTROLLERS).get(namespace, nodeset.spec.controller_ref.name)
        pods = self._caches.store(PODS)
        mine = pods.by_index(BY_OWNER, nodeset.metadata.uid)
        for pod in mine:
            _count_failure(memory, pod, now)
        labelled = pods.by_index(BY_INSTANCE, instance_key(namespace, names.APP_SLURMD, name))
        facts, lacking = self._facts(nodeset, controller)
        view = self._views.get((namespace, nodeset.spec.controller_ref.name))
        return World(
            nodeset=nodeset,
            controller=controller,
            pods=tuple(mine),
            orphans=tuple(pod for pod in labelled if pod.metadata.controller is None),
            nodes={node.metadata.name: node for node in self._caches.store(NODES)},
            revisions=tuple(self._caches.store(CONTROLLER_REVISIONS).by_index(BY_OWNER, nodeset.metadata.uid)),
            slurm=self._slurm(nodeset, controller, now),
            jobs=view.last_job_ends if view is not None else None,
            facts=facts,
            lacking=lacking,
            failures=memory.failures,
            kept_records=memory.kept_records(now),
            refusals=memory.refusals,
            propagated_conditions=self._propagated,
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
            return None, None
        if ssh is not None and (trouble := refs.missing_secret(namespace, ssh.sssd_conf_ref, "ssh.sssdConfRef")):
            return None, trouble
        key = controller.spec.slurm_key_ref
        if trouble := refs.missing_secret(namespace, key, f"slurmKeyRef of Controller {name}"):
            return None, trouble
        sssd = refs.secret(ssh.sssd_conf_ref.name).get(ssh.sssd_conf_ref.key, b"") if ssh is not None else b""
        return WorkerFacts(controller=controller, domain=self._domain, sssd_conf=sssd), None

    def _slurm(self, nodeset: NodeSet, controller: Controller | None, now: float) -> Slurm:
        namespace, name = nodeset.metadata.namespace, nodeset.spec.controller_ref.name
        if nodeset.metadata.deletion_timestamp is not None:
            if controller is None or controller.metadata.deletion_timestamp is not None:
                return Gone(f"Controller {namespace}/{name} is deleted")
            restapis = self._caches.store(RESTAPIS).by_index(BY_CONTROLLER, controller_key(namespace, name))
            waited = now - seconds_of(nodeset.metadata.deletion_timestamp, absent=now)
            if not restapis and waited > RESTAPI_GRACE:
                return Gone(f"Controller {namespace}/{name} has no RestApi, so nobody can be asked about jobs")
        return self._views.state((namespace, name))


def _count_failure(memory: Memory, pod: Pod, now: float) -> None:
    if pod.status.phase in ("Failed", "Succeeded"):
        lived = now - seconds_of(pod.status.start_time, absent=now)
        memory.count_failure(pod.metadata.name, pod.metadata.uid, lived, now)

"""The claims of workers that have no Kubernetes Node yet."""

from collections.abc import Collection, Iterator

from slurm_operator.api import names
from slurm_operator.desired.worker import Slot, worker_claims
from slurm_operator.kube.kinds import PERSISTENT_VOLUME_CLAIMS, Pod
from slurm_operator.nodeset.hands import NodeSetAction
from slurm_operator.nodeset.world import World
from slurm_operator.runtime.actions import Apply


def make_lost_claims(world: World, leaving: Collection[str]) -> Iterator[NodeSetAction]:
    """Make the claims that a user deleted below a pod that is not placed yet and not one of the `leaving`.

    Kubernetes keeps the claims of a placed pod until the pod is gone.
    """
    if not world.nodeset.spec.volume_claim_templates:
        return
    for worker in world.workers:
        if not worker.live or worker.pod.spec.node_name or worker.pod_name in leaving:
            continue
        for claim in worker_claims(world.nodeset, _slot(worker.pod)):
            if claim["metadata"]["name"] not in world.claims:
                yield Apply(PERSISTENT_VOLUME_CLAIMS, claim)


def _slot(pod: Pod) -> Slot:
    return Slot(pod.metadata.name, pod.spec.hostname, pod.metadata.labels.get(names.LABEL_POD_INDEX, ""))

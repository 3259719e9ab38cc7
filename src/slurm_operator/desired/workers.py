"""What all NodeSets of a cluster share: the Service that names their pods, and the budget that protects busy ones."""

from collections.abc import Iterable

from slurm_operator.api import NodeSet, names
from slurm_operator.desired import metadata
from slurm_operator.desired.service import headless_service, port
from slurm_operator.kube.resource import Manifest


def workers_objects(controller: str, namespace: str, nodesets: Iterable[NodeSet]) -> list[Manifest]:
    """Owned by every NodeSet of the cluster, so that they go with the last one."""
    owners = [
        metadata.owner(nodeset, controller=False)
        for nodeset in sorted(nodesets, key=lambda nodeset: nodeset.metadata.name)
    ]
    cluster = {names.LABEL_CLUSTER: controller}
    labels = {names.LABEL_APP: names.APP_SLURMD, names.LABEL_COMPONENT: names.COMPONENT_WORKER, **cluster}
    service = headless_service(
        {
            "name": names.workers_service(controller),
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": owners,
        },
        {names.LABEL_APP: names.APP_SLURMD, **cluster},
        port("slurmd", names.PORT_SLURMD, "slurmd"),
    )
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": names.workers_budget(controller),
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {
            "maxUnavailable": 0,
            "selector": {"matchLabels": {names.LABEL_POD_PROTECT: names.TRUE, **cluster}},
        },
    }
    return [service, budget]

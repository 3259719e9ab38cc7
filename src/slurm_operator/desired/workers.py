"""What all NodeSets of a cluster share: the Service that names their pods, and the budget that protects busy ones."""

from slurm_operator.api import names
from slurm_operator.desired.service import headless_service, port
from slurm_operator.kube.resource import Manifest

BUDGET_API, BUDGET_KIND = "policy/v1", "PodDisruptionBudget"
MORE_THAN_ANY = 2**31 - 1
"""An integer `minAvailable` is compared with the healthy pods alone. `maxUnavailable` is computed from the owner's
`spec.replicas`, which says nothing about busy workers in DaemonSet mode and during a scale-in.
"""


def workers_objects(controller: str, namespace: str) -> list[Manifest]:
    """Return the Service and the budget. They have no owner: a cascade must not take them from busy workers."""
    cluster = {names.LABEL_CLUSTER: controller}
    labels = {names.LABEL_APP: names.APP_SLURMD, names.LABEL_COMPONENT: names.COMPONENT_WORKER, **cluster}
    service = headless_service(
        {"name": names.workers_service(controller), "namespace": namespace, "labels": labels},
        {names.LABEL_APP: names.APP_SLURMD, **cluster},
        port("slurmd", names.PORT_SLURMD, "slurmd"),
    )
    budget = {
        "apiVersion": BUDGET_API,
        "kind": BUDGET_KIND,
        "metadata": {"name": names.workers_budget(controller), "namespace": namespace, "labels": labels},
        "spec": {
            "minAvailable": MORE_THAN_ANY,
            "selector": {"matchLabels": {names.LABEL_POD_PROTECT: names.TRUE, **cluster}},
        },
    }
    return [service, budget]


def budget_owner(controller: str, uid: str) -> Manifest:
    """Return the second owner of worker pods, which keeps them while their NodeSet is deleted in the foreground."""
    return {"apiVersion": BUDGET_API, "kind": BUDGET_KIND, "name": names.workers_budget(controller), "uid": uid}

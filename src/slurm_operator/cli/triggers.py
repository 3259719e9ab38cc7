"""Which objects a change concerns, and which changes matter: what `wiring` feeds its queues with."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from slurm_operator.api import Accounting, Controller, NodeSet, RestApi, names
from slurm_operator.cluster import is_worker
from slurm_operator.kube.kinds import Node, Pod, Secret
from slurm_operator.kube.model import ObjectMeta, find_condition
from slurm_operator.kube.resource import Key
from slurm_operator.nodeset.evidence import says_busy
from slurm_operator.runtime.sources import intent_changed


class Described(Protocol):
    """Anything that has metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


def accounting_of(controller: Controller) -> Iterable[Key]:
    """Return the Accounting that a cluster uses; it reports on its database as long as one does."""
    name = controller.spec.accounting_name
    return ((controller.metadata.namespace, name),) if name else ()


def controller_of(member: NodeSet | RestApi) -> Iterable[Key]:
    return ((member.metadata.namespace, member.spec.controller_ref.name),)


def key_secret_of(member: Controller | Accounting) -> Iterable[Key]:
    """The Secret that its key of auth/slurm comes from."""
    ref = member.spec.slurm_key_ref
    return ((member.metadata.namespace, ref.name),) if ref is not None else ()


def ring_itself(secret: Secret) -> Iterable[Key]:
    """The Secret that a ring is made from."""
    ring = secret.metadata.labels.get(names.LABEL_APP) == names.APP_KEYRING
    return ((secret.metadata.namespace, names.key_ring_source(secret.metadata.name)),) if ring else ()


def users_of_keys(kind: str) -> Callable[[Secret], Iterable[Key]]:
    def keys(secret: Secret) -> Iterable[Key]:
        if secret.metadata.labels.get(names.LABEL_APP) != names.APP_KEYRING:
            return ()
        return [(secret.metadata.namespace, ref.name) for ref in secret.metadata.owner_references if ref.kind == kind]

    return keys


def labelled_cluster(child: Any) -> Iterable[Key]:
    meta: ObjectMeta = child.metadata
    cluster = meta.labels.get(names.LABEL_CLUSTER)
    return ((meta.namespace, cluster),) if cluster and meta.controller is None else ()


def is_replaced(old: Described, new: Described) -> bool:
    """Not when only its status changed, as that of a budget does with every worker."""
    return (old.metadata.uid, old.metadata.terminating) != (new.metadata.uid, new.metadata.terminating)


def instance_of(app: str) -> Callable[[Described], Iterable[Key]]:
    def keys(child: Described) -> Iterable[Key]:
        labels = child.metadata.labels
        return (
            ((child.metadata.namespace, labels.get(names.LABEL_INSTANCE, "")),)
            if labels.get(names.LABEL_APP) == app
            else ()
        )

    return keys


def worker_itself(pod: Pod) -> Iterable[Key]:
    return ((pod.metadata.namespace, pod.metadata.name),) if is_worker(pod) else ()


def pod_matters(old: Pod, new: Pod) -> bool:
    """Ignore the Slurm conditions and the protection label, which we write, unless a removal may wait for them."""
    return _pod_facts(old) != _pod_facts(new) or (says_busy(old) and not says_busy(new))


def _pod_facts(pod: Pod) -> tuple[object, ...]:
    status = pod.status
    conditions = [c for c in status.conditions if not c.type.startswith(names.POD_CONDITION_PREFIX)]
    labels = {key: value for key, value in pod.metadata.labels.items() if key != names.LABEL_POD_PROTECT}
    about = (labels, pod.metadata.annotations, pod.metadata.deletion_timestamp, pod.metadata.owner_references)
    return (*about, pod.spec, status.phase, status.pod_ip, status.container_statuses, conditions)


def node_matters(old: Node, new: Node) -> bool:
    """A heartbeat is no news."""
    return _node_facts(old) != _node_facts(new)


def comes_or_goes(old: Node, new: Node) -> bool:
    """Whether its kubelet answers."""
    before, now = (find_condition(node.status.conditions, "Ready") for node in (old, new))
    return before is None or now is None or before.status != now.status


def _node_facts(node: Node) -> tuple[object, ...]:
    conditions = [(condition.type, condition.status, condition.message) for condition in node.status.conditions]
    return node.spec, node.metadata.labels, node.metadata.annotations, conditions


def changes_configuration(old: NodeSet, new: NodeSet) -> bool:
    return intent_changed(old, new) or old.status.desired != new.status.desired

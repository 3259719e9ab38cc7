"""How stores are looked up beside name: one place, so that whoever fills a store and whoever asks it agree."""

from collections.abc import Iterable
from typing import Protocol

from slurm_operator.api import names
from slurm_operator.api.common import LocalObjectReference
from slurm_operator.kube.kinds import Pod
from slurm_operator.kube.model import ObjectMeta

BY_OWNER = "owner"
BY_INSTANCE = "instance"
BY_NODE = "node"
BY_CONTROLLER = "controller"
BY_CLUSTER = "cluster"


class _Described(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


class _Joins(Protocol):
    @property
    def controller_ref(self) -> LocalObjectReference: ...


class _Member(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> _Joins: ...


def owner(obj: _Described) -> Iterable[str]:
    """Uid of the object that controls it."""
    found = obj.metadata.controller
    return (found.uid,) if found is not None else ()


def instance(obj: _Described) -> Iterable[str]:
    """Namespace, daemon and resource that its labels name."""
    labels = obj.metadata.labels
    return (
        instance_key(obj.metadata.namespace, labels.get(names.LABEL_APP, ""), labels.get(names.LABEL_INSTANCE, "")),
    )


def instance_key(namespace: str, app: str, name: str) -> str:
    return f"{namespace}/{app}/{name}"


def node(pod: Pod) -> Iterable[str]:
    """Kubernetes Node that a pod runs on."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def cluster(pod: Pod) -> Iterable[str]:
    """Controller whose cluster a worker belongs to, by its label."""
    name = pod.metadata.labels.get(names.LABEL_CLUSTER)
    return (controller_key(pod.metadata.namespace, name),) if name else ()


def controller(obj: _Member) -> Iterable[str]:
    """Controller whose cluster an object joins."""
    return (controller_key(obj.metadata.namespace, obj.spec.controller_ref.name),)


def controller_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"

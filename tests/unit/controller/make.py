"""Short ways to say what a control-plane decision sees, and to read what it decided."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from slurm_operator.api import names
from slurm_operator.api.kind import Object
from slurm_operator.kube.kinds import (
    ConfigMap,
    ContainerState,
    ContainerStatus,
    Deployment,
    Pod,
    PodSpec,
    PodStatus,
    Secret,
    StatefulSet,
    StatefulSetSpec,
    StatefulSetStatus,
    Waiting,
    WorkloadSpec,
    WorkloadStatus,
)
from slurm_operator.kube.model import ChildMeta, Condition, ObjectMeta
from slurm_operator.runtime.actions import Apply, ApplyStatus, Create, Delete, Patch, RecordEvent
from slurm_operator.runtime.plan import Action, InOrder, Plan
from slurm_operator.runtime.references import Refs
from slurm_operator.runtime.times import rfc3339
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.keys import KeyRing

NOW = 1_800_000_000.0
KEYS = {"slurm-auth-slurm": {"slurm.key": b"s" * 32}, "slurm-auth-jwt": {"jwt.key": b"j" * 32}}

T = TypeVar("T", bound=Object)


def changed(obj: T, **fields: Any) -> T:
    return msgspec.structs.replace(obj, **fields)


def deleting(obj: T) -> T:
    meta = msgspec.structs.replace(obj.metadata, deletion_timestamp=rfc3339(NOW))
    return changed(obj, metadata=meta)


def secret(name: str, data: Mapping[str, bytes], **fields: Any) -> Secret:
    return Secret(metadata=ChildMeta(name=name, namespace="slurm"), data=dict(data), **fields)


def ring(key: bytes = KEYS["slurm-auth-slurm"]["slurm.key"], settled: str = "settled") -> Secret:
    """The Secret with the keys of auth/slurm in use, as all workers have read them."""
    notes = {names.ANNOTATION_RING_SINCE: str(int(NOW)), names.ANNOTATION_RING_SETTLED: settled}
    meta = ChildMeta(name="slurm-auth-slurm-ring", namespace="slurm", uid="uid-ring", annotations=notes)
    return Secret(metadata=meta, data={"slurm.key": KeyRing.of(key).file().encode()})


def config_map(name: str, data: Mapping[str, str]) -> ConfigMap:
    return ConfigMap(metadata=ChildMeta(name=name, namespace="slurm", uid=f"uid-{name}"), data=dict(data))


def refs(
    secrets: Mapping[str, Mapping[str, bytes]] | None = None,
    config_maps: Mapping[str, Mapping[str, str]] | None = None,
    *,
    loading: bool = False,
    refused: Trouble | None = None,
) -> Refs:
    return Refs(
        {name: secret(name, data) for name, data in (KEYS if secrets is None else secrets).items()},
        {name: config_map(name, data) for name, data in (config_maps or {}).items()},
        loading,
        refused,
    )


def pod(
    name: str = "slurm-controller-0",
    *conditions: Condition,
    node: str = "k8s-1",
    container: str = "slurmctld",
    ready: bool = True,
    waiting: str = "",
    terminating: bool = False,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Pod:
    state = ContainerState(waiting=Waiting(reason=waiting)) if waiting else ContainerState()
    readiness = Condition(type="Ready", status="True" if ready else "False", last_transition_time=rfc3339(NOW))
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="slurm",
            uid=f"uid-{name}",
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
            deletion_timestamp=rfc3339(NOW) if terminating else None,
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase="Running",
            conditions=conditions or (readiness,),
            container_statuses=(ContainerStatus(name=container, ready=ready, state=state, restart_count=5),),
        ),
    )


def _rolled_out(replicas: int, ready: int | None) -> dict[str, Any]:
    return {
        "observed_generation": 1,
        "replicas": replicas,
        "updated_replicas": replicas,
        "ready_replicas": replicas if ready is None else ready,
    }


def stateful_set(
    name: str = "slurm-controller",
    replicas: int = 1,
    *,
    ready: int | None = None,
    revision: str = "",
    terminating: bool = False,
    **spec: Any,
) -> StatefulSet:
    """One that is as we make it but for what is said."""
    standard = {"service_name": f"{name}-internal", "pod_management_policy": "Parallel"}
    gone = rfc3339(NOW) if terminating else None
    return StatefulSet(
        metadata=ChildMeta(name=name, namespace="slurm", uid=f"uid-{name}", generation=1, deletion_timestamp=gone),
        spec=StatefulSetSpec(replicas=replicas, **{**standard, **spec}),
        status=StatefulSetStatus(**_rolled_out(replicas, ready), update_revision=revision),
    )


def deployment(name: str, replicas: int = 1, *, ready: int | None = None) -> Deployment:
    return Deployment(
        metadata=ChildMeta(name=name, namespace="slurm", uid=f"uid-{name}", generation=1),
        spec=WorkloadSpec(replicas=replicas),
        status=WorkloadStatus(**_rolled_out(replicas, ready)),
    )


def actions(plan: Plan[Any]) -> Iterable[Action[Any]]:
    """One by one, whatever order they have among themselves."""
    for action in plan.actions:
        yield from action.actions if isinstance(action, InOrder) else (action,)


def applied(plan: Plan[Any]) -> dict[str, dict[str, Any]]:
    """The manifests by kind and name."""
    found = [action.manifest for action in actions(plan) if isinstance(action, Apply | Create)]
    return {f"{manifest['kind']}/{manifest['metadata']['name']}": manifest for manifest in found}


def deleted(plan: Plan[Any]) -> list[str]:
    return [f"{action.resource.kind}/{action.name}" for action in actions(plan) if isinstance(action, Delete)]


def patched(plan: Plan[Any]) -> dict[str, Any]:
    return {action.name: action.patch for action in actions(plan) if isinstance(action, Patch)}


def events(plan: Plan[Any]) -> list[str]:
    return [action.reason for action in actions(plan) if isinstance(action, RecordEvent)]


def status(plan: Plan[Any]) -> dict[str, Any]:
    """What would be reported; empty if nothing changed."""
    found = [action.manifest["status"] for action in actions(plan) if isinstance(action, ApplyStatus)]
    return found[0] if found else {}


def verdict(plan: Plan[Any], kind: str) -> tuple[str, str, str]:
    """Status, reason and message of one condition that is reported."""
    found = next(condition for condition in status(plan)["conditions"] if condition["type"] == kind)
    return found["status"], found["reason"], found["message"]


def ready(plan: Plan[Any]) -> bool:
    return verdict(plan, "Ready")[0] == "True"


def degraded(plan: Plan[Any]) -> str:
    """The reason why the object is degraded, or nothing."""
    state, reason, _ = verdict(plan, "Degraded")
    return reason if state == "True" else ""


def with_status(obj: T, plan: Plan[Any]) -> T:
    """The object after its report was taken down."""
    kind = type(getattr(obj, "status"))  # noqa: B009 - the six kinds have it, their common base has not
    return changed(obj, status=msgspec.convert(status(plan), kind))

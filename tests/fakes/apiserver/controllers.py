"""The few controllers of kube-controller-manager that change what a client sees: here they act at once.

Owner garbage collection, namespace termination, disruption budgets and pod quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fakes.apiserver.selectors import matches_labels
from tests.fakes.apiserver.status import Refusal, forbidden
from tests.fakes.apiserver.storage import key_of

if TYPE_CHECKING:
    from tests.fakes.apiserver.cluster import Cluster
    from tests.fakes.apiserver.kinds import Kind
    from tests.fakes.apiserver.storage import Change

Json = dict[str, Any]

FINISHED = frozenset({"Succeeded", "Failed"})


def settle(cluster: Cluster) -> None:
    """Follow every change to its end: what one of them does is looked at again."""
    while changes := cluster.storage.take_changes():
        for change in changes:
            for kind, obj in _concerned(cluster, change):
                _release_owner(cluster, kind, obj)
                _collect(cluster, kind, obj)
            _end_namespace(cluster, (change.new or change.old or {})["metadata"].get("namespace", ""))
            if change.new is not None:
                _follow(cluster, change.kind, change.new)


def _follow(cluster: Cluster, kind: Kind, obj: Json) -> None:
    match kind.kind:
        case "Namespace":
            _end_namespace(cluster, obj["metadata"]["name"])
        case "PodDisruptionBudget":
            _count_disruptions(cluster, obj)
        case "ResourceQuota":
            _count_quota(cluster, obj)
        case _:
            pass


def _concerned(cluster: Cluster, change: Change) -> list[tuple[Kind, Json]]:
    """The object itself and its dependents, and the owners that it lost, which may be waiting for that."""
    obj = change.new or change.old or {}
    lost = [uid for uid in _owner_uids(change.old) if uid not in _owner_uids(change.new)]
    concerned = [cluster.storage.by_uid(uid) for uid in (obj["metadata"]["uid"], *lost)]
    return [found for found in concerned if found] + cluster.storage.dependents(obj["metadata"]["uid"])


def _owner_uids(obj: Json | None) -> list[str]:
    return [ref["uid"] for ref in (obj or {}).get("metadata", {}).get("ownerReferences") or ()]


def _collect(cluster: Cluster, kind: Kind, obj: Json) -> None:
    """Delete what lost its last owner; drop references to owners that are gone or wait, while another one stays."""
    references = obj["metadata"].get("ownerReferences") or ()
    current = cluster.storage.get(kind, key_of(obj))
    if not references or current is not obj or "deletionTimestamp" in obj["metadata"]:
        return
    owners = {ref["uid"]: cluster.storage.by_uid(ref["uid"]) for ref in references}
    staying = {uid for uid, owner in owners.items() if owner and not _in_foreground(owner[1])}
    if not staying:
        cluster.delete(kind, obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
    elif len(staying) < len(references):
        _set_owners(cluster, kind, obj, [ref for ref in references if ref["uid"] in staying])


def _set_owners(cluster: Cluster, kind: Kind, obj: Json, references: list[Json]) -> None:
    cluster.storage.put(kind, obj | {"metadata": obj["metadata"] | {"ownerReferences": references}})


def _in_foreground(owner: Json) -> bool:
    return "foregroundDeletion" in (owner["metadata"].get("finalizers") or ())


def _release_owner(cluster: Cluster, kind: Kind, owner: Json) -> None:
    """An owner that waits for its dependents: orphan them, or go once they are gone."""
    finalizers = owner["metadata"].get("finalizers") or ()
    waiting = [name for name in finalizers if name in {"orphan", "foregroundDeletion"}]
    current = cluster.storage.get(kind, key_of(owner))
    if not waiting or "deletionTimestamp" not in owner["metadata"] or current is not owner:
        return
    uid = owner["metadata"]["uid"]
    dependents = cluster.storage.dependents(uid)
    if "orphan" in waiting:
        for other, obj in dependents:
            _set_owners(cluster, other, obj, [ref for ref in obj["metadata"]["ownerReferences"] if ref["uid"] != uid])
    elif dependents:
        return
    remaining = [name for name in finalizers if name not in waiting]
    patch = [{"op": "replace", "path": "/metadata/finalizers", "value": remaining}]
    cluster.patch(kind, owner["metadata"]["name"], owner["metadata"].get("namespace", ""), patch, "json")


def _end_namespace(cluster: Cluster, name: str) -> None:
    """Empty a namespace that is being terminated, and remove it when nothing is left inside."""
    namespaces = cluster.kind("Namespace")
    namespace = cluster.storage.get(namespaces, ("", name))
    if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
        return
    inside = [(kind, obj) for kind, obj in cluster.storage.everything() if obj["metadata"].get("namespace") == name]
    for kind, obj in inside:
        if "deletionTimestamp" not in obj["metadata"]:
            cluster.delete(kind, obj["metadata"]["name"], name)
    if not inside and not namespace["metadata"].get("finalizers"):
        cluster.storage.remove(namespaces, ("", name))


def _count_disruptions(cluster: Cluster, budget: Json) -> Json:
    """The budget with its status of now. Pods alone do not refresh it: only an eviction or a write to it does."""
    kind = cluster.kind("PodDisruptionBudget")
    status = _budget_status(cluster, budget)
    return budget if budget.get("status") == status else cluster.storage.put(kind, budget | {"status": status})


def _budget_status(cluster: Cluster, budget: Json) -> Json:
    pods = _covered(cluster, budget)
    healthy = sum(1 for pod in pods if is_ready(pod))
    spec = budget.get("spec") or {}
    if (unavailable := spec.get("maxUnavailable")) is not None:
        desired = max(0, len(pods) - _scaled(unavailable, len(pods)))
    else:
        desired = _scaled(spec.get("minAvailable", 1), len(pods))
    return {
        "observedGeneration": budget["metadata"]["generation"],
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": len(pods),
        "disruptionsAllowed": max(0, healthy - desired),
    }


def _covered(cluster: Cluster, budget: Json) -> list[Json]:
    selector = (budget.get("spec") or {}).get("selector")
    return [
        pod
        for pod in cluster.storage.all(cluster.kind("Pod"), budget["metadata"]["namespace"])
        if matches_labels(selector, pod["metadata"].get("labels") or {})
    ]


def _scaled(value: int | str, total: int) -> int:
    """A percentage rounds up, as the disruption controller does."""
    return -(-int(value.rstrip("%")) * total // 100) if isinstance(value, str) else value


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def spend_disruption(cluster: Cluster, pod: Json) -> None:
    """Refuse an eviction with 429 unless every budget that covers the pod allows one more disruption."""
    if pod["status"]["phase"] in FINISHED | {"Pending"}:
        return
    budgets = cluster.kind("PodDisruptionBudget")
    labels = pod["metadata"].get("labels") or {}
    for stored in cluster.list(budgets, pod["metadata"]["namespace"]):
        budget = stored
        if not matches_labels((budget.get("spec") or {}).get("selector"), labels):
            continue
        if cluster.run_controllers:
            budget = _count_disruptions(cluster, budget)
        name, status = budget["metadata"]["name"], budget.get("status") or {}
        if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
            _refuse_eviction(f"The disruption budget {name} is still being processed by the server.", retry_after=10)
        if status.get("disruptionsAllowed", 0) <= 0:
            needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            _refuse_eviction(f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently")
        spent = status | {"disruptionsAllowed": status["disruptionsAllowed"] - 1}
        cluster.storage.put(budgets, budget | {"status": spent})


def _refuse_eviction(why: str, retry_after: int | None = None) -> None:
    raise Refusal(
        429,
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": why}]},
        retry_after=retry_after,
    )


def _pods_in_use(cluster: Cluster, namespace: str) -> int:
    return sum(1 for pod in cluster.list(cluster.kind("Pod"), namespace) if pod["status"]["phase"] not in FINISHED)


def _count_quota(cluster: Cluster, quota: Json) -> None:
    """Written when the quota itself changes; what counts for a refusal is counted at that moment."""
    hard = quota.get("spec", {}).get("hard", {})
    if quota.get("status", {}).get("hard") != hard:
        used = {"pods": str(_pods_in_use(cluster, quota["metadata"]["namespace"]))} if "pods" in hard else {}
        cluster.storage.put(cluster.kind("ResourceQuota"), quota | {"status": {"hard": hard, "used": used}})


def enforce_quota(cluster: Cluster, kind: Kind, obj: Json) -> None:
    if kind.resource != "pods":
        return
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    for quota in cluster.list(cluster.kind("ResourceQuota"), namespace):
        hard = quota.get("spec", {}).get("hard", {}).get("pods")
        if hard is None:
            continue
        used = _pods_in_use(cluster, namespace)
        if used + 1 > int(hard):
            limits = f"requested: pods=1, used: pods={used}, limited: pods={hard}"
            raise forbidden(kind, name, f"exceeded quota: {quota['metadata']['name']}, {limits}")

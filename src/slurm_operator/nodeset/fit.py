"""Whether a worker's template fits a Kubernetes Node: selector, required affinity, taints. For DaemonSet mode."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_operator.desired.worker import DAEMON_TOLERATIONS
from slurm_operator.kube.kinds import Node, Taint


@dataclass(frozen=True, slots=True)
class Fit:
    should_run: bool
    """A new worker belongs there."""
    may_stay: bool
    """A worker that is there need not leave."""


def fit(pod_spec: Mapping[str, Any], node: Node) -> Fit:
    """Judges the user's template, plus the tolerations of daemons, against one Node."""
    if not _selected(pod_spec, node):
        return Fit(should_run=False, may_stay=False)
    tolerations = [*(pod_spec.get("tolerations") or ()), *DAEMON_TOLERATIONS]
    refused = {taint.effect for taint in node.spec.taints if not any(_tolerates(t, taint) for t in tolerations)}
    return Fit(should_run=not refused & {"NoSchedule", "NoExecute"}, may_stay="NoExecute" not in refused)


def _selected(pod_spec: Mapping[str, Any], node: Node) -> bool:
    labels = node.metadata.labels
    selector: Mapping[str, str] = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(term: Mapping[str, Any], node: Node) -> bool:
    expressions: Sequence[Mapping[str, Any]] = term.get("matchExpressions") or ()
    fields: Sequence[Mapping[str, Any]] = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    names = {"metadata.name": node.metadata.name}
    return all(_holds(part, node.metadata.labels) for part in expressions) and all(
        _holds(part, names) for part in fields
    )


def _holds(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    value = values.get(expression["key"])
    wanted: Sequence[str] = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _number(value) is not None and int(value or 0) > int(wanted[0])
        case "Lt":
            return _number(value) is not None and int(value or 0) < int(wanted[0])
        case _:
            return False


def _number(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    key = toleration.get("key") or ""
    if toleration.get("operator") == "Exists":
        return key in ("", taint.key)
    return key == taint.key and (toleration.get("value") or "") == taint.value

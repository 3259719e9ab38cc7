"""Does a worker belong on a Node?"""

from typing import Any

import pytest

from slurm_operator.kube.kinds import Taint
from slurm_operator.nodeset.fit import Fit, fit
from tests.unit.nodeset.make import node

YES = Fit(should_run=True, may_stay=True)
NO_NEW = Fit(should_run=False, may_stay=True)
NO = Fit(should_run=False, may_stay=False)


def affinity(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.parametrize(
    ("taint", "tolerations", "wanted"),
    [
        (Taint(key="gpu", effect="NoSchedule"), [], NO_NEW),
        (Taint(key="gpu", effect="NoExecute"), [], NO),
        (Taint(key="gpu", effect="PreferNoSchedule"), [], YES),
        (Taint(key="gpu", effect="NoExecute"), [{"operator": "Exists"}], YES),
        (Taint(key="gpu", effect="NoSchedule"), [{"key": "gpu", "operator": "Exists"}], YES),
        (Taint(key="gpu", value="a", effect="NoExecute"), [{"key": "gpu", "value": "a", "effect": "NoExecute"}], YES),
        (Taint(key="gpu", value="a", effect="NoExecute"), [{"key": "gpu", "value": "b"}], NO),
        (Taint(key="gpu", effect="NoExecute"), [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], NO),
    ],
)
def test_taints(taint: Taint, tolerations: list[dict[str, str]], wanted: Fit) -> None:
    """scenario 69"""
    assert fit({"tolerations": tolerations}, node(taints=(taint,))) == wanted


@pytest.mark.parametrize("key", ["not-ready", "unreachable", "unschedulable"])
def test_a_node_that_is_ill_or_cordoned_keeps_its_worker(key: str) -> None:
    """scenario 70"""
    effect = "NoSchedule" if key == "unschedulable" else "NoExecute"
    assert fit({}, node(taints=(Taint(key=f"node.kubernetes.io/{key}", effect=effect),))) == YES


@pytest.mark.parametrize(
    ("spec", "labels", "wanted"),
    [
        ({}, {}, YES),
        ({"nodeSelector": {"gpu": "h100"}}, {"gpu": "h100"}, YES),
        ({"nodeSelector": {"gpu": "h100"}}, {"gpu": "a100"}, NO),
        (affinity({"key": "gpu", "operator": "In", "values": ["h100"]}), {"gpu": "h100"}, YES),
        (affinity({"key": "gpu", "operator": "NotIn", "values": ["h100"]}), {"gpu": "h100"}, NO),
        (affinity({"key": "gpu", "operator": "Exists"}), {}, NO),
        (affinity({"key": "gpu", "operator": "DoesNotExist"}), {}, YES),
        (affinity({"key": "count", "operator": "Gt", "values": ["4"]}), {"count": "8"}, YES),
        (affinity({"key": "count", "operator": "Lt", "values": ["4"]}), {"count": "8"}, NO),
        (affinity({"key": "count", "operator": "Gt", "values": ["4"]}), {}, NO),
        (affinity(fields=({"key": "metadata.name", "operator": "In", "values": ["k8s-1"]},)), {}, YES),
        (affinity(), {}, NO),
        (affinity({"key": "gpu", "operator": "Nonsense"}), {"gpu": "h100"}, NO),
    ],
)
def test_selector_and_affinity(spec: dict[str, Any], labels: dict[str, str], wanted: Fit) -> None:
    """scenario 67, scenario 79"""
    assert fit(spec, node(labels=labels)) == wanted

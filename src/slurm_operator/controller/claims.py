"""The claim that holds slurmctld's state. Kubernetes never changes the claim templates of a StatefulSet."""

from collections.abc import Mapping
from typing import Any

from slurm_operator.api import Controller
from slurm_operator.api.values import parse_quantity
from slurm_operator.desired.controller import claim_templates
from slurm_operator.kube.kinds import StatefulSet
from slurm_operator.kube.resource import Manifest


def templates_in_force(controller: Controller, live: StatefulSet | None) -> tuple[Manifest, ...] | None:
    """The templates that a StatefulSet was made with, if the Controller asks for others by now; else None."""
    if live is None:
        return None
    made = tuple(_plain(template) for template in live.spec.volume_claim_templates)
    asked = tuple(_plain(template) for template in claim_templates(controller))
    return None if _comparable(made) == _comparable(asked) else made


def _plain(template: Mapping[str, Any]) -> Manifest:
    """As somebody would write it: without what the server fills in."""
    spec = {key: value for key, value in template["spec"].items() if (key, value) != ("volumeMode", "Filesystem")}
    return {"metadata": {"name": template["metadata"]["name"]}, "spec": spec}


def _comparable(value: Any, amount: bool = False) -> Any:
    """The server spells 1024Mi as 1Gi."""
    if isinstance(value, Mapping):
        return {key: _comparable(item, amount or key in ("requests", "limits")) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]
    return parse_quantity(value) if amount else value

"""Fields that users may write and this version does not act on: each is named in a warning and in a condition."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import msgspec

from slurm_operator.api.common import ConfigMapKeySelector, SecretKeySelector
from slurm_operator.api.meta import Spec
from slurm_operator.api.nodeset import NodeSet


@dataclass(frozen=True, slots=True)
class Ignored:
    path: str
    """The field, as in spec.pinToNode."""
    message: str
    """What happens instead, and what to do."""

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


def ignored_fields(obj: object) -> list[Ignored]:
    """Return the fields of a custom resource that are set and have no effect."""
    spec = getattr(obj, "spec", None)
    found = list(_optional_keys(spec, "spec")) if isinstance(spec, Spec) else []
    return [*_of_nodeset(obj), *found] if isinstance(obj, NodeSet) else found


def _of_nodeset(nodeset: NodeSet) -> Iterator[Ignored]:
    spec = nodeset.spec
    daemons = spec.scaling_mode == "DaemonSet"
    if spec.pin_to_node:
        placed = "a worker may return on another Node; use nodeSelector or affinity in template.spec"
        text = "has no effect in DaemonSet mode" if daemons else f"is not implemented: {placed}"
        yield Ignored("spec.pinToNode", text)
    if spec.prune_slurm_node_records != "Never":
        kept = "the record of a worker whose Node is gone stays; use `scontrol delete node`"
        text = f"is not implemented: {kept}" if daemons else "has no effect in StatefulSet mode"
        yield Ignored("spec.pruneSlurmNodeRecords", text)
    retention = spec.persistent_volume_claim_retention_policy
    for field, wish in (("whenDeleted", retention.when_deleted), ("whenScaled", retention.when_scaled)):
        if wish == "Delete":
            text = "is not implemented: PersistentVolumeClaims stay; delete those that are not needed"
            yield Ignored(f"spec.persistentVolumeClaimRetentionPolicy.{field}", text)
    if spec.update_strategy.type == "ScheduledUpdate":
        text = (
            "is not implemented: no maintenance window is opened; delete the pods of outdated workers to replace them"
        )
        yield Ignored("spec.updateStrategy.scheduledUpdate", text)


def _optional_keys(part: Spec, path: str) -> Iterator[Ignored]:
    for name, encoded in _fields(type(part)):
        value = getattr(part, name)
        if isinstance(value, SecretKeySelector | ConfigMapKeySelector):
            if value.optional:
                yield Ignored(f"{path}.{encoded}.optional", "has no effect: the key must exist")
        elif isinstance(value, Spec):
            yield from _optional_keys(value, f"{path}.{encoded}")


@cache
def _fields(kind: type[Spec]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))

"""Values that only the machinery reads: managers of fields, objects as metadata alone, conditions of other programs.

The base of every projection and the metadata of all objects live in `api.meta`, as users' kinds need them too.
"""

from typing import Any

import msgspec
from msgspec.structs import force_setattr

from slurm_operator.api.meta import Model, ObjectMeta, OwnerReference, intern_fields, shared, shared_each

__all__ = [
    "ChildMeta",
    "Condition",
    "ManagedFields",
    "Model",
    "ObjectMeta",
    "OwnerReference",
    "Partial",
    "find_condition",
    "intern_fields",
    "shared",
    "shared_conditions",
    "shared_each",
]


class ManagedFields(Model):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: dict[str, Any] = msgspec.field(name="fieldsV1", default_factory=dict)


class ChildMeta(ObjectMeta):
    """Metadata of the kinds we apply: who set which field tells drift apart from rest (see apply.py)."""

    managed_fields: tuple[ManagedFields, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        applied = tuple(entry for entry in self.managed_fields if entry.operation == "Apply" and not entry.subresource)
        force_setattr(self, "managed_fields", applied)


class Partial(Model):
    """Any object, read as its metadata alone."""

    metadata: ChildMeta = ChildMeta()


class Condition(Model):
    """A condition of a Kubernetes object, which any program may set.

    The API server accepts any text as the status of a condition of a Pod or a Node. The conditions of this project's
    own kinds have a stricter type, `api.common.Condition`, because their CRDs are made from it.
    """

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None

    @property
    def is_true(self) -> bool:
        return self.status == "True"


def shared_conditions(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Conditions rarely agree in their times, but always in their words."""
    for condition in conditions:
        intern_fields(condition, "type", "status", "reason", "message", "last_transition_time")
    return shared_each(conditions)


def find_condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type_), None)

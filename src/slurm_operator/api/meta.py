"""The base of every type that is read from Kubernetes, and the metadata that all objects share.

Values are frozen, hold only what we read and share what is equal: ten thousand pods repeat the same owner, labels
and conditions, and kept once they cost a fifth. Strings are interned by the interpreter (which forgets unused
ones); values go through a bounded table.
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from sys import intern
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, dataclass_transform

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr

T = TypeVar("T")

if TYPE_CHECKING:
    OrDefault = Annotated[T, ...]
    Nullable = Annotated[T, ...]
    Required = Annotated[T, ...]
    Defaulted = Annotated[T, ...]
else:
    # What decodes is `T | None`; `Spec` turns None into the default, so that no reader ever meets it.

    OrDefault = T | None
    """The default exists only in this type: the stored object stays as the user wrote it."""
    Nullable = Annotated[T | None, Meta(extra={"nullable": True})]
    """The API server stores a null as it is instead of dropping it."""
    Required = Annotated[T | None, Meta(extra={"x-required": True})]
    """The API server refuses an object without it; here it still loads, so that one old object stops nothing."""
    Defaulted = Annotated[T | None, Meta(extra={"x-default": True})]
    """The API server writes the default into the stored object."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A value decoded from the API. Unknown fields are skipped, absent ones take their default."""


@lru_cache(maxsize=2048)
def _first_equal(value: Any) -> Any:
    return value


def shared(value: T) -> T:
    """An equal value that may already be held elsewhere; `value` must be hashable."""
    found: T = _first_equal(value)
    return found


def shared_each(values: tuple[T, ...]) -> tuple[T, ...]:
    """The tuple is shared if all of it was seen before, else its items are."""
    return shared(tuple(map(shared, values))) if values else ()


def intern_fields(obj: Model, *names: str) -> None:
    """To be called while the value is being made, before anyone else sees it."""
    for name in names:
        value = getattr(obj, name)
        if value:
            force_setattr(obj, name, intern(value))


class OwnerReference(Model):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Model):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    kept_annotations: ClassVar[tuple[str, ...]] = ("slinky.slurm.net/", "kubectl.kubernetes.io/restartedAt")
    """Annotations whose key contains one of these survive decoding; a subclass may keep more."""

    def __post_init__(self) -> None:
        intern_fields(self, "name", "namespace", "creation_timestamp")
        force_setattr(self, "labels", {intern(key): intern(value) for key, value in self.labels.items()})
        if self.annotations:
            kept = {
                intern(key): intern(value)
                for key, value in self.annotations.items()
                if any(part in key for part in self.kept_annotations)
            }
            force_setattr(self, "annotations", kept)
        force_setattr(self, "owner_references", shared_each(self.owner_references))
        if self.finalizers:
            force_setattr(self, "finalizers", shared(self.finalizers))

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages this object."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def terminating(self) -> bool:
        return self.deletion_timestamp is not None


class Spec(Model, gc=True):
    """A part that users write: `null` counts as absent wherever a field has a default."""

    def __post_init__(self) -> None:
        for name, make in _defaults(type(self)):
            if getattr(self, name) is None:
                force_setattr(self, name, make())


@cache
def _defaults(kind: type[Struct]) -> tuple[tuple[str, Callable[[], Any]], ...]:
    """Fields that never stay None, each with what makes its default."""
    return tuple(
        (field.name, partial(_identity, field.default) if field.default_factory is msgspec.NODEFAULT else factory)
        for field in msgspec.structs.fields(kind)
        if (factory := field.default_factory) is not msgspec.NODEFAULT or field.default not in (None, msgspec.NODEFAULT)
    )


def _identity(value: T) -> T:
    return value


def without_nulls(value: Any) -> Any:
    """A copy of decoded YAML or JSON in which no mapping has a null value, as the API server prunes them."""
    if isinstance(value, str):  # nearly everything is
        return value
    if type(value) is dict or isinstance(value, Mapping):  # the second is slow, and seldom needed
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(item) for item in value]
    return value

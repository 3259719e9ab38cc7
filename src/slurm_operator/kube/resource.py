"""Where a kind lives in the API, and which projection its objects decode into."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

Manifest = dict[str, Any]
"""What we write: plain dictionaries. What we read are projections, and those never travel back."""

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""


class Meta(Protocol):
    """The part of an object's metadata that the machinery itself needs."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class Object(Protocol):
    """Any projection of a Kubernetes object."""

    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=Object)


def key_of(obj: Object) -> Key:
    return obj.metadata.namespace, obj.metadata.name


def version_of(obj: Object) -> int:
    """Kubernetes defines resource versions of one resource as comparable integers."""
    return int(obj.metadata.resource_version)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    group: str
    version: str
    kind: str
    plural: str
    type: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def label(self) -> str:
        """The name that people and RBAC rules use: `statefulsets.apps`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        parts = ["/apis" if self.group else "/api", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name!r}: a namespaced object needs a namespace")
        parts += [self.plural, *filter(None, (name, subresource))]
        return "/".join(parts)

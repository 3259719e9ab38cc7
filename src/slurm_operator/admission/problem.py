"""What is said about an object, always with the place it is about."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an object is refused."""

    path: str
    """Where, as in spec.template.spec.containers[0].name."""
    message: str
    """What is wrong."""
    hint: str = ""
    """What to write instead."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}: {self.hint}" if self.hint else f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Warn:
    """Something that works but is unwise, or is ignored."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the cluster says about objects that a manifest refers to; what is not listed is not judged."""

    config_maps: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """Keys of each ConfigMap; None if it does not exist."""
    claims: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """Access modes of each PersistentVolumeClaim; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Names, in the object's namespace, that Facts should tell about."""

    config_maps: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()

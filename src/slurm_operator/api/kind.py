"""What the API server must know of a kind beside its schema, and what all six kinds have in common."""

from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

from slurm_operator.api.meta import ObjectMeta, Spec
from slurm_operator.api.names import API_VERSION
from slurm_operator.api.rules import Rule


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; those of priority 1 show only with `-o wide`."""

    name: str
    path: str
    type: Literal["integer", "string", "date"] = "integer"
    priority: Literal[0, 1] = 0


AGE = Column("AGE", ".metadata.creationTimestamp", "date")
READY = Column("READY", '.status.conditions[?(@.type=="Ready")].status', "string")
STATUS = Column("STATUS", '.status.conditions[?(@.type=="Ready")].reason', "string", priority=1)
WAITING = Column("WAITING", '.status.conditions[?(@.type=="Progressing")].message', "string")
"""What is waited for. The last column, since it is long."""

NEEDS_SPEC = Rule(
    cel="has(self.spec)",
    holds=lambda raw: raw.get("spec") is not None,
    message="spec is missing",
    hint="say what should run",
    path=".spec",
    reason="FieldValueRequired",
)


class UserMeta(ObjectMeta):
    """Metadata of a custom resource: all annotations are kept, as the children inherit them."""

    kept_annotations: ClassVar[tuple[str, ...]] = ("",)


class Object(Spec):
    """The frame of a custom resource."""

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules on whole objects beyond NEEDS_SPEC, which is asked of the object as it was written."""

    metadata: UserMeta = UserMeta()
    api_version: str = API_VERSION

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.metadata.namespace, self.metadata.name)


T = TypeVar("T", bound=Object, covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Generic[T]):
    """One custom resource. There is one of each, so a kind equals itself alone."""

    type: type[T]
    plural: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    scalable: bool = False
    """Whether `kubectl scale` and autoscalers may set its replicas."""

    @property
    def name(self) -> str:
        return self.type.__name__

    @property
    def singular(self) -> str:
        return self.name.lower()

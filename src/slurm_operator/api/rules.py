"""The rules of the API, each once: in CEL for the API server, in Python for offline checks, with one message.

A rule hangs on a type (`rules` in the class) or on a field (`Annotated[..., checked(RULE)]`). The two
forms stand side by side so that a reader sees that they agree; a test on a real API server proves it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Meta

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold for a value, and what a user is told when it does not."""

    cel: str
    message: str
    """What is wrong."""
    hint: str
    """What to write instead."""
    holds: Callable[..., bool]
    """Takes the value; a rule about changes takes the new and the old value."""
    path: str = ""
    """Where the trouble is, below the value: `.clusterName`."""
    reason: Reason = "FieldValueInvalid"
    about_change: bool = field(init=False)
    """Whether it compares with the stored object, so that it holds on creation."""

    @property
    def text(self) -> str:
        """Both in one sentence, as the API server prints it."""
        return f"{self.message}: {self.hint}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "about_change", "oldSelf" in self.cel)


def checked(*rules: Rule, **schema: Any) -> Meta:
    """Annotation of a field: its rules, and further OpenAPI keywords."""
    return Meta(extra={**schema, "x-rules": rules} if rules else schema)

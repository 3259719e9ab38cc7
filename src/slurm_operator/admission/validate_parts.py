"""All that is wrong with an object at once: a part that does not fit the schema hides nothing in the other parts.

The API server stops after the schema. A person who checks a file would have to correct and try again, part by part.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from slurm_operator.admission.defaults import Manifest, admitted
from slurm_operator.admission.problem import Facts, Problem, Warn
from slurm_operator.admission.validate import judged, shape_problems, validate
from slurm_operator.admission.validate_schema import schema_problems
from slurm_operator.admission.warnings import warnings
from slurm_operator.api import Kind, Object
from slurm_operator.api.crd import Schema, schema

_NOTHING = object()


def judge_parts(kind: Kind[Object], new: Manifest, facts: Facts) -> tuple[list[Problem], list[Warn]]:
    """Return every reason to refuse a new object, and what is unwise in the parts of it that fit the schema."""
    if not (shape := shape_problems(kind, new)):
        return validate(kind, new, None, facts), warnings(kind, new, facts)
    fitting = admitted(kind, _fitting_object(kind, new, shape))
    problems = [found for found in judged(kind, fitting, None, facts) if not _follows(found.path, shape)]
    unwise = [found for found in warnings(kind, fitting, facts) if not _follows(found.path, shape)]
    return [*shape, *problems], unwise


def _fitting_object(kind: Kind[Object], new: Manifest, shape: Sequence[Problem]) -> Manifest:
    stored = admitted(kind, new)
    named = stored["metadata"] if isinstance(stored["metadata"], dict) else {}
    metadata = {name: value for name, value in named.items() if not _follows(f"metadata.{name}", shape)}
    found = _fitting(schema(kind), {**stored, "metadata": metadata})
    return found if isinstance(found, dict) else {}


def _fitting(node: Schema, value: Any) -> Any:
    """Return the value without the fields that do not fit, or _NOTHING. A list fits as a whole: its indexes count."""
    if isinstance(value, dict) and node.get("type") == "object":
        fields: Schema = node.get("properties", {})
        parts = {
            name: _fitting(child, item) if (child := fields.get(name, node.get("additionalProperties"))) else item
            for name, item in value.items()
        }
        return {name: part for name, part in parts.items() if part is not _NOTHING}
    return _NOTHING if any(schema_problems(node, value)) else value


def _follows(path: str, shape: Iterable[Problem]) -> bool:
    """Return whether a place is, contains or lies within one that does not fit: that may be the only cause."""
    return any(_within(path, part.path) or _within(part.path, path) for part in shape)


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))

"""Objects for fuzzing: made from the schema, or good ones with something broken."""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from slurm_operator.api import Kind, Object
from slurm_operator.api.crd import Schema, schema
from tests.unit.admission.examples import Manifest

ODD_TEXTS = ["", "0", "a", "a b", "a\nb", "#", "\\", "'", "é", "\x00", "25%", "0%", "1h", "-", "a-", "../a", "a=b"]
ODD_NUMBERS = [0.5, -2.5e300, 2**31, 2**63, -(2**70)]
SCALARS = st.one_of(
    st.sampled_from(ODD_TEXTS),
    st.sampled_from(ODD_NUMBERS),
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=4),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["name", "args", "env", "containers", "ports", "", "resources"]), inner, max_size=2
        ),
    ),
    max_leaves=4,
)


def fitting(node: Schema) -> st.SearchStrategy[Any]:
    """Values of the right type for a schema; rules and patterns may still refuse them."""
    match node.get("type"):
        case "object" if node.get("properties"):
            return _objects(node)
        case "object" if "additionalProperties" in node:
            return st.dictionaries(
                st.sampled_from(["a", "b/c", "d e"]), fitting(node["additionalProperties"]), max_size=2
            )
        case "object":
            return st.dictionaries(st.sampled_from(["image", "args", "env", "name", "x"]), JUNK, max_size=3)
        case "array":
            return st.lists(fitting(node["items"]), max_size=2)
        case "boolean":
            return st.booleans()
        case "integer":
            return st.sampled_from([0, 1, -1, 22, 6817, 65536, 2**31])
        case _ if "enum" in node:
            return st.sampled_from([*node["enum"], "Other"])
        case _:
            texts = st.sampled_from([*ODD_TEXTS, "2030-01-31T22:00:00Z", "slurm", "x" * 300])
            return st.one_of(st.integers(-1, 5), texts) if node.get("x-kubernetes-int-or-string") else texts


def _objects(node: Schema) -> st.SearchStrategy[Any]:
    required = {name: fitting(node["properties"][name]) for name in node.get("required", ())}
    optional = {
        name: st.one_of(st.none(), fitting(child)) for name, child in node["properties"].items() if name not in required
    }
    return st.fixed_dictionaries(required, optional=optional)


def whole(kind: Kind[Object]) -> st.SearchStrategy[Manifest]:
    metadata = st.fixed_dictionaries({"name": st.sampled_from(["a", "A", "", "a" * 70, "1"])})
    spec = st.one_of(st.none(), fitting(schema(kind)["properties"]["spec"]))
    return st.fixed_dictionaries({"metadata": metadata}, optional={"spec": spec})


def broken(obj: Any, steps: list[int], junk: Any) -> Any:
    """A copy with one value somewhere replaced, found by following the steps."""
    copy = deepcopy(obj)
    place: Any = copy
    for step in steps:
        keys = list(place) if isinstance(place, dict) else range(len(place)) if isinstance(place, list) else ()
        if not keys:
            return copy
        key = keys[step % len(keys)]
        if step is steps[-1] or not isinstance(place[key], dict | list) or not place[key]:
            place[key] = junk
            return copy
        place = place[key]
    return copy

"""Objects made from the schema, and good ones with something broken: nothing crashes, every refusal says where.

`FUZZ_CASES=1000000 pytest tests/unit/admission/test_rules_fuzz.py` looks longer.
"""

import json
import os
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_operator.admission.defaults import admitted, default_patch
from slurm_operator.admission.problem import Facts
from slurm_operator.admission.validate import load, validate
from slurm_operator.admission.validate_parts import judge_parts
from slurm_operator.admission.validate_schema import schema_problems, unknown_fields
from slurm_operator.admission.warnings import warnings
from slurm_operator.api import KINDS, Kind, Object
from slurm_operator.api.crd import schema
from tests.unit.admission.cases import CASES
from tests.unit.admission.examples import Manifest
from tests.unit.admission.fuzz import JUNK, broken, whole

CASES_PER_TEST = int(os.environ.get("FUZZ_CASES", "10000")) // (2 * len(KINDS))


def check(kind: Kind[Object], new: Manifest, old: Manifest | None, facts: Facts) -> None:
    """What must hold for any input at all."""
    before = json.dumps(new, sort_keys=True, default=repr)
    problems = validate(kind, new, old, facts)
    assert all(problem.path and problem.message and problem.hint for problem in problems)
    assert all(warning.path and warning.message for warning in warnings(kind, new, facts))
    if old is None:
        found, _ = judge_parts(kind, new, facts)
        assert set(problems) <= set(found), "a file is told what the webhook says, and maybe more"
        assert bool(problems) == bool(found)
    assert all(operation["path"].startswith("/spec/") for operation in default_patch(kind, new))
    assert json.dumps(new, sort_keys=True, default=repr) == before, "the object was changed"
    stored = admitted(kind, new)
    nothing_to_say = not [*schema_problems(schema(kind), stored), *unknown_fields(schema(kind), stored)]
    assert stored.fits == nothing_to_say, "the quick check and the thorough one differ"
    if not problems:
        assert load(kind, stored) == load(kind, admitted(kind, dict(stored)))
    if isinstance(new.get("spec"), dict) and not list(schema_problems(schema(kind), stored)):
        named = load(kind, {**stored, "metadata": {"name": "a"}})
        assert named.metadata.name == "a", "what fits the schema loads"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_objects_made_from_the_schema(kind: Kind[Object]) -> None:
    facts = Facts(config_maps={"a": None, "slurm": frozenset({"slurm.conf"})}, claims={"a": frozenset()})

    @settings(max_examples=CASES_PER_TEST)
    @given(new=whole(kind), old=st.one_of(st.none(), whole(kind)))
    def run(new: Manifest, old: Manifest | None) -> None:
        check(kind, new, old, facts)

    run()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_good_objects_with_something_broken(kind: Kind[Object]) -> None:
    good = [case.new for case in CASES if case.kind == kind.name and case.verdict == "accepted"]

    @settings(max_examples=CASES_PER_TEST)
    @given(st.sampled_from(good), st.lists(st.integers(0, 9), min_size=1, max_size=7), JUNK, st.sampled_from(good))
    def run(base: Manifest, steps: list[int], junk: Any, old: Manifest) -> None:
        new = broken(base, steps, junk)
        check(kind, new, None, Facts())
        check(kind, new, old, Facts())

    run()


@pytest.mark.parametrize("text", ["null", "7", '"x"', "[]", '{"spec": []}', '{"metadata": [], "spec": {}}'])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_the_wire_may_not_carry(kind: Kind[Object], text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected"):
        msgspec.json.decode(text, type=kind.type)

"""Every row of the table, judged without an API server."""

import pytest

from slurm_operator.admission.validate import validate
from tests.unit.admission.cases import CASES
from tests.unit.admission.examples import BY_NAME, Case


def test_the_table_is_long_and_its_rows_differ() -> None:
    names = [str(case) for case in CASES]
    assert len(names) >= 150
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_verdict(case: Case) -> None:
    """scenarios 139, 145, 158, 173, 180, 189, 190"""
    problems = validate(BY_NAME[case.kind], case.new, case.old)
    if case.verdict == "accepted":
        assert problems == []
    else:
        assert case.path in [problem.path for problem in problems]
        assert all(problem.hint for problem in problems)

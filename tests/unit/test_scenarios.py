"""The comparison of the table of scenarios with the tests: what it finds, and that the real table passes."""

from pathlib import Path
from textwrap import dedent

import pytest

from tests import scenarios
from tests.scenarios import Scenario, citations, find_tests, load, main, problems_of, report

TESTS = {
    "unit/test_a.py": '''
        def test_plain(): ...
        class TestIt:
            async def test_inside(self):
                """scenario 2"""
        def helper():
            """scenario 9"""
        ''',
    "kube/test_b.py": '''
        def test_server():
            """Says what it does.

            scenarios 1, 2 and 3: and more words.
            """
        ''',
    "e2e/test_c.py": """
        import pytest
        @pytest.mark.long
        def test_slow(): ...
        @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.long)])
        def test_quick(x): ...
        """,
    "e2e/test_d.py": """
        import pytest
        pytestmark = [pytest.mark.long, pytest.mark.timeout(9)]
        def test_day(): ...
        """,
}
SERVER = "kube/test_b.py::test_server"
INSIDE = "unit/test_a.py::TestIt::test_inside"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TESTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dedent(text))
    return tmp_path


def row(number: int, ring: str, *tests: str, partial: str = "", expected: str = "") -> Scenario:
    return Scenario(number, "a title", ring, tests, partial, expected)


GOOD = [row(1, "kube", SERVER), row(2, "unit", INSIDE, SERVER), row(3, "e2e", SERVER, partial="real Slurm")]


def problems(folder: Path, *rows: Scenario) -> list[str]:
    """What is wrong with a table that has these rows in place of the good ones of the same number."""
    table = {found.number: found for found in (*GOOD, *rows)}
    return list(problems_of(table.values(), find_tests(folder)))


def test_tests_are_found_with_their_ring(folder: Path) -> None:
    assert {name: test.ring for name, test in find_tests(folder).items()} == {
        "unit/test_a.py::test_plain": "unit",
        INSIDE: "unit",
        SERVER: "kube",
        "e2e/test_c.py::test_slow": "long",
        "e2e/test_c.py::test_quick": "e2e",
        "e2e/test_d.py::test_day": "long",
    }


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("scenario 5", {5}),
        ("Some words. scenario 5, scenario 61", {5, 61}),
        ("scenarios 1, 2, and 30 and 4: and 5 more", {1, 2, 30, 4}),
        ("scenario 7\n    and 8", {7, 8}),
        ("the scenario of 5 nodes", set()),
        ("", set()),
    ],
)
def test_citations(text: str, numbers: set[int]) -> None:
    assert citations(text) == numbers


def test_a_table_that_agrees_has_no_problems(folder: Path) -> None:
    assert problems(folder) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (row(4, "unit", "unit/test_a.py::test_gone"), "scenario 4: there is no test unit/test_a.py::test_gone"),
        (row(4, "unit", "unit/test_a.py::test_inside"), "scenario 4: there is no test unit/test_a.py::test_inside"),
        (row(4, "unit", "unit/test_a.py::helper"), "scenario 4: there is no test unit/test_a.py::helper"),
        (row(4, "kube", "unit/test_a.py::test_plain"), "scenario 4: it asks for the ring kube"),
        (row(4, "e2e", SERVER), "scenario 4: it asks for the ring e2e"),
        (row(4, "e2e", "e2e/test_c.py::test_slow"), "scenario 4: it asks for the ring e2e"),
        (row(4, "unit"), "scenario 4: it needs either tests"),
        (row(4, "unit", SERVER, expected="later"), "scenario 4: it needs either tests"),
        (row(4, "moon", SERVER), "scenario 4: its ring 'moon' is none of"),
        (row(4, "unit", SERVER, SERVER), "scenario 4: it names a test twice"),
        (Scenario(4, "", "unit", (SERVER,)), "scenario 4: it has no title"),
        (row(2, "unit", SERVER), f"{INSIDE} cites scenario 2, whose row does not name it"),
    ],
)
def test_what_disagrees_is_named(folder: Path, wrong: Scenario, says: str) -> None:
    (found,) = problems(folder, wrong)
    assert found.startswith(says)


@pytest.mark.parametrize(
    "good",
    [
        row(4, "unit", SERVER),
        row(4, "kube", "e2e/test_c.py::test_quick"),
        row(4, "long", "e2e/test_d.py::test_day"),
        row(4, "e2e", "unit/test_a.py::test_plain", "e2e/test_c.py::test_quick"),
        row(4, "e2e", "e2e/test_c.py::test_slow", partial="in CI"),
        row(4, "e2e", expected="later"),
    ],
)
def test_what_is_enough(folder: Path, good: Scenario) -> None:
    assert problems(folder, good) == []


def test_a_citation_of_no_scenario(folder: Path) -> None:
    tests = find_tests(folder)
    assert list(problems_of(GOOD[1:], tests)) == [f"{SERVER} cites scenario 1, which is not in the table"]


def test_the_form_of_the_table(tmp_path: Path) -> None:
    table = tmp_path / "table.toml"
    table.write_text('[2]\ntitle = "b"\nring = "unit"\ntest = []\n[1]\ntitle = "a"\nring = "kube"\nexpected = "x"\n')
    rows, wrong = load(table)
    assert [found.number for found in rows] == [2, 1]
    assert wrong == [
        "scenario 2: unknown fields: test",
        "the scenarios are not in the order of their numbers",
    ]


def test_what_is_missing_is_listed_with_the_work_that_brings_it() -> None:
    rows = [*GOOD, row(4, "e2e", expected="GPUs"), row(5, "unit", expected="GPUs"), row(6, "unit", expected="login")]
    assert list(report(rows, verbose=False)) == [
        "scenarios: 2 proven, 1 in part, 3 without a test",
        "  without a test until GPUs: 4, 5",
        "  without a test until login: 6",
    ]
    assert "  3 (e2e) in part: a title; missing: real Slurm" in report(rows, verbose=True)


def test_the_table_agrees_with_the_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0, capsys.readouterr().err
    assert capsys.readouterr().err == ""


def test_disagreement_fails_the_check(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scenarios, "FOLDER", folder)
    assert main(["-v"]) == 1
    assert "there is no test unit/runtime/test_execute.py::" in capsys.readouterr().err

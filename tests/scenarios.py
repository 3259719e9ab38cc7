"""Compares the table of scenarios with the tests: `python -m tests.scenarios`, a part of `make check`.

Each test that the table names must exist, in the ring where the scenario has to be proven, and a test that cites a
scenario in its docstring must be named there. Nothing is imported or run: the files are only parsed.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
TABLE = FOLDER / "scenarios.toml"
RINGS: Mapping[str, frozenset[str]] = {
    "unit": frozenset({"unit", "simulation", "kube", "e2e"}),
    "kube": frozenset({"kube", "e2e"}),
    "e2e": frozenset({"e2e"}),
    "long": frozenset({"e2e", "long"}),
}
"""Rings in which a scenario may be proven, by the ring that it asks for."""
_FIELDS = frozenset({"title", "ring", "tests", "partial", "expected"})
_CITATION = re.compile(r"\bscenarios? (\d+(?:(?:, and |, | and )(?:scenario )?\d+)*)")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table."""

    number: int
    title: str
    ring: str
    tests: tuple[str, ...] = ()
    partial: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Test:
    """A test function, found by its place in a file."""

    name: str
    """File below the folder of the tests, class and function, as pytest writes them."""
    ring: str
    cited: frozenset[int]


def load(table: Path) -> tuple[list[Scenario], list[str]]:
    """Return the rows of the table, and what is wrong with their form."""
    rows: list[Scenario] = []
    problems: list[str] = []
    for number, row in tomllib.loads(table.read_text(encoding="utf-8")).items():
        if unknown := sorted(row.keys() - _FIELDS):
            problems.append(f"scenario {number}: unknown fields: {', '.join(unknown)}")
        known = {name: value for name, value in row.items() if name in _FIELDS - {"tests", "title", "ring"}}
        tests = tuple(row.get("tests", ()))
        rows.append(Scenario(int(number), row.get("title", ""), row.get("ring", ""), tests, **known))
    if [row.number for row in rows] != sorted(row.number for row in rows):
        problems.append("the scenarios are not in the order of their numbers")
    return rows, problems


def find_tests(folder: Path) -> dict[str, Test]:
    """Return all tests below a folder by their names."""
    found = (test for file in sorted(folder.rglob("test_*.py")) for test in _tests_in(file, folder))
    return {test.name: test for test in found}


def _tests_in(file: Path, folder: Path) -> Iterator[Test]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    path = file.relative_to(folder)
    marks = (ast.unparse(part.value) for part in tree.body if isinstance(part, ast.Assign) and _is_marking(part))
    all_long = any("mark.long" in mark for mark in marks)
    for name, function in _functions(tree.body):
        is_long = all_long or any(_dotted(mark) == "mark.long" for mark in function.decorator_list)
        cited = citations(ast.get_docstring(function) or "")
        yield Test(f"{path.as_posix()}::{name}", "long" if is_long else path.parts[0], cited)


def _is_marking(assignment: ast.Assign) -> bool:
    return [ast.unparse(target) for target in assignment.targets] == ["pytestmark"]


def _dotted(decorator: ast.expr) -> str:
    return ast.unparse(decorator).removeprefix("pytest.")


def _functions(
    body: Iterable[ast.stmt], prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for part in body:
        if isinstance(part, ast.ClassDef):
            yield from _functions(part.body, f"{prefix}{part.name}::")
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name.startswith("test_"):
            yield f"{prefix}{part.name}", part


def citations(docstring: str) -> frozenset[int]:
    """Return the numbers of the scenarios that a docstring says its test is about."""
    texts = (found[1] for found in _CITATION.finditer(" ".join(docstring.split())))
    return frozenset(int(number) for text in texts for number in re.findall(r"\d+", text))


def problems_of(rows: Iterable[Scenario], tests: Mapping[str, Test]) -> Iterator[str]:
    """Yield where the table and the tests disagree."""
    named: dict[int, frozenset[str]] = {}
    for row in rows:
        named[row.number] = frozenset(row.tests)
        yield from (f"scenario {row.number}: {text}" for text in _problems_of_row(row, tests))
    for test in tests.values():
        for number in sorted(test.cited):
            if number not in named:
                yield f"{test.name} cites scenario {number}, which is not in the table"
            elif test.name not in named[number]:
                yield f"{test.name} cites scenario {number}, whose row does not name it"


def _problems_of_row(row: Scenario, tests: Mapping[str, Test]) -> Iterator[str]:
    if not row.title:
        yield "it has no title"
    if row.ring not in RINGS:
        yield f"its ring {row.ring!r} is none of {', '.join(RINGS)}"
        return
    for name in row.tests:
        if name not in tests:
            yield f"there is no test {name}"
    if len(set(row.tests)) < len(row.tests):
        yield "it names a test twice"
    if bool(row.expected) == bool(row.tests):
        yield "it needs either tests, or `expected` with the work that brings them"
    rings = {tests[name].ring for name in row.tests if name in tests}
    if rings and not row.partial and rings.isdisjoint(RINGS[row.ring]):
        yield f"it asks for the ring {row.ring}, and its tests are in {', '.join(sorted(rings))}: say so in `partial`"


def report(rows: Iterable[Scenario], *, verbose: bool) -> Iterator[str]:
    """Yield how many scenarios are proven, and those that are not by the work that brings them."""
    whole = [row for row in rows if row.tests and not row.partial]
    parts = [row for row in rows if row.tests and row.partial]
    missing: dict[str, list[Scenario]] = defaultdict(list)
    for row in rows:
        if not row.tests:
            missing[row.expected].append(row)
    count = sum(map(len, missing.values()))
    yield f"scenarios: {len(whole)} proven, {len(parts)} in part, {count} without a test"
    for work, found in sorted(missing.items(), key=lambda item: item[1][0].number):
        yield f"  without a test until {work}: {', '.join(str(row.number) for row in found)}"
        if verbose:
            yield from (f"    {row.number} ({row.ring}): {row.title}" for row in found)
    if verbose:
        yield from (f"  {row.number} ({row.ring}) in part: {row.title}; missing: {row.partial}" for row in parts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="name what is missing in each scenario")
    options = parser.parse_args(arguments)
    rows, problems = load(TABLE)
    problems += problems_of(rows, find_tests(FOLDER))
    for problem in problems:
        print(f"tests/scenarios.toml: {problem}", file=sys.stderr)
    print("\n".join(report(rows, verbose=options.verbose)))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

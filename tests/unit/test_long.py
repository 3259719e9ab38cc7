"""The two tiers of tests: `long` ones run on request only, and a run goes on where the one before stopped."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str]]

TESTS = """
from pathlib import Path
import pytest

def test_short():
    pass

@pytest.mark.long
def test_first():
    pass

@pytest.mark.long
def test_second():
    assert Path("cured").exists()

@pytest.mark.long
def test_third():
    if Path("interrupt").exists():
        raise KeyboardInterrupt
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest in a repository with a short and three long tests; return its exit code and output."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("tests.long",)\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / ".gitignore").write_text("__pycache__/\n.pytest_cache/\ncured\ninterrupt\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "tests")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    project = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": project, "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout

    return run


def ran(output: str) -> list[str]:
    return [line.split("::")[1].split()[0] for line in output.splitlines() if line.startswith("[")]


def test_long_tests_run_on_request_only(run: Run) -> None:
    code, output = run()
    assert (code, ran(output)) == (0, [])
    assert "1 passed, 3 deselected" in output


def test_a_failed_run_goes_on_with_what_did_not_pass(run: Run, tmp_path: Path) -> None:
    code, output = run("--long")
    assert (code, ran(output)) == (1, ["test_first", "test_second", "test_third"])
    assert "3 long tests: 3 to run" in output
    assert "[2 of 3] test_it.py::test_second ..." in output
    assert "did not pass after 0 s, 1 left" in output

    (tmp_path / "cured").touch()
    code, output = run("--long")
    assert (code, ran(output)) == (0, ["test_second"])
    assert "3 long tests, 2 of them passed before on these files (FRESH=1 repeats them): 1 to run" in output

    code, output = run("--long")
    assert (code, ran(output)) == (0, []), "all have passed"
    code, output = run("--long", "--fresh", "-k", "first")
    assert (code, ran(output)) == (0, ["test_first"])


def test_an_interrupted_run_forgets_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cured").touch()
    (tmp_path / "interrupt").touch()
    code, output = run("--long")
    assert code == pytest.ExitCode.INTERRUPTED
    (tmp_path / "interrupt").unlink()
    code, output = run("--long")
    assert (code, ran(output)) == (0, ["test_third"])


def test_other_files_are_tested_anew(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cured").touch()
    assert run("--long")[0] == 0
    (tmp_path / "new.py").write_text("")
    assert ran(run("--long")[1]) == ["test_first", "test_second", "test_third"]


def test_a_name_that_fits_no_long_test_fails(run: Run) -> None:
    assert run("--long", "-k", "short")[0] == pytest.ExitCode.NO_TESTS_COLLECTED

"""Tests marked `long` are too long for CI: deselected by default, run with `--long`, which can be resumed.

A test that passed is not run again until the content of the work tree changes; `--fresh` starts over. What passed is
kept in pytest's cache and written after each test, so that any interruption is harmless.
"""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

STATE = "long/passed"
HEARTBEAT_SECONDS = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("long tests")
    group.addoption("--long", action="store_true", help="run the tests marked `long` that have not passed yet")
    group.addoption("--fresh", action="store_true", help="with --long: run those that have passed, too")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LongTests(config) if config.getoption("--long") else ShortTests(config))


def select(config: pytest.Config, items: list[pytest.Item], chosen: Sequence[pytest.Item]) -> None:
    others = [item for item in items if item not in chosen]
    if others:
        config.hook.pytest_deselected(items=others)
    items[:] = chosen


def work_tree(folder: Path) -> str:
    """Return git's hash of all files as they are now, committed or not, without those that git ignores."""
    with tempfile.TemporaryDirectory() as temporary:
        index = {**os.environ, "GIT_INDEX_FILE": str(Path(temporary) / "index")}
        for command in (("read-tree", "HEAD"), ("add", "--all")):
            subprocess.run(["git", *command], cwd=folder, env=index, check=True, capture_output=True)
        written = subprocess.run(["git", "write-tree"], cwd=folder, env=index, check=True, capture_output=True)
    return written.stdout.decode().strip()


def spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class ShortTests:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        select(self._config, items, [item for item in items if item.get_closest_marker("long") is None])


class LongTests:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tree = work_tree(config.rootpath)
        self._passed: set[str] = set()
        self._known = 0
        self._left: list[str] = []
        self._failed = False
        self._began = time.monotonic()
        self._ended = threading.Event()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        state = self._config.cache.get(STATE, {})
        if state.get("tree") == self._tree and not self._config.getoption("--fresh"):
            self._passed = set(state["passed"])
        long = [item for item in items if item.get_closest_marker("long") is not None]
        waiting = [item for item in long if item.nodeid not in self._passed]
        self._known, self._left = len(long), [item.nodeid for item in waiting]
        select(self._config, items, waiting)

    def pytest_collection_finish(self) -> None:
        done = self._known - len(self._left)
        before = f", {done} of them passed before on these files (FRESH=1 repeats them)" if done else ""
        self._say(f"{self._known} long tests{before}: {len(self._left)} to run")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._failed = False
        self._began, self._ended = time.monotonic(), threading.Event()
        self._say(f"[{self._known - len(self._left) + 1} of {self._known}] {nodeid} ...")
        threading.Thread(target=self._beat, args=(nodeid, self._began, self._ended), daemon=True).start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.outcome != "passed"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._ended.set()
        self._left.remove(nodeid)
        if not self._failed:
            self._passed.add(nodeid)
            self._config.cache.set(STATE, {"tree": self._tree, "passed": sorted(self._passed)})
        how = "did not pass" if self._failed else "passed"
        self._say(f"    {how} after {spoken(time.monotonic() - self._began)}, {len(self._left)} left")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
        """Keep pytest's own progress marks out of ours."""
        return ("passed" if report.when == "call" else "", "", "") if report.passed else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._known:
            session.exitstatus = pytest.ExitCode.OK  # all have passed before

    def _beat(self, nodeid: str, began: float, ended: threading.Event) -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            name = nodeid.rsplit("::", 1)[-1]
            self._say(f"    {name} has been running for {spoken(time.monotonic() - began)}, {len(self._left)} left")

    def _say(self, text: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if isinstance(reporter, pytest.TerminalReporter):
            reporter.ensure_newline()
            reporter.write_line(text)
            reporter.flush()

"""What every ring shares: no test is skipped in silence.

A skip says why this machine cannot run the test ("this machine cannot ...: ..."); any other skip fails the run, since
a ring that quietly shrinks proves nothing.
"""

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.long",)

ALLOWED = "this machine cannot"

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")


class Skips:
    def __init__(self) -> None:
        self.unexplained: list[str] = []

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and ALLOWED not in str(report.longrepr):
            self.unexplained.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexplained:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self.unexplained:
            terminalreporter.line(f"SKIPPED without saying why {ALLOWED} run it: {nodeid}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Skips())

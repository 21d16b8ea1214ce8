"""A pytest plugin that prints a failure when it happens: a whole run takes long, and prints its failures at its end."""

from __future__ import annotations

import pytest


class FailuresAtOnce:
    """Prints each failed test's name and text in the process that prints the run's progress."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure below the progress line."""
        if report.failed:
            self._terminal.write_line("")
            self._terminal.write_line(f"failed: {report.nodeid} ({report.when})", red=True)
            self._terminal.write_line(report.longreprtext)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Print at once if this process has a terminal: workers have none."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(terminal), "failures-at-once")

"""Writes a verdict as GitHub workflow commands, which show findings beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import counted, workflow_message, workflow_property
from neuroscale.gate.verdict import Finding, Verdict
from neuroscale.report import summary

LIMIT = 10  # of each severity in one step; GitHub drops the rest


def to_annotations(verdict: Verdict) -> str:
    """Lines for standard output of a step: at most 10 errors and 10 notices, then a summary in plain words.

    A verdict that did not pass always has an error. No text of the change can issue a command.
    """
    errors = [
        _command("error", f"{check.title}: {check.detail}", title=f"{summary.label(verdict)}: {check.name}")
        for check in summary.untrusted_or_unusable(verdict)
    ]
    errors += [_finding("error", finding) for finding in summary.errors_of(verdict)]
    ended = summary.status(verdict)
    if ended is not ExitStatus.PASSED and not errors:
        errors = [_command("error", summary.title(verdict), title="neuroscale gate")]
    notices = [_finding("notice", finding) for finding in summary.notices_of(verdict)]
    numbers = summary.counts(verdict)
    last = (
        f"neuroscale gate: {summary.label(verdict)}: {counted(numbers.errors, 'error')}, "
        f"{counted(numbers.notices, 'notice')}, exit status {ended.value}"
    )
    return "\n".join([*_limited("error", errors), *_limited("notice", notices), last]) + "\n"


def _finding(command: str, finding: Finding) -> str:
    message = f"{finding.message}\nFix: {finding.fix}" if finding.fix else finding.message
    return _command(command, message, title=summary.rule(finding), file=finding.file, line=finding.line)


def _command(command: str, message: str, *, title: str, file: str = "", line: int | None = None) -> str:
    properties = []
    if file:
        properties.append(f"file={workflow_property(file, 1000)}")
        if line is not None:
            properties.append(f"line={line}")
    properties.append(f"title={workflow_property(title)}")
    return f"::{command} {','.join(properties)}::{workflow_message(message)}"


def _limited(command: str, lines: Sequence[str]) -> list[str]:
    if len(lines) <= LIMIT:
        return list(lines)
    left = len(lines) - LIMIT + 1
    return [*lines[: LIMIT - 1], _command(command, f"and {left:,} more, see the JSON report", title="neuroscale gate")]

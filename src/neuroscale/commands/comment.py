"""`neuroscale comment`: the gate's report as the one comment of a pull request. Run by the gate's workflow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import typer

from neuroscale.commands.context import read_file
from neuroscale.errors import ExitStatus, InputError, Problem
from neuroscale.forge.connect import connect
from neuroscale.forge.sticky import Run, publish
from neuroscale.forge.token import find_token

_NO_VERDICT = """\
## 🛑 The gate gave no verdict

**This is no judgement of the change.** The gate was ended before it had one. Run it again before you merge."""


def comment_on(markdown: Path, number: int, head: str) -> int:
    """Write the report, or replace an older one. A newer commit's or a newer run's comment stays as it is.

    Where the gate was ended before it wrote a report, that is said: an older commit's must not stand for this one's.
    """
    run = f"[The run]({_run_page(os.environ)})"
    if markdown.exists():
        text = f"{read_file(markdown).rstrip()}\n\n{run} keeps the whole verdict as JSON and JUnit.\n"
    else:
        text = f"{_NO_VERDICT}\n\n{run} tells why.\n"
    forge = connect(_repository(os.environ), find_token())
    published = publish(forge, number, text, _run(os.environ, head))
    typer.echo(f"Pull request {number}: {published.outcome}")
    return ExitStatus.PASSED


def _run(environment: Mapping[str, str], head: str) -> Run:
    return Run(_number(environment, "GITHUB_RUN_NUMBER"), _number(environment, "GITHUB_RUN_ATTEMPT"), head)


def _run_page(environment: Mapping[str, str]) -> str:
    return f"{_repository(environment)}/actions/runs/{_number(environment, 'GITHUB_RUN_ID')}"


def _repository(environment: Mapping[str, str]) -> str:
    return f"{_text(environment, 'GITHUB_SERVER_URL')}/{_text(environment, 'GITHUB_REPOSITORY')}"


def _number(environment: Mapping[str, str], name: str) -> int:
    text = _text(environment, name)
    if not text.isascii() or not text.isdecimal():
        raise InputError(Problem("the environment", name, f"{text!r} is not a number", "Run it in a workflow."))
    return int(text)


def _text(environment: Mapping[str, str], name: str) -> str:
    if not (text := environment.get(name, "")):
        raise InputError(Problem("the environment", name, "is not set", "Run it in a workflow, which sets it."))
    return text

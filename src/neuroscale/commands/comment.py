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


def comment_on(markdown: Path, number: int, head: str) -> int:
    """Write the report, or replace an older one. A newer commit's or a newer run's comment stays as it is."""
    text = f"{read_file(markdown).rstrip()}\n\n{_where(os.environ)}\n"
    forge = connect(_repository(os.environ), find_token())
    published = publish(forge, number, text, _run(os.environ, head))
    typer.echo(f"Pull request {number}: {published.outcome}")
    return ExitStatus.PASSED


def _run(environment: Mapping[str, str], head: str) -> Run:
    return Run(_number(environment, "GITHUB_RUN_NUMBER"), _number(environment, "GITHUB_RUN_ATTEMPT"), head)


def _where(environment: Mapping[str, str]) -> str:
    """One line that leads to the run, whose artifacts are the whole verdict as JSON and as JUnit."""
    run = _number(environment, "GITHUB_RUN_ID")
    return f"[The run]({_repository(environment)}/actions/runs/{run}) keeps the whole verdict as JSON and JUnit."


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

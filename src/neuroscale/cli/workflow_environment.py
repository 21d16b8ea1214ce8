"""Reads the variables that a workflow gives its jobs, on GitHub and on Gitea alike."""

from __future__ import annotations

from collections.abc import Mapping

from neuroscale.core.errors import InputError


def repository_url(environment: Mapping[str, str]) -> str:
    """The address of the repository that the workflow belongs to. Raises InputError outside a workflow."""
    return f"{_text(environment, 'GITHUB_SERVER_URL')}/{_text(environment, 'GITHUB_REPOSITORY')}"


def run_page(environment: Mapping[str, str]) -> str:
    """The page of the run. Raises InputError outside a workflow."""
    return f"{repository_url(environment)}/actions/runs/{_number(environment, 'GITHUB_RUN_ID')}"


def run_number(environment: Mapping[str, str]) -> int:
    """The number of the run among the runs of its workflow. Raises InputError outside a workflow."""
    return _number(environment, "GITHUB_RUN_NUMBER")


def run_attempt(environment: Mapping[str, str]) -> int:
    """The attempt of the run, from 1 on. Raises InputError outside a workflow."""
    return _number(environment, "GITHUB_RUN_ATTEMPT")


def _number(environment: Mapping[str, str], name: str) -> int:
    text = _text(environment, name)
    if not text.isascii() or not text.isdecimal():
        raise InputError.at("the environment", name, f"{text!r} is not a number", "Run it in a workflow.")
    return int(text)


def _text(environment: Mapping[str, str], name: str) -> str:
    if not (text := environment.get(name, "")):
        raise InputError.at("the environment", name, "is not set", "Run it in a workflow, which sets it.")
    return text

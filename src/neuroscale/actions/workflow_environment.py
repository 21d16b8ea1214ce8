"""Reads the variables that a workflow gives its jobs, on GitHub and on Gitea alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from neuroscale.cluster.command_lines import Way
from neuroscale.core.errors import InputError
from neuroscale.core.json_text import read_object

GATEWAY_VARIABLE = "NEUROSCALE_LOCAL_GATEWAY"
"""The variable of the smoke workflow's steps with the way to the hosts of services where forge and cluster are one
machine's, in JSON (state, authority, port); elsewhere it is empty."""


def is_read_elsewhere(environment: Mapping[str, str]) -> bool:
    """Whether people read the reports of this step in a comment: the kubeconfig of the job is not theirs."""
    return GATEWAY_VARIABLE in environment


def local_gateway(environment: Mapping[str, str]) -> tuple[Way | None, str]:
    """The way to a gateway of one machine, and the state folder of its platform; (None, "") if none is named.

    Raises InputError if the environment's value cannot be read.
    """
    text = environment.get(GATEWAY_VARIABLE)
    if not text:
        return None, ""
    try:
        local = read_object(text) or {}
        return Way(Path(local["authority"]), int(local["port"])), str(local["state"])
    except (ValueError, TypeError, KeyError):
        fix = "Write JSON with the texts state and authority, and the number port, or leave it out."
        raise InputError.at("the environment", GATEWAY_VARIABLE, "does not describe a gateway", fix) from None


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

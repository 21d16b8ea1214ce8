"""`neuroscale after-merge`: what follows from the smoke tests. Run by their workflow."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from neuroscale.cli.context import open_repository
from neuroscale.cli.workflow import repository_url, run_attempt, run_number, run_page
from neuroscale.cluster.endpoint.curl import Way, curl_line
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.printable import terminal
from neuroscale.core.validation import suggest
from neuroscale.forge.after_merge import comments
from neuroscale.forge.after_merge.evidence import ServiceEvidence, read_evidence
from neuroscale.forge.after_merge.reactions import AfterMerge, Workflow
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.connect import connect
from neuroscale.forge.interface import Token
from neuroscale.forge.revert import Reverter
from neuroscale.forge.token import VARIABLE, find_token
from neuroscale.repo.git import Git
from neuroscale.repo.layout import MANIFESTS

SECRET = "NEUROSCALE_REVERT_TOKEN"  # noqa: S105 - the name of Actions' secret
"""The secret of Actions that holds the token of the account which opens reverts."""
GATEWAY_VARIABLE = "NEUROSCALE_LOCAL_GATEWAY"
"""On the forge of one machine: how its people reach the hosts of services, in JSON (state, authority, port)."""
_ANSWERS = "chat"  # the check that asked the service as people do


def after_merge(folder: Path, environments: Sequence[str], repository: Path | None) -> int:
    """Tell the merged pull requests how their services do, and open a revert of what fails.

    `folder` holds a folder for each environment with what `smoke` and `status` wrote; one without services needs none.
    Exit status 0 only where every environment with services was looked at, and everything in it passed; also where no
    environment has any, which is said.
    """
    context = open_repository(repository)
    for name in environments:
        if name not in context.settings.environments:
            message, fix = f"{name!r} is not in the settings", suggest(name, context.settings.environments)
            raise InputError(Problem("the command line", "--environment", message, fix))
    _gateway()
    places = (context.root / MANIFESTS, folder)
    served = [name for name in dict.fromkeys(environments) if any((place / name).exists() for place in places)]
    if not served:
        typer.echo("No service is in an environment that can be reached: nothing was tested.")
        return ExitStatus.PASSED
    found = [read_evidence(folder, name) for name in served]
    for environment in found:
        for line in comments.log(environment):
            typer.echo(line)
    remote, token = repository_url(os.environ), _token()
    run = Workflow(run_number(os.environ), run_attempt(os.environ), run_page(os.environ))
    git = Git(context.root)
    try:
        forge = connect(remote, token)
        reverter = Reverter(forge, Branches(git, Access(remote, token)))
        done = AfterMerge(forge, reverter, git, run, time.time(), curl).act(found)
    finally:
        git.close()
    for line in done.lines:
        typer.echo(terminal(line, 4000))
    return done.status


def _token() -> Token:
    if not os.environ.get(VARIABLE):
        raise InputError(
            Problem(
                "the forge's token",
                VARIABLE,
                "is not set, so no comment can be written and no revert opened",
                f"Make the token of an account of its own (or of an app) Actions' secret {SECRET}. The token that the "
                "forge gives to every job does not do: what it pushes is not judged by the gate.",
            )
        )
    return find_token()


def curl(service: ServiceEvidence) -> str:
    """A command that asks the service, for people; "" where nothing of it was seen to answer."""
    if not any((one.check, one.outcome) == (_ANSWERS, "passed") for one in service.checks):
        return ""
    key = ["neuroscale", "key", service.path.service, "--print", f"--environment={service.path.environment}"]
    way, state = _gateway()
    return curl_line(service.url, service.model, [*key, *([f"--state={state}"] if state else [])], way)


def _gateway() -> tuple[Way | None, str]:
    """The way to a gateway of one machine, and the state that its platform keeps; (None, "") where none is named."""
    text = os.environ.get(GATEWAY_VARIABLE)
    if not text:
        return None, ""
    try:
        local = json.loads(text)
        return Way(Path(local["authority"]), int(local["port"])), str(local["state"])
    except (ValueError, TypeError, KeyError):
        fix = "Write JSON with the texts state and authority, and the number port, or leave it out."
        raise InputError(Problem("the environment", GATEWAY_VARIABLE, "tells no gateway", fix)) from None

"""`neuroscale after-merge`: acts on the results of the smoke tests, whose workflow runs it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.open_repository import open_repository
from neuroscale.actions.team_contacts import team_contact
from neuroscale.actions.workflow_environment import local_gateway, repository_url, run_attempt, run_number, run_page
from neuroscale.cli.options import RepositoryOption
from neuroscale.cluster.command_lines import curl_line
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import counted, terminal
from neuroscale.core.validation import suggest
from neuroscale.forge.after_merge import comments
from neuroscale.forge.after_merge.evidence import (
    Evidence,
    ServiceEvidence,
    not_covered,
    read_evidence,
    with_untested,
)
from neuroscale.forge.after_merge.reactions import AfterMerge, Workflow
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.connect import connect
from neuroscale.forge.interface import Token
from neuroscale.forge.revert import Reverter
from neuroscale.forge.token import VARIABLE, find_token
from neuroscale.repo.git import Git
from neuroscale.repo.layout import MANIFESTS, ServicePath
from neuroscale.repo.snapshot import GitSnapshot

_ANSWERS = "chat"  # the check that asks the service as people do


def curl(service: ServiceEvidence) -> str:
    """A command for people that asks the service; "" if no check saw it answer."""
    if not any((check.check, check.outcome) == (_ANSWERS, "passed") for check in service.checks):
        return ""
    key = ["neuroscale", "key", service.path.service, "--print", f"--environment={service.path.environment}"]
    way, state = local_gateway(os.environ)
    return curl_line(service.url, service.model, [*key, *([f"--state={state}"] if state else [])], way)


SECRET = "NEUROSCALE_REVERT_TOKEN"  # noqa: S105 - the name of Actions' secret
"""The secret of Actions that holds the token of the account which opens reverts."""


def react_to_smoke_tests(
    folder: Annotated[Path, typer.Argument(help="Holds ENVIRONMENT/smoke.json and ENVIRONMENT/status.json.")],
    environments: Annotated[
        list[str] | None, typer.Option("--environment", help="An environment that was tested.")
    ] = None,
    repository: RepositoryOption = None,
) -> int:
    """Comment on merged pull requests with their smoke tests' results, and revert services that fail. Run by the
    workflow.
    """
    # Exit status 0 only if every environment with services was tested, and all its tests passed; also if no environment
    # that can be reached has services, which the output says. One that nobody tests is told by a comment alone.
    opened = open_repository(repository)
    for name in environments or ():
        if name not in opened.settings.environments:
            message, fix = f"{name!r} is not in the settings", suggest(name, opened.settings.environments)
            raise InputError.at("the command line", "--environment", message, fix)
    local_gateway(os.environ)  # a wrong one is refused before anything is done
    places = (opened.root / MANIFESTS, folder)
    served = [name for name in dict.fromkeys(environments or ()) if any((place / name).exists() for place in places)]
    if not served:
        typer.echo("No environment that can be reached has a service: nothing was tested.")
    with contextlib.closing(Git(opened.root)) as git:
        results = [_evidence(git, folder, name) for name in served]
        for environment in results:
            for line in comments.log(environment):
                typer.echo(line)
        uncovered = _uncovered(git, [name for name in opened.settings.environments if name not in (environments or ())])
        for environment in uncovered:
            number = counted(len(environment.services), "service")
            typer.echo(f"{environment.environment}: {number} not tested: the workflow does not cover it")
        if not results and not uncovered:
            return ExitStatus.PASSED
        remote, token = repository_url(os.environ), _token()
        run = Workflow(run_number(os.environ), run_attempt(os.environ), run_page(os.environ))
        forge = connect(remote, token)

        def team_of(service: ServiceEvidence) -> str:
            return team_contact(opened, service.path)

        reverter = Reverter(forge, Branches(git, Access(remote, token)))
        done = AfterMerge(forge, reverter, git, run, time.time(), curl, team_of).act(results, uncovered)
    for line in done.lines:
        typer.echo(terminal(line, 4000))
    return done.status


def _evidence(git: Git, folder: Path, environment: str) -> Evidence:
    """What the tests left of an environment; where that cannot be trusted, with all services that Git has there."""
    evidence = read_evidence(folder, environment)
    if evidence.trusted:
        return evidence
    revision = evidence.revision if git.knows(evidence.revision) else git.commit("HEAD", "HEAD")
    return with_untested(evidence, revision, _services(git, revision, environment))


def _uncovered(git: Git, names: Sequence[str]) -> list[Evidence]:
    """Those of the environments that have services in the checked out commit."""
    revision = git.commit("HEAD", "HEAD")
    every = {name: _services(git, revision, name) for name in names}
    return [not_covered(name, revision, services) for name, services in every.items() if services]


def _services(git: Git, revision: str, environment: str) -> set[str]:
    paths = (ServicePath.of(entry.path) for entry in GitSnapshot(git, revision).entries(f"{MANIFESTS}/{environment}"))
    return {path.service for path in paths if path is not None}


def _token() -> Token:
    if not os.environ.get(VARIABLE):
        raise InputError.at(
            "the forge's token",
            VARIABLE,
            "is not set, so no comment can be written and no revert opened",
            f"Store the token of a separate account (or of an app) as Actions' secret {SECRET}. The token that "
            f"the forge gives to every job does not suffice: the gate does not judge its pushes.",
        )
    return find_token()

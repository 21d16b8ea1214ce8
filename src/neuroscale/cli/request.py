"""`neuroscale request`: from a form's answers to an open pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.options import (
    TO_STDERR,
    AnswersOption,
    InteractiveOption,
    JsonOption,
    LocalForgeOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
)
from neuroscale.core.errors import InputError

if TYPE_CHECKING:
    from neuroscale.forge.request_flow import Main
    from neuroscale.request.service_request import Request


def request_service(
    answers: AnswersOption = None,
    interactive: InteractiveOption = False,
    service: Annotated[
        str, typer.Option("--service", help="With --interactive: start from the answers of this service of main.")
    ] = "",
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Ask for a service: plan, render, judge, and open the pull request (or bring the open one up to date)."""
    from neuroscale.actions.service_change import ForgeChoice
    from neuroscale.cli.options.change_outcome import print_outcome
    from neuroscale.cli.options.form_answers import Answers, ask, check_source, read_answers, written_request
    from neuroscale.forge.service_changes import Named, Requested
    from neuroscale.rendering.scaffolder.plan_step import answers_of, request_of

    check_source(answers, interactive=interactive)
    if service and not interactive:
        fix = "Add --interactive in place of --answers, or change single answers: neuroscale update SERVICE --set ..."
        raise InputError.at("the command line", "--service", "needs --interactive", fix)
    form = Answers({}) if answers is None else read_answers(answers)
    choice = ForgeChoice(repository, remote, token_file, local)
    root = choice.root
    written = None if answers is None else written_request(form, root)

    def request(main: Main) -> Request:
        if written is not None:
            return written
        present = answers_of(Named(service, root).version(main).request) if service else None
        return request_of(ask(main.inputs, on_stderr=True, present=present).values, None)

    with choice.desk(TO_STDERR) as desk, form.located():
        outcome = desk.propose(Requested(request))
    return print_outcome(outcome, as_json=as_json)

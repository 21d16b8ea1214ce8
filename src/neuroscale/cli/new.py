"""`neuroscale new`: the form, filled in by a file or by questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from neuroscale.cli.options import AnswersOption, InteractiveOption, RepositoryOption, plain_console
from neuroscale.core.errors import ExitStatus, InputError

if TYPE_CHECKING:
    from neuroscale.request.service_request import Request


def new(
    answers: AnswersOption = None, interactive: InteractiveOption = False, repository: RepositoryOption = None
) -> int:
    """Fill in the form: plan, render and write the service's folder."""
    return new_service(answers, repository, interactive=interactive)


def new_service(answers: Path | None, repository: Path | None, *, interactive: bool) -> int:
    """Run the template's steps for the answers and write the service's folder. A refused plan writes nothing."""
    from neuroscale.actions.open_repository import open_repository
    from neuroscale.cli.options.form_answers import ask, check_source, read_answers
    from neuroscale.core.printable import terminal
    from neuroscale.models.hub import NewestRevisions
    from neuroscale.planning.model_revision import keeping_revision, with_revision
    from neuroscale.planning.override_shortfalls import unmet_demands
    from neuroscale.rendering.scaffolder.plan_step import RefusedPlanError, request_of
    from neuroscale.rendering.service_folder import pull_request_of, write_service

    check_source(answers, interactive=interactive)
    opened = open_repository(repository)
    catalog, settings = opened.catalog, opened.settings
    form = ask(opened) if answers is None else read_answers(answers)
    try:
        with form.located():
            request = request_of(form.values, opened.known)
            request = keeping_revision(request, _present(request, opened.root))
            request, of_revision = with_revision(request, catalog, settings, NewestRevisions())
            planned = opened.plan(request)
            files = pull_request_of(request, planned, opened.template).files
    except RefusedPlanError as error:
        from neuroscale.planning.advice import advise
        from neuroscale.report.advice_view import print_instead
        from neuroscale.report.plan_view import print_plan

        console = plain_console()
        print_plan(error.plan, console)
        print_instead(advise(error.request, catalog, settings), console)
        typer.echo("Nothing was written.")
        return error.exit_status
    _check_new(files, opened.root)
    write_service(files, opened.root)
    for path in sorted(files):
        typer.echo(f"  {path}")
    for sentence in of_revision:
        typer.echo(terminal(sentence, 1000))
    for sentence in unmet_demands(planned, catalog, settings):
        typer.echo(f"Before a merge: {terminal(sentence, 1000)}")
    typer.echo("Commit these files on a branch and check them: neuroscale gate --base main --head BRANCH")
    return ExitStatus.PASSED


def _present(request: Request, root: Path) -> Request | None:
    """The request that lies in the service's folder; None if there is none that can be read."""
    from neuroscale.repo.layout import REQUEST_FILE, ServicePath
    from neuroscale.repo.snapshot import FolderSnapshot, read_file
    from neuroscale.request.service_request import load_request

    folder = ServicePath(request.environment, request.service).folder
    try:
        return read_file(FolderSnapshot(root), f"{folder}/{REQUEST_FILE}", load_request)
    except InputError:
        return None


def _check_new(files: Mapping[str, str], root: Path) -> None:
    """Raises InputError where a service with other answers (or reviewed overrides) lies there already."""
    from neuroscale.repo.layout import REQUEST_FILE

    for path, text in files.items():
        present = root / path
        if path.endswith(f"/{REQUEST_FILE}") and present.is_file() and present.read_text(encoding="utf-8") != text:
            raise InputError.at(
                path,
                "",
                "is there already and holds other answers",
                f"Edit it and run `neuroscale replan {Path(path).parent}`, or choose another service name.",
            )

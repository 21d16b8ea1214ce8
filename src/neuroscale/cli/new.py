"""`neuroscale new`: the form, filled in by a file or by questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from neuroscale.cli.options import AnswersOption, InteractiveOption, RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError, Problem

if TYPE_CHECKING:
    from neuroscale.rendering.scaffolder.interpreter import Publish, RenderedPullRequest


def new(
    answers: AnswersOption = None, interactive: InteractiveOption = False, repository: RepositoryOption = None
) -> int:
    """Fill in the form: plan, render and write the service's folder."""
    return new_service(answers, repository, interactive=interactive)


def new_service(answers: Path | None, repository: Path | None, *, interactive: bool) -> int:
    """Run the template's steps for the answers and write the service's folder. A refused plan writes nothing."""
    from neuroscale.cli.form_answers import ask, check_source, read_answers
    from neuroscale.cli.open_repository import open_repository
    from neuroscale.core.printable import terminal
    from neuroscale.planning.override_shortfalls import unmet_demands
    from neuroscale.planning.plan import load_plan
    from neuroscale.rendering.scaffolder.plan_step import RefusedPlanError
    from neuroscale.rendering.service_folder import scaffold
    from neuroscale.repo.layout import PLAN_FILE

    check_source(answers, interactive=interactive)
    opened = open_repository(repository)
    publish = _publish_new(opened.root)
    given = ask(opened) if answers is None else read_answers(answers)
    try:
        with given.located():
            outcome = scaffold(given.values, opened.template, opened.catalog, opened.settings, publish)
    except RefusedPlanError as error:
        from rich.console import Console

        from neuroscale.report.plan_view import print_plan

        print_plan(error.plan, Console(highlight=False))
        typer.echo("Nothing was written.")
        return error.exit_status
    for path in sorted(outcome.files):
        typer.echo(f"  {path}")
    for path, text in outcome.files.items():
        if path.endswith(f"/{PLAN_FILE}"):
            for sentence in unmet_demands(load_plan(text, path), opened.catalog, opened.settings):
                typer.echo(f"Before a merge: {terminal(sentence, 1000)}")
    typer.echo("Commit these files on a branch and check them: neuroscale gate --base main --head BRANCH")
    return ExitStatus.PASSED


def _publish_new(root: Path) -> Publish:
    """Writes the folder, unless a service with other answers (or reviewed overrides) lies there."""
    from neuroscale.rendering.service_folder import to_work_tree
    from neuroscale.repo.layout import REQUEST_FILE

    write_to_work_tree = to_work_tree(root)

    def publish(request: RenderedPullRequest) -> Mapping[str, Any]:
        for path, text in request.files.items():
            there = root / path
            if path.endswith(f"/{REQUEST_FILE}") and there.is_file() and there.read_text(encoding="utf-8") != text:
                raise InputError(
                    Problem(
                        path,
                        "",
                        "is there already and holds other answers",
                        f"Edit it and run `neuroscale replan {Path(path).parent}`, or choose another service name.",
                    )
                )
        return write_to_work_tree(request)

    return publish

"""`neuroscale new`: the form, filled in by a file or by questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from neuroscale.commands.context import Context, open_repository, read_file
from neuroscale.errors import ExitStatus, InputError, Problem
from neuroscale.rendering import Outcome, PullRequest, RefusedPlanError, scaffold, to_work_tree
from neuroscale.repository import REQUEST_FILE
from neuroscale.scaffolder.interpreter import Publish
from neuroscale.scaffolder.plan_step import FORM, request_of
from neuroscale.validation import shorten, suggest
from neuroscale.yaml_io import dotted, read_mapping

_WHOLE = re.compile(r"-?[0-9]{1,15}")
_DECIMAL = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,15}")


def new_service(answers: Path | None, repository: Path | None, *, interactive: bool) -> int:
    """Run the template's steps for the answers and write the service's folder. A refused plan writes nothing."""
    if interactive == (answers is not None):
        raise InputError(
            Problem(
                "the command line",
                "",
                "gives no answers, or two kinds of them",
                "Give --answers FILE or --interactive.",
            )
        )
    context = open_repository(repository)
    publish = _publish_new(context.root)
    try:
        if answers is None:
            outcome = scaffold(_ask(context), context.template, context.catalog, context.settings, publish)
        else:
            outcome = _from_file(answers, context, publish)
    except RefusedPlanError as error:
        from rich.console import Console

        from neuroscale.report.plan_view import print_plan

        print_plan(error.plan, Console(highlight=False))
        typer.echo("Nothing was written.")
        return error.exit_status
    for path in sorted(outcome.files):
        typer.echo(f"  {path}")
    typer.echo("Commit these files on a branch and check them: neuroscale gate --base main --head BRANCH")
    return ExitStatus.PASSED


def _from_file(answers: Path, context: Context, publish: Publish) -> Outcome:
    """Runs the template for the answers in a file. Raises InputError with that file's name and lines."""
    document = read_mapping(read_file(answers), str(answers))
    try:
        return scaffold(document.value, context.template, context.catalog, context.settings, publish)
    except RefusedPlanError:
        raise
    except InputError as error:
        lines = {dotted(path): line for path, line in document.lines.items() if path}
        raise InputError(
            [
                replace(problem, where=str(answers), line=lines.get(problem.field))
                if problem.where == FORM
                else problem
                for problem in error.problems
            ]
        ) from error


def _publish_new(root: Path) -> Publish:
    """Writes the folder, unless a service with other answers (or reviewed overrides) lies there."""
    write_to_work_tree = to_work_tree(root)

    def publish(request: PullRequest) -> Mapping[str, Any]:
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


def _ask(context: Context) -> dict[str, Any]:
    """Ask for every field of the template's form, each until its answer can be used. Raises InputError at the end of
    the input."""
    answers: dict[str, Any] = {}
    for name, schema in context.template.form().items():
        typer.echo()
        typer.echo(schema.get("title", name))
        if description := schema.get("description"):
            typer.echo(f"  {description}")
        default = schema.get("default")
        if name == "availability" and (environment := context.settings.environments.get(answers["environment"])):
            default = environment.default_availability
        try:
            answers[name] = _ask_one(name, schema, default)
        except UnicodeDecodeError as error:
            raise InputError(Problem("the answers", name, "is not UTF-8 text", "Write plain text.")) from error
        except typer.Abort as error:
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise InputError(
                Problem("the answers", name, "end here", "Answer every question, or give a file with --answers.")
            ) from error
    typer.echo()
    return answers


def _ask_one(name: str, schema: Mapping[str, Any], default: Any) -> Any:
    choices = schema.get("enum")
    if choices:
        typer.echo(f"  One of: {', '.join(choices)}")
    while True:
        answer = _typed(typer.prompt(f"  {name}", type=str, default=default).strip(), schema.get("type", ""))
        problem = _problem(name, answer, choices)
        if problem is None:
            return answer
        typer.echo(f"  {problem}")


def _typed(text: str, kind: str) -> str | int | float:
    """A number where the form asks for one and a plain one stands there; else the text, which is refused by name."""
    if kind in ("integer", "number") and _WHOLE.fullmatch(text):
        return int(text)
    if kind == "number" and _DECIMAL.fullmatch(text):
        return float(text)
    return text


def _problem(name: str, answer: Any, choices: list[str] | None) -> str | None:
    """What is wrong with one answer and what to write instead, by the same rules as for a file."""
    if choices and answer not in choices:
        return f"{shorten(answer)} is not in the list. {suggest(str(answer), choices)}"
    try:
        request_of({name: answer})
    except InputError as error:
        for problem in error.problems:
            if problem.field == name:
                return f"{problem.message}. {problem.fix}"
    return None

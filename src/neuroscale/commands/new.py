"""`neuroscale new`: the form, filled in by a file or by questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from neuroscale.commands.context import Context, open_repository, read_file
from neuroscale.errors import ExitStatus, InputError, Problem
from neuroscale.rendering import PullRequest, scaffold, to_work_tree
from neuroscale.repository import REQUEST_FILE
from neuroscale.yaml_io import read_mapping


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
    given = _ask(context) if answers is None else read_mapping(read_file(answers), str(answers)).value
    outcome = scaffold(given, context.template, context.catalog, context.settings, _publish_new(context.root))
    for path in sorted(outcome.files):
        typer.echo(f"  {path}")
    typer.echo("Commit these files on a branch and check them: neuroscale gate --base main --head BRANCH")
    return ExitStatus.PASSED


def _publish_new(root: Path) -> Any:
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
    """Ask for every field of the template's form."""
    answers: dict[str, Any] = {}
    for name, schema in context.template.form().items():
        typer.echo()
        typer.echo(schema.get("title", name))
        if description := schema.get("description"):
            typer.echo(f"  {description}")
        answers[name] = _ask_one(name, schema)
    typer.echo()
    return answers


def _ask_one(name: str, schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft7Validator

    validator = Draft7Validator(dict(schema))
    kind = {"integer": int, "number": float}.get(schema.get("type", ""), str)
    if choices := schema.get("enum"):
        typer.echo(f"  One of: {', '.join(choices)}")
    while True:
        answer = typer.prompt(f"  {name}", type=kind, default=schema.get("default"))
        errors = [error.message for error in validator.iter_errors(answer)]
        if not errors:
            return answer
        typer.echo(f"  {errors[0]}")

"""Reads a form's answers from a file, or asks for them one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from neuroscale.actions.open_repository import read_file
from neuroscale.core.errors import InputError
from neuroscale.core.printable import terminal
from neuroscale.core.validation import shorten, suggest
from neuroscale.core.yaml_io import dotted, read_mapping
from neuroscale.rendering.planning_inputs import PlanningInputs, read_planning_inputs
from neuroscale.rendering.scaffolder.plan_step import FORM, RefusedPlanError, request_of
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.request.field_changes import IDENTITY, number_of
from neuroscale.request.service_request import KnownNames, Request


@dataclass(frozen=True)
class Answers:
    """Answers by field, and their source: a file's name and the line of each field, or the form."""

    values: Mapping[str, Any]
    where: str = FORM
    lines: Mapping[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """Within it, problems of the form name the file and the line of the answer."""
        try:
            yield
        except RefusedPlanError:
            raise
        except InputError as error:
            raise InputError(
                [
                    replace(problem, where=self.where, line=self.lines.get(problem.field))
                    if problem.where == FORM
                    else problem
                    for problem in error.problems
                ]
            ) from error


def check_source(answers: Path | None, *, interactive: bool) -> None:
    """Raises InputError unless there is exactly one source of answers."""
    if interactive == (answers is not None):
        raise InputError.at(
            "the command line", "", "needs exactly one source of answers", "Give --answers FILE or --interactive."
        )


def read_answers(path: Path) -> Answers:
    """The answers in a file, not checked yet. Raises InputError if it does not hold a mapping."""
    document = read_mapping(read_file(path), str(path))
    return Answers(document.value, str(path), {dotted(place): line for place, line in document.lines.items() if place})


def written_request(answers: Answers, root: Path) -> Request:
    """The request that written answers make, before a forge is asked for anything. Its main branch decides on names.

    Raises InputError with every mistake; where there is one, names that the repository at `root` lacks are among them.
    """
    with answers.located():
        try:
            return request_of(answers.values, None)
        except InputError:
            try:
                here = read_planning_inputs(FolderSnapshot(root))
            except InputError:  # not what the user asked about
                known = None
            else:
                known = here.known
            return request_of(answers.values, known)


def ask(inputs: PlanningInputs, *, on_stderr: bool = False, present: Mapping[str, Any] | None = None) -> Answers:
    """Ask for every field of the template's form, each until its answer can be used. Raises InputError at the end of
    the input.

    `present`: a service's answers, which are the defaults; those that say which service it is are not asked for.
    """
    template, settings = inputs.template, inputs.settings
    known = inputs.known
    answers: dict[str, Any] = {}
    for name, schema in template.form().items():
        if present is not None and name in IDENTITY:
            answers[name] = present[name]
            continue
        typer.echo(err=on_stderr)
        typer.echo(schema.get("title", name), err=on_stderr)
        if description := schema.get("description"):
            typer.echo(f"  {description}", err=on_stderr)
        default = schema.get("default")
        if name == "availability" and (environment := settings.environments.get(answers["environment"])):
            default = environment.default_availability
        if present is not None:
            default = present.get(name)
        try:
            wrong = partial(_problem, name, {**answers}, known, schema.get("enum"))
            answer = _ask_one(name, schema, default, wrong, on_stderr, may_be_empty=name in template.optional())
        except UnicodeDecodeError as error:
            raise InputError.at("the answers", name, "is not UTF-8 text", "Write plain text.") from error
        except typer.Abort as error:
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise InputError.at(
                "the answers", name, "end here", "Answer every question, or give a file with --answers."
            ) from error
        if answer is not None:
            answers[name] = answer
    typer.echo(err=on_stderr)
    return Answers(answers)


def _ask_one(
    name: str,
    schema: Mapping[str, Any],
    default: Any,
    wrong: Callable[[Any], str | None],
    on_stderr: bool,
    *,
    may_be_empty: bool,
) -> Any:
    """One answer with nothing `wrong` about it; None where it may be left empty and is."""
    choices = schema.get("enum")
    titles = schema.get("enumNames")
    if choices and titles:
        typer.echo("  One of:", err=on_stderr)
        for choice, words in zip(choices, titles, strict=False):
            typer.echo(f"    {choice}  ({terminal(words)})", err=on_stderr)
    elif choices:
        typer.echo(f"  One of: {', '.join(choices)}", err=on_stderr)
    if may_be_empty and default is None:
        default = ""
        typer.echo("  Press Enter to leave it empty.", err=on_stderr)
    while True:
        text = typer.prompt(f"  {name}", type=str, default=default, show_default=bool(default), err=on_stderr).strip()
        if may_be_empty and not text:
            return None
        answer = number_of(text) if schema.get("type") in ("integer", "number") else text
        problem = wrong(answer)
        if problem is None:
            return answer
        typer.echo(f"  {problem}", err=on_stderr)


def _problem(
    name: str, before: Mapping[str, Any], known: KnownNames, choices: list[str] | None, answer: Any
) -> str | None:
    """What is wrong with one answer, next to those `before` it, and what to write instead: by the rules for a file."""
    if choices and answer not in choices:
        return f"{shorten(answer)} is not in the list. {suggest(str(answer), choices, 'the list above')}"
    try:
        request_of({**before, name: answer}, known)
    except InputError as error:
        for problem in error.problems:
            if problem.field == name:
                return f"{problem.message}. {problem.fix}"
    return None

"""`neuroscale advise`: sets the best choices for a form's answers side by side, and says why each other one lost."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.options import TO_STDERR, InputsOption, JsonOption, PictureOption, plain_console, print_json
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import terminal


class By(StrEnum):
    """What the choices are sorted by."""

    PRICE = "price"
    LATENCY = "latency"
    THROUGHPUT = "throughput"


def show_advice(
    answers: Annotated[
        Path | None, typer.Option("--answers", help="A file with a form's answers, or a request.yaml.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Without --answers: a model of the catalog.")] = None,
    users: Annotated[int | None, typer.Option("--users", help="Without --answers: users who ask at once.")] = None,
    prompt_tokens: Annotated[
        int | None, typer.Option("--prompt-tokens", help="Without --answers: tokens of the longest prompt.")
    ] = None,
    answer_tokens: Annotated[
        int | None, typer.Option("--answer-tokens", help="Without --answers: tokens of the longest answer.")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            "--environment",
            help="Without --answers: an environment of the settings. Default: the first one with accelerators.",
        ),
    ] = None,
    by: Annotated[
        By,
        typer.Option(
            help="What comes first: the lowest price a month, the earliest first token, or the most tokens a second."
        ),
    ] = By.PRICE,
    picture: PictureOption = None,
    as_json: JsonOption = False,
    repository: InputsOption = None,
) -> int:
    """Set the best choices for a form's answers side by side: each accelerator, copies with other weights, smaller
    models of the family, with price, speed and head room at the asked load. Exit status 1: no choice works."""
    from neuroscale.actions.few_answers import request_of_few
    from neuroscale.actions.open_repository import open_inputs
    from neuroscale.planning.advice import advise
    from neuroscale.report.advice_view import as_mapping, print_advice, write_advice_picture

    few = {
        "model": model,
        "concurrent_users": users,
        "longest_prompt_tokens": prompt_tokens,
        "longest_answer_tokens": answer_tokens,
        "environment": environment,
    }
    if (answers is None) == all(value is None for value in few.values()):
        fault = "needs a form's answers, either in a file or as options"
        fix = "Give --answers FILE alone, or --model, --users, --prompt-tokens and --answer-tokens."
        raise InputError.at("the command line", "", fault, fix)
    opened = open_inputs(repository)
    sources = [opened.settings_note] if opened.is_example else []
    if answers is not None:
        request = opened.read_request(answers, TO_STDERR)
    else:
        with opened.named():
            request, assumed = request_of_few(few, opened)
        sources.append(assumed)
    for note in sources:
        typer.echo(terminal(note), err=as_json)
    advice = advise(request, opened.catalog, opened.settings, by.value)
    if picture is not None:
        write_advice_picture(advice, f"{request.model} for {request.environment}/{request.service}", picture)
    if as_json:
        print_json(as_mapping(advice, request) | ({"sources": sources} if sources else {}))
    else:
        print_advice(advice, request, plain_console())
    return ExitStatus.PASSED if advice.choices[0].works else ExitStatus.FINDINGS

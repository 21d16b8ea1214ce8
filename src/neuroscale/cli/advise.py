"""`neuroscale advise`: sets the best choices for a form's answers side by side, and says why each other one lost."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.options import TO_STDERR, JsonOption, PictureOption, RepositoryOption, plain_console, print_json
from neuroscale.core.errors import ExitStatus


class By(StrEnum):
    """What the choices are sorted by."""

    PRICE = "price"
    LATENCY = "latency"
    THROUGHPUT = "throughput"


def show_advice(
    answers: Annotated[Path, typer.Option("--answers", help="A file with a form's answers, or a request.yaml.")],
    by: Annotated[
        By,
        typer.Option(
            help="What comes first: the lowest price a month, the earliest first token, or the most tokens a second."
        ),
    ] = By.PRICE,
    picture: PictureOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Set the best choices for a form's answers side by side: each accelerator, copies with other weights, smaller
    models of the family, with price, speed and head room at the asked load. Exit status 1: no choice works."""
    from neuroscale.actions.open_repository import open_repository
    from neuroscale.planning.advice import advise
    from neuroscale.report.advice_view import as_mapping, print_advice, write_advice_picture

    opened = open_repository(repository)
    request = opened.read_request(answers, TO_STDERR)
    advice = advise(request, opened.catalog, opened.settings, by.value)
    if picture is not None:
        write_advice_picture(advice, f"{request.model} for {request.environment}/{request.service}", picture)
    if as_json:
        print_json(as_mapping(advice, request))
    else:
        print_advice(advice, request, plain_console())
    return ExitStatus.PASSED if advice.choices[0].works else ExitStatus.FINDINGS

"""`neuroscale model`: shows the parameters, weights and cache of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.open_repository import open_inputs
from neuroscale.catalog.model_lookup import load_model
from neuroscale.cli.options import InputsOption, JsonOption, plain_console, print_json, say_source
from neuroscale.core.errors import ExitStatus
from neuroscale.models.facts_json import as_mapping


def show_model(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|PATH", help="A model of the catalog, a folder, a config.json, or a model of the Hub."
        ),
    ],
    as_json: JsonOption = False,
    repository: InputsOption = None,
) -> int:
    """Show a model's parameters, its active ones in both conventions, its weights by group, its KV cache and state."""
    opened = open_inputs(repository)
    own_files = opened.is_example and Path(name).exists()  # they come before an entry that the program brings
    if name in opened.catalog.models and not own_files:
        say_source(opened.catalog_note)
    facts = load_model(name, None if own_files else opened.catalog)
    if as_json:
        print_json(as_mapping(facts))
    else:
        from neuroscale.report.model_view import print_model

        print_model(facts, plain_console())
    return ExitStatus.PASSED

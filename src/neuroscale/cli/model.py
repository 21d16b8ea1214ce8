"""`neuroscale model`: shows the parameters, weights and cache of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.open_repository import open_repository
from neuroscale.catalog import Catalog
from neuroscale.catalog.model_lookup import load_model
from neuroscale.cli.options import JsonOption, RepositoryOption, plain_console, print_json
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.models.facts_json import as_mapping
from neuroscale.repo.layout import find_root


def show_model(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|PATH", help="A model of the catalog, a folder, a config.json, or a model of the Hub."
        ),
    ],
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Show a model's parameters, its active ones in both conventions, its weights by group, its KV cache and state."""
    facts = load_model(name, _catalog(repository))
    if as_json:
        print_json(as_mapping(facts))
    else:
        from neuroscale.report.model_view import print_model

        print_model(facts, plain_console())
    return ExitStatus.PASSED


def _catalog(repository: Path | None) -> Catalog | None:
    """The catalog of the named repository, or of the one around the current folder; None outside a repository."""
    if repository is None:
        try:
            find_root(Path.cwd())
        except InputError:
            return None
    return open_repository(repository).catalog

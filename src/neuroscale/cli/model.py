"""`neuroscale model`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from neuroscale.catalog import Catalog
from neuroscale.catalog.model_lookup import load_model
from neuroscale.cli.context import open_repository
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.models.summary import as_mapping
from neuroscale.repo.layout import find_root


def show_model(name: str, repository: Path | None, *, as_json: bool) -> int:
    """Print what is known of a model. Raises InputError."""
    facts = load_model(name, _catalog(repository))
    if as_json:
        sys.stdout.write(json.dumps(as_mapping(facts), indent=2) + "\n")
    else:
        from rich.console import Console

        from neuroscale.report.model_view import print_model

        print_model(facts, Console(highlight=False))
    return ExitStatus.PASSED


def _catalog(repository: Path | None) -> Catalog | None:
    """The catalog of the repository that is named or that the current folder lies in; None outside of one."""
    if repository is None:
        try:
            find_root(Path.cwd())
        except InputError:
            return None
    return open_repository(repository).catalog

"""What several commands need: the repository they work in, and its catalog, settings and template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.errors import InputError, Problem
from neuroscale.rendering import Template, load_template
from neuroscale.repository import find_root
from neuroscale.settings import Settings, check_settings, load_settings
from neuroscale.snapshot import FolderSnapshot
from neuroscale.yaml_io import decode


@dataclass(frozen=True)
class Context:
    """A platform repository, read from its work tree."""

    root: Path
    catalog: Catalog
    settings: Settings
    template: Template


def open_repository(named: Path | None) -> Context:
    """The named repository, or the one around the current folder. Raises InputError with every problem in it."""
    root = find_root(named or Path.cwd())
    snapshot = FolderSnapshot(root)
    catalog, settings = load_catalog(snapshot), load_settings(snapshot)
    check_settings(settings, catalog)
    return Context(root, catalog, settings, load_template(snapshot))


def read_file(path: Path) -> str:
    """The text of a file that a user named. Raises InputError where it cannot be read."""
    try:
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(
            Problem(str(path), "", f"cannot be read: {error.strerror}", "Name a readable file.")
        ) from error

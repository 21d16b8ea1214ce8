"""What several commands need: the repository they work in, and its catalog, settings and template."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import typer

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.settings import Settings, check_settings, load_settings
from neuroscale.core.files import read_bounded
from neuroscale.core.units import MIB
from neuroscale.core.yaml_io import decode
from neuroscale.rendering.service_folder import Template, load_template
from neuroscale.repo.layout import find_root
from neuroscale.repo.snapshot import FolderSnapshot, Snapshot
from neuroscale.request.service_request import Request, fault_of, read_request

LARGEST_FILE = MIB
"""Bytes of a file of answers or of a plan; neither takes a tenth of it, and a device file never ends."""


@dataclass(frozen=True)
class Context:
    """A platform repository, read from its work tree or from a commit. `root` is its work tree."""

    root: Path
    catalog: Catalog
    settings: Settings
    template: Template

    def read_request(self, path: Path) -> Request:
        """The request in a file; tells of overrides that the gate refuses.

        Raises InputError where it cannot be read, or names what the platform lacks.
        """
        request = read_request(read_file(path), str(path), self.catalog, self.settings)
        today = datetime.now(UTC).date()
        for override in request.overrides:
            fault = fault_of(override.reason, override.expires, today, self.settings.exceptions.longest_days)
            if fault is not None:
                typer.echo(
                    f"{path}: the override of {override.field} {fault.message}. The gate refuses it. {fault.fix}",
                    err=True,
                )
        return request


def open_repository(named: Path | None) -> Context:
    """The named repository, or the one around the current folder. Raises InputError with every problem in it."""
    root = find_root(named or Path.cwd())
    return read_platform(root, FolderSnapshot(root))


def read_platform(root: Path, snapshot: Snapshot) -> Context:
    """The repository at `root` as it is in a snapshot. Raises InputError with every problem in it."""
    catalog, settings = load_catalog(snapshot), load_settings(snapshot)
    check_settings(settings, catalog)
    return Context(root, catalog, settings, load_template(snapshot))


def read_file(path: Path) -> str:
    """The text of a file that a user named. Raises InputError where it cannot be read."""
    return decode(read_bounded(path, LARGEST_FILE, "Name a file that holds a form's answers."), str(path))

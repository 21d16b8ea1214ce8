"""Makes the proposal to add a model to the catalog, and shows where it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.model_lookup import FoundModel
from neuroscale.catalog.new_entry import entry_path, entry_text, entry_values
from neuroscale.catalog.settings import Settings, load_settings
from neuroscale.core.errors import InputError
from neuroscale.core.files import read_bounded
from neuroscale.core.printable import counted
from neuroscale.core.validation import suggest
from neuroscale.core.yaml_io import decode, read_mapping
from neuroscale.forge.file_changes import FilesChange
from neuroscale.planning.rejected_choices import AcceleratorFit, fits_of
from neuroscale.rendering.scaffolder.form import as_configured, label
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.layout import CATALOG
from neuroscale.repo.snapshot import MemorySnapshot, Snapshot

_MOST_BYTES = 64 * 1024  # the largest file of fields


@dataclass(frozen=True)
class AddOptions:
    """The options of the command: the model, its name, a file of fields, the environment to show, and where the
    weights are: a folder below the environments' store, or the Hub."""

    model: str
    name: str | None
    fields: Path | None
    environment: str | None
    store: str | None = None
    hub: bool = False


@dataclass(frozen=True)
class Made:
    """The entry, the files that change, by path, and the accelerators that it fits on in each environment."""

    name: str
    path: str
    files: Mapping[str, str]
    fits: Mapping[str, list[AcceleratorFit]]
    catalog: Catalog


def proposal(
    model: FoundModel, fields: Mapping[str, Any], environment: str | None, base: Snapshot, newest: Snapshot
) -> FilesChange[Made]:
    """The change of the catalog for the files of main, and those of the open pull request. Raises InputError."""
    entry = _make(model, fields, environment, base, newest)
    return FilesChange(entry.files, f"Add {model.name} to the catalog", _sentences(entry, model), entry)


def _make(
    model: FoundModel, fields: Mapping[str, Any], environment: str | None, base: Snapshot, newest: Snapshot
) -> Made:
    """The entry, checked as a part of the base's catalog, and the form's list with it."""
    path = entry_path(model.name)
    data = newest.read(path)
    present = None if data is None else read_mapping(decode(data, path), path).value
    if present is not None and present.get("name") != model.name:
        raise InputError.at(
            path, "name", f"is {present.get('name')!r}, not {model.name!r}", "Rename one of the two models."
        )
    was, is_now = ((config or {}).get("model_type") for config in ((present or {}).get("config"), model.facts.config))
    if present is not None and was != is_now:
        message = f"is the entry of another architecture ({was}), and the files are of {is_now}"
        raise InputError.at(path, model.name, message, "Give another name with --name, or remove the entry first.")
    values = entry_values(model, present, fields)
    text = decode(data, path) if data is not None and values == present else entry_text(values)
    files = {entry.path: base.read(entry.path) or b"" for entry in base.entries(CATALOG)}
    catalog = load_catalog(MemorySnapshot({**files, path: text.encode()}))
    settings = load_settings(base)
    template = load_template(base)
    changes = {path: text, template.where: as_configured(template, catalog, settings)}
    fits = {
        name: fits_of(model.name, name, catalog, settings.environments[name])
        for name in _environments(settings, environment)
    }
    return Made(model.name, path, changes, fits, catalog)


def _environments(settings: Settings, named: str | None) -> list[str]:
    if named is not None and named not in settings.environments:
        fix = suggest(named, settings.environments)
        raise InputError.at("the command line", "--environment", f"{named!a} is not in the settings", fix)
    return list(settings.environments) if named is None else [named]


def fields_of(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    text = decode(read_bounded(path, _MOST_BYTES, "Name a file that holds fields of the entry."), str(path))
    values: Mapping[str, Any] = read_mapping(text, str(path)).value
    for key in ("name", "config"):
        if key in values:
            raise InputError.at(str(path), key, "comes from the model's files", "Remove it; --name gives another name.")
    return values


def _sentences(entry_change: Made, model: FoundModel) -> tuple[str, ...]:
    """The text of the pull request, for a reviewer of the entry."""
    entry = entry_change.catalog.models[entry_change.name]
    sentences = [f"{label(entry, entry_change.catalog)}.", f"Read from {model.where}.", *entry.facts.notes]
    for name, fits in entry_change.fits.items():
        sentences.append(f"In {name}: {'; '.join(fit_line(entry_change, fit) for fit in fits)}.")
    return tuple(sentences)


def fit_line(entry_change: Made, fit: AcceleratorFit) -> str:
    title = entry_change.catalog.accelerators[fit.accelerator].title
    if not fit.count:
        return f"{title}: not served. {fit.reason}"
    tight = " (tight)" if fit.tight else ""
    return f"{fit.count} x {title}{tight}: {counted(fit.users, 'request')} of {fit.context:,} tokens at once"

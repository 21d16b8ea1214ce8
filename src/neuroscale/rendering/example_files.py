"""Makes the example organisation's whole platform repository, rendered files included."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.core import delivered
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.platform.files import SOURCES, is_rendered, render_all
from neuroscale.rendering.scaffolder.form import as_configured
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.example_repository import OWN, ExampleSnapshot, example_snapshot
from neuroscale.repo.layout import CATALOG, POLICIES, TEMPLATE, ServicePath
from neuroscale.repo.snapshot import FolderSnapshot

_JUDGED_BY = (CATALOG, *(folder for folder in SOURCES if not folder.startswith(POLICIES)), POLICIES, TEMPLATE)
"""The folders that plans, rendered services and verdicts depend on, beside what an organisation owns."""


def example_files(
    paths: Iterable[str], snapshot: ExampleSnapshot | None = None, inputs: PlanningInputs | None = None
) -> dict[str, bytes]:
    """The content of each file of the example organisation's repository, by path.

    `paths`: those of the delivered files that the repository gets beside the example's own and the rendered ones, such
    as all that git tracks in a checkout. Files that an organisation owns, or that are rendered, are left out of them.
    `inputs`: those of the snapshot, where the caller has read them.
    """
    snapshot = snapshot or example_snapshot()
    wanted = {entry.path for entry in snapshot.example.entries()}
    wanted |= {path for path in paths if not snapshot.is_own(path) and not is_rendered(path)}
    files = {path: content for path in sorted(wanted) if (content := snapshot.read(path)) is not None}
    known = inputs or PlanningInputs(load_catalog(snapshot), load_settings(snapshot), load_template(snapshot))
    if known.template.where in wanted:
        files[known.template.where] = as_configured(known.template, known.catalog, known.settings).encode()
    rendered = render_all(snapshot, known.catalog, known.settings)
    return files | {path: text.encode() for path, text in rendered.items() if is_rendered(path) or path in files}


def make_example(folder: Path) -> bool:
    """Turn a copy of a platform repository into the example organisation's, with the copy's policies, template, models,
    accelerators, prices and charts.

    Services of others are removed, and none is added; documents (.md) stay. Only files that differ are written. Returns
    whether anything changed.
    """
    snapshot = example_snapshot(folder)
    files = example_files((entry.path for entry in snapshot.entries(TEMPLATE)), snapshot)
    changed = False
    for entry in FolderSnapshot(folder).entries(*OWN, *SOURCES):
        owned = snapshot.is_own(entry.path) or is_rendered(entry.path)
        if owned and (entry.kind != "file" or entry.path not in files) and not entry.path.endswith(".md"):
            changed = True
            (folder / entry.path).unlink()
            with contextlib.suppress(OSError):  # other files may remain in it
                os.removedirs((folder / entry.path).parent)
    for path, content in files.items():
        file = folder / path
        if file.read_bytes() != content if file.is_file() else ServicePath.of(path) is None:
            changed = True
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return changed


def example_folder(folder: Path, repository: Path = delivered.FOLDER) -> None:
    """Write the example organisation's repository as far as plans and verdicts read it, and as `make_example` does it.

    `repository`: whose policies, template and facts of the catalog it gets.
    """
    for name in _JUDGED_BY:
        if (repository / name).is_dir():
            shutil.copytree(repository / name, folder / name, symlinks=True)
    make_example(folder)

"""A copy of this repository's platform, to change and to render in tests."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.settings import Settings, load_settings
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.platform.files import render
from neuroscale.rendering.scaffolder.template import Template, load_template
from neuroscale.repo.snapshot import FolderSnapshot
from roots import ROOT

FOLDERS = (
    *("platform/argocd", "platform/catalog", "platform/clusters", "platform/cost", "platform/monitoring"),
    *("platform/serving", "platform/tenancy"),
)


def copy_platform(root: Path) -> Path:
    """Copy the files that `neuroscale platform render` reads and writes to `root`."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, root / folder)
    (root / ".github").mkdir()
    for file in ("platform/settings.yaml", ".github/CODEOWNERS"):
        shutil.copyfile(ROOT / file, root / file)
    return root


def edit(root: Path, path: str, old: str, new: str) -> None:
    """Replace the first `old` of a file."""
    text = (root / path).read_text()
    assert old in text
    (root / path).write_text(text.replace(old, new, 1))


SNAPSHOT = FolderSnapshot(ROOT)
CATALOG: Catalog = load_catalog(SNAPSHOT)
SETTINGS: Settings = load_settings(SNAPSHOT)
TEMPLATE: Template = load_template(SNAPSHOT)
PLATFORM = PlanningInputs(CATALOG, SETTINGS, TEMPLATE)


@cache
def rendered_platform() -> Mapping[str, str]:
    """The files of this repository's platform as `neuroscale platform render` writes them, by their paths."""
    return render(SNAPSHOT, CATALOG, SETTINGS)

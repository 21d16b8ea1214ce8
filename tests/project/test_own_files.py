"""The files that an organisation decides for itself belong together, and what is made from them is as the commands make
it. These tests hold for any names.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import check_settings, load_settings
from neuroscale.gate.runner import gate_paths
from neuroscale.planning.planner import plan
from neuroscale.rendering.platform.files import differences, render_repository
from neuroscale.rendering.scaffolder.form import as_configured, check_form
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import EXAMPLES, MANIFESTS
from neuroscale.repo.services import services_of
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.request.service_request import read_request
from roots import CHECKOUT

SNAPSHOT = FolderSnapshot(CHECKOUT)
CATALOG, SETTINGS, TEMPLATE = load_catalog(SNAPSHOT), load_settings(SNAPSHOT), load_template(SNAPSHOT)
EXAMPLE_FILES = sorted((CHECKOUT / EXAMPLES).glob("*.yaml"))


def test_the_settings_suit_the_catalog() -> None:
    check_settings(SETTINGS, CATALOG)


def test_the_files_of_clusters_are_rendered() -> None:
    """If this fails: neuroscale platform render."""
    assert differences(SNAPSHOT, render_repository(SNAPSHOT)) == []


def test_the_form_has_the_names_of_catalog_and_settings() -> None:
    """If this fails: neuroscale catalog form."""
    assert check_form(TEMPLATE, CATALOG, SETTINGS) == []
    assert as_configured(TEMPLATE, CATALOG, SETTINGS) == TEMPLATE.files["template.yaml"]


@pytest.mark.parametrize("path", EXAMPLE_FILES, ids=lambda path: path.stem)
def test_every_example_can_be_asked_for(path: Path) -> None:
    request = read_request(path.read_text(encoding="utf-8"), path.name, CATALOG, SETTINGS)
    planned = plan(request, CATALOG, SETTINGS, TEMPLATE.version)
    assert planned.verdict == "refused" or render(request, planned, TEMPLATE)


@pytest.mark.tools
@pytest.mark.skipif(not services_of(SNAPSHOT), reason="the repository has no service yet")
def test_every_service_passes_the_gate() -> None:
    verdict = gate_paths([CHECKOUT / MANIFESTS], CHECKOUT, date.today())
    assert [finding for finding in verdict.findings if finding.severity == "error"] == []
    assert verdict.exit_status == 0

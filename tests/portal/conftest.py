"""A platform's repository with one service, and the server in front of it, without a forge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroscale.planning.planner import plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.service_folder import pull_request_of
from plan_factory import ANSWERS, make_request
from platform_repository import CATALOG, SETTINGS, TEMPLATE
from portal_lab import FakePendingChanges
from repositories import Repository
from roots import ROOT


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With dev/support-chat on its main branch."""
    made = Repository(tmp_path_factory.mktemp("portal") / "clone")
    for folder in ("platform/catalog", "templates"):
        shutil.copytree(ROOT / folder, made.root / folder)
    shutil.copyfile(ROOT / "platform/settings.yaml", made.root / "platform/settings.yaml")
    request = make_request(**ANSWERS)
    files = pull_request_of(request, plan(request, CATALOG, SETTINGS, TEMPLATE.version), TEMPLATE).files
    made.commit(dict(files), "Serve it")
    made.git.close()
    return made.root


@pytest.fixture
def pending_changes(clone: Path) -> Iterator[FakePendingChanges]:
    made = FakePendingChanges(clone, PlanningInputs(CATALOG, SETTINGS, TEMPLATE))
    yield made
    made.close()

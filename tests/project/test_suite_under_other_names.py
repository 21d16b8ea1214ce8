"""The tests hold in the repository of an organisation with its own environments, teams and cost centres."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from comparisons import ALL, QUICK
from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.repo.layout import BUDGETS
from neuroscale.repo.services import services_of
from neuroscale.repo.snapshot import FolderSnapshot
from renamed_repository import environment_of, renamed_copy
from repositories import Repository
from roots import CHECKOUT, ROOT

pytestmark = pytest.mark.slow

OWN = "tests/project/test_own_files.py"
SAMPLE = (
    *(OWN, "tests/catalog/test_catalog.py", "tests/request/test_request.py", "tests/planning/test_choice.py"),
    *("tests/planning/test_startup.py", "tests/planning/test_speed.py", "tests/rendering/test_platform_argocd.py"),
    *("tests/rendering/test_platform_monitoring.py", "tests/rendering/test_platform_tenancy.py"),
    *("tests/costs/test_platform_workloads.py", "tests/costs/test_golden_pull_requests.py"),
    *("tests/gate/test_platform_gate.py", "tests/gate/test_gate_own_facts.py", "tests/gate/test_gate_locked_plans.py"),
    *("tests/gate/test_gate_change_notices.py", "tests/gate/test_gate_checks.py", "tests/report/test_report_json.py"),
    *("tests/forge/test_request_flow.py", "tests/metering/test_comparison.py", "tests/smoke/test_smoke_command.py"),
    *("tests/cluster/test_service_verdict.py", "tests/actions/test_chosen_cluster.py", "tests/cli/test_speed.py"),
    *("tests/cli/test_fit_command.py", "tests/cli/test_showback_command.py", "tests/cli/test_compare_command.py"),
    *("tests/portal/test_portal_api.py", "tests/portal/test_backstage_api.py"),
)
"""Files of each room whose quick tests read settings, catalog, form, answers, services or rendered files."""
QUICK_TESTS = "not tools and not platform and not live and not slow"


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return renamed_copy(CHECKOUT, tmp_path_factory.mktemp("other-names") / "repository")


def names_in(root: Path) -> set[str]:
    """The environments, teams, namespaces and cost centres that a repository's own files name."""
    snapshot = FolderSnapshot(root)
    catalog, settings = load_catalog(snapshot), load_settings(snapshot)
    teams = catalog.teams.values()
    return {
        *(*settings.environments, *settings.production.environments, *catalog.teams),
        *(name for team in teams for name in (team.name, team.namespace, team.cost_center)),
        *(service.environment for service in services_of(snapshot)),
        *(path.stem for path in (root / BUDGETS).glob("*.yaml")),
    }


def run_tests(root: Path, *arguments: str) -> str:
    """The output of the tests that the arguments name, run by the repository's own code. Fails unless all passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    variables = environment_of(root) | {QUICK: "1"}
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    return done.stdout


def test_every_name_is_another(renamed: Repository) -> None:
    before, after = names_in(CHECKOUT), names_in(renamed.root)
    assert before & after == set()
    assert len(before) == len(after)
    paths = renamed.run("ls-files", "platform", "manifests").splitlines()
    folders = {part for path in paths for part in Path(path).parts}
    clusters = {one.cluster for one in load_settings(FolderSnapshot(renamed.root)).environments.values()}
    assert folders & before <= {*clusters, "platform"}  # platform/local holds the programs of this machine


def test_a_sample_of_the_tests_passes_under_other_names(renamed: Repository) -> None:
    """By night all quick tests."""
    chosen = ("--numprocesses", "2", "tests") if os.environ.get(ALL) else SAMPLE
    said = run_tests(renamed.root, "-m", QUICK_TESTS, *chosen)
    passed = re.search(r"(\d+) passed", said)
    assert passed, said
    assert int(passed[1]) > 300
    # They read the example organisation's repository, which was written beside the copy's own files.
    (example,) = (renamed.root / ".state/example-repository").iterdir()
    assert names_in(example) == names_in(ROOT)


@pytest.mark.tools
def test_the_gate_passes_every_service_under_other_names(renamed: Repository) -> None:
    assert "passed" in run_tests(renamed.root, "-m", "tools", OWN)

"""The total of a cost centre over many services, by the lines of their plans and by their manifests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from neuroscale.core.yaml_io import dump
from neuroscale.costs.difference import price_side
from neuroscale.costs.pricing import Prices
from neuroscale.gate.checks import repository_costs as reading
from neuroscale.gate.checks.priced_change import prices_of, read_side
from neuroscale.gate.checks.repository_costs import CenterSum, LockedPlan, RepositoryCosts, locked_plans
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.manifests.serving_runtimes import runtimes_below
from neuroscale.planning.planner import plan as plan_of
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import RUNTIMES
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot, child_folders
from neuroscale.request.service_request import load_request
from platform_repository import CATALOG, SETTINGS, SNAPSHOT, TEMPLATE
from repositories import Repository
from roots import ROOT

PLAN = (ROOT / "manifests/local/tiny-moe/plan.yaml").read_text()
CENTER = next(line.split()[1] for line in PLAN.splitlines() if line.startswith("  cost_center:"))
SERVICES = 6
EXAMPLE = yaml.safe_load((ROOT / "templates/examples/gemma-4-26b-a4b-qat.yaml").read_text())


def plan(replicas: int | str) -> str:
    """A plan of this number of replicas."""
    before, _, after = PLAN.partition("\nreplicas:\n")
    return f"{before}\nreplicas:\n  min: {replicas}\n  max: {replicas}\n{after.split(chr(10), 2)[2]}"


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    made.commit({f"manifests/dev/s{number}/plan.yaml": plan(number + 1) for number in range(SERVICES)})
    yield made
    made.git.close()


@cache
def prices() -> Prices:
    return prices_of(PlatformSources(SNAPSHOT))


def sums(repository: Repository) -> CenterSum:
    return RepositoryCosts(GitSnapshot(repository.git, "main"), ()).by_center(prices(), [CENTER])[CENTER]


def test_lines_and_yaml_read_the_same_plan(tmp_path: Path) -> None:
    """A plan that lacks a line of its usual form is read as YAML, and one that is not a regular file is not read."""
    by_lines = reading._by_lines(PLAN.encode())
    assert by_lines == reading._by_yaml("manifests/local/tiny-moe", PLAN.encode())
    for line in PLAN.splitlines(keepends=True):
        shorter = PLAN.replace(line, "", 1).encode()
        found = reading._by_lines(shorter)
        assert found in (None, by_lines), line
    made = Repository(tmp_path)
    made.write({"manifests/dev/other/plan.yaml": PLAN.replace("replicas:\n", "replicas: # by hand\n"), "x": PLAN})
    made.write({"manifests/dev/folder/plan.yaml/x": PLAN, "manifests/dev/run/plan.yaml": PLAN})
    (tmp_path / "manifests/dev/run/plan.yaml").chmod(0o755)
    (tmp_path / "manifests/dev/link").mkdir()
    (tmp_path / "manifests/dev/link/plan.yaml").symlink_to("../../../x")
    made.commit({})
    expected: dict[str, LockedPlan | None] = {"manifests/dev/other": by_lines}
    for snapshot in (GitSnapshot(made.git, "main"), FolderSnapshot(tmp_path)):
        folders = child_folders(snapshot, "manifests/dev")
        assert len(folders) == 4
        assert locked_plans(snapshot, list(folders)) == expected
    made.git.close()


def test_a_total_grows_with_the_plans(repository: Repository) -> None:
    before = sums(repository)
    repository.commit({"manifests/dev/s0/plan.yaml": plan(50), "manifests/dev/s9/plan.yaml": plan(7)})
    assert abs(sums(repository).usd - before.usd / 21 * (21 + 49 + 7)) < Decimal("0.1")


def test_a_clone_without_file_contents_gives_the_same_total(repository: Repository, tmp_path: Path) -> None:
    cold = sums(repository)
    repository.run("config", "uploadpack.allowFilter", "true")
    options = ("--quiet", "--no-checkout", "--filter=blob:none")
    repository.run("clone", *options, f"file://{repository.root}", str(tmp_path / "partial"))
    repository.git.close()
    partial = Repository(tmp_path / "partial")
    assert sums(partial) == cold
    partial.git.close()


@pytest.mark.parametrize("number", ["010", "1" + "0" * 5000], ids=len)
def test_a_number_that_yaml_does_not_read_is_not_read_by_lines(tmp_path: Path, number: str) -> None:
    folder = tmp_path / "manifests/dev/a"
    folder.mkdir(parents=True)
    (folder / "plan.yaml").write_text(plan(number))
    assert locked_plans(FolderSnapshot(tmp_path), ["manifests/dev/a"]) == {}


AUTOSCALED = ("autoscalerClass: none", "autoscalerClass: hpa")


@pytest.mark.parametrize("edit", [None, AUTOSCALED], ids=["fixed", "autoscaled"])
@given(
    environment=st.sampled_from(["dev", "prod"]),
    model=st.sampled_from(["Qwen/Qwen3-8B", EXAMPLE["model"]]),
    users=st.integers(1, 400),
    replicas=st.tuples(st.none() | st.integers(1, 3), st.none() | st.integers(3, 8)),
    accelerator=st.none() | st.sampled_from(["nvidia-l4", "nvidia-h100-80gb"]),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_service_costs_the_same_by_its_plan_and_by_its_manifests(
    tmp_path: Path,
    edit: tuple[str, str] | None,
    environment: str,
    model: str,
    users: int,
    replicas: tuple[int | None, int | None],
    accelerator: str | None,
) -> None:
    """What the service's own pull request shows, and what the next one counts: also where the template autoscales."""
    named = {"replicas.min": replicas[0], "replicas.max": replicas[1], "accelerator": accelerator}
    more = {"reason": "The owner asked for this.", "expires": "2027-01-31"}
    overrides = [{"field": key, "value": value, **more} for key, value in named.items() if value is not None]
    answers = {"model": model, "environment": environment, "concurrent_users": users, "overrides": overrides}
    request = load_request(dump({**EXAMPLE, **answers}), "request.yaml")
    made = plan_of(request, CATALOG, SETTINGS, TEMPLATE.version)
    assume(made.verdict != "refused")
    files = dict(render(request, made, TEMPLATE))
    if edit:
        files["inferenceservice.yaml"] = files["inferenceservice.yaml"].replace(*edit)
    folder = tmp_path / "manifests" / environment / request.service
    shutil.rmtree(tmp_path / "manifests", ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    snapshot = FolderSnapshot(tmp_path)
    by_plan = RepositoryCosts(snapshot, ()).by_center(prices(), [made.tenancy.cost_center])
    runtimes = [one.value for one in runtimes_below(SNAPSHOT, RUNTIMES)]
    side = read_side(snapshot, snapshot.entries("manifests"), runtimes)
    workloads, _ = price_side(side, environment, prices())
    by_manifests = sum(one.monthly.max for one in workloads)
    assert by_plan[made.tenancy.cost_center].usd == by_manifests > 0
    running = made.replicas.max if edit else made.replicas.min
    assert made.cost.monthly_min == made.cost.monthly_max
    assert made.cost.monthly_max is not None
    assert abs(by_manifests - made.cost.monthly_max * running / made.replicas.min) < Decimal("0.05")
    assert edit or by_manifests == made.cost.monthly_max

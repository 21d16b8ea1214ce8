"""A change that brings facts and a service that rests on them is planned without these facts, too."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from cost_examples import TODAY
from measured_models import measured_load, measurement_file
from neuroscale.core.yaml_io import dump
from neuroscale.gate.check import GateCheck, Run, Subject, begin
from neuroscale.gate.checks.catalog import CatalogCheck
from neuroscale.gate.checks.cost import CostCheck
from neuroscale.gate.checks.drift import DriftCheck
from neuroscale.gate.checks.files import FilesCheck
from neuroscale.gate.make_verdict import make_verdict
from neuroscale.gate.merged_change import find_change, read_change
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.planning.planner import plan
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.rendering.service_folder import render
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.report.summary import alerts_of
from neuroscale.request.service_request import Request
from plan_factory import make_request
from platform_repository import CATALOG
from repositories import Repository
from roots import ROOT

MODEL = CATALOG.models["Qwen/Qwen3-8B"]
FILE = "platform/catalog/models/Qwen3-8B.yaml"
SETTINGS = "platform/settings.yaml"
BUDGET = "platform/catalog/budgets/cc-ml-inference.yaml"
CARD = "nvidia-rtx-pro-6000"
CARD_FILE = f"platform/catalog/accelerators/{CARD}.yaml"
ASKED: dict[str, Any] = {"model": MODEL.name, "longest_prompt_tokens": 2048, "longest_answer_tokens": 256}
MANY = make_request(**ASKED, concurrent_users=400, p95_ttft_seconds=3)
SOON = make_request(**ASKED, concurrent_users=4, p95_ttft_seconds=0.1)
FAST = [measured_load(134, 2048, 256, inter_token=1 / 18, ttft=0.25)]
AT_ONCE = [measured_load(users, 2048, 256, inter_token=0.012, ttft=0.06) for users in (1, 2, 4)]


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    for folder in ("platform/catalog", "templates"):
        shutil.copytree(ROOT / folder, made.root / folder)
    made.commit({SETTINGS: settings("off"), BUDGET: budget("40000")}, "base")
    yield made
    made.git.close()


def settings(level: str, **environment: Any) -> str:
    value = yaml.safe_load((ROOT / SETTINGS).read_text())
    value["environments"]["dev"] |= environment
    return yaml.safe_dump({**value, "costs": {"over_budget": level}}, sort_keys=False)


def budget(usd: str) -> str:
    return f'cost_center: cc-ml-inference\nmonthly_usd: "{usd}"\nowner: team-alpha\n'


def measured(loads: list[dict[str, Any]], text: str = (ROOT / FILE).read_text()) -> str:
    return text + dump({"measurements": [measurement_file(MODEL, CARD, loads=loads, date="2026-06-01")]})


def service(repository: Repository, request: Request, **files: str) -> dict[str, str]:
    """The files with a service as the planner makes it beside them."""
    repository.write(dict(files))
    platform = read_planning_inputs(FolderSnapshot(repository.root))
    made = plan(request, platform.catalog, platform.settings, platform.template.version)
    assert made.verdict != "refused"
    folder = f"manifests/{request.environment}/{request.service}"
    return {**files, **{f"{folder}/{name}": text for name, text in render(request, made, platform.template).items()}}


def judged(repository: Repository, tmp_path: Path, files: dict[str, str]) -> tuple[list[Finding], Run]:
    """What the checks from the catalog to the cost find in the change that brings these files."""
    repository.commit(dict(files))
    change = find_change(repository.git, "main~1", "main")
    run = Run(Subject(read_change(change), list, change.before, change), TODAY, tmp_path)
    checks: list[GateCheck] = [FilesCheck(), CatalogCheck(), DriftCheck(), CostCheck()]
    for check in checks:
        run = run.ended_with(check.name, begin(check, run.seen_by(check))(), check.value)
    assert [result.check.outcome for result in run.results if result.check.name in ("files", "drift")] == ["passed"] * 2
    return [finding for result in run.results for finding in result.findings], run


def errors(findings: list[Finding]) -> dict[str, str]:
    return {one.rule: one.message for one in findings if one.severity is Severity.ERROR}


def own_facts(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.rule == "own-facts"]


def test_what_a_measurement_of_the_change_saves_is_a_notice_at_the_top(repository: Repository, tmp_path: Path) -> None:
    findings, run = judged(repository, tmp_path, service(repository, MANY, **{FILE: measured(FAST)}))
    (told,) = own_facts(findings)
    assert (told.severity, told.file) == (Severity.NOTICE, "manifests/dev/support-chat/plan.yaml")
    assert "measurements that the change itself brings (Qwen/Qwen3-8B)" in told.message
    assert f"2 x 1 {CARD} for 5,489.60 USD a month" in told.message
    assert f"3 x 1 {CARD} for 8,234.40 USD a month" in told.message
    assert not errors(findings)
    assert told in alerts_of(make_verdict(run, ()))


@pytest.mark.parametrize(("usd", "refused"), [("5500", True), ("8000", True), ("8300", False)])
def test_a_measurement_of_the_change_is_no_way_below_a_budget(
    repository: Repository, tmp_path: Path, usd: str, refused: bool
) -> None:
    repository.commit({SETTINGS: settings("block"), BUDGET: budget(usd)})
    findings, run = judged(repository, tmp_path, service(repository, MANY, **{FILE: measured(FAST)}))
    assert set(errors(findings)) == ({"over-budget"} if refused else set())
    assert own_facts(findings)
    assert run.cost is not None
    assert run.cost.budgets[0].monthly == Decimal("8234.40")
    assert run.cost.total.new.max == Decimal("5489.60")  # what is deployed


def test_a_service_that_only_a_measurement_of_the_change_makes_possible_is_refused(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit({SETTINGS: settings("off", accelerators=[CARD], max_replicas=1)})
    findings, _ = judged(repository, tmp_path, service(repository, SOON, **{FILE: measured(AT_ONCE)}))
    assert "without them it cannot be served" in errors(findings)["own-facts"]
    assert f"1 x 1 {CARD}" in errors(findings)["own-facts"]


def test_once_the_facts_are_merged_they_decide(repository: Repository, tmp_path: Path) -> None:
    repository.commit({SETTINGS: settings("block", accelerators=[CARD], max_replicas=1), FILE: measured(AT_ONCE)})
    findings, _ = judged(repository, tmp_path, service(repository, SOON))
    assert not errors(findings)
    assert not own_facts(findings)
    # A later change of the same measurement beside a service that it does not move is no notice.
    slower = [measured_load(8, 2048, 256, inter_token=0.02, ttft=0.09), *AT_ONCE]
    findings, _ = judged(repository, tmp_path, service(repository, SOON, **{FILE: measured(slower)}))
    assert not errors(findings)
    assert not own_facts(findings)


def test_other_facts_of_the_change_are_no_way_around_either(repository: Repository, tmp_path: Path) -> None:
    faster = re.sub(r"(_gb_s|_tflops):\n  value: (\d+)", r"\1:\n  value: 4\2", (ROOT / CARD_FILE).read_text())
    findings, _ = judged(repository, tmp_path, service(repository, MANY, **{CARD_FILE: faster}))
    (told,) = own_facts(findings)
    assert f"itself brings ({CARD})" in told.message


def test_facts_with_which_the_base_cannot_even_plan_are_refused(repository: Repository, tmp_path: Path) -> None:
    text = (ROOT / CARD_FILE).read_text()
    elsewhere = text.replace("clusters: [gke, kind]", "clusters: [kind]")
    repository.commit({CARD_FILE: elsewhere, SETTINGS: settings("off", accelerators=["nvidia-l4"])})
    files = {CARD_FILE: text, SETTINGS: settings("off", accelerators=["nvidia-l4", CARD])}
    findings, _ = judged(repository, tmp_path, service(repository, make_request(**ASKED), **files))
    assert f"do not have '{CARD}'" in errors(findings)["own-facts"]


def test_an_expected_load_of_the_change_is_no_way_around_either(repository: Repository, tmp_path: Path) -> None:
    repository.commit({SETTINGS: settings("block"), BUDGET: budget("8000")})
    files = service(repository, MANY, **{SETTINGS: settings("block", typical_share=0.1)})
    findings, _ = judged(repository, tmp_path, files)
    (told,) = own_facts(findings)
    assert "itself brings (settings of dev)" in told.message
    assert set(errors(findings)) == {"over-budget"}


def test_a_new_model_is_planned_without_its_measurements_and_is_possible_by_its_config(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit({FILE: None, "templates/README.md": "-"})
    findings, _ = judged(repository, tmp_path, service(repository, MANY, **{FILE: (ROOT / FILE).read_text()}))
    assert not own_facts(findings)
    findings, _ = judged(repository, tmp_path, service(repository, MANY, **{FILE: measured(FAST)}))
    assert own_facts(findings)

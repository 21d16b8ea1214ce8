"""Money that can stop a merge: budgets, prices that are missing or old, large changes, and the exceptions from them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from cost_examples import GPU_POD, HOURLY, TODAY, inference_service, monthly, pod_spec, workload
from neuroscale.core.yaml_io import dump
from neuroscale.gate.check import Run, Subject, begin
from neuroscale.gate.checks.catalog import load_platform
from neuroscale.gate.checks.cost import CostCheck
from neuroscale.gate.evaluation import GateResult
from neuroscale.gate.judged_files import read_paths
from neuroscale.gate.merged_change import find_change, read_change
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.gate.verdict import Outcome, Severity
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot, read_all
from neuroscale.report.phrases import cost_notes
from repositories import Repository
from roots import ROOT

SETTINGS = "platform/settings.yaml"
BUDGET = "platform/catalog/budgets/cc-ml-inference.yaml"
EXCEPTION = "platform/catalog/budgets/exceptions/launch.yaml"
PRICES = "platform/catalog/prices/google-cloud.yaml"
CENTER = "cc-ml-inference"
POD = monthly(HOURLY)
UNPRICED = pod_spec(gpu=1, cpu=4, memory="16Gi") | {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-t9"}}
ALL_BLOCK = {
    "over_budget": "block",
    "without_price": "block",
    "stale_price": "block",
    "large_change": {"level": "block", "usd_a_month": "5000"},
}


def settings(**rules: Any) -> str:
    value = yaml.safe_load((ROOT / SETTINGS).read_text())
    return yaml.safe_dump({**value, "costs": rules}, sort_keys=False)


def budget(usd: str) -> str:
    return f'cost_center: {CENTER}\nmonthly_usd: "{usd}"\nowner: team-alpha\n'


def exception(rule: str, subject: str, expires: str = "2026-08-01", **more: str) -> str:
    reason = "The launch of the new assistant needs it."
    return dump(
        {"rule": rule, "subject": subject, **more, "reason": reason, "approved_by": "team-alpha", "expires": expires}
    )


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    """Every rule refuses; one service of one pod is there."""
    made = Repository(tmp_path / "repository")
    shutil.copytree(ROOT / "platform/catalog", made.root / "platform/catalog")
    shutil.rmtree(made.root / "platform/catalog/budgets", ignore_errors=True)
    files = {SETTINGS: settings(**ALL_BLOCK), "manifests/dev/there/app.yaml": dump(workload(name="there"))}
    made.commit({**files, "templates/README.md": "-"}, "base")
    yield made
    made.git.close()


def check(repository: Repository, tmp_path: Path, files: dict[str, Any], today: date = TODAY) -> tuple[GateResult, Run]:
    repository.commit({name: dump(value) if isinstance(value, dict) else value for name, value in files.items()})
    change = find_change(repository.git, "main~1", "main")
    run = Run(Subject(read_change(change), list, change.before, change), today, tmp_path)
    judging = CostCheck()
    result = begin(judging, run)()
    assert result is not None
    return result, run.ended_with(judging.name, result, judging.value)


def errors(result: GateResult) -> dict[str, str]:
    return {one.rule: one.message for one in result.findings if one.severity is Severity.ERROR}


def notices(result: GateResult) -> dict[str, str]:
    return {one.rule: one.message for one in result.findings if one.severity is Severity.NOTICE}


def new(name: str = "new", replicas: int = 1, environment: str = "dev", **fields: Any) -> dict[str, Any]:
    return {f"manifests/{environment}/{name}/app.yaml": workload(name=name, replicas=replicas, **fields)}


def test_a_budget_is_compared_with_all_services_of_its_cost_centre(repository: Repository, tmp_path: Path) -> None:
    repository.commit({BUDGET: budget(f"{3 * POD:.2f}")})
    result, run = check(repository, tmp_path, new(replicas=2))
    assert run.cost is not None
    (use,) = run.cost.budgets
    assert (use.cost_center, use.monthly, use.budget, use.unknown) == (CENTER, 3 * POD, use.budget, 0)
    (note,) = [one for one in cost_notes(run.cost, str) if one.startswith("Budget")]
    amounts = f"{3 * POD:,.2f} of {3 * POD:,.2f} USD a month with the most replicas"
    assert note == f"Budget of {CENTER}: all its services take {amounts}."
    assert (result.check.outcome, errors(result), result.check.tripwires_caught) == (Outcome.PASSED, {}, 11)
    assert result.check.detail == f"compared with the budget of {CENTER}"
    result, _ = check(repository, tmp_path, new("more"))
    assert result.check.outcome is Outcome.FINDINGS
    message = errors(result)["over-budget"]
    assert f"{4 * POD:,.2f} USD a month" in message
    assert f"({3 * POD:,.2f} before the change)" in message
    # What does not raise the total is not refused, though it is still beyond the budget.
    result, _ = check(repository, tmp_path, {"manifests/dev/new/app.yaml": workload(name="new", replicas=1)})
    assert errors(result) == {}
    repository.commit({BUDGET: budget("1")})
    result, _ = check(repository, tmp_path, {"manifests/dev/new/app.yaml": None})
    assert (errors(result), "does not raise it" in notices(result)["over-budget"]) == ({}, True)


def test_other_cost_centres_are_not_counted_and_one_without_a_budget_is_named(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit({BUDGET: budget(f"{POD:.2f}")})
    labels = {"cost-center": "cc-other"}
    result, run = check(repository, tmp_path, new(labels=labels, pod_labels=labels))
    assert errors(result) == {}
    check_ = CostCheck()
    begin(check_, run)()
    assert any("cc-other" in one for one in check_.not_checked(run))


def test_a_service_without_a_price_makes_a_total_a_lower_bound(repository: Repository, tmp_path: Path) -> None:
    repository.commit({BUDGET: budget(f"{9 * POD:.2f}"), SETTINGS: settings(over_budget="block")})
    repository.commit({"manifests/dev/odd/app.yaml": dump(workload(name="odd", pod=UNPRICED))})
    result, _ = check(repository, tmp_path, new())
    assert errors(result) == {}
    assert "1 service without a known cost: dev/odd" in notices(result)["over-budget"]


def test_the_platform_s_own_programs_have_no_budget_and_need_no_price(repository: Repository, tmp_path: Path) -> None:
    names = [f"serving/{name}" for name in ("kserve", "kserve-gateway", "kyverno")]
    names += ["clusters/charts", "clusters/workloads", "cost/opencost-values", "cost/kube-state-metrics-values"]
    files = {f"platform/{name}.yaml": (ROOT / f"platform/{name}.yaml").read_text() for name in names}
    rules = settings(over_budget="block", without_price="block", large_change={"level": "block", "usd_a_month": "10"})
    repository.commit({**files, "platform/settings.yaml": rules}, "platform")
    record = "platform/clusters/workloads.yaml"
    result, run = check(repository, tmp_path, {record: files[record].replace("replicas: 3", "replicas: 5")})
    assert run.cost is not None
    assert {one.name for one in run.cost.services} == {"(platform)"}
    assert set(errors(result)) == {"large-change"}
    assert "(platform) changes the bill by +15.90 USD" in errors(result)["large-change"]
    again = CostCheck()
    begin(again, run)()
    assert list(again.not_checked(run)) == []


def test_an_exception_lifts_a_budget_to_its_ceiling_until_it_expires(repository: Repository, tmp_path: Path) -> None:
    ceiling = exception("over-budget", CENTER, monthly_usd=f"{2 * POD:.2f}")
    # The change's own exception lifts nothing.
    repository.commit({BUDGET: budget(f"{POD:.2f}")})
    result, _ = check(repository, tmp_path, {**new(), EXCEPTION: ceiling})
    assert "over-budget" in errors(result)
    repository.commit({"manifests/dev/new/app.yaml": None})
    result, _ = check(repository, tmp_path, new())
    assert errors(result) == {}
    assert "The launch" in notices(result)["over-budget"]
    assert notices(result)["exception"].startswith(f"lifts over-budget for {CENTER} until 2026-08-01")
    result, _ = check(repository, tmp_path, new("third"))
    assert "over-budget" in errors(result)
    repository.commit({"manifests/dev/third/app.yaml": None, "manifests/dev/new/app.yaml": None})
    result, _ = check(repository, tmp_path, new(), date(2026, 8, 2))
    assert "over-budget" in errors(result)
    assert "expired on 2026-08-01, and lifts nothing" in notices(result)["exception"]


def test_a_pod_without_a_price_an_old_price_and_a_large_change_are_refused(
    repository: Repository, tmp_path: Path
) -> None:
    result, _ = check(repository, tmp_path, new(pod=UNPRICED))
    assert list(errors(result)) == ["without-price", "large-change"]
    result, _ = check(repository, tmp_path, new("second"), date(2026, 12, 1))
    assert list(errors(result)) == ["stale-price"]
    assert "google-cloud are of 2026-06-10" in errors(result)["stale-price"]
    result, _ = check(repository, tmp_path, new("early"), date(2026, 6, 1))
    assert "a day in the future, so their age is unknown" in errors(result)["stale-price"]
    result, _ = check(repository, tmp_path, new("third", replicas=9))
    assert list(errors(result)) == ["large-change"]
    assert f"{monthly(HOURLY, 9):+,.2f} USD" in errors(result)["large-change"]
    # A large fall is as surprising as a large rise.
    result, _ = check(repository, tmp_path, {"manifests/dev/third/app.yaml": None})
    assert f"{-monthly(HOURLY, 9):+,.2f} USD" in errors(result)["large-change"]
    # An environment without a price list is free by intention.
    result, _ = check(repository, tmp_path, new(environment="local", pod=pod_spec(cpu=1, memory="1Gi")))
    assert errors(result) == {}


def test_a_large_change_does_not_hide_behind_a_pod_whose_cost_is_unknown(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit({SETTINGS: settings(large_change={"level": "block", "usd_a_month": "5000"})})
    side = {"manifests/dev/new/side.yaml": workload(name="side", pod=UNPRICED)}
    result, _ = check(repository, tmp_path, {**new(replicas=200), **side})
    rise = f"dev/new changes the bill by {monthly(HOURLY, 200):+,.2f} USD"
    assert errors(result)["large-change"].startswith(rise)
    assert "not counting the parts without a known cost" in errors(result)["large-change"]
    # A rise that nobody knows could be large, and so could a number of pods that nothing bounds.
    unbounded = inference_service({"minReplicas": 0}, {"serving.kserve.io/deploymentMode": "Knative"})
    for name, value in (("a", workload(name="a", pod=UNPRICED)), ("b", unbounded)):
        result, _ = check(repository, tmp_path, {f"manifests/dev/{name}/app.yaml": value})
        assert f"dev/{name} changes the bill by an amount that is not known" in errors(result)["large-change"], name
    repository.commit({EXCEPTION: exception("large-change", "dev/c")})
    result, _ = check(repository, tmp_path, {"manifests/dev/c/app.yaml": workload(name="c", pod=UNPRICED)})
    assert (errors(result), "dev/c changes" in notices(result)["large-change"]) == ({}, True)
    repository.commit({SETTINGS: settings(large_change={"level": "warn", "usd_a_month": "5000"})})
    result, _ = check(repository, tmp_path, {"manifests/dev/d/app.yaml": workload(name="d", pod=UNPRICED)})
    assert "large-change" not in {**errors(result), **notices(result)}


def test_many_small_changes_are_a_large_one_together(repository: Repository, tmp_path: Path) -> None:
    repository.commit({SETTINGS: settings(large_change={"level": "block", "usd_a_month": "5000"})})
    eight = {path: value for number in range(8) for path, value in new(f"s{number}", replicas=4).items()}
    result, _ = check(repository, tmp_path, eight)
    message = errors(result)["large-change"]
    assert message.startswith(f"8 services together change the bill by {8 * monthly(HOURLY, 4):+,.2f} USD a month")
    assert f"the largest: dev/s0 {monthly(HOURLY, 4):+,.2f}, " in message
    result, _ = check(repository, tmp_path, dict.fromkeys(eight))
    assert f"{-8 * monthly(HOURLY, 4):+,.2f} USD" in errors(result)["large-change"]
    # A service that takes another's name alters no bill, and exceptions take their services out of the sum.
    result, _ = check(repository, tmp_path, {"manifests/dev/there/app.yaml": None, **new("renamed")})
    assert errors(result) == {}
    lifted: dict[str, bytes | str | None] = {
        EXCEPTION.replace("launch", f"s{one}"): exception("large-change", f"dev/s{one}") for one in range(7)
    }
    repository.commit(lifted)
    result, _ = check(repository, tmp_path, eight)
    assert errors(result) == {}


def test_a_new_service_that_only_a_percentage_could_judge_is_named(repository: Repository, tmp_path: Path) -> None:
    repository.commit({SETTINGS: settings(large_change={"level": "block", "percent": 50})})
    result, run = check(repository, tmp_path, {"manifests/dev/there/app.yaml": workload(name="there", replicas=2)})
    assert f"more than 50 % of {POD:,.2f}" in errors(result)["large-change"]
    result, run = check(repository, tmp_path, new())
    assert errors(result) == {}
    again = CostCheck()
    begin(again, run)()
    assert list(again.not_checked(run)) == [
        f"Large changes: dev/new cost nothing before, which only `usd_a_month` in {SETTINGS} would judge."
    ]


@pytest.mark.parametrize("rules", [ALL_BLOCK, {}], ids=["all block", "all off"])
def test_every_report_lists_the_exceptions(repository: Repository, tmp_path: Path, rules: dict[str, Any]) -> None:
    """Also of a change that costs nothing, of one that alters no manifest, and of a run over files without a change."""
    lifts = exception("over-budget", CENTER, monthly_usd="9000")
    repository.commit({SETTINGS: settings(**rules), BUDGET: budget("5000"), EXCEPTION: lifts})
    annotated = workload(name="there")
    annotated["metadata"]["annotations"] = {"remark": "none"}
    for files in (
        {"manifests/dev/there/app.yaml": annotated},
        {"README.md": "hello"},
        {"manifests/dev/there/x.md": "x"},
    ):
        result, _ = check(repository, tmp_path, files)
        assert result.check.outcome is Outcome.PASSED
        assert result.check.detail == "no rule judges this run, which only lists exceptions"
        (found,) = result.findings
        assert (found.rule, found.file, found.severity) == ("exception", EXCEPTION, Severity.NOTICE)
        assert f"lifts over-budget for {CENTER} until 2026-08-01 (approved by team-alpha)" in found.message
    given = read_paths([repository.root / "manifests"], repository.root)
    listed = begin(CostCheck(), Run(Subject(given, list, given.snapshot), TODAY, tmp_path))()
    assert listed is not None
    assert [one.rule for one in listed.findings] == ["exception"]
    # Other people's manifests have nothing to do with this repository's exceptions, nor does one without any.
    (tmp_path / "other.yaml").write_text(dump(workload()))
    given = read_paths([tmp_path / "other.yaml"], repository.root)
    assert begin(CostCheck(), Run(Subject(given, list, given.snapshot), TODAY, tmp_path))() is None
    repository.commit({EXCEPTION: None})
    repository.commit({"README.md": "again"})
    change = find_change(repository.git, "main~1", "main")
    run = Run(Subject(read_change(change), list, change.before, change), TODAY, tmp_path)
    assert begin(CostCheck(), run)() is None


@pytest.mark.parametrize("level", ["off", "warn"])
def test_what_the_settings_do_not_block_refuses_nothing(repository: Repository, tmp_path: Path, level: str) -> None:
    large = {"level": level, "percent": 10}
    rules = {"over_budget": level, "without_price": level, "stale_price": level, "large_change": large}
    repository.commit({BUDGET: budget("1"), SETTINGS: settings(**rules)})
    repository.commit({"manifests/dev/there/app.yaml": dump(workload(name="there", replicas=2))})
    change = find_change(repository.git, "main~1", "main")
    run = Run(Subject(read_change(change), list, change.before, change), date(2026, 12, 1), tmp_path)
    judging = CostCheck()
    result = begin(judging, run)()
    assert judging.value is not None
    if level == "off":
        assert result is None
    else:
        assert result is not None
        assert set(notices(result)) == {"over-budget", "stale-price", "large-change"}
        assert result.check.outcome is Outcome.PASSED


def test_the_bases_rules_and_budgets_decide(repository: Repository, tmp_path: Path) -> None:
    repository.commit({BUDGET: budget(f"{POD:.2f}")})
    files = {**new(), SETTINGS: settings(), BUDGET: budget("99999")}
    result, _ = check(repository, tmp_path, files)
    assert "over-budget" in errors(result)


def _cheaper(text: str) -> str:
    """The price list with every amount at a thousandth."""
    return re.sub(r'"(\d+\.\d+)"', lambda match: f'"{Decimal(match[1]) / 1000}"', text)


def _without_lists() -> str:
    value = yaml.safe_load(settings(**ALL_BLOCK))
    value["environments"]["dev"]["price_lists"] = []
    return yaml.safe_dump(value, sort_keys=False)


def _without_the_environment() -> str:
    value = yaml.safe_load(settings(**ALL_BLOCK))
    del value["environments"]["dev"]
    return yaml.safe_dump(value, sort_keys=False)


@pytest.mark.parametrize(
    "facts",
    [
        lambda text: {PRICES: _cheaper(text)},
        lambda text: {PRICES: text.replace('"0.72"', '"0.072"')},
        lambda text: {SETTINGS: _without_lists()},
        lambda text: {SETTINGS: _without_the_environment()},
        lambda text: {PRICES: _cheaper(text).replace("2026-06-10", "2026-06-20")},
    ],
    ids=["all prices", "one price", "no price list", "no environment", "a new date"],
)
@pytest.mark.parametrize("rule", ["over-budget", "large-change"])
def test_a_change_cannot_make_its_own_services_cheap(
    repository: Repository, tmp_path: Path, facts: Callable[[str], dict[str, str]], rule: str
) -> None:
    """The base's price decides where it is dearer, also for the services that the change leaves alone."""
    text = (repository.root / PRICES).read_text()
    repository.commit({BUDGET: budget(f"{8 * POD:.2f}")})
    result, _ = check(repository, tmp_path, {**new(replicas=9), **facts(text)})
    assert rule in errors(result)
    usd = monthly(HOURLY, 9) + (POD if rule == "over-budget" else 0)
    assert f"{usd:,.2f} USD" in errors(result)[rule].replace("+", "")
    assert result.check.outcome is Outcome.FINDINGS


@pytest.mark.parametrize("lists", [[], ["cheap"]], ids=["no list", "a list of its own"])
def test_a_new_environment_is_no_way_around_a_budget(repository: Repository, tmp_path: Path, lists: list[str]) -> None:
    """Its price list is the change's own, so the base's lists for such clusters count, too."""
    repository.commit({BUDGET: budget(f"{8 * POD:.2f}")})
    value = yaml.safe_load(settings(**ALL_BLOCK))
    value["environments"]["lab"] = {
        **deepcopy(value["environments"]["dev"]),
        "price_lists": lists,
        "domain": "lab.example",
    }
    cheap = _cheaper((repository.root / PRICES).read_text()).replace("name: google-cloud", "name: cheap")
    files = {SETTINGS: yaml.safe_dump(value, sort_keys=False), "platform/catalog/prices/cheap.yaml": cheap}
    result, _ = check(repository, tmp_path, {**new(replicas=9, environment="lab"), **files})
    assert f"{monthly(HOURLY, 9) + POD:,.2f} USD" in errors(result)["over-budget"]


@pytest.mark.parametrize("is_known", [True, False], ids=["a dearer price", "a first price"])
@pytest.mark.parametrize("rule", ["over-budget", "large-change"])
def test_a_change_cannot_make_dear_what_it_replaces(
    repository: Repository, tmp_path: Path, rule: str, is_known: bool
) -> None:
    """What a service cost before the change is what it cost by the base's prices."""
    text = (repository.root / PRICES).read_text()
    lists = yaml.safe_load(text)
    lists["prices"] = [price for price in lists["prices"] if price["accelerator"] != "nvidia-l4"]
    repository.commit({BUDGET: budget("3000.00"), PRICES: text if is_known else dump(lists)})
    bigger = GPU_POD | {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}}
    larger = {"manifests/dev/there/app.yaml": workload(name="there", pod=bigger)}
    result, _ = check(repository, tmp_path, {**larger, PRICES: text.replace('"0.72"', '"10.50"')})
    assert rule in errors(result)
    assert f"({POD if is_known else 0:,.2f} before the change)" in errors(result)["over-budget"]


@pytest.mark.parametrize("usd", ["0.72", "20.00"])
def test_a_catalog_that_takes_one_accelerator_for_another_hides_no_cost(
    repository: Repository, tmp_path: Path, usd: str
) -> None:
    repository.commit({BUDGET: budget("3000.00")})
    prices = (repository.root / PRICES).read_text()
    folder = "platform/catalog/accelerators"
    small, large = ((repository.root / f"{folder}/nvidia-{name}.yaml").read_text() for name in ("l4", "h100-80gb"))
    label, node = "cloud.google.com/gke-accelerator: nvidia-h100-80gb", "karpenter.k8s.aws/instance-gpu-name: l4"
    facts = {
        f"{folder}/nvidia-l4.yaml": small.replace(node, label),
        f"{folder}/nvidia-h100-80gb.yaml": large.replace(label, "example.com/card: h100"),
        PRICES: prices.replace('"0.72"', f'"{usd}"'),
    }
    bigger = GPU_POD | {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}}
    larger = {"manifests/dev/there/app.yaml": workload(name="there", pod=bigger)}
    result, _ = check(repository, tmp_path, {**larger, **facts})
    assert {"over-budget", "large-change"} <= {*errors(result)}


def test_rules_of_a_base_that_cannot_be_read_are_those_of_the_change(repository: Repository, tmp_path: Path) -> None:
    repository.commit({BUDGET: budget("3000.00"), SETTINGS: "organization: [\n"})
    result, _ = check(repository, tmp_path, {**new(replicas=9), SETTINGS: settings(**ALL_BLOCK)})
    assert {"over-budget", "large-change"} <= {*errors(result)}


def test_a_team_does_not_leave_its_budget_with_its_own_change(repository: Repository, tmp_path: Path) -> None:
    team = "platform/catalog/teams/team-alpha.yaml"
    repository.commit({BUDGET: budget("3000.00")})
    moved = (repository.root / team).read_text().replace(CENTER, "cc-of-another")
    result, _ = check(repository, tmp_path, {**new(replicas=9), team: moved})
    assert "over-budget" in errors(result)


@pytest.mark.parametrize("with_its_budget", [False, True])
@pytest.mark.parametrize("moved", [False, True])
def test_a_cost_centre_of_the_change_itself_is_no_way_around_budgets(
    repository: Repository, tmp_path: Path, with_its_budget: bool, moved: bool
) -> None:
    repository.commit({BUDGET: budget("3000.00"), SETTINGS: settings(over_budget="block")})
    team = "platform/catalog/teams/team-alpha.yaml"
    text = (repository.root / team).read_text().replace(CENTER, "cc-new")
    files: dict[str, Any] = (
        {team: text} if moved else {team.replace("alpha", "new"): text.replace("team-alpha", "team-new")}
    )
    if with_its_budget:
        files[BUDGET.replace(CENTER, "cc-new")] = budget("9000000").replace(CENTER, "cc-new")
    labels = {"cost-center": "cc-new"}
    service = new(labels=labels, pod_labels=labels)
    result, _ = check(repository, tmp_path, {**files, **service})
    assert "cc-new is a cost centre that the change itself brings" in errors(result)["over-budget"]
    assert f"{POD:,.2f} USD a month" in errors(result)["over-budget"]
    # Whoever merged the team first let its cost centre be without a budget; the verdict names it.
    repository.commit(dict.fromkeys(service))
    result, _ = check(
        repository,
        tmp_path,
        {"manifests/dev/new/app.yaml": dump(workload(name="new", labels=labels, pod_labels=labels))},
    )
    assert errors(result) == {}


def test_a_smaller_service_is_not_refused_for_a_higher_price(repository: Repository, tmp_path: Path) -> None:
    text = (repository.root / PRICES).read_text()
    repository.commit({BUDGET: budget("1.00"), **{name: dump(one) for name, one in new(replicas=4).items()}})
    higher = {PRICES: text.replace('"0.72"', '"1.05"')}
    result, _ = check(repository, tmp_path, {**new(replicas=3), **higher})
    assert errors(result) == {}
    assert "Prices raise it, and the services of the change do not" in notices(result)["over-budget"]


def test_the_dearer_price_is_named_and_so_is_a_price_that_only_the_change_has(
    repository: Repository, tmp_path: Path
) -> None:
    text = (repository.root / PRICES).read_text()
    repository.commit({SETTINGS: settings(over_budget="block"), BUDGET: budget(f"{9 * POD:.2f}")})
    result, run = check(repository, tmp_path, {**new(), PRICES: text.replace('"0.72"', '"0.072"')})
    assert errors(result) == {}
    assert f"cost {POD:,.2f} USD a month with the most replicas" in notices(result)["both-prices"]
    assert run.cost is not None
    assert run.cost.total.new.max < POD  # the verdict's table shows the prices of the merge result
    # A dearer price of the change decides as well, and a price that the base lacks is the only one.
    result, _ = check(repository, tmp_path, {**new("two", replicas=5), PRICES: text.replace('"0.72"', '"9.72"')})
    assert "over-budget" in errors(result)
    lists = yaml.safe_load(text)
    lists["prices"] = [price for price in lists["prices"] if price["accelerator"] != "nvidia-l4"]
    repository.commit({PRICES: dump(lists)})
    result, _ = check(repository, tmp_path, {**new("three"), PRICES: text})
    assert "only ones for dev/three" in notices(result)["new-price"]


def test_an_old_price_is_not_renewed_by_the_change_that_needs_it(repository: Repository, tmp_path: Path) -> None:
    text = (repository.root / PRICES).read_text()
    renewed = text.replace("2026-06-10", "2026-11-30")
    assert renewed != text
    result, _ = check(repository, tmp_path, {**new(), PRICES: renewed}, date(2026, 12, 1))
    assert "stale-price" in errors(result)


def test_new_prices_alone_refuse_nothing_and_show_what_they_do_to_budgets(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit({BUDGET: budget(f"{POD:.2f}")})
    path = PRICES
    text = (repository.root / path).read_text()
    result, _ = check(repository, tmp_path, {path: text.replace('"0.72"', '"1.72"')})
    assert errors(result) == {}
    assert f"{POD + 730:,.2f} USD a month" in notices(result)["over-budget"]
    assert f"({POD:,.2f} before the change)" in notices(result)["over-budget"]


def test_a_cost_that_is_not_known_is_untrusted_where_a_rule_could_refuse(
    repository: Repository, tmp_path: Path
) -> None:
    result, _ = check(repository, tmp_path, {**new(), PRICES: "prices: ["})
    assert result.check.outcome is Outcome.UNTRUSTED
    assert "The change of the cost is not known" in result.check.detail
    repository.commit({PRICES: (ROOT / PRICES).read_text()})
    repository.commit({BUDGET: "monthly_usd: many\n"})
    result, _ = check(repository, tmp_path, new("other"))
    assert result.check.outcome is Outcome.UNTRUSTED


def test_a_locked_plan_is_priced_as_its_manifests_are(repository: Repository, tmp_path: Path) -> None:
    """The shipped service's plan, moved to an environment with prices: both readings give the same total."""
    folder = ROOT / "manifests/local/tiny-moe"
    there = {one.name: one.read_text() for one in folder.iterdir()}
    repository.commit({BUDGET: budget("1"), SETTINGS: settings(over_budget="block")})
    repository.commit({f"manifests/dev/tiny-moe/{name}": text for name, text in there.items()})
    by_plan = notices_or_errors(check(repository, tmp_path, new("a"))[0])
    repository.commit({"manifests/dev/tiny-moe/plan.yaml": None})
    by_manifests = notices_or_errors(check(repository, tmp_path, new("b"))[0])
    host = 2 * Decimal("0.0864") + 4 * Decimal("0.009")
    assert f"{2 * POD + monthly(host):,.2f} USD" in by_plan
    assert f"{3 * POD + monthly(host):,.2f} USD" in by_manifests


def notices_or_errors(result: GateResult) -> str:
    return {one.rule: one.message for one in result.findings}["over-budget"]


def test_a_budget_that_no_team_has_is_a_finding_of_the_catalogs_check(tmp_path: Path) -> None:
    for folder in ("platform/catalog", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copyfile(ROOT / SETTINGS, tmp_path / SETTINGS)
    shutil.rmtree(tmp_path / "platform/catalog/budgets", ignore_errors=True)
    (tmp_path / EXCEPTION).parent.mkdir(parents=True)
    cases = {
        "is not a team's cost center": (budget("5").replace(CENTER, "cc-nobody"), ""),
        "is not a team's owner": (budget("5").replace("team-alpha", "team-nobody"), ""),
        "monthly_usd": (budget("-5"), ""),
        "who owns the budget": (
            budget("5"),
            exception("over-budget", CENTER, monthly_usd="9").replace("team-alpha", "team-beta"),
        ),
        "'team-nobody' is not a team's owner": (
            budget("5"),
            exception("large-change", "dev/there").replace("team-alpha", "team-nobody"),
        ),
        "has no budget": (budget("5"), exception("over-budget", "cc-nobody", monthly_usd="9")),
        "belongs to an exception": (budget("5"), exception("over-budget", CENTER)),
    }
    for said, (text, lifted) in cases.items():
        (tmp_path / BUDGET).write_text(text)
        (tmp_path / EXCEPTION).write_text(lifted)
        if not lifted:
            (tmp_path / EXCEPTION).unlink()
        findings, _ = load_platform(PlatformSources(FolderSnapshot(tmp_path)))
        assert any(said in one.message for one in findings), (said, findings)


def test_a_copy_of_an_accelerator_is_a_finding_since_it_takes_the_price_from_both(tmp_path: Path) -> None:
    for folder in ("platform/catalog", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copyfile(ROOT / SETTINGS, tmp_path / SETTINGS)
    cards = tmp_path / "platform/catalog/accelerators"
    text = (cards / "nvidia-l4.yaml").read_text()
    (cards / "copy.yaml").write_text(text.replace("name: nvidia-l4", "name: copy"))
    findings, _ = load_platform(PlatformSources(FolderSnapshot(tmp_path)))
    assert [one.rule for one in findings if "also asks for" in one.message] == ["disagreement"]


def test_blobs_are_read_in_bulk_and_what_is_none_is_left_out(repository: Repository) -> None:
    repository.commit({"a.txt": "one\n", "b.txt": b"\0two", "empty.txt": ""})
    snapshot = GitSnapshot(repository.git, "main")
    entries = snapshot.entries("a.txt", "b.txt", "empty.txt")
    assert read_all(snapshot, entries) == {"a.txt": b"one\n", "b.txt": b"\0two", "empty.txt": b""}
    assert read_all(FolderSnapshot(repository.root), entries) == read_all(snapshot, entries)
    tree = repository.git.text("rev-parse", "main^{tree}")
    assert repository.git.read_blobs([tree, "0" * 40, entries[0].object_id]) == {entries[0].object_id: b"one\n"}

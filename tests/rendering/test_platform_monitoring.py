"""What Prometheus is told: rules that promtool passes, and the same choice of pods in each of its formats."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscale.catalog.settings import check_settings, load_settings
from neuroscale.cluster.endpoint import metrics as endpoint
from neuroscale.core import tool_cache
from neuroscale.core.errors import InputError
from neuroscale.manifests.objects import SERVICE
from neuroscale.rendering.platform import monitoring
from neuroscale.rendering.platform.files import render_repository
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from platform_repository import CATALOG, SETTINGS, SNAPSHOT, copy_platform, edit, rendered_platform
from roots import CHECKOUT, ROOT

FOLDER = ROOT / monitoring.FOLDER
TESTS = FOLDER / "rules_test.yaml"
FILES = rendered_platform()
RULES = [
    rule for path in monitoring.RULES for group in monitoring.read_rules(SNAPSHOT, path) for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}


def promtool(*arguments: object) -> str:
    done = subprocess.run(
        [str(tool_cache.find("promtool")), *(str(argument) for argument in arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@pytest.mark.tools
def test_every_rule_does_what_its_unit_tests_say() -> None:
    assert "SUCCESS" in promtool("test", "rules", TESTS)


def test_every_rule_has_a_unit_test() -> None:
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    tested = {case["expr"] for test in tests for case in test.get("promql_expr_test", [])}
    tested |= {case["alertname"] for test in tests for case in test.get("alert_rule_test", []) if case["exp_alerts"]}
    # Alerts are made of the other records.
    used = " ".join(rule["expr"] for rule in RULES if "alert" in rule)
    untested = {rule.get("record") or rule["alert"] for rule in RULES} - tested
    assert {name for name in untested if name not in used} == set()


def test_every_alert_has_cases_in_which_it_fires_and_does_not_and_a_severity_that_routes_know() -> None:
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    cases = [case for test in tests for case in test.get("alert_rule_test", [])]
    seen = {
        fires: {case["alertname"] for case in cases if bool(case["exp_alerts"]) == fires} for fires in (True, False)
    }
    # A test that expects one alert expects no other of the same rule, so its other series are cases that do not fire.
    seen[False] |= {
        case["alertname"]
        for test in tests
        for case in test.get("alert_rule_test", [])
        if len(case["exp_alerts"]) < len(test["input_series"])
    }
    assert seen[True] == seen[False] == set(ALERTS)
    assert {rule["labels"]["severity"] for rule in ALERTS.values()} == {"warning", "critical"}


HEADINGS = ["What users notice", "What to look at", "What to do"]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    pages = {path.stem: path for path in (CHECKOUT / monitoring.RUNBOOKS).glob("*.md")}
    assert set(pages) == set(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"{monitoring.RUNBOOKS}{name}.md"
        title, *parts = re.split(r"^#+ (.+)$", pages[name].read_text(), flags=re.MULTILINE)[1:]
        assert title == name
        assert parts[1::2] == HEADINGS, name
        assert all(len(part.split()) >= 2 for part in parts[2::2]), name
        # `explain` comes first wherever a server of a service can be asked.
        explains = "`neuroscale explain {{" in rule["annotations"]["next"]
        assert ("neuroscale explain dev/chat" in parts[4]) == explains, name


def test_a_runbook_has_its_whole_address_in_the_rules_of_a_cluster_as_the_forge_writes_it() -> None:
    path = f"{monitoring.RUNBOOKS}NeuroScaleServiceDown.md"
    (rule,) = [one for one in objects_of("dev") if one.get("alert") == "NeuroScaleServiceDown"]
    assert rule["annotations"]["runbook_url"] == f"{SETTINGS.repository.url}/blob/main/{path}"
    elsewhere = SETTINGS.repository.model_copy(update={"url": "https://forge.example.com/models/platform.git"})
    on_gitea = SETTINGS.model_copy(update={"repository": elsewhere, "owners": None})
    assert on_gitea.page(path) == f"https://forge.example.com/models/platform/src/branch/main/{path}"
    on_github = SETTINGS.model_copy(update={"owners": None})
    assert on_github.page(path) == SETTINGS.page(path)


def objects_of(environment: str) -> list[dict[str, Any]]:
    """The rules that an environment's cluster gets."""
    rule = yaml.safe_load(FILES[f"{monitoring.FOLDER}/{environment}/prometheusrule.yaml"])
    return [one for group in rule["spec"]["groups"] for one in group["rules"]]


def test_alerts_of_a_servers_failure_or_slowness_name_the_command_that_explains_it() -> None:
    without = {"NeuroScaleServiceGone", "NeuroScaleServiceNotScraped"}  # no pod, and no fault of the server
    without |= {"NeuroScaleSyncFailed", "NeuroScaleCertificateEnds"}
    alerts = {name: rule["annotations"]["next"] for name, rule in ALERTS.items()}
    assert {name for name, told in alerts.items() if "`neuroscale explain {{" not in told} == without
    assert not any("kubectl" in told for told in alerts.values())


@pytest.mark.tools
def test_promtool_finds_the_rules_good_without_a_lint() -> None:
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", *(ROOT / path for path in monitoring.RULES))
    assert said.count("SUCCESS") == len(monitoring.RULES)


@pytest.mark.tools
@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_the_operators_rule_holds_the_same_groups_and_promtool_reads_them(environment: str, tmp_path: Path) -> None:
    rule = yaml.safe_load(FILES[f"{monitoring.FOLDER}/{environment}/prometheusrule.yaml"])
    written = [group for path in monitoring.RULES for group in yaml.safe_load((ROOT / path).read_text())["groups"]]
    named = rule["spec"]["groups"]
    address = SETTINGS.page(monitoring.RUNBOOKS)
    plain = json.dumps(named).replace(f" {environment}/{{{{", " {{").replace(address, monitoring.RUNBOOKS)
    assert json.loads(plain) == written
    down = next(one for group in named for one in group["rules"] if one.get("alert") == "NeuroScaleServiceDown")
    assert f"`neuroscale explain {environment}/{{{{ $labels.service }}}}`" in down["annotations"]["next"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    promtool("check", "rules", tmp_path / "rules.yaml")


@pytest.mark.tools
def test_prometheus_reads_the_scrape_configurations(tmp_path: Path) -> None:
    configuration = {"scrape_config_files": [str(ROOT / monitoring.SCRAPE), str(ROOT / "platform/cost/scrape.yaml")]}
    configuration["rule_files"] = [str(ROOT / path) for path in monitoring.RULES]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    said = promtool("check", "config", tmp_path / "prometheus.yaml")
    assert f"{len(RULES)} rules found" in said or "SUCCESS" in said


def test_the_operator_and_plain_prometheus_choose_the_same_pods_of_every_team() -> None:
    (scrape,) = yaml.safe_load(FILES[monitoring.SCRAPE])["scrape_configs"]
    monitor = yaml.safe_load(FILES[f"{monitoring.FOLDER}/prod/podmonitor.yaml"])["spec"]
    (endpoint_,) = monitor["podMetricsEndpoints"]
    plain = [{key.replace("_", "").lower(): value for key, value in one.items()} for one in scrape["relabel_configs"]]
    assert [{key.lower(): value for key, value in one.items()} for one in endpoint_["relabelings"]] == plain
    teams = sorted(team.namespace for team in CATALOG.teams.values())
    assert monitor["namespaceSelector"]["matchNames"] == teams
    assert scrape["kubernetes_sd_configs"][0]["namespaces"]["names"] == teams
    assert monitor["selector"]["matchExpressions"] == [{"key": SERVICE, "operator": "Exists"}]


def test_pods_are_chosen_by_what_the_runtimes_and_kserve_say_of_them() -> None:
    chosen = str(monitoring.RELABELINGS)
    runtimes = [yaml.safe_load(text) for path, text in FILES.items() if path.startswith("platform/serving/runtimes/")]
    assert runtimes
    for runtime in runtimes:
        for annotation in runtime["spec"]["annotations"]:
            assert re.sub("[./-]", "_", annotation) in chosen
        assert [container["name"] for container in runtime["spec"]["containers"]] == [monitoring.CONTAINER]
    assert re.sub("[./-]", "_", SERVICE) in chosen


def test_rules_use_no_metric_of_vllm_that_the_smoke_tests_do_not_look_for() -> None:
    names = {
        name for rule in RULES for name in re.findall(r"vllm:\w+", rule["expr"]) if not name.startswith("service:")
    }
    known = {*endpoint.NAMES, "vllm:request_success_total"}
    assert {re.sub("_bucket$", "", name) for name in names} <= known
    # Every one of them is recorded for autoscaling and alerts.
    assert {re.sub("_bucket$", "", name) for name in names} >= set(endpoint.NAMES)


def test_an_environment_whose_prometheus_has_no_operator_gets_none_of_its_objects(tmp_path: Path) -> None:
    root = copy_platform(tmp_path / "platform")
    edit(root, "platform/settings.yaml", "  dev:\n", "  dev:\n    prometheus: {operator: false}\n")
    snapshot = FolderSnapshot(root)
    files = render_repository(snapshot)
    # The meter reads the cluster's name in any case.
    assert [path for path in files if path.startswith("platform/monitoring/dev/")] == [
        "platform/monitoring/dev/cluster-name.yaml"
    ]
    assert len([path for path in files if path.startswith("platform/monitoring/prod/")]) == 3


def test_a_prometheus_that_the_network_policies_keep_out_is_refused(tmp_path: Path) -> None:
    root = copy_platform(tmp_path / "platform")
    edit(root, "platform/settings.yaml", "  dev:\n", "  dev:\n    prometheus: {namespace: elsewhere}\n")
    with pytest.raises(InputError, match=r"environments\.dev\.prometheus\.namespace: 'elsewhere'"):
        check_settings(load_settings(FolderSnapshot(root)), CATALOG)
    check_settings(SETTINGS, CATALOG)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("groups: []\n", "is not a list of groups"),
        ("groups: [{name: a, rules: []}]\n", "holds no rules"),
        ("groups:\n  - name: a\n    rules:\n      - expr: up\n", "is not a rule"),
        (
            "groups:\n  - name: a\n    rules:\n      - {record: 'service:x:sum', expr: up, for: 1m}\n",
            "has the field 'for'",
        ),
        ("groups:\n  - name: a\n    rules:\n      - {record: up, expr: up}\n", "not a name in this repository's form"),
        ("groups:\n  - name: a\n    rules:\n      - {alert: NeuroScaleDown, expr: up}\n", "does not say what to do"),
        (
            "groups:\n  - name: a\n    rules:\n"
            "      - {record: 'service:x:sum', expr: up}\n      - {record: 'service:x:sum', expr: up}\n",
            "stands twice",
        ),
    ],
)
def test_rules_that_cannot_be_used_are_told_with_their_place(text: str, told: str) -> None:
    path = monitoring.RULES[0]
    files: dict[str, Any] = {path: text.encode()}
    with pytest.raises(InputError, match=told) as error:
        monitoring.read_rules(MemorySnapshot(files), path)
    assert str(error.value).startswith(path)

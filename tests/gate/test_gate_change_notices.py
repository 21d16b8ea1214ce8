"""What a change alters: each file and value is shown, and a reviewer is told what it loosens, widens or moves."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from gate_lab import gate, pristine, rules
from gate_lab import repository as repository_with_a_service
from measured_models import measured_load, measurement_file
from neuroscale.catalog import Catalog, PriceList, load_catalog
from neuroscale.catalog.budgets import Budget, CostException
from neuroscale.catalog.directions import CATALOG_ROWS, LISTED, SETTINGS_ROWS, Direction, Notice, Row
from neuroscale.catalog.entries import Accelerator, ModelEntry, RuntimeEntry, Team
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import dump
from neuroscale.gate.check import Run, Subject, begin
from neuroscale.gate.checks import change_notices
from neuroscale.gate.checks.catalog import CatalogCheck, measurement_findings
from neuroscale.gate.checks.change_notices import FIXES, ChangeCheck, weaker_test
from neuroscale.gate.evaluation import GateResult
from neuroscale.gate.file_kinds import OTHER, in_words, kind_of
from neuroscale.gate.judged_files import GateInput
from neuroscale.gate.merged_change import find_change, read_change
from neuroscale.gate.value_differences import compared, entries_of, is_compared
from neuroscale.gate.verdict import ChangedFiles, Outcome, Severity
from neuroscale.planning.planner import plan
from neuroscale.repo.layout import PROTECTED, is_protected
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from plan_factory import make_request
from platform_repository import CATALOG, PLATFORM, copy_platform
from repositories import Repository
from roots import ROOT

__all__ = ["pristine", "repository_with_a_service"]  # fixtures
SETTINGS = "platform/settings.yaml"
POLICY = "policies/allowed-registries/policy.yaml"
MODEL = "platform/catalog/models/Qwen3-32B.yaml"
PRICES = "platform/catalog/prices/google-cloud.yaml"
TEAM = "platform/catalog/teams/team-alpha.yaml"
TENANCY = "platform/tenancy/team-alpha"
BUDGET = "platform/catalog/budgets/cc-search.yaml"
EXAMPLE = "templates/examples/gemma-4-26b-a4b-qat.yaml"
RUNTIME = "platform/serving/runtimes/neuroscale-vllm.yaml"
EXCEPTION = "policies/exceptions/chat.yaml"
Edit = Callable[[str], str]


def swap(old: str, new: str) -> Edit:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return edit


def told(path: str, edit: Edit) -> set[tuple[str, str, str, str]]:
    """The notices on an edit of one file of this repository: notice, field, value before and value after."""
    text = (ROOT / path).read_text()
    sides = [entries_of(MemorySnapshot({path: one.encode()}), [path]) for one in (text, edit(text))]
    assert [unread for _, unread in sides] == [[], []]
    values = [one.listed for one in compared(sides[0][0], sides[1][0])]
    assert values, "the edit changes no value"
    return {(one.notice, one.field, one.before or "-", one.after or "-") for one in values if one.notice}


@pytest.mark.parametrize(
    ("path", "edit", "expected"),
    [
        (
            SETTINGS,
            swap("over_budget: block", 'over_budget: "off"'),
            ("weaker-rule", "costs.over_budget", "block", "off"),
        ),
        (SETTINGS, swap("level: warn", 'level: "off"'), ("weaker-rule", "costs.large_change.level", "warn", "off")),
        (
            SETTINGS,
            swap('usd_a_month: "25000"', 'usd_a_month: "9000000"'),
            ("weaker-rule", "costs.large_change.usd_a_month", '"25000"', '"9000000"'),
        ),
        (SETTINGS, swap("replicas: block", "replicas: warn"), ("weaker-rule", "production.replicas", "block", "warn")),
        (
            SETTINGS,
            swap("longest_days: 366", "longest_days: 3650"),
            ("weaker-rule", "exceptions.longest_days", "366", "3650"),
        ),
        (
            SETTINGS,
            swap("environments: [prod]", "environments: []"),
            ("removed-environment", "production.environments", "prod", "-"),
        ),
        (
            SETTINGS,
            swap("[google-cloud, google-cloud-machines]", "[google-cloud]"),
            ("weaker-rule", "environments.dev.price_lists", "google-cloud-machines", "-"),
        ),
        (
            SETTINGS,
            swap("com/example/neuro", "com/exarnple/neuro"),
            (
                "changed-source",
                "repository.url",
                "https://github.com/example/neuroscale",
                "https://github.com/exarnple/neuroscale",
            ),
        ),
        (
            SETTINGS,
            swap('["@example/platform-owners"]', '["@example/platform-owners", "@example/anybody"]'),
            ("wider-access", "owners.platform", "-", "@example/anybody"),
        ),
        (
            SETTINGS,
            swap("default_availability:", "typical_share: 0.05\n    default_availability:"),
            ("moved-fact", "environments.local.typical_share", "1.0", "0.05"),
        ),
        (
            SETTINGS,
            swap("default_availability:", "bench_after_merge: short\n    default_availability:"),
            ("moved-fact", "environments.local.bench_after_merge", "off", "short"),
        ),
        (
            "platform/catalog/runtimes/neuroscale-vllm.yaml",
            swap("start_seconds:\n  value: 110", "start_seconds:\n  value: 1"),
            ("moved-fact", "start_seconds.value", "110.0", "1.0"),
        ),
        (
            "platform/catalog/runtimes/neuroscale-vllm.yaml",
            swap("capture_layer_seconds:\n  value: 0.011", "capture_layer_seconds:\n  value: 11"),
            ("moved-fact", "capture_layer_seconds.value", "0.011", "11.0"),
        ),
        (
            "platform/catalog/models/Llama-3.3-70B-Instruct.yaml",
            swap("download_gib:\n    value: null", "download_gib:\n    value: 125"),
            ("moved-fact", "checkpoint.download_gib.value", "null", "125.0"),
        ),
        # Whose comments let a service be promoted.
        (
            SETTINGS,
            swap('smoke_account: ""', "smoke_account: friend"),
            ("changed-source", "repository.smoke_account", '""', "friend"),
        ),
        (
            BUDGET,
            lambda text: re.sub("monthly_usd: .*", 'monthly_usd: "9000000"', text),
            ("raised-budget", "monthly_usd", '"40000"', '"9000000"'),
        ),
        (
            TEAM,
            swap("nvidia.com/gpu: 64", "nvidia.com/gpu: 90000"),
            ("raised-quota", 'quota.accelerators["nvidia.com/gpu"]', "64", "90000"),
        ),
        (TEAM, lambda text: f"{text}group: everyone\n", ("wider-access", "group", "null", "everyone")),
        (
            f"{TENANCY}/quota.yaml",
            swap('gpu: "64"', 'gpu: "90000"'),
            ("raised-quota", 'spec.hard["requests.nvidia.com/gpu"]', '"64"', '"90000"'),
        ),
        (
            f"{TENANCY}/quota.yaml",
            swap('    requests.nvidia.com/gpu: "64"\n', ""),
            ("raised-quota", 'spec.hard["requests.nvidia.com/gpu"]', '"64"', "-"),
        ),
        (
            "platform/argocd/values.yaml",
            swap("default: role:readonly", "default: role:admin"),
            ("wider-access", 'configs.rbac["policy.default"]', "role:readonly", "role:admin"),
        ),
        (
            "platform/clusters/charts.yaml",
            swap("https://charts.jetstack.io", "https://evil.example"),
            ("changed-source", "charts.cert-manager.repository", "https://charts.jetstack.io", "https://evil.example"),
        ),
        (
            "platform/serving/kyverno.yaml",
            swap("            - argocd\n", "            - argocd\n            - team-a\n"),
            ("weaker-policy", "config.webhooks.namespaceSelector.matchExpressions[0].values", "-", "team-a"),
        ),
        (POLICY, swap("[Deny]", "[Audit]"), ("weaker-policy", "spec.validationActions", "Deny", "Audit")),
        (
            POLICY,
            swap("[deployments, statefulsets,", "[deployments,"),
            ("weaker-policy", "spec.matchConstraints.matched", "CREATE statefulsets.apps/v1", "-"),
        ),
        (
            POLICY,
            swap("failurePolicy: Fail", "failurePolicy: Ignore"),
            ("weaker-policy", "spec.failurePolicy", "Fail", "Ignore"),
        ),
        (
            MODEL,
            swap("path: Qwen/", "path: evil/"),
            ("changed-source", "weights.path", "Qwen/Qwen3-32B", "evil/Qwen3-32B"),
        ),
        (
            "platform/catalog/accelerators/nvidia-h200-141gb.yaml",
            swap("value: 139.8", "value: 500"),
            ("moved-fact", "memory_gib.value", "139.8", "500.0"),
        ),
        (
            "platform/catalog/accelerators/nvidia-h200-141gb.yaml",
            swap("value: 4800", "value: 9600"),
            ("moved-fact", "bandwidth_gb_s.value", "4800.0", "9600.0"),
        ),
        (
            SETTINGS,
            swap("price_lists: [google-cloud,", "price_lists: [cheap, google-cloud,"),
            ("weaker-rule", "environments.dev.price_lists", "-", "cheap"),
        ),
        (
            "platform/argocd/prod/root.yaml",
            swap("path: policies", "path: elsewhere"),
            ("changed-source", "spec.source.path", "policies", "elsewhere"),
        ),
        (
            "platform/argocd/prod/services.yaml",
            swap("manifests/prod/*", "manifests/dev/*"),
            ("changed-source", "spec.generators[0].git.directories[0].path", "manifests/prod/*", "manifests/dev/*"),
        ),
        (MODEL, swap("hidden_layers: 64", "hidden_layers: 4"), ("moved-fact", "config.num_hidden_layers", "64", "4")),
        (
            PRICES,
            swap('usd: "10.98"', 'usd: "1.098"'),
            ("lowered-price", 'prices["nvidia-h100-80gb x 1"].usd', '"10.98"', '"1.098"'),
        ),
        (
            "platform/catalog/prices/google-cloud-machines.yaml",
            swap("vcpu: 224", "vcpu: 2000"),
            ("lowered-price", 'prices["nvidia-h200-141gb x 8 a3-ultragpu-8g"].instance.vcpu', "224", "2000"),
        ),
        (
            "platform/catalog/accelerators/nvidia-l4.yaml",
            swap("gke-accelerator: nvidia-l4", "gke-accelerator: nvidia-h100-80gb"),
            ("moved-fact", 'node_selector["cloud.google.com/gke-accelerator"]', "nvidia-l4", "nvidia-h100-80gb"),
        ),
        (
            SETTINGS,
            swap("accelerators: [nvidia-l4, nvidia-rtx-pro-6000, nvidia-a100-80gb,", "accelerators: [nvidia-l4,"),
            ("moved-fact", "environments.dev.accelerators", "nvidia-rtx-pro-6000", "-"),
        ),
        (SETTINGS, swap("cluster: gke", "cluster: eks"), ("changed-source", "environments.dev.cluster", "gke", "eks")),
        (
            SETTINGS,
            swap("name: hugging-face", "name: admin"),
            ("wider-access", "environments.local.token_secret.name", "hugging-face", "admin"),
        ),
        (
            SETTINGS,
            swap("default_availability: high", "default_availability: standard"),
            ("weaker-rule", "environments.prod.default_availability", "high", "standard"),
        ),
        (
            SETTINGS,
            swap("value: 140", "value: 14000"),
            ("moved-fact", "environments.dev.models.throughput_mib_s.hub.value", "140.0", "14000.0"),
        ),
        (MODEL, swap("apache-2.0", "other"), ("changed-source", "weights.license", "apache-2.0", "other")),
        (
            "platform/catalog/runtimes/neuroscale-vllm-cpu.yaml",
            swap("read_only_root:\n  value: true", "read_only_root:\n  value: null"),
            ("weaker-rule", "read_only_root.value", "true", "null"),
        ),
        *(
            ("platform/argocd/values.yaml", swap(f'{key}: "false"', f'{key}: "true"'), ("wider-access", *expected))
            for key, expected in (
                ("users.anonymous.enabled", ('configs.cm["users.anonymous.enabled"]', '"false"', '"true"')),
                ("server.insecure", ('configs.params["server.insecure"]', '"false"', '"true"')),
            )
        ),
        (
            "platform/argocd/values.yaml",
            swap("  params:\n", '  params:\n    server.disable.auth: "true"\n'),
            ("wider-access", 'configs.params["server.disable.auth"]', "-", '"true"'),
        ),
        (
            "platform/serving/kyverno.yaml",
            swap("  replicas: 3", "  replicas: 0"),
            ("changed-policy", "admissionController.replicas", "3", "0"),
        ),
    ],
)
def test_a_change_that_loosens_widens_or_moves_something_is_told_with_both_values(
    path: str, edit: Edit, expected: tuple[str, str, str, str]
) -> None:
    assert expected in told(path, edit)


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        (SETTINGS, swap("without_price: warn", "without_price: block")),
        (SETTINGS, swap("longest_days: 366", "longest_days: 30")),
        (SETTINGS, swap("environments: [prod]", "environments: [dev, prod]")),
        (SETTINGS, swap("organization: ", "organization: x")),
        (SETTINGS, swap("default_availability: standard", "default_availability: high")),
        (BUDGET, lambda text: re.sub("monthly_usd: .*", 'monthly_usd: "1"', text)),
        (f"{TENANCY}/quota.yaml", swap('gpu: "64"', 'gpu: "1"')),
        (PRICES, swap('usd: "10.98"', 'usd: "20"')),
        ("platform/catalog/accelerators/nvidia-h200-141gb.yaml", swap("value: 139.8", "value: 100")),
        (POLICY, swap("resources: [servingruntimes,", "resources: [servingruntimes, trainedmodels,")),
    ],
)
def test_the_other_direction_and_fields_without_one_are_only_listed(path: str, edit: Edit) -> None:
    assert told(path, edit) == set()


@pytest.mark.parametrize(
    ("path", "text", "notice"),
    [
        ("platform/catalog/accelerators/copy.yaml", "name: nvidia-l4-copy\n", "moved-fact"),
        ("platform/catalog/runtimes/copy.yaml", "name: neuroscale-vllm-copy\n", "changed-source"),
        *(
            (f"{TENANCY}/more.yaml", f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n", notice)
            for version, kind, notice in (
                ("argoproj.io/v1alpha1", "Application", "changed-source"),
                ("networking.k8s.io/v1", "NetworkPolicy", "wider-access"),
                ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "wider-access"),
                ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "wider-access"),
            )
        ),
    ],
)
def test_what_is_new_in_the_catalog_or_in_a_cluster_is_told(path: str, text: str, notice: str) -> None:
    after, unread = entries_of(MemorySnapshot({path: text.encode()}), [path])
    assert not unread
    assert [one.listed.notice for one in compared({}, after)] == [notice]


def test_a_new_price_beside_another_of_the_same_accelerator_is_told_and_an_application_that_goes_too() -> None:
    price = (
        '  - accelerator: nvidia-h100-80gb\n    count: 8\n    unit: instance-hour\n    usd: "0.08"\n    includes: []\n'
    )
    assert {(notice, field) for notice, field, *_ in told(PRICES, lambda text: text + price)} == {
        ("lowered-price", 'prices["nvidia-h100-80gb x 8"]')
    }
    text = (ROOT / "platform/argocd/prod/root.yaml").read_text()
    before, _ = entries_of(
        MemorySnapshot({"platform/argocd/prod/root.yaml": text.encode()}), ["platform/argocd/prod/root.yaml"]
    )
    assert {one.listed.notice for one in compared(before, {})} == {"changed-source"}


def test_a_new_environment_is_one_notice() -> None:
    def another(text: str) -> str:
        return text + text[text.index("  prod:\n") :].replace("  prod:", "  lab:", 1)

    assert [(notice, field) for notice, field, *_ in told(SETTINGS, another)] == [("wider-access", "environments.lab")]


def test_a_section_that_is_left_out_counts_as_what_it_then_means() -> None:
    def without_rules(text: str) -> str:
        return re.sub(r"(?ms)^production:\n.*?(?=^certificates:)", "", text)

    found = {(notice, field) for notice, field, _, _ in told(SETTINGS, without_rules)}
    assert ("weaker-rule", "production.disruption_budget") in found
    assert ("removed-environment", "production.environments") in found


def test_a_measurement_is_told_by_the_server_that_it_is_of() -> None:
    model = CATALOG.models["Qwen/Qwen3-32B"]
    slow, fast = (
        measurement_file(model, "nvidia-h100-80gb", loads=[measured_load(8, inter_token=seconds)])
        for seconds in (0.05, 0.04)
    )
    text = (ROOT / MODEL).read_text()
    measured = (text, *(text + dump({"measurements": [each]}) for each in (slow, fast)))
    sides = [entries_of(MemorySnapshot({MODEL: each.encode()}), [MODEL])[0] for each in measured]
    server = f"loads on 1 x nvidia-h100-80gb, vLLM 0.32.0, weights {model.weights_digest[7:19]}"
    for before, after in ((sides[0], sides[1]), (sides[1], sides[2]), (sides[1], sides[0])):
        values = [one.listed for one in compared(before, after)]
        assert values
        assert all(one.notice == "moved-fact" and server in one.field for one in values)


def test_a_measurement_that_plans_do_not_believe_is_a_notice_at_its_line(tmp_path: Path) -> None:
    root = copy_platform(tmp_path)
    shutil.copytree(ROOT / "templates", root / "templates")
    model, text = CATALOG.models["Qwen/Qwen3-32B"], (ROOT / MODEL).read_text()
    usual = measurement_file(model, "nvidia-h100-80gb", loads=[measured_load(8, inter_token=0.03)])
    absurd = measurement_file(model, "nvidia-h200-141gb", loads=[measured_load(256, inter_token=0.04, ttft=1.25)])
    (root / MODEL).write_text(text + dump({"measurements": [usual, absurd]}))
    snapshot = FolderSnapshot(root)
    run = Run(Subject(GateInput(snapshot), list, snapshot), date(2026, 11, 28), Path())
    (found,) = CatalogCheck().evaluate(run).findings
    assert (found.rule, found.severity, found.file) == ("doubted-measurement", Severity.NOTICE, MODEL)
    assert found.line == text.count("\n") + 2 + dump([usual]).count("\n")
    assert "nvidia-h200-141gb" in found.message
    assert "Plans do not believe it" in found.message
    assert not measurement_findings(run.after.catalog(), snapshot, frozenset({PRICES}), run.today)
    assert len(measurement_findings(run.after.catalog(), snapshot, frozenset({MODEL}), run.today)) == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"date": "2026-11-29"}, ""),  # it may be tomorrow where it was measured
        ({"date": "2026-11-30"}, "date"),
        (
            {"loads": [measured_load(8, inter_token=0.03), measured_load(1, inter_token=0.01)]},
            "loads[1].inter_token_seconds",
        ),
        ({"loads": [measured_load(64, inter_token=0.01)]}, "loads[0].inter_token_seconds"),
        ({"loads": [measured_load(8, inter_token=0.03, ttft=0.005)]}, "loads[0].ttft_seconds"),
        ({"loads": [measured_load(4096, prompt=16, inter_token=0.03, ttft=0.1)]}, "loads[0].tokens_per_second"),
        # Weights that the command converts are smaller, some by methods that nobody counted.
        ({"loads": [measured_load(1, inter_token=0.0095)], "arguments": {"quantization": "fp8"}}, ""),
        ({"loads": [measured_load(1, inter_token=0.0055)], "arguments": {"quantization": "torchao"}}, ""),
        # Two accelerators read half each, and four tokens may come of one step.
        ({"loads": [measured_load(1, inter_token=0.01)], "arguments": {"tensor_parallel_size": 2}}, ""),
        (
            {
                "loads": [measured_load(1, inter_token=0.01)],
                "arguments": {"speculative": "ngram", "speculative_tokens": 3},
            },
            "",
        ),
    ],
)
def test_a_measurement_that_cannot_be_is_refused_by_its_field(
    tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    root = copy_platform(tmp_path)
    model, text = CATALOG.models["Qwen/Qwen3-32B"], (ROOT / MODEL).read_text()
    values = {"loads": [measured_load(8, inter_token=0.03)], **changes}
    (root / MODEL).write_text(text + dump({"measurements": [measurement_file(model, "nvidia-h100-80gb", **values)]}))
    snapshot = FolderSnapshot(root)
    found = measurement_findings(load_catalog(snapshot), snapshot, frozenset({MODEL}), date(2026, 11, 28))
    errors = [one for one in found if one.severity is Severity.ERROR]
    assert [(one.rule, one.file) for one in errors] == [("impossible-measurement", MODEL)] * bool(field)
    assert all(one.message.startswith(f"measurements[0].{field}: ") for one in errors)


def test_an_expression_of_a_policy_that_changes_is_told_and_one_that_goes_is_weaker() -> None:
    more = told(POLICY, swap("size(variables.foreign) == 0", "size(variables.foreign) == 0 || true"))
    assert [(notice, field) for notice, field, *_ in more] == [("changed-policy", "spec.validations")]
    allowed = told(POLICY, swap("'docker.io/vllm/'", "'docker.io/'"))
    assert [(notice, field) for notice, field, *_ in allowed] == [
        ("changed-policy", "spec.variables.allowed.expression")
    ]
    gone = told(POLICY, lambda text: text[: text.rindex("    - expression:")])
    assert [(notice, field) for notice, field, *_ in gone] == [("weaker-policy", "spec.validations")]


TYPES: Mapping[str, type[BaseModel]] = {
    "settings": Settings,
    "models": ModelEntry,
    "accelerators": Accelerator,
    "prices": PriceList,
    "runtimes": RuntimeEntry,
    "teams": Team,
    "budgets": Budget,
    "exceptions": CostException,
}


def types_of(hint: Any) -> Iterator[Any]:
    """A type and every type that is written in it."""
    yield hint
    for part in get_args(hint):
        yield from types_of(part)


def fields(model: type[BaseModel], place: str = "") -> Iterator[str]:
    """The places of a model's values, as rows name them; `*` is a name that the file chooses, or a place in a list."""
    for name, field in model.model_fields.items():
        inner = [one for one in types_of(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
        here = f"{place} {name}".strip()
        if get_origin(field.annotation) is dict or (inner and get_origin(field.annotation) is tuple):
            here += " *"
        if inner:
            for one in inner:
                yield from fields(one, here)
        else:
            yield here


# By these, entries and prices are paired: with another one, an entry is gone and another is new.
KEYS = {"name", "prices * accelerator", "prices * count"}


def has_row(kind: str, place: str) -> bool:
    """Whether a row tells of a field."""
    rows = SETTINGS_ROWS if kind == "settings" else CATALOG_ROWS[kind]
    return any(row.matches(tuple(place.split())) for row in rows)


def is_listed(kind: str, place: str) -> bool:
    """Whether the field is named as one for people."""
    listed = [Row(one, Direction.ANY, Notice.MOVED_FACT) for one in LISTED[kind]]
    return any(row.matches(tuple(place.split())) for row in listed)


@pytest.mark.parametrize("kind", TYPES)
def test_every_field_has_a_direction_or_is_named_as_one_for_people(kind: str) -> None:
    places = set(fields(TYPES[kind])) - KEYS
    unknown = {place for place in places if not has_row(kind, place) and not is_listed(kind, place)}
    assert unknown == set(), "add a row in catalog/directions.py, or name the field in LISTED there"
    told = {place for place in places if has_row(kind, place) and is_listed(kind, place)}
    assert {place for place in told if not place.endswith(" source")} == set(), "take it out of LISTED"


def test_a_field_that_nobody_thought_of_fails_the_test_of_the_table() -> None:
    class Newer(ModelEntry):
        trust: float = 1.0

    unknown = {place for place in fields(Newer) if not has_row("models", place) and not is_listed("models", place)}
    assert unknown == {"name", "trust"}


def reworded(kind: str, entry: Any, place: str = "") -> Any:
    """The entry with other words in every field for people."""
    update: dict[str, Any] = {}
    for name, value in entry:
        here = f"{place} {name}".strip()
        if isinstance(value, BaseModel):
            update[name] = reworded(kind, value, here)
        elif is_listed(kind, here) and not has_row(kind, here) and isinstance(value, str):
            update[name] = "other words"
    return entry.model_copy(update=update)


def test_what_is_only_listed_moves_no_plan() -> None:
    kinds = ("models", "accelerators", "prices", "runtimes", "teams")
    entries = {kind: getattr(CATALOG, kind) for kind in kinds}
    other = Catalog(**{kind: {name: reworded(kind, one) for name, one in entries[kind].items()} for kind in kinds})
    assert other.models["Qwen/Qwen3-32B"].title == "other words"
    words: Any = {"lock": True, "reasons": True, "alternatives": True, "cost": {"price_source"}}
    for model in ("Qwen/Qwen3-32B", "google/gemma-4-26B-A4B-it-qat-w4a16-ct", "meta-llama/Llama-3.1-8B-Instruct"):
        plans = [plan(make_request(model=model), catalog, PLATFORM.settings, "1.0.0") for catalog in (CATALOG, other)]
        before, after = (one.model_dump(exclude=words) for one in plans)
        assert before == after


def test_every_notice_has_its_advice_in_the_order_of_its_danger() -> None:
    assert list(FIXES) == list(Notice)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("def test_a():\n    assert f()\n", None, "is removed"),
        (
            "def test_a():\n    assert f()\n    assert g()\n",
            "def test_a():\n    pass\n",
            "is shorter: test_a from 3 lines to 2",
        ),
        ("def test_a(): ...\ndef test_b(): ...\n", "def test_a(): ...\n", "no longer has test_b"),
        (
            "def test_a(\n    b: int,\n) -> None:\n    f(b)\n    g(b)\n",
            "def test_a(\n    b: int,\n) -> None:\n    pass\n\n\nX = 1\nY = 2\n",
            "is shorter: test_a from 5 lines to 4",
        ),
        ("def test_a():\n    assert f()\n", "def test_a():\n    assert_(f())\n", "has fewer assertions: 0 of 1"),
        ("def test_a(): ...\n", "@pytest.mark.skip\ndef test_a(): ...\n", "skips more than before"),
        ("def test_a():\n    assert f()\n", "def test_a():\n    assert True\n", "has fewer assertions: 0 of 1"),
        ("a = 1\n", "a = 1\ncollect_ignore_glob = ['*']\n", "skips more than before"),
        ("a: 1\n---\nb: 2\n", "a: 1\n", "is shorter: from 3 lines to 1"),
        ("def test_a():\n    # why\n\n    f()\n", "def test_a():\n    f()\n    g()\n", ""),
    ],
)
def test_a_test_that_is_gone_shorter_or_skipped_is_told(before: str, after: str | None, expected: str) -> None:
    assert weaker_test(before, after) == expected


def test_every_protected_path_is_of_a_kind_that_a_person_must_look_at() -> None:
    for place in (*PROTECTED, "docs/.venv/"):
        path = f"{place}README.md" if place.endswith("/") else place
        assert is_protected(path)
        assert kind_of(path).review, path
    assert kind_of("pytest.ini").review
    assert {kind_of(path).noun for path in ("README.md", "docs/gate.md", "manifests/README.md")} == {"document"}


PROGRAMS = re.compile(r".*\.(py|js|tsx?|sh|cjs|mjs|go|npmrc)|(.*/)?(package(-lock)?\.json|go\.(mod|sum))|\.[^/]*\.yaml")


def test_every_tracked_file_has_a_kind_and_whatever_runs_somewhere_has_owners_and_a_reviewer() -> None:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--stage"], capture_output=True, text=True, check=True)
    rows = [(row.split()[0], row.split("\t")[1]) for row in listed.stdout.splitlines()]
    assert [path for _, path in rows if kind_of(path) is OTHER] == []
    runs = [path for mode, path in rows if mode == "100755" or PROGRAMS.fullmatch(path)]
    assert {path.split("/")[0] for path in runs} >= {"src", "scripts", "milestones", "tests", "platform", ".ci"}
    runs += ["platform/forge/github-ruleset.json", "platform/portal/app-config.yaml", "catalog-info.yaml"]
    assert [path for path in runs if not (is_protected(path) and kind_of(path).review)] == []
    assert kind_of("docs/conf.py") is kind_of("Dockerfile") is kind_of("tools/deploy") is OTHER


def test_every_file_of_this_repository_that_holds_values_can_be_compared() -> None:
    snapshot = FolderSnapshot(ROOT)
    paths = [one.path for one in snapshot.entries("platform", "policies") if is_compared(one.path)]
    entries, unread = entries_of(snapshot, paths)
    assert unread == []
    assert {key[0] for key in entries} >= {"object", "policies", "settings", "models", "prices", "teams", "budgets"}


# Changes of a whole platform.


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """The platform's files, policies and smoke tests of this repository as one commit."""
    root = copy_platform(tmp_path_factory.mktemp("altered") / "repository")
    (root / ".github/CODEOWNERS").unlink()  # a test adds one of its own
    for folder in ("policies", "smoke-tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
    made = Repository(root)
    made.commit({}, "base")
    yield made
    made.git.close()


def altered_by(base: Repository, files: Mapping[str, bytes | str | None]) -> tuple[GateResult, Run]:
    """What the check says of a change of these files."""
    commit = base.run("rev-parse", "HEAD")
    try:
        base.commit(dict(files))
        change = find_change(base.git, commit, "HEAD")
        run = Run(Subject(read_change(change), list, change.before, change), date(2026, 11, 21), Path())
        check = ChangeCheck()
        result = begin(check, run)()
    finally:
        base.run("reset", "--quiet", "--hard", commit)
    assert result is not None
    assert result.check.outcome in (Outcome.PASSED, Outcome.FINDINGS), result.check.detail
    return result, run.ended_with(check.name, result, check.value)


def notices(result: GateResult) -> list[tuple[str, str, str]]:
    return [(one.rule, one.file, one.message) for one in result.findings if one.severity is Severity.NOTICE]


def test_download_sources_of_all_models_that_move_are_one_notice_and_each_stands_in_the_artifact(
    base: Repository,
) -> None:
    moved = {}
    for path in sorted((base.root / "platform/catalog/models").glob("*.yaml")):
        text = re.sub(r"(?m)^(  path: )[^/\n]+/", r"\1evil/", path.read_text())
        if text != path.read_text():
            moved[path.relative_to(base.root).as_posix()] = text
    result, run = altered_by(base, moved)
    ((rule, folder, message),) = notices(result)
    assert (rule, folder) == ("changed-source", "platform/catalog/models")
    assert message.startswith(f"{len(moved)} models, weights.path: `Qwen` (")
    assert "→ `evil`: " in message
    assert run.altered is not None
    values = run.altered.alterations.values
    assert {one.file for one in values if one.after and one.after.startswith("evil/")} == set(moved)
    assert [(one.kind, one.count, one.protected) for one in run.altered.alterations.files] == [("model", len(moved), 0)]
    assert in_words(run.altered.alterations.files) == f"{len(moved)} models"


def test_a_policy_that_is_removed_is_one_notice_whatever_else_of_its_folder_goes(base: Repository) -> None:
    folder = base.root / "policies/allowed-registries"
    gone = {path.relative_to(base.root).as_posix(): None for path in folder.rglob("*") if path.is_file()}
    result, run = altered_by(base, gone)
    assert notices(result) == [("removed-policy", POLICY, "the policy file is removed")]
    assert run.altered is not None
    assert {one.change for kind in run.altered.alterations.files for one in kind.files} == {"removed"}


def test_shorter_tests_of_policies_and_smoke_tests_are_told(base: Repository) -> None:
    cases = (base.root / "policies/allowed-registries/cases.yaml").read_text()
    base.commit({EXAMPLE: (ROOT / EXAMPLE).read_text()})
    result, _ = altered_by(
        base,
        {
            "policies/allowed-registries/cases.yaml": cases[: len(cases) // 2],
            "smoke-tests/test_security.py": "def test_security() -> None:\n    pass\n",
            EXAMPLE: None,
        },
    )
    assert {(rule, file) for rule, file, _ in notices(result)} == {
        ("weaker-test", "policies/allowed-registries/cases.yaml"),
        ("weaker-test", "smoke-tests/test_security.py"),
        ("weaker-test", EXAMPLE),
    }


def test_another_owner_of_files_is_told_with_the_lines_that_differ(base: Repository) -> None:
    owners = "* @example/service-owners\n/policies/ @example/platform-owners\n"
    result, _ = altered_by(base, {".github/CODEOWNERS": owners})
    base.commit({".github/CODEOWNERS": owners})
    again, _ = altered_by(base, {".github/CODEOWNERS": f"{owners}* @example/service-owners\n"})
    ((rule, file, new),), ((_, _, repeated),) = notices(result), notices(again)
    assert (rule, file) == ("wider-access", ".github/CODEOWNERS")
    assert "+ '/policies/ @example/platform-owners'" in new
    assert repeated.endswith("and changes: + '* @example/service-owners'")


def test_a_workflow_that_changes_is_told_with_its_lines(base: Repository) -> None:
    workflow = ".github/workflows/gate.yaml"
    base.commit({workflow: "on: pull_request_target\n", ".github/demo.svg": "a"})
    result, _ = altered_by(base, {workflow: "on: pull_request\n", ".github/demo.svg": "b"})
    assert notices(result) == [
        (
            "wider-access",
            workflow,
            "decides what runs with the repository's rights, and changes: "
            "- 'on: pull_request_target'; + 'on: pull_request'",
        )
    ]
    flood: dict[str, bytes | str | None] = {f".github/workflows/{number}.yaml": "a: 1\n" for number in range(40)}
    many, _ = altered_by(base, {**flood, workflow: "on: pull_request\n"})
    assert len(notices(many)) == 21
    assert notices(many)[0][1] == workflow
    assert notices(many)[-1][2] == "and 20 more files of such kinds change"


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("platform/portal/index.js", "decides what runs outside clusters with somebody's credential"),
        ("platform/forge/github-ruleset.json", "decides what runs outside clusters with somebody's credential"),
        (".pre-commit-config.yaml", "decides what runs outside clusters with somebody's credential"),
        ("milestones/only-the-first-file/before", "decides what runs outside clusters with somebody's credential"),
        ("catalog-info.yaml", "decides what runs outside clusters with somebody's credential"),
        ("Dockerfile", "is of no kind that the gate knows"),
    ],
)
def test_what_runs_elsewhere_and_what_nobody_knows_is_told_with_its_lines(
    base: Repository, path: str, what: str
) -> None:
    result, run = altered_by(base, {path: "b\n"})
    assert notices(result) == [("wider-access", path, f"{what}, and changes: + 'b'")]
    assert run.altered is not None
    assert in_words(run.altered.alterations.files).endswith(("1 tool file", "1 other file"))
    if path == "Dockerfile":
        huge, _ = altered_by(base, {path: b"a" * (16 * 2**20 + 1)})
        assert notices(huge)[0][2].endswith("it is too large to be read")


def test_many_harmless_new_objects_do_not_hide_another(base: Repository) -> None:
    def new(version: str, kind: str, name: str) -> str:
        return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: team-alpha}}\n---\n"

    many = "".join(new("networking.k8s.io/v1", "NetworkPolicy", f"a{number}") for number in range(30))
    text = many + new("rbac.authorization.k8s.io/v1", "RoleBinding", "zz") + new("v1", "LimitRange", "few")
    result, _ = altered_by(base, {f"{TENANCY}/more.yaml": text})
    told = [(one.rule, one.subject) for one in result.findings if one.severity is Severity.NOTICE]
    assert told == [("wider-access", ""), ("wider-access", "RoleBinding team-alpha/zz")]


def test_an_exception_that_is_new_is_told(base: Repository) -> None:
    result, _ = altered_by(base, {EXCEPTION: "schema_version: 1\npolicy: non-root\n"})
    ((rule, file, message),) = notices(result)
    assert (rule, file) == ("new-exception", EXCEPTION)
    assert "non-root" in message


def test_what_cannot_be_compared_is_told_and_an_unreadable_object_of_a_cluster_is_refused(base: Repository) -> None:
    result, _ = altered_by(base, {SETTINGS: "a: [\n", f"{TENANCY}/quota.yaml": "a: [\n"})
    assert ("not-compared", "platform") in {(rule, file) for rule, file, _ in notices(result)}
    assert [(one.rule, one.file) for one in result.findings if one.severity is Severity.ERROR] == [
        ("unreadable", f"{TENANCY}/quota.yaml")
    ]


@pytest.mark.parametrize("paths", [0, 1])
def test_files_beyond_the_bound_are_told_as_not_compared(
    base: Repository, monkeypatch: pytest.MonkeyPatch, paths: int
) -> None:
    monkeypatch.setattr("neuroscale.gate.value_differences._MOST_FILES", paths)
    budget = (base.root / BUDGET).read_text().replace('"40000"', '"9000000"')
    prices = (base.root / PRICES).read_text().replace('"10.98"', '"1.098"')
    result, _ = altered_by(base, {BUDGET: budget, PRICES: prices})
    found = [rule for rule, _, _ in notices(result)]
    assert found == (["not-compared"] if paths == 0 else ["raised-budget", "not-compared"])  # the budget comes first


def test_objects_of_clusters_are_handed_to_the_checks_of_schemas_and_policies(base: Repository) -> None:
    quota = (base.root / f"{TENANCY}/quota.yaml").read_text()
    gateway = (base.root / "platform/clusters/gke/gateway.yaml").read_text()
    files = {f"{TENANCY}/quota.yaml": f"{quota}\n", "platform/clusters/gke/gateway.yaml": f"{gateway}\n"}
    _, run = altered_by(base, files)
    assert {one.kind for one in run.applied} == {"ResourceQuota", "LimitRange"}
    assert run.judged == ()


def test_a_weakening_that_the_comparison_does_not_see_makes_the_gate_untrusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_notices, "compared", lambda *_: [])
    with pytest.raises(UntrustedError, match="did not tell of its tripwire"):
        change_notices._caught()


def test_a_run_over_plain_paths_has_nothing_to_compare() -> None:
    run = Run(Subject(GateInput(FolderSnapshot(ROOT)), list, FolderSnapshot(ROOT)), date(2026, 11, 21), Path())
    assert begin(ChangeCheck(), run)() is None
    assert in_words([ChangedFiles(kind="document", review=False, count=1, protected=0, files=())]) == ""


# The whole gate.


@pytest.mark.tools
def test_a_change_to_anything_but_a_service_is_shown_at_the_top_and_never_nothing_to_check(
    repository_with_a_service: Repository,
) -> None:
    repository = repository_with_a_service
    commit = repository.run("rev-parse", "HEAD")

    def edited(path: str, *edits: Edit) -> dict[str, Any]:
        text = (repository.root / path).read_text()
        for edit in edits:
            text = edit(text)
        return {path: text}

    repository.commit(
        {
            **edited("platform/argocd/values.yaml", swap("role:readonly", "role:admin")),
            **edited("platform/clusters/gke/cert-manager.yaml", swap("https://charts.jetstack.io", "https://evil.example")),
            **edited(f"{TENANCY}/quota.yaml", swap('gpu: "64"', 'gpu: "90000"'), swap('cpu: "512"', "cpu: many")),
            **edited(f"{TENANCY}/namespace.yaml", swap("metadata:\n", "metadata:\n  title: Alpha\n")),
            **edited(RUNTIME, swap("vllm-openai:v0.32.0", "vllm-openai:latest")),
            **edited(f"{TENANCY}/access.yaml", swap("name: team-alpha\n", "name: system:authenticated\n")),
            "smoke-tests/test_security.py": "def test_security() -> None:\n    pass\n",
            ".github/CODEOWNERS": "* @example/anybody\n",
        }
    )  # fmt: skip
    verdict = gate(repository, base=commit, only_read_head=True, server=True)
    # Also without the platform check, objects of clusters are judged like those of services.
    policy, server = "policy/no-mutable-image-tags", "server/refused"
    assert rules(verdict) == {"platform/not-rendered", "schema/invalid", policy, server}
    told = {item["rule"]: item for item in verdict["findings"] if item["gate"] == "change"}
    assert set(told) == {"wider-access", "changed-source", "raised-quota", "weaker-test"}
    assert [one["kind"] for one in verdict["altered"]["files"]] == ["owners file", "cluster file", "smoke test"]
    comment = (repository.root.parent / "verdict.md").read_text()
    assert comment.index("### Look at this first") < comment.index("### Findings")
    assert "Beside services, the change touches 1 owners file, 6 cluster files, 1 smoke test, 8 of them" in comment

    repository.run("reset", "--quiet", "--hard", commit)
    repository.commit({**edited("platform/argocd/values.yaml", swap("role:readonly", "role:admin"))})
    verdict = gate(repository, base=commit)
    assert verdict["exit_status"] == 0
    assert verdict["headline"] == "Passed: no service differs, and a person must look at 1 cluster file"
    assert rules(verdict, "notice") == {"change/wider-access"}

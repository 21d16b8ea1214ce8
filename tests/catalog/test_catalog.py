"""The catalog as it is, and every way in which an entry can be wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.settings import check_settings, load_settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.vllm.known_arguments import load
from roots import ROOT

L4 = "platform/catalog/accelerators/nvidia-l4.yaml"
QAT = "platform/catalog/models/gemma-4-26B-A4B-it-qat-w4a16-ct.yaml"
PRICES = "platform/catalog/prices/google-cloud.yaml"
RUNTIME = "platform/catalog/runtimes/neuroscale-vllm.yaml"
TEAM = "platform/catalog/teams/team-alpha.yaml"
SETTINGS = "platform/settings.yaml"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "platform" / "catalog", tmp_path / "platform" / "catalog")
    shutil.copy(ROOT / SETTINGS, tmp_path / SETTINGS)
    return tmp_path


def edit(root: Path, path: str, old: str, new: str) -> int:
    """Replace the first `old`, and return the 1-based line where it stood."""
    text = (root / path).read_text()
    assert old in text
    (root / path).write_text(text.replace(old, new, 1))
    return text[: text.index(old)].count("\n") + 1


def problems(root: Path) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        load_catalog(FolderSnapshot(root))
    return caught.value.problems


def test_the_catalog_of_this_repository_loads_and_suits_the_settings() -> None:
    snapshot = FolderSnapshot(ROOT)
    catalog, settings = load_catalog(snapshot), load_settings(snapshot)
    check_settings(settings, catalog)
    assert {"local", "dev", "prod"} <= set(settings.environments)
    assert "google/gemma-4-26B-A4B-it-qat-w4a16-ct" in catalog.models
    assert set(catalog.keys()) >= {"accelerator/nvidia-l4", "team/team-alpha", "price/google-cloud"}


@pytest.mark.parametrize(
    ("path", "old", "new", "field", "fix"),
    [
        (L4, "family: cuda", "famly: cuda", "famly", "Did you mean 'family'?"),
        (L4, "family: cuda", "family: gpu", "family", "Write 'cuda', 'rocm', 'tpu' or 'cpu'"),
        (L4, "counts: [1, 2, 4, 8]", "counts: [2, 1]", "counts", "ascending"),
        (L4, "counts: [1, 2, 4, 8]", "counts: []", "counts", "at least 1"),
        (L4, "  value: 21.96", '  value: "21.96"', "memory_gib.value", "Write a number"),
        (L4, "  value: 21.96", "  value: -1", "memory_gib.value", "a number above 0"),
        (L4, "  value: 21.96", "  value: .inf", "memory_gib.value", "Write a finite number"),
        (L4, "  value: 21.96", "  value: .nan", "memory_gib.value", "Write a finite number"),
        (L4, "  value: 21.96", "  value: 1.0e+999", "memory_gib.value", "Write a smaller number"),
        (L4, "  value: 21.96", "  valeu: 21.96", "memory_gib.valeu", "Did you mean 'value'?"),
        (L4, "resource: nvidia.com/gpu", "resource: 'gpu; rm'", "resource", "Write text that matches"),
        (QAT, "layers: 30", "layers: thirty", "config.text_config.num_hidden_layers", "Copy config.json"),
        (
            QAT,
            "    num_experts: 128",
            "    num_expert: 128",
            "config.text_config.num_expert",
            "Did you mean 'num_experts'?",
        ),
        (
            QAT,
            "  top_k_experts: 8",
            "  top_k_experts: 999",
            "config.text_config.top_k_experts",
            "Copy config.json",
        ),
        (QAT, "num_bits: 4", "num_bits: 8", "checkpoint.quantization", "Correct one of the two"),
        (QAT, "  kind: store", "  kind: bucket", "weights.kind", "Write 'hub' or 'store'"),
        (QAT, "  revision: null", "  revision: main", "weights.revision", "Write text that matches"),
        (QAT, "  tool_call_parser: gemma4\n", "", "serving.tool_call_parser", "Add `tool_call_parser:`"),
        (
            QAT,
            "variant_of: google/gemma-4-26B-A4B-it",
            "variant_of: google/gemma-4-26B-A4B",
            "variant_of",
            "Did you mean",
        ),
        (PRICES, 'usd: "0.72"', "usd: 0.72", "prices[0].usd", "Write quoted text"),
        (PRICES, 'usd: "0.72"', 'usd: "0"', "prices[0].usd", "without a known price"),
        (PRICES, 'usd: "0.72"', 'usd: "-1.5"', "prices[0].usd", "without a known price"),
        (PRICES, 'usd: "0.72"', 'usd: "0.95"', "prices[0].usd", "the provider's price"),
        (PRICES, 'vcpu_hour: "0.0864"', 'vcpu_hour: "0.031611"', "vcpu_hour", "the provider's price"),
        (PRICES, 'usd: "0.72"', 'usd: "0.72"\n    vcpu_hour: "0.031611"', "prices[0]", "the `source` of this price"),
        (PRICES, 'memory_gib_hour: "0.009"', 'memory_gib_hour: "0"', "memory_gib_hour", "Write null"),
        (PRICES, 'usd: "0.72"', 'usd: "700.0"', "prices[0].usd", "the provider's price"),
        (PRICES, 'usd: "0.72"', 'usd: "1e3"', "prices[0].usd", "Write quoted text"),
        (PRICES, 'date: "2026-06-10"', 'date: "June"', "date", 'Write a quoted date such as "2027-01-31"'),
        (
            PRICES,
            "accelerator: nvidia-l4",
            "accelerator: nvdia-l4",
            "prices[0].accelerator",
            "Did you mean 'nvidia-l4'?",
        ),
        (
            RUNTIME,
            'image: "vllm/vllm-openai:v0.32.0"',
            'image: "vllm/vllm-openai:latest"',
            "image",
            "Name a released version",
        ),
        (RUNTIME, 'image: "vllm/vllm-openai:v0.32.0"', "image: vllm/vllm-openai", "image", "Write text that matches"),
        (RUNTIME, "digest: null", 'digest: "sha256:abc"', "digest", "Write text that matches"),
        (RUNTIME, "uid: 1001", "uid: 0", "uid", "a number from 1 on"),
        (TEAM, "namespace: team-alpha", "namespace: Team_Alpha", "namespace", "Write text that matches"),
        (TEAM, "namespace: team-alpha", "namespace: team-beta", "namespace", "namespace of its own"),
        (TEAM, "contact:", 'group: "system:authenticated"\ncontact:', "group", "identity provider"),
        (TEAM, "cost_center: cc-ml-inference", 'cost_center: "${{ x }}"', "cost_center", "Write text that matches"),
    ],
)
def test_a_bad_entry_names_file_field_line_and_fix(
    copy: Path, path: str, old: str, new: str, field: str, fix: str
) -> None:
    edit(copy, path, old, new)
    found = problems(copy)
    # Two teams in one namespace are reported at the second of them.
    files = {path, path.replace("team-alpha", "team-beta")}
    problem = next(problem for problem in found if problem.where in files and problem.field == field)
    assert fix in problem.fix
    assert problem.line is not None
    assert problem.message


def test_the_line_of_a_problem_is_where_it_stands(copy: Path) -> None:
    line = edit(copy, L4, "family: cuda", "famly: cuda")
    assert line in {problem.line for problem in problems(copy) if problem.field == "famly"}
    line = edit(copy, PRICES, 'usd: "3.76"', "usd: free")
    assert line in {problem.line for problem in problems(copy) if problem.field == "prices[1].usd"}


def test_every_problem_of_every_file_is_listed_at_once(copy: Path) -> None:
    edit(copy, L4, "family: cuda", "famly: cuda")
    edit(copy, TEAM, "contact:", "kontact:")
    edit(copy, QAT, "kind: store", "kind: bucket")
    assert {L4, TEAM, QAT} <= {problem.where for problem in problems(copy)}


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("models/readme.txt", "hello", "is not a catalog file"),
        ("gpus/l4.yaml", "name: l4\n", "is not a catalog file"),
        ("models/deep/x.yaml", "name: x\n", "is not a catalog file"),
        ("teams/empty.yaml", "", "holds 0 YAML documents"),
        ("teams/two.yaml", "name: a\n---\nname: b\n", "holds 2 YAML documents"),
        ("teams/list.yaml", "- a\n", "is not a mapping"),
        ("teams/twice.yaml", "name: a\nname: b\n", "stands twice"),
        ("teams/broken.yaml", "name: [\n", "not valid YAML"),
        ("teams/nul.yaml", "name: a\0b\n", "NUL"),
        ("teams/other.yaml", (ROOT / TEAM).read_text().replace("namespace: team-alpha", "namespace: other"), "named"),
    ],
)
def test_a_stray_or_unreadable_file_is_a_problem_and_never_skipped(
    copy: Path, path: str, content: str, message: str
) -> None:
    target = copy / "platform" / "catalog" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
    found = problems(copy)
    assert any(problem.where == f"platform/catalog/{path}" and message in problem.message for problem in found)


def test_a_symlink_in_the_catalog_is_a_problem(copy: Path) -> None:
    (copy / "platform/catalog/teams/link.yaml").symlink_to("team-alpha.yaml")
    assert any("symlink" in problem.message for problem in problems(copy))


def test_two_entries_of_one_name_are_a_problem(copy: Path) -> None:
    shutil.copy(copy / TEAM, copy / TEAM.replace("team-alpha", "zz"))
    assert any("stands in" in problem.message for problem in problems(copy))


def test_an_accelerator_that_no_runtime_serves_is_a_problem(copy: Path) -> None:
    (copy / "platform/catalog/runtimes/neuroscale-vllm-tpu.yaml").unlink()
    found = problems(copy)
    assert {problem.field for problem in found} == {"family"}


def test_an_empty_catalog_is_a_problem(tmp_path: Path) -> None:
    assert all("holds no entry" in problem.message for problem in problems(tmp_path))


def test_a_digest_changes_with_a_value_and_not_with_comments_or_order(copy: Path) -> None:
    def load() -> Catalog:
        return load_catalog(FolderSnapshot(copy))

    before = load()
    text = (copy / TEAM).read_text()
    (copy / TEAM).write_text("# a comment\n" + "\n".join(reversed(text.splitlines())) + "\n")
    assert load() == before
    edit(copy, PRICES, '"0.72"', '"0.73"')
    after = load()
    assert after.digest != before.digest
    changed = {key for key in list(before.keys()) if before.entry_digest(key) != after.entry_digest(key)}
    assert changed == {"price/google-cloud"}


def test_published_and_counted_figures_of_every_model_agree() -> None:
    # Towers for images and sound are in the published total of the two smallest Gemma 4 models only.
    loose = {"google/gemma-4-E2B-it": 0.10, "google/gemma-4-E4B-it": 0.08}
    for model in load_catalog(FolderSnapshot(ROOT)).models.values():
        counted, published = model.facts, model.parameters
        tolerance = loose.get(model.variant_of or model.name, 0.01)
        if published.published_total is not None:
            assert counted.total_params == pytest.approx(published.published_total, rel=tolerance), model.name
        without = published.active_excludes_embedding
        active = counted.active_params_without_embedding if without else counted.active_params
        if published.published_active is not None:
            assert active == pytest.approx(published.published_active, rel=0.05), model.name


def test_the_catalog_has_this_years_models_and_every_one_is_read_with_parsers_that_vllm_has() -> None:
    models = load_catalog(FolderSnapshot(ROOT)).models
    assert len(models) >= 60
    vllm = load("0.32.0")
    for model in models.values():
        assert model.serving.tool_call_parser in (None, *vllm.tool_parsers), model.name
        assert model.serving.reasoning_parser in (None, *vllm.reasoning_parsers), model.name
        assert model.variant_of is None or models[model.variant_of].variant_of is None, model.name
        assert model.weights.gated is not True or "accept" in model.weights.source, model.name


@pytest.mark.parametrize(
    ("old", "new", "field", "fix"),
    [
        ("schema_version: 1", "schema_version: 2", "schema_version", "Write 1"),
        ("default_branch: main", "default_brunch: main", "repository.default_brunch", "Did you mean 'default_branch'?"),
        ("max_replicas: 2", "max_replicas: .inf", "environments.local.max_replicas", "Write a finite number"),
        ("max_replicas: 2", "max_replicas: 0", "environments.local.max_replicas", "a number from 1 on"),
        (
            'store: "gs://neuroscale-models"',
            'store: "/etc"',
            "environments.dev.models.store",
            "Write text that matches",
        ),
        ("https://github.com/example", "http://user@example", "repository.url", "Write text that matches"),
    ],
)
def test_bad_settings_name_field_line_and_fix(copy: Path, old: str, new: str, field: str, fix: str) -> None:
    line = edit(copy, SETTINGS, old, new)
    with pytest.raises(InputError) as caught:
        load_settings(FolderSnapshot(copy))
    problem = next(problem for problem in caught.value.problems if problem.field == field)
    assert (problem.where, problem.line) == (SETTINGS, line)
    assert fix in problem.fix


def test_settings_that_name_an_unknown_accelerator_or_price_list_are_refused(copy: Path) -> None:
    edit(copy, SETTINGS, "accelerators: [cpu]", "accelerators: [cpus]")
    edit(copy, SETTINGS, "price_lists: [google-cloud, ", "price_lists: [google, ")
    edit(copy, SETTINGS, "  environments: [prod]", "  environments: [production]")
    snapshot = FolderSnapshot(copy)
    with pytest.raises(InputError) as caught:
        check_settings(load_settings(snapshot), load_catalog(snapshot))
    assert {problem.field for problem in caught.value.problems} == {
        "environments.local.accelerators",
        "environments.dev.price_lists",
        "production.environments",
    }
    assert "Did you mean 'cpu'?" in str(caught.value)

"""What a change of the template, the settings, the catalog or a runtime does to services that are rendered anew."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.cli.new import new_service
from neuroscale.gate.check import Anew
from neuroscale.gate.checks import effects, effects_requests
from neuroscale.gate.checks.effects import evaluate_effects
from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.make_verdict import merged
from neuroscale.gate.merged_change import Change, find_change, read_change, touches_rendering
from neuroscale.gate.object_diff import FieldChange, field_changes
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.planning.planner import plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.lint import branches, reached
from neuroscale.rendering.scaffolder.skeleton_values import template_values, unset_by
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.layout import EXAMPLES, PROTECTED, SERVICE_SOURCES, TEMPLATE
from neuroscale.report.phrases import effects_headline, effects_lead
from neuroscale.request.service_request import load_request
from platform_repository import CATALOG, SETTINGS, SNAPSHOT
from repositories import Repository
from roots import ROOT

pytestmark = pytest.mark.slow

SKELETON = f"{TEMPLATE}/skeleton"
ISVC, NETWORK = f"{SKELETON}/inferenceservice.yaml", f"{SKELETON}/networkpolicy.yaml"
MOE = "platform/catalog/runtimes/neuroscale-vllm-gemma4-moe.yaml"
RUNTIME = "platform/serving/runtimes/neuroscale-vllm.yaml"
CHAT, HELP_DESK = "dev/support-chat", f"{EXAMPLES}/llama-3.1-8b-highly-available.yaml"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """A repository with one service on main."""
    made = Repository(tmp_path_factory.mktemp("effects") / "repository")
    for folder in ("platform/catalog", "platform/serving/runtimes", "templates"):
        shutil.copytree(ROOT / folder, made.root / folder)
    shutil.copyfile(ROOT / "platform/settings.yaml", made.root / "platform/settings.yaml")
    new_service(ROOT / EXAMPLES / "gemma-4-26b-a4b-qat.yaml", made.root, interactive=False)
    made.commit({}, "platform")
    yield made
    made.git.close()


def changed(platform: Repository, files: dict[str, bytes | str | None]) -> Change:
    platform.run("switch", "--quiet", "--force-create", "change", "main")
    platform.commit(files)
    return find_change(platform.git, "main", "change")


def seen(change: Change) -> tuple[list[Finding], Anew]:
    given = read_change(change)
    catalog = load_catalog(change.after) if change.touches("platform/catalog") else CATALOG
    after = PlanningInputs(catalog, load_settings(change.after), load_template(change.after))
    evaluation, anew = evaluate_effects(
        change, given.services, after, PlatformSources(change.before), evaluate_files(given, None)[1]
    )
    return list(evaluation.findings), anew


def edited(platform: Repository, path: str, old: str, new: str) -> dict[str, bytes | str | None]:
    text = platform.run("show", f"main:{path}") + "\n"
    assert old in text
    return {path: text.replace(old, new, 1)}


NO_LINKS = "    enableServiceLinks: false\n"
PEERS = "        - podSelector: {}\n"
OPEN = f"{PEERS}        - ipBlock:\n            cidr: 0.0.0.0/0\n"


@pytest.mark.parametrize(
    ("path", "old", "new", "kind", "shown", "services"),
    [
        (
            *(ISVC, NO_LINKS, f"{NO_LINKS}    hostNetwork: true\n", "InferenceService"),
            *(FieldChange("spec.predictor.hostNetwork", None, "true"), 5),
        ),
        (
            *(NETWORK, PEERS, OPEN, "NetworkPolicy"),
            *(FieldChange("spec.ingress[0].from[1]", None, '{"ipBlock": {"cidr": "0.0.0.0/0"}}'), 5),
        ),
        (
            *("platform/settings.yaml", "[envoy-gateway-system]", "[default]", "NetworkPolicy"),
            FieldChange(
                "spec.ingress[0].from[1].namespaceSelector.matchExpressions[0].values",
                *("envoy-gateway-system", "default"),
            ),
            3,
        ),
        (
            *(MOE, '  VLLM_NO_USAGE_STATS: "1"\n', "", "InferenceService"),
            FieldChange(
                "spec.predictor.model.env.VLLM_NO_USAGE_STATS", '{"name": "VLLM_NO_USAGE_STATS", "value": "1"}', None
            ),
            2,
        ),
        (
            *(RUNTIME, "spec:\n", "spec:\n  hostNetwork: true\n", "ClusterServingRuntime neuroscale-vllm"),
            *(FieldChange("spec.hostNetwork", None, "true"), 1),
        ),
    ],
)
def test_what_services_would_get_is_shown_once_for_all(
    platform: Repository, path: str, old: str, new: str, kind: str, shown: FieldChange, services: int
) -> None:
    findings, anew = seen(changed(platform, edited(platform, path, old, new)))
    assert findings == []
    (found,) = anew.effects.differences
    assert (found.kind, FieldChange(found.field, found.before, found.after)) == (kind, shown)
    assert found.services == services
    assert found.example == (HELP_DESK if path == RUNTIME else CHAT)
    assert (anew.effects.rendered, anew.effects.changed, anew.effects.left_out) == (5, services, 0)
    # Only what nobody else judges: the service's own files are among the change's manifests.
    assert {one.kind for one in anew.manifests} <= {
        "InferenceService",
        "NetworkPolicy",
        "PodDisruptionBudget",
        kind.split()[0],
    }
    assert any(one.kind == kind.split()[0] for one in anew.manifests)


def test_every_file_that_differs_is_listed_below_a_heading_that_counts_it(platform: Repository) -> None:
    info = f"{SKELETON}/catalog-info.yaml"
    findings, anew = seen(changed(platform, edited(platform, info, "  type: service\n", "  type: api\n")))
    assert findings == []
    (found,) = anew.effects.differences
    assert (found.kind, found.field, found.before, found.after, found.services) == (
        *("catalog-info.yaml", "spec.type"),
        *("service", "api", 5),
    )
    assert effects_headline(anew.effects) == "5 of 5 services rendered again would change"
    assert "5 of them would change" in effects_lead(anew.effects)
    comment = f"# New.\n{platform.run('show', f'main:{NETWORK}')}\n"
    _, anew = seen(changed(platform, {NETWORK: comment}))
    (found,) = anew.effects.differences
    assert (found.kind, found.after, anew.effects.changed) == ("networkpolicy.yaml, its text alone:", "# New.", 5)
    _, anew = seen(changed(platform, edited(platform, f"{TEMPLATE}/template.yaml", "spec:\n", "\nspec:\n")))
    assert (anew.effects.differences, anew.effects.changed) == ((), 0)
    assert effects_headline(anew.effects) == "5 services rendered again; none changes"


def test_rendered_objects_are_judged_at_the_skeleton_and_one_finding_speaks_for_all(platform: Repository) -> None:
    _, anew = seen(changed(platform, edited(platform, ISVC, NO_LINKS, f"{NO_LINKS}    hostNetwork: true\n")))
    rendered = [one for one in anew.manifests if one.kind == "InferenceService"]
    assert {one.file for one in rendered} == {ISVC}
    assert all(one.value["spec"]["predictor"]["hostNetwork"] is True for one in rendered)
    told = [
        Finding(gate="policy", rule="x", file=one.file, subject=one.subject, message=f"{one.name} may not", fix="")
        for one in rendered
    ]
    other = told[0].model_copy(update={"file": "manifests/dev/other/inferenceservice.yaml"})
    first, second = merged([*told, other], anew.manifests)
    assert f"and {len({one.subject for one in rendered}) - 1} more like it: " in first.message
    assert second == other


def test_a_service_that_the_change_renders_itself_is_not_judged_twice(platform: Repository) -> None:
    files = edited(platform, ISVC, NO_LINKS, f"{NO_LINKS}    hostPID: true\n")
    files |= edited(
        platform, "manifests/dev/support-chat/inferenceservice.yaml", NO_LINKS, f"{NO_LINKS}    hostPID: true\n"
    )
    _, anew = seen(changed(platform, files))
    assert anew.effects.differences[0].services == 5
    assert {one.name for one in anew.manifests} == {"help-desk", "summaries", "tiny-chat"}


def test_lines_that_no_environment_of_the_settings_makes_are_only_noticed(platform: Repository) -> None:
    """No example could reach them, so that nobody could merge a newer skeleton."""
    one = "spec:\n  {% if values.has_node_local_dns %}\n  extra: {}\n  {% endif %}\n"
    ((finding,), _) = seen(changed(platform, edited(platform, NETWORK, "spec:\n", one)))
    assert (finding.rule, finding.severity) == ("unreached", Severity.NOTICE)
    files = edited(platform, NETWORK, "spec:\n", one)
    on = "    dns: {node_local: true}\n    domain: dev"
    files |= edited(platform, "platform/settings.yaml", "    domain: dev", on)
    findings, anew = seen(changed(platform, files))
    assert findings == []
    assert {one.field for one in anew.effects.differences} >= {"spec.extra", "spec.egress[0].to[1]"}


def test_lines_that_no_example_reaches_are_found_and_an_example_reaches_them(platform: Repository) -> None:
    opened = "spec:\n  {% if values.highly_available %}\n  {% if values.has_storage_uri %}\n"
    hidden = f"{opened}  extra: {{}}\n  {{% endif %}}\n  {{% endif %}}\n"
    files = edited(platform, NETWORK, "spec:\n", hidden)
    ((finding,), _) = seen(changed(platform, files))
    assert (finding.rule, finding.file, finding.line) == ("unreached", NETWORK, 14)
    assert "has_storage_uri and highly_available" in finding.message
    text = (ROOT / EXAMPLES / "gemma-4-26b-a4b-qat.yaml").read_text().replace("standard", "high")
    findings, anew = seen(changed(platform, {**files, f"{EXAMPLES}/new.yaml": text}))
    assert findings == []
    assert [one.example for one in anew.effects.differences] == [f"{EXAMPLES}/new.yaml"]


def test_an_example_that_the_change_removes_still_shows_what_it_does(platform: Repository) -> None:
    files = edited(platform, NETWORK, "cost-center: ${{ values.cost_center }}\n", "cost-center: ${{ values.owner }}\n")
    removed = {path.relative_to(ROOT).as_posix(): None for path in (ROOT / EXAMPLES).glob("*.yaml")}
    _, anew = seen(changed(platform, {**files, **removed}))
    assert anew.effects.rendered == 5


def renamed(platform: Repository) -> dict[str, bytes | str | None]:
    """Another name for the team of an example, in the catalog, in that example and nowhere else."""
    teams = "platform/catalog/teams"
    team = platform.run("show", f"main:{teams}/team-beta.yaml").replace("team-beta", "searchers")
    request = platform.run("show", f"main:{HELP_DESK}").replace("team-beta", "searchers")
    return {f"{teams}/team-beta.yaml": None, f"{teams}/searchers.yaml": f"{team}\n", HELP_DESK: f"{request}\n"}


def test_an_example_of_the_base_keeps_the_names_of_the_base_and_is_compared_with_the_changes(
    platform: Repository,
) -> None:
    findings, anew = seen(changed(platform, renamed(platform)))
    assert findings == []
    owners = [one for one in anew.effects.differences if one.field.endswith('["app.kubernetes.io/owner"]')]
    assert {(one.before, one.after, one.example) for one in owners} == {("team-beta", "searchers", HELP_DESK)}
    assert not any("before the change" in told and HELP_DESK in told for told in anew.said if "refuses" not in told)


def test_a_renamed_example_still_shows_what_the_template_does(platform: Repository) -> None:
    opened = edited(platform, NETWORK, PEERS, OPEN)
    _, anew = seen(changed(platform, {**renamed(platform), **opened}))
    (found,) = [one for one in anew.effects.differences if one.field == "spec.ingress[0].from[1]"]
    assert found.services == 6  # of a service, of five examples that the planner serves, one of them twice
    assert {one.name for one in anew.manifests if one.kind == "NetworkPolicy"} >= {"help-desk"}


def test_what_the_change_no_longer_offers_is_no_fault_of_an_example_that_it_removes(platform: Repository) -> None:
    cards = "[nvidia-l4, nvidia-rtx-pro-6000, nvidia-a100-80gb, nvidia-h100-80gb, tpu-v6e-1]"
    fewer = edited(platform, "platform/settings.yaml", cards, "[tpu-v6e-1]")
    gone = f"{EXAMPLES}/gemma-4-26b-a4b-qat.yaml"
    findings, anew = seen(changed(platform, {**fewer, gone: None}))
    assert not [one for one in findings if one.severity is Severity.ERROR and one.file == gone]
    assert any(f"{gone} of the base is not possible" in told for told in anew.said)


def test_a_template_that_no_longer_renders_an_example_of_the_base_is_a_finding(platform: Repository) -> None:
    findings, _ = seen(changed(platform, {**renamed(platform), f"{SKELETON}/poddisruptionbudget.yaml": None}))
    (found,) = [one for one in findings if "of the base" in one.message]
    assert (found.rule, found.file) == ("not-rendered", TEMPLATE)


def test_an_environment_without_a_request_gets_an_example(platform: Repository) -> None:
    removed: dict[str, bytes | str | None] = {HELP_DESK: None}
    platform.run("switch", "--quiet", "--force-create", "before", "main")
    platform.commit(removed)
    platform.run("switch", "--quiet", "--force-create", "change", "before")
    text = platform.run("show", "main:platform/settings.yaml") + "\n"
    first, last = text.split("  prod:\n")
    platform.commit({"platform/settings.yaml": f"{first}  prod:\n{last.replace('[envoy-gateway-system]', '[x]', 1)}"})
    _, anew = seen(find_change(platform.git, "before", "change"))
    (found,) = anew.effects.differences
    assert (found.after, found.example) == ("x", f"{EXAMPLES}/gemma-4-12b-on-a-tpu.yaml in prod")


def test_services_beyond_a_number_are_named_as_not_rendered(
    platform: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects_requests, "_MOST_SERVICES", 2)
    files = edited(platform, NETWORK, PEERS, OPEN)
    service = "manifests/dev/support-chat"
    for name, model in (("a-chat", "x/other"), ("b-chat", ""), ("c-chat", "")):
        for path in (platform.root / service).iterdir():
            text = path.read_text().replace("support-chat", name)
            files[f"manifests/dev/{name}/{path.name}"] = (
                text.replace("model: google/", f"model: {model}") if model else text
            )
    _, anew = seen(changed(platform, files))
    assert any("2 of 4 services were not rendered, each of a kind that was rendered" in told for told in anew.said)


def test_what_can_no_longer_be_rendered_is_a_finding(platform: Repository) -> None:
    cards = "[nvidia-l4, nvidia-rtx-pro-6000, nvidia-a100-80gb, nvidia-h100-80gb, tpu-v6e-1]"
    files = edited(platform, "platform/settings.yaml", cards, "[tpu-v6e-1]")
    findings, _ = seen(changed(platform, files))
    assert {(one.rule, one.severity) for one in findings} == {
        ("not-rendered", Severity.ERROR),  # an example
        ("not-rendered", Severity.NOTICE),  # a service, whose recorded plan stays
    }


@pytest.mark.parametrize(
    "files",
    [
        {f"{EXAMPLES}/bad.yaml": "service: 1\n"},
        {f"{EXAMPLES}/{number}.yaml": f"service: x{number}\n" for number in range(30)},
    ],
)
def test_examples_that_cannot_be_used_are_found(platform: Repository, files: dict[str, bytes | str | None]) -> None:
    rules = {one.rule for one in seen(changed(platform, files))[0]}
    assert rules == ({"example"} if len(files) == 1 else {"example", "too-many-examples"})


def test_catalog_entries_that_nothing_uses_are_named(platform: Repository) -> None:
    files = edited(platform, "platform/catalog/models/DeepSeek-V3.yaml", "title:", "# other\ntitle:")
    findings, anew = seen(changed(platform, files))
    assert (findings, anew.effects.differences) == ([], ())
    assert any("the model DeepSeek-V3" in told for told in anew.said)


@pytest.mark.parametrize(
    ("path", "runs"),
    [
        (f"{SKELETON}/plan.yaml", True),
        ("platform/settings.yaml", True),
        ("platform/catalog/prices/google-cloud.yaml", True),
        (RUNTIME, True),
        (f"{EXAMPLES}/x.yaml", True),
        ("manifests/dev/x/plan.yaml", False),
        ("policies/x/policy.yaml", False),
        *((path, False) for path in effects.RENDERERS),
        ("platform/serving/kserve.yaml", False),
    ],
)
def test_nothing_is_rendered_where_nothing_of_the_kind_changed(platform: Repository, path: str, runs: bool) -> None:
    change = Change(platform.git, "", "", "", {path: "M"})
    assert touches_rendering(change) is runs
    # Code of a change does not run, so what it would render is not known.
    assert len(list(effects.unseen(change))) == path.startswith("src/")


@pytest.mark.parametrize("path", effects.RENDERERS)
def test_the_code_whose_change_is_not_shown_lies_where_it_is_looked_for(path: str) -> None:
    assert (ROOT / path).exists()


def test_this_repositorys_examples_reach_every_line_every_environment_and_every_runtime_there() -> None:
    template = load_template(SNAPSHOT)
    values: list[Mapping[str, Any]] = []
    used = set()
    for path in (ROOT / EXAMPLES).glob("*.yaml"):
        request = load_request(path.read_text(), path.name)
        planned = plan(request, CATALOG, SETTINGS, template.version)
        if planned.verdict != "refused":
            values.append(template_values(request, planned))
            used |= {planned.environment, planned.runtime.name}
    offered = {CATALOG.accelerators[name].family for one in SETTINGS.environments.values() for name in one.accelerators}
    runtimes = {name for name, one in CATALOG.runtimes.items() if one.family in offered}
    assert used == {*SETTINGS.environments, *runtimes}
    # tests/rendering/test_clusters.py renders the lines that only other settings make.
    others = unset_by(SETTINGS)
    for text in template.folder("skeleton").values():
        for conditions in branches(text):
            if others & {name for name, _ in conditions}:
                continue
            assert any(reached(conditions, one) for one in values), conditions
    # Only a plan from before planner 2.6.0 has no rollout.
    flags = [
        name for name, value in values[0].items() if isinstance(value, bool) and name not in {"has_rollout", *others}
    ]
    assert all({one[name] for one in values} == {True, False} for name in flags)


def test_what_every_service_is_rendered_from_is_protected() -> None:
    sources = (f"{TEMPLATE}/template.yaml", f"{EXAMPLES}/x.yaml", "platform/settings.yaml", MOE, RUNTIME)
    assert set(SERVICE_SOURCES) <= set(PROTECTED)
    for path in sources:
        assert any(path == one or (one.endswith("/") and path.startswith(one)) for one in PROTECTED), path


def spec(**fields: object) -> dict[str, object]:
    return {"spec": fields}


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (spec(a=1), spec(a=True), [("spec.a", "1", "true")]),
        (spec(a=[{"name": "x", "v": 1}]), spec(a=[{"name": "x", "v": 2}]), [("spec.a.x.v", "1", "2")]),
        (
            spec(a=[{"name": "x"}, {"name": "y"}]),
            spec(a=[{"name": "y"}, {"name": "x"}]),
            [("spec.a.(order)", '["x", "y"]', '["y", "x"]')],
        ),
        (
            spec(args=["--port=1", "--a=1", "--a=2"]),
            spec(args=["--port=2", "--a=1"]),
            [("spec.args.--a", "--a=2", None), ("spec.args.--port", "--port=1", "--port=2")],
        ),
        (spec(args=["a", "b"]), spec(args=["b", "a"]), [("spec.args.(order)", '["a", "b"]', '["b", "a"]')]),
        (spec(a=[{"x": 1}, {"x": 2}]), spec(a=[{"x": 3}, {"x": 1}, {"x": 2}]), [("spec.a[0]", None, '{"x": 3}')]),
        (spec(a={}), spec(), [("spec.a", "{}", None)]),
        (spec(a=None), spec(a="null"), [("spec.a", "null", '"null"')]),
        (spec(a=1), spec(a=1), []),
    ],
)
def test_fields_that_differ(before: object, after: object, shown: list[tuple[str, str | None, str | None]]) -> None:
    found = [
        (one.field.replace('["(order)"]', ".(order)"), one.before, one.after) for one in field_changes(before, after)
    ]
    assert found == shown


def test_a_long_value_is_cut_where_it_differs() -> None:
    (found,) = field_changes({"a": "x" * 5000 + "one"}, {"a": "x" * 5000 + "two"})
    assert found.before is not None
    assert "one" in found.before
    assert len(found.before) < 300


def test_a_service_that_could_not_be_rendered_before_either_is_a_notice_and_no_error(platform: Repository) -> None:
    request = "manifests/dev/support-chat/request.yaml"
    platform.run("switch", "--quiet", "--force-create", "broken", "main")
    platform.commit(edited(platform, request, "model: google/", "model: nobody/"))
    platform.run("switch", "--quiet", "--force-create", "change", "broken")
    price = "platform/catalog/prices/aws-us-east-1.yaml"
    platform.commit({price: f"{platform.run('show', f'main:{price}')}\n# Looked at again.\n"})
    findings, _ = seen(find_change(platform.git, "broken", "change"))
    (found,) = [one for one in findings if one.rule == "not-rendered"]
    assert (found.severity, found.file) == (Severity.NOTICE, request)
    assert "cannot be rendered" in found.message

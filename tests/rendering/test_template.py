"""The template: what its form asks, what its steps may do, and what is refused before anything is rendered."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

import plan_strategies as strategies
from examples import examples
from neuroscale.catalog import Catalog
from neuroscale.catalog.cluster_settings import TokenSecret
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.yaml_io import dump, read_documents
from neuroscale.gate.runner import gate_paths
from neuroscale.gate.verdict import Outcome
from neuroscale.planning.planner import plan as make_real_plan
from neuroscale.rendering.scaffolder import interpreter, plan_step
from neuroscale.rendering.scaffolder.form import FORM_FIELDS, REQUIRED_FIELDS, as_configured, check_form, expected_enums
from neuroscale.rendering.scaffolder.lint import lint, lint_name
from neuroscale.rendering.scaffolder.plan_step import RefusedPlanError
from neuroscale.rendering.scaffolder.skeleton_values import KINDS
from neuroscale.rendering.scaffolder.template import PLAN_PATH, Template, load_template
from neuroscale.rendering.service_folder import render, write_service
from neuroscale.repo.layout import TEMPLATE as TEMPLATE_FOLDER
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from neuroscale.request.service_request import load_request
from plan_factory import ANSWERS, make_plan, make_request, pull_request_for
from platform_repository import CATALOG, PLATFORM, SETTINGS, TEMPLATE
from roots import ROOT


def with_file(path: str, text: str | None) -> MemorySnapshot:
    """The template with one file replaced, added or (None) removed."""
    files = {f"{TEMPLATE_FOLDER}/{name}": content.encode() for name, content in TEMPLATE.files.items()}
    files.pop(f"{TEMPLATE_FOLDER}/{path}", None)
    if text is not None:
        files[f"{TEMPLATE_FOLDER}/{path}"] = text.encode()
    return MemorySnapshot(files)


def with_definition(change: Callable[[Any], object]) -> MemorySnapshot:
    """The template with template.yaml changed."""
    definition = copy.deepcopy(TEMPLATE.document.value)
    change(definition)
    return with_file("template.yaml", dump(definition))


def problems_of(snapshot: MemorySnapshot) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        load_template(snapshot)
    assert all(problem.message and problem.fix for problem in caught.value.problems)
    return caught.value.problems


# -- the form --------------------------------------------------------------------------------------------------------


def test_the_form_offers_what_the_catalog_and_the_settings_hold() -> None:
    assert check_form(TEMPLATE, CATALOG, SETTINGS) == []
    form = TEMPLATE.form()
    for name, names in expected_enums(CATALOG, SETTINGS).items():
        assert sorted(form[name]["enum"]) == names


def test_the_form_takes_its_names_from_catalog_and_settings_and_keeps_everything_else() -> None:
    teams = dict.fromkeys(("team-beta", "search", "9"), CATALOG.teams["team-beta"])
    catalog = Catalog(CATALOG.models, CATALOG.accelerators, CATALOG.prices, CATALOG.runtimes, teams)
    environments = dict.fromkeys(("staging", "prod", "local"), SETTINGS.environments["prod"])
    repository = SETTINGS.repository.model_copy(
        update={"url": "https://git.corp/a/b/models", "default_branch": "trunk"}
    )
    other = SETTINGS.model_copy(update={"environments": environments, "repository": repository})
    text = as_configured(TEMPLATE, catalog, other)
    rendered = load_template(with_file("template.yaml", text))
    assert len(check_form(TEMPLATE, catalog, other)) == 6
    assert check_form(rendered, catalog, other) == []
    assert as_configured(rendered, catalog, other) == text
    # Names that the form has already keep their order.
    assert rendered.form()["environment"]["enum"] == ["local", "prod", "staging"]
    assert rendered.form()["team"]["enum"] == ["team-beta", "9", "search"]
    before, after = (template.files["template.yaml"].splitlines() for template in (TEMPLATE, rendered))
    assert {line.strip() for line in set(before) ^ set(after)} == {
        *("- platform", "- team-alpha", "- team-gamma", "- dev", '- "9"', "- search", "- staging"),
        *("repoUrl: github.com?owner=example&repo=neuroscale", "repoUrl: git.corp?owner=a/b&repo=models"),
        *("targetBranchName: main", "targetBranchName: trunk"),
    }


def test_the_form_asks_for_needs_and_never_for_hardware() -> None:
    assert tuple(TEMPLATE.form()) == FORM_FIELDS
    asked = json.dumps(TEMPLATE.pages()).lower()
    for word in ("gpu", "parallel", "vllm", "accelerator", "replica_", "quantization"):
        assert word not in asked


def test_every_page_of_the_form_is_a_json_schema_that_takes_the_answers() -> None:
    for page in TEMPLATE.pages():
        Draft7Validator.check_schema(page)
        assert list(Draft7Validator(page).iter_errors(ANSWERS)) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda form: form["model"]["enum"].pop(), "spec.parameters[0].properties.model.enum"),
        (lambda form: form["team"]["enum"].append("ghosts"), "spec.parameters[0].properties.team.enum"),
        (lambda form: form["service"].update(pattern=".*"), "spec.parameters[0].properties.service.pattern"),
        (lambda form: form["service"].pop("pattern"), "spec.parameters[0].properties.service.pattern"),
        (
            lambda form: form["concurrent_users"].update(maximum=5),
            "spec.parameters[1].properties.concurrent_users.maximum",
        ),
        (lambda form: form["concurrent_users"].update(type="number"), "spec.parameters[1].properties.concurrent_users"),
        (lambda form: form["availability"]["enum"].pop(), "spec.parameters[1].properties.availability.enum"),
        (lambda form: form["availability"].pop("enum"), "spec.parameters[1].properties.availability.enum"),
    ],
)
def test_a_form_that_differs_from_what_a_request_allows_is_reported(change: Any, field: str) -> None:
    def apply(definition: Any) -> None:
        pages = definition["spec"]["parameters"]
        change({name: schema for page in pages for name, schema in page["properties"].items()})

    (problem,) = check_form(load_template(with_definition(apply)), CATALOG, SETTINGS)
    assert problem.field == field


def test_a_form_with_other_fields_is_reported() -> None:
    def apply(definition: Any) -> None:
        page = definition["spec"]["parameters"][1]
        page["properties"]["gpus"] = {"type": "integer"}
        page["required"].remove("availability")

    found = [problem.field for problem in check_form(load_template(with_definition(apply)), CATALOG, SETTINGS)]
    assert found == ["spec.parameters[1].properties.gpus", "spec.parameters[1].properties.availability"]


def test_a_form_that_insists_on_a_typical_length_is_reported() -> None:
    def apply(definition: Any) -> None:
        definition["spec"]["parameters"][1]["required"].append("typical_prompt_tokens")

    (problem,) = check_form(load_template(with_definition(apply)), CATALOG, SETTINGS)
    assert problem.field == "spec.parameters[1].properties.typical_prompt_tokens"
    assert problem.message == "must be answered"


def test_typical_lengths_reach_the_request_and_a_null_is_as_good_as_none() -> None:
    nothing = {"typical_prompt_tokens": None, "typical_answer_tokens": None}
    all_answers: list[dict[str, Any]] = [{**ANSWERS, "typical_prompt_tokens": 700}, {**ANSWERS, **nothing}, ANSWERS]
    said, null, without = (
        pull_request_for(answers, PLATFORM).files["manifests/dev/support-chat/request.yaml"] for answers in all_answers
    )
    assert "typical_prompt_tokens: 700\n" in said
    assert "typical_answer_tokens" not in said
    assert null == without
    assert "typical" not in without


@pytest.mark.parametrize(("field", "value"), [("repoUrl", "github.com?owner=x&repo=y"), ("targetBranchName", "trunk")])
def test_a_pull_request_to_another_repository_than_the_settings_name_is_reported(field: str, value: str) -> None:
    def apply(definition: Any) -> None:
        definition["spec"]["steps"][2]["input"][field] = value

    (problem,) = check_form(load_template(with_definition(apply)), CATALOG, SETTINGS)
    assert problem.field == f"spec.steps[2].input.{field}"


def test_the_namespaces_and_the_secret_are_those_that_the_settings_give_an_environment() -> None:
    """A fork changes them in one place, and two environments may differ."""
    changed = SETTINGS.environments["dev"].model_copy(
        update={
            "token_secret": TokenSecret(name="hub-token", key="hf"),
            "ingress_namespaces": ("envoy-gateway",),
            "monitoring_namespaces": ("observability", "envoy-gateway"),
            "prometheus": SETTINGS.environments["dev"].prometheus.model_copy(update={"namespace": "observability"}),
        }
    )
    forked = SETTINGS.model_copy(update={"environments": {**SETTINGS.environments, "dev": changed}})
    request = make_request(model="meta-llama/Llama-3.1-8B-Instruct")
    files = render(request, make_real_plan(request, CATALOG, forked), TEMPLATE)
    (policy,) = read_documents(files["networkpolicy.yaml"], "networkpolicy.yaml")
    (service,) = read_documents(files["inferenceservice.yaml"], "inferenceservice.yaml")
    selector = policy.value["spec"]["ingress"][0]["from"][1]["namespaceSelector"]
    assert selector["matchExpressions"][0]["values"] == ["envoy-gateway", "observability"]
    token = next(entry for entry in service.value["spec"]["predictor"]["model"]["env"] if entry["name"] == "HF_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "hub-token", "key": "hf"}


# -- steps -----------------------------------------------------------------------------------------------------------


def test_the_template_has_a_version_and_a_digest_of_every_file() -> None:
    assert TEMPLATE.version == TEMPLATE.document.value["metadata"]["annotations"]["neuroscale.dev/template-version"]
    changed = load_template(with_file("skeleton/plan.yaml", "${{ values.plan_yaml }}\n"))
    assert changed.digest == TEMPLATE.digest
    other = TEMPLATE.files["skeleton/networkpolicy.yaml"] + "# x\n"
    assert load_template(with_file("skeleton/networkpolicy.yaml", other)).digest != TEMPLATE.digest


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (lambda steps: steps[0].update(action="debug:log"), "spec.steps[0].action", "is not an action that is known"),
        (lambda steps: steps[0].update({"if": "${{ parameters.team }}"}), "spec.steps[0].if", "is not supported"),
        (lambda steps: steps[1].update(each=["a"]), "spec.steps[1].each", "is not supported"),
        (lambda steps: steps[1]["input"].update(replace=True), "spec.steps[1].input.replace", "is not an input"),
        (lambda steps: steps[1]["input"].pop("url"), "spec.steps[1].input", "lacks url"),
        (lambda steps: steps[1]["input"].update(url="./elsewhere"), "spec.steps[1].input.url", "is not a folder"),
        (lambda steps: steps[1]["input"].update(url="https://example.com/x"), "spec.steps[1].input.url", "is not"),
        (lambda steps: steps[1]["input"].update(trimBlocks="true"), "spec.steps[1].input.trimBlocks", "is not true"),
        (
            lambda steps: steps[1]["input"].update(values={"service": "${{ parameters.service }}"}),
            "spec.steps[1].input.values",
            "is not `${{ steps.ID.output.body.values }}`",
        ),
        (lambda steps: steps[0]["input"].update(method="POST"), "spec.steps[0].input.method", "is not GET"),
        (lambda steps: steps[0]["input"].update(path="proxy/x"), "spec.steps[0].input.path", "is not proxy/neuroscale"),
        (lambda steps: steps[0]["input"].update(headers={}), "spec.steps[0].input.headers", "is not an input"),
        (
            lambda steps: steps[0]["input"].update(path=f"{PLAN_PATH}?answers=${{{{ parameters.team | urlencode }}}}"),
            "spec.steps[0].input.path",
            "is not proxy/neuroscale",
        ),
        (lambda steps: steps[0].pop("id"), "spec.steps[0].id", "is missing"),
        (lambda steps: steps[0].pop("input"), "spec.steps[0].input", "is missing"),
        (lambda steps: steps[2].update(id="plan"), "spec.steps[2].id", "stands twice"),
        (lambda steps: steps.pop(1), "spec.steps", "has no step with the action fetch:template"),
        (lambda steps: steps.reverse(), "spec.steps[0].input.description", "has no value at this point"),
        (
            lambda steps: steps[2]["input"].update(title="${{ parameters.model | upper }}"),
            "spec.steps[2].input.title",
            "outside the syntax",
        ),
        (
            lambda steps: steps[2]["input"].update(title="${{ secrets.token }}"),
            "spec.steps[2].input.title",
            "outside the syntax",
        ),
        (
            lambda steps: steps[2]["input"].update(title="{% if x %}{% endif %}"),
            "spec.steps[2].input.title",
            "outside the syntax",
        ),
        (
            lambda steps: steps[2]["input"].update(title="${{ parameters.gpus }}"),
            "spec.steps[2].input.title",
            "parameters.gpus has no value",
        ),
        (lambda steps: steps[2]["input"].update(update="yes"), "spec.steps[2].input.update", "is not true or false"),
    ],
)
def test_a_step_that_would_run_otherwise_than_in_backstage_is_refused(change: Any, field: str, message: str) -> None:
    def apply(definition: Any) -> None:
        change(definition["spec"]["steps"])

    found = problems_of(with_definition(apply))
    assert any(problem.field == field and message in problem.message for problem in found), found
    assert all(problem.line for problem in found)


@pytest.mark.parametrize("version", [None, "1", 1, "latest"])
def test_a_template_without_a_version_is_refused(version: Any) -> None:
    def apply(definition: Any) -> None:
        definition["metadata"]["annotations"]["neuroscale.dev/template-version"] = version

    assert "is not a version" in problems_of(with_definition(apply))[0].message


def test_a_missing_definition_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    assert problems_of(with_file("template.yaml", None))[0].message == "is missing"
    folder = tmp_path / TEMPLATE_FOLDER / "skeleton"
    folder.mkdir(parents=True)
    (folder / "logo.png").write_bytes(b"\x89PNG\xff")
    (folder / "link.yaml").symlink_to("/etc/hostname")
    with pytest.raises(InputError) as caught:
        load_template(FolderSnapshot(tmp_path))
    assert {problem.message.split(" (")[0] for problem in caught.value.problems} == {
        "is a symlink, not a plain file",
        "is not UTF-8 text",
    }


def test_an_input_that_is_no_text_inside_a_longer_text_fails_instead_of_being_printed() -> None:
    def apply(definition: Any) -> None:
        definition["spec"]["steps"][2]["input"]["title"] = "TTFT ${{ parameters.p95_ttft_seconds }}"

    template = load_template(with_definition(apply))
    with pytest.raises(InputError, match="neither text nor a whole number"):
        render(make_request(), make_plan(), template)


@pytest.mark.parametrize("environment", ["../x", "/etc", "a//b", ".git", "a/../b", "", "a\nb"])
def test_a_target_outside_the_workspace_is_refused(environment: str) -> None:
    answers = {**ANSWERS, "environment": f"{environment}/../.."}
    with pytest.raises(InputError, match="is not a plain relative path"):
        interpreter.run(TEMPLATE, answers, plan_step.body(make_request(), make_plan()))


# -- the skeleton ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "${{values.service}}\n",
        "${{  values.service }}\n",
        "${{- values.service }}\n",
        "${{ values.service -}}\n",
        "${{ values.service | upper }}\n",
        "${{ values['service'] }}\n",
        "${{ values.service() }}\n",
        "${{ values.service.x }}\n",
        "${{ values.service }\n",
        "${{ parameters.service }}\n",
        "${{ secrets.token }}\n",
        "${{ values.nothing }}\n",
        "${{ values.__class__ }}\n",
        "${{ values.args }}\n",
        "${{ values.has_accelerator }}\n",
        "${{ 'x' }}\n",
        "${{ service }}\n",
        "{{ values.service }}\n",
        "a }} b\n",
        "{# comment #}\n",
        "{%- if values.has_accelerator %}{% endif %}\n",
        "{% if values.has_accelerator -%}{% endif %}\n",
        "{%+ if values.has_accelerator %}{% endif %}\n",
        "{% if not values.has_accelerator %}{% endif %}\n",
        "{% if values.has_accelerator == true %}{% endif %}\n",
        "{% if values.service %}{% endif %}\n",
        "{% if values.args %}{% endif %}\n",
        "{% if values.has_accelerator %}\n",
        "{% if values.has_accelerator %}{% endfor %}\n",
        "{% if values.has_accelerator %}{% elif values.highly_available %}{% endif %}\n",
        "{% if values.has_accelerator %}{% else %}{% else %}{% endif %}\n",
        "{% else %}\n",
        "{% endif %}\n",
        "{% for x in values.args %}{% else %}{% endfor %}\n",
        "{% for x in values.args %}\n",
        "{% for x in values.service %}{% endfor %}\n",
        "{% for x in values.args | sort %}{% endfor %}\n",
        "{% for values in values.args %}{% endfor %}\n",
        "{% for loop in values.args %}{% endfor %}\n",
        "{% for not in values.args %}{% endfor %}\n",
        "{% for x in values.args %}{% for x in values.args %}{% endfor %}{% endfor %}\n",
        f"{''.join(f'{{% for {item} in values.args %}}' for item in 'xyz')}{'{% endfor %}' * 3}\n",
        "{% for x in values.args %}${{ x.name }}{% endfor %}\n",
        "{% for x in values.args %}{% endfor %}${{ x }}\n",
        "{% for x in values.environment_variables %}${{ x }}{% endfor %}\n",
        "{% for x in values.environment_variables %}${{ x.other }}{% endfor %}\n",
        "{% set x = 1 %}\n",
        "{% macro x() %}{% endmacro %}\n",
        "{% raw %}{% endraw %}\n",
        "{% include 'x' %}\n",
        "a: ${{ values.request_yaml }}\n",
        "${{ values.service }}",
        "a\r\n",
        "a\tb\n",
        "caf\u00e9\n",
        "\x00\n",
        # Each loop within a loop multiplies the time that a file takes.
        "".join(f"{{% for x{number} in values.args %}}" for number in range(3)) + "{% endfor %}" * 3 + "\n",
        "{% if values.has_accelerator %}" * 9 + "{% endif %}" * 9 + "\n",
    ],
)
def test_everything_outside_the_shared_syntax_is_refused_with_its_line(text: str) -> None:
    found = lint(f"first line\n{text}", "file")
    assert found
    assert all(problem.line == 2 and problem.message and problem.fix for problem in found)


@pytest.mark.parametrize(
    "path",
    [
        *("${{ values.service }}.yaml", "a b.yaml", ".hidden", "a//b", "a/../b", "\u00e9"),
        "{% if values.service %}a.yaml{% endif %}",  # no flag
        "{% if values.nothing %}a.yaml{% endif %}",
        "{% if values.has_rollout %}{% endif %}",
        "{% if values.has_rollout %}.hidden{% endif %}",
        "{% if values.has_rollout %}a.yaml{% endif %}.yaml",
        "folder/{% if values.has_rollout %}a.yaml{% endif %}",  # to Backstage, what is left is a folder
    ],
)
def test_a_skeleton_files_name_is_plain_or_under_one_condition(path: str) -> None:
    assert lint_name(path, "file")
    assert not lint_name("folder/networkpolicy.yaml", "file")
    assert not lint_name("{% if values.has_rollout %}networkpolicy.yaml{% endif %}", "file")


@pytest.mark.parametrize(
    "line",
    [
        'a: "${{ values.service }}"',
        "a: '${{ values.service }}'",
        "a: x-${{ values.service }}",
        "a: ${{ values.service }}-x",
        "# ${{ values.service }}",
        "a: 1 # ${{ values.service }}",
        "a: |\n  ${{ values.service }}",
        "a: >-\n  b ${{ values.service }}",
        "a: ${{ values.service }}${{ values.owner }}",
        "a: [${{ values.service }}, '${{ values.service }}']",
    ],
)
def test_a_value_that_does_not_stand_alone_is_refused(line: str) -> None:
    """The values are encoded as whole scalars: inside quotes or a comment they could end either."""
    found = problems_of(with_file("skeleton/networkpolicy.yaml", f"{line}\n"))
    assert {problem.where for problem in found} == {f"{TEMPLATE_FOLDER}/skeleton/networkpolicy.yaml"}


@pytest.mark.parametrize(
    "line",
    ["a: ${{ values.service }}", "${{ values.service }}: a", "a: [${{ values.service }}]", "- ${{ values.cpu }}"],
)
def test_a_value_that_stands_alone_is_accepted(line: str) -> None:
    load_template(with_file("skeleton/networkpolicy.yaml", f"{line}\n"))


def test_two_keys_that_become_the_same_are_refused_at_rendering() -> None:
    template = load_template(
        with_file("skeleton/networkpolicy.yaml", "${{ values.service }}: 1\n${{ values.owner }}: 2\n")
    )
    request = make_request(service="same")
    tenancy = make_plan().tenancy.model_copy(update={"owner": "same"})
    with pytest.raises(InputError, match="stands twice"):
        render(request, make_plan(request, tenancy=tenancy), template)


def test_a_skeleton_without_one_of_the_files_renders_nothing() -> None:
    template = load_template(with_file("skeleton/networkpolicy.yaml", None))
    with pytest.raises(InputError, match=r"Let it render exactly request\.yaml"):
        render(make_request(), make_plan(), template)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({f"extra/{number}.txt": "x\n" for number in range(60)}, "files"),
        ({"extra/a.txt": "x" * 200_000, "extra/b.txt": "x" * 200_000}, "have more than"),
    ],
)
def test_a_template_is_bounded(files: dict[str, str], message: str) -> None:
    there = {f"{TEMPLATE_FOLDER}/{name}": text.encode() for name, text in {**TEMPLATE.files, **files}.items()}
    problems = problems_of(MemorySnapshot(there))
    assert problems
    assert all(message in problem.message for problem in problems)


def test_what_a_skeleton_renders_is_bounded() -> None:
    """Two loops of a dozen arguments, and a long line in them."""
    loops = "{% for x in values.args %}{% for y in values.args %}"
    text = f"{TEMPLATE.files['skeleton/networkpolicy.yaml']}{loops}# {'x' * 10_000}\n{{% endfor %}}{{% endfor %}}\n"
    template = load_template(with_file("skeleton/networkpolicy.yaml", text))
    plan = make_plan(vllm_args=tuple(f"--a{number}=1" for number in range(12)))
    with pytest.raises(InputError, match=r"networkpolicy\.yaml: becomes longer than"):
        render(make_request(), plan, template)


def test_no_value_has_a_name_that_an_engine_reads_as_a_method() -> None:
    javascript = {"constructor", "toString", "valueOf", "hasOwnProperty", "length", "map", "filter"}
    for name in (*KINDS, "name", "value"):
        assert not hasattr(dict, name)
        assert name not in javascript


def test_values_that_were_never_encoded_do_not_pass() -> None:
    """The last line of defence: a file whose structure is not the template's is not returned."""
    body = copy.deepcopy(plan_step.body(make_request(), make_plan()))
    body["values"]["cost_center"] = "x\n    injected: label"
    with pytest.raises(InputError, match="differs from the template and the plan"):
        interpreter.run(TEMPLATE, ANSWERS, body)


# -- from answers to files -------------------------------------------------------------------------------------------


def test_answers_become_the_files_that_render_makes_of_the_same_plan() -> None:
    request = pull_request_for(ANSWERS, PLATFORM)
    folder = "manifests/dev/support-chat"
    assert interpreter.branch_name(TEMPLATE, ANSWERS) == "neuroscale/dev/support-chat"
    assert request.title == "Serve google/gemma-4-26B-A4B-it-qat-w4a16-ct as support-chat in dev"
    publish = TEMPLATE.steps[-1].input
    assert (publish["update"], publish["createWhenEmpty"]) == (True, False)
    asked = load_request(request.files[f"{folder}/request.yaml"], "request.yaml")
    planned = make_real_plan(asked, CATALOG, SETTINGS, TEMPLATE.version)
    assert request.files == {f"{folder}/{name}": text for name, text in render(asked, planned, TEMPLATE).items()}


def test_a_request_that_cannot_be_met_publishes_nothing() -> None:
    answers = {**ANSWERS, "model": "deepseek-ai/DeepSeek-V3", "environment": "local"}
    with pytest.raises(RefusedPlanError) as caught:
        pull_request_for(answers, PLATFORM)
    assert caught.value.exit_status is ExitStatus.FINDINGS
    assert caught.value.plan.verdict == "refused"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"service": "Not A Name"}, "service"),
        ({"model": "gemma-9"}, "model"),
        ({"team": ""}, "team"),
        ({"environment": "moon"}, "environment"),
        ({"concurrent_users": 0}, "concurrent_users"),
        ({"concurrent_users": 1.5}, "concurrent_users"),
        ({"concurrent_users": True}, "concurrent_users"),
        ({"longest_prompt_tokens": 2**60}, "longest_prompt_tokens"),
        ({"typical_prompt_tokens": 2049}, "typical_prompt_tokens"),
        ({"typical_answer_tokens": 0}, "typical_answer_tokens"),
        ({"typical_answer_tokens": ""}, "typical_answer_tokens"),
        ({"p95_ttft_seconds": float("inf")}, "p95_ttft_seconds"),
        ({"p95_ttft_seconds": "soon"}, "p95_ttft_seconds"),
        ({"availability": None}, "availability"),
        ({"model": ["a"]}, "model"),
        ({"team": "\ud800"}, "team"),
        ({"gpus": 8}, "gpus"),
        ({"overrides": []}, "overrides"),
        ({"schema_version": 1}, "schema_version"),
    ],
)
def test_an_answer_that_cannot_be_used_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        pull_request_for({**ANSWERS, **changes}, PLATFORM)
    assert [problem.field for problem in caught.value.problems] == [field]
    assert {problem.where for problem in caught.value.problems} == {"the form"}


def test_unknown_names_are_refused_together_with_every_other_mistake() -> None:
    answers = {
        **ANSWERS,
        "service": "Not A Name",
        "model": "gemma-9",
        "team": "ghosts",
        "environment": "moon",
        "concurrent_users": 0,
        "availability": ["high"],
        "gpus": 8,
    }
    del answers["p95_ttft_seconds"]
    with pytest.raises(InputError) as caught:
        pull_request_for(answers, PLATFORM)
    found = [problem.field for problem in caught.value.problems]
    wrong = ["service", "model", "team", "environment", "concurrent_users", "availability", "gpus", "p95_ttft_seconds"]
    assert sorted(found) == sorted(wrong)


@pytest.mark.parametrize("name", REQUIRED_FIELDS)
def test_an_answer_that_is_missing_is_named(name: str) -> None:
    answers = {field: value for field, value in ANSWERS.items() if field != name}
    with pytest.raises(InputError) as caught:
        pull_request_for(answers, PLATFORM)
    assert [problem.field for problem in caught.value.problems] == [name]


anything = st.one_of(
    strategies.any_text,
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.none(),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


@settings(max_examples=examples(1000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(FORM_FIELDS), anything)
def test_any_answer_in_any_field_is_refused_by_name_or_becomes_the_request(name: str, value: Any) -> None:
    try:
        request = pull_request_for({**ANSWERS, name: value}, PLATFORM)
    except RefusedPlanError:
        return
    except InputError as error:
        str(error).encode()
        if {problem.field for problem in error.problems} != {name}:
            raise
        return
    service = value if name == "service" else "support-chat"
    environment = value if name == "environment" else "dev"
    folder = f"manifests/{environment}/{service}"
    asked = load_request(request.files[f"{folder}/request.yaml"], "request.yaml")
    assert getattr(asked, name) == value
    assert all(path.startswith(f"{folder}/") for path in request.files)


def test_a_template_is_read_from_the_repository_as_it_is() -> None:
    assert isinstance(TEMPLATE, Template)
    assert {path.split("/")[0] for path in TEMPLATE.files} == {"template.yaml", "skeleton"}


# -- the gate --------------------------------------------------------------------------------------------------------


@pytest.mark.tools
def test_what_is_rendered_passes_every_schema_and_policy(tmp_path: Path) -> None:
    """Served from the hub and from a store, on GPUs and on the CPU, on one and on several accelerators."""
    answers: list[dict[str, Any]] = [
        {"service": "stored", "availability": "high"},
        {"service": "hub", "model": "Qwen/Qwen3-30B-A3B"},
        {"service": "embeddings", "model": "google/gemma-4-E2B-it"},
        {"service": "gated", "model": "meta-llama/Llama-3.1-8B-Instruct"},
        {"service": "large", "model": "mistralai/Mixtral-8x7B-Instruct-v0.1", "environment": "prod"},
        {"service": "tiny", "model": "tiny-qwen3-moe", "environment": "local", "longest_prompt_tokens": 256},
    ]
    for changes in answers:
        given = {**ANSWERS, "p95_ttft_seconds": 30, "longest_answer_tokens": 128, **changes}
        write_service(pull_request_for(given, PLATFORM).files, tmp_path)
    folders = sorted(path.parent for path in tmp_path.rglob("request.yaml"))
    assert len(folders) == len(answers)
    for folder in folders:
        for name in ("request.yaml", "plan.yaml", "catalog-info.yaml"):
            (folder / name).unlink()
    verdict = gate_paths(folders, ROOT, date(2026, 1, 1))
    # Most models of the catalog name no revision, which is a notice.
    assert [str(finding) for finding in verdict.findings if finding.rule != "unpinned-model"] == []
    checks = {check.name: check for check in verdict.checks}
    for name in ("schema", "policy"):
        assert checks[name].outcome is Outcome.PASSED
        assert checks[name].evaluated >= len(answers)

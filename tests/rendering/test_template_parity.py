"""The portal and the command line render the same bytes: Backstage's engine is asked for every file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

import plan_strategies as strategies
from backstage import ENGINES, Backstage, BackstageError, start
from examples import examples
from neuroscale.planning.plan import Plan
from neuroscale.rendering.scaffolder import expressions, lint, plan_step
from neuroscale.rendering.scaffolder.template import FETCH, REQUEST
from neuroscale.rendering.scaffolder.template_engine import Whitespace, fill
from neuroscale.rendering.service_folder import RENDERED_FILES, render
from neuroscale.repo.layout import CATALOG_INFO, KEY_FILE
from neuroscale.request.service_request import Request
from plan_factory import make_plan, make_request
from platform_repository import TEMPLATE

FETCH_STEP = next(step for step in TEMPLATE.steps if step.action == FETCH)
SKELETON = TEMPLATE.folder(FETCH_STEP.folder)
FEW_HUNDRED = settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def backstage() -> Iterator[Backstage]:
    with start() as running:
        yield running


def over_http(body: dict[str, Any]) -> Any:
    """A body as Backstage gets it."""
    return json.loads(json.dumps(body))


@FEW_HUNDRED
@given(pair=strategies.pairs())
def test_backstage_fills_every_file_with_the_same_bytes(backstage: Backstage, pair: tuple[Request, Plan]) -> None:
    request, plan = pair
    files = render(request, plan, TEMPLATE)
    values = over_http(plan_step.body(request, plan))["values"]
    for engine in ENGINES:
        # Backstage leaves out a file whose name becomes empty.
        names = {path: backstage.render(path, values, engine) for path in SKELETON}
        assert {name for name in names.values() if name} == set(files)
        assert set(files) - {KEY_FILE} == set(RENDERED_FILES)
        for name, text in ((name, SKELETON[path]) for path, name in names.items() if name):
            filled = backstage.render(
                text,
                values,
                engine,
                trim=FETCH_STEP.whitespace.trim_blocks,
                lstrip=FETCH_STEP.whitespace.lstrip_blocks,
            )
            assert filled.encode() == files[name].encode(), (engine, name)


@settings(FEW_HUNDRED, max_examples=examples(50))
@given(pair=strategies.pairs())
def test_backstage_evaluates_the_steps_inputs_to_the_same_values(
    backstage: Backstage, pair: tuple[Request, Plan]
) -> None:
    request, plan = pair
    context: dict[str, Any] = over_http(
        {
            "parameters": plan_step.answers_of(request),
            "steps": {
                step.id: {
                    "output": {"body": plan_step.body(request, plan)}
                    if step.action == REQUEST
                    else {"remoteUrl": "https://example.com/pulls/1"}
                }
                for step in TEMPLATE.steps
            },
        }
    )
    # A field that was left empty is not there at all; to our steps it is null.
    filled_in = {**context, "parameters": {**dict.fromkeys(TEMPLATE.optional()), **context["parameters"]}}
    (question,) = (step.input["path"] for step in TEMPLATE.steps if step.action == REQUEST)
    for engine in ENGINES:
        asked = parse_qs(urlsplit(backstage.value(question, context, engine)).query)
        assert [json.loads(text) for text in asked["answers"]] == [context["parameters"]]
    places = [(step.path, dict(step.input)) for step in TEMPLATE.steps if step.action != REQUEST]
    for path, given_input in [*places, (("spec", "output"), TEMPLATE.document.value["spec"]["output"])]:
        for place, text in expressions.strings(given_input, path):
            ours = expressions.evaluate(text, filled_in, TEMPLATE.where, place)
            for engine in ENGINES:
                assert backstage.value(text, context, engine) == ours, (engine, place)


VALUES: dict[str, Any] = {
    "service": "name",
    "has_accelerator": True,
    "highly_available": False,
    "args": ['"a"', '"b"'],
    "environment_variables": [{"name": "N", "value": '"v"'}, {"name": "M", "value": '"w"'}],
    "node_selector": [],
}

ALLOWED = (
    "",
    "\n",
    "plain text, a brace { and a dollar $ and a percent sign %\n",
    "a: ${{ values.service }}\n",
    "a: ${{ values.service }}${{ values.service }}\n\n\n",
    "{% if values.has_accelerator %}\na\n{% endif %}\n",
    "{% if values.highly_available %}\na\n{% else %}\nb\n{% endif %}\n",
    "  {% if values.has_accelerator %}\n  a\n  {% endif %}\n  b\n",
    "x {% if values.has_accelerator %} a {% endif %} y\n",
    "x\n\n{% if values.highly_available %}a{% endif %}\n\ny\n",
    "{% for item in values.args %}\n- ${{ item }}\n{% endfor %}\n",
    "{% for item in values.node_selector %}\n- ${{ item.name }}\n{% endfor %}\nend\n",
    "{% for item in values.environment_variables %}${{ item.name }}: ${{ item.value }}\n{% endfor %}\n",
    "{% for a in values.args %}{% for b in values.args %}${{ a }}${{ b }} {% endfor %}\n{% endfor %}\n",
    "{% for a in values.args %}\n{% if values.has_accelerator %}\n${{ a }}\n{% endif %}\n{% endfor %}\n",
)


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("lstrip", [True, False])
@pytest.mark.parametrize("text", ALLOWED)
def test_what_the_lint_lets_through_is_filled_alike(backstage: Backstage, text: str, trim: bool, lstrip: bool) -> None:
    assert lint.lint(text, "file") == []
    ours = fill(text, VALUES, Whitespace(trim, lstrip), "file")
    for engine in ENGINES:
        assert backstage.render(text, VALUES, engine, trim=trim, lstrip=lstrip) == ours


# Each is filled differently by at least one engine, or not at all.
DISAGREED = (
    "${{ values.has_accelerator }}\n",
    "${{ values.args }}\n",
    "${{ values.node_selector }}\n",
    "${{ values.nothing }}\n",
    "${{ values.service | tojson }}\n",
    "${{ values.environment_variables[0] }}\n",
    "${{ values.args[-1] }}\n",
    "${{ values.keys }}\n",
    "{% if values.node_selector %}a{% endif %}\n",
    "${{ 1.0 }}\n",
    "${{ values.service + 1 }}\n",
    "{% for name, value in values.environment_variables[0] %}${{ name }}{% endfor %}\n",
    "{% if 1 == '1' %}a{% endif %}\n",
)


@pytest.mark.parametrize("text", DISAGREED)
def test_what_the_engines_read_differently_is_refused(backstage: Backstage, text: str) -> None:
    assert lint.lint(text, "file")

    def backstage_says() -> str:
        try:
            return backstage.render(text, VALUES, "0.7")
        except BackstageError:
            return "fails"

    try:
        ours = fill(text, VALUES, Whitespace(True, True), "file")
    except Exception:  # jinja2 and Python fail in many ways on what the lint keeps away
        ours = "fails"
    assert backstage_says() != ours


def test_backstage_accepts_the_template(backstage: Backstage) -> None:
    entity = TEMPLATE.document.value
    assert backstage.is_template(entity)
    broken = json.loads(json.dumps(entity))
    del broken["spec"]["type"]
    with pytest.raises(BackstageError):
        backstage.is_template(broken)


def test_backstages_catalog_takes_a_services_file(backstage: Backstage) -> None:
    longest = {"service": "s" * 40, "environment": "e" * 22}
    for request in (make_request(), make_request(**longest)):
        entity = yaml.safe_load(render(request, make_plan(request), TEMPLATE)[CATALOG_INFO])
        assert backstage.is_component(entity)
        for field, value in (("name", "a b"), ("annotations", {"a": 1})):
            with pytest.raises(BackstageError):
                backstage.is_component({**entity, "metadata": {**entity["metadata"], field: value}})
        with pytest.raises(BackstageError):
            backstage.is_component({**entity, "spec": {**entity["spec"], "owner": ""}})


def test_values_hold_nothing_that_json_changes() -> None:
    body = plan_step.body(make_request(), make_plan())
    assert over_http(body) == body

"""The planner over HTTP: what Backstage gets, and what anyone else gets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from examples import examples
from neuroscale.cli.app import app
from neuroscale.cli.serve import serve_plans
from neuroscale.core.errors import InputError
from neuroscale.planning.planner import plan
from neuroscale.portal import api
from neuroscale.portal.app import create_app
from neuroscale.portal.exposure import LARGEST_BODY
from neuroscale.portal.pending_changes import PendingChanges
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder import plan_step
from neuroscale.rendering.scaffolder.form import expected_enums
from neuroscale.rendering.scaffolder.template import PLAN_PATH, PLAN_ROUTE, REQUEST
from neuroscale.rendering.service_folder import render
from neuroscale.request.service_request import load_request
from plan_factory import ANSWERS
from platform_repository import CATALOG, SETTINGS, TEMPLATE
from portal_lab import ADDRESS, EXPOSURE, NoCluster
from roots import ROOT

APP = create_app(PendingChanges(ROOT, "", PlanningInputs(CATALOG, SETTINGS, TEMPLATE)), NoCluster(), EXPOSURE)


def call(
    method: str, path: str, content: Any = None, content_type: str = "application/json", app: Any = APP
) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            return await client.request(method, path, content=content, headers={"content-type": content_type})

    return asyncio.run(send())


def post(content: Any, content_type: str = "application/json") -> httpx.Response:
    return call("POST", PLAN_ROUTE, content, content_type)


def ask(answers: Any) -> httpx.Response:
    return post(json.dumps(answers))


def fields(response: httpx.Response) -> list[str]:
    """The fields that a failure names; every failure has one shape."""
    body = response.json()
    assert list(body)[:4] == ["message", "schema_version", "verdict", "problems"]
    assert body["schema_version"] == 1
    assert body["message"]
    for problem in body["problems"]:
        assert problem.keys() == {"where", "field", "message", "fix", "line"}
        assert problem["message"] in body["message"]
    assert "Traceback" not in response.text
    return [problem["field"] for problem in body["problems"]]


def test_the_answers_become_a_plan_and_the_values_of_the_skeleton() -> None:
    response = ask(ANSWERS)
    assert response.status_code == 200
    body = response.json()
    assert list(body) == ["schema_version", "verdict", "summary", "plan", "values"]
    assert body["schema_version"] == 1
    assert body["verdict"] in ("fits", "tight")
    assert body["plan"]["service"] == "support-chat"
    assert "`google/gemma-4-26B-A4B-it-qat-w4a16-ct`" in body["summary"]


def test_a_revision_that_production_demands_is_looked_up_and_stands_in_the_request() -> None:
    changes = PendingChanges(ROOT, "", PlanningInputs(CATALOG, SETTINGS, TEMPLATE))
    changes.newest = lambda _: "a1" * 20
    app = create_app(changes, NoCluster(), EXPOSURE)
    answers = {**ANSWERS, "model": "Qwen/Qwen3-0.6B", "environment": "prod", "p95_ttft_seconds": 10}
    values = call("POST", PLAN_ROUTE, json.dumps(answers), app=app).json()["values"]
    assert load_request(values["request_yaml"], "request.yaml").model_revision == "a1" * 20
    assert any(f"--revision={'a1' * 20}" in argument for argument in values["args"])
    assert "model_revision" not in ask(answers).json()["values"]["request_yaml"]  # nobody can be asked


def test_a_dry_run_asks_by_get_and_gets_the_same_answer() -> None:
    asked = call("GET", f"{PLAN_ROUTE}?{urlencode({'answers': json.dumps(ANSWERS)})}")
    assert (asked.status_code, asked.json()) == (200, ask(ANSWERS).json())
    for question in ("", "?answers=", "?answers=%5B%5D", "?answers=%ff", '?answers={"service":"a","service":"b"}'):
        refused = call("GET", f"{PLAN_ROUTE}{question}")
        assert refused.status_code == 422
        assert fields(refused)


def test_the_values_are_those_that_the_command_line_renders_with() -> None:
    values = ask(ANSWERS).json()["values"]
    request = load_request(f"{values['request_yaml']}\n", "request.yaml")
    inputs = PlanningInputs(CATALOG, SETTINGS, TEMPLATE)
    wanted = plan_step.request_of(ANSWERS, inputs.known)
    answer = plan_step.body(wanted, inputs.plan(wanted))
    assert values == answer["values"]
    files = render(request, plan(request, CATALOG, SETTINGS, TEMPLATE.version), TEMPLATE)
    assert files["plan.yaml"] == f"{values['plan_yaml']}\n"


def test_the_templates_planning_step_asks_this_server() -> None:
    (step,) = (step for step in TEMPLATE.steps if step.action == REQUEST)
    assert step.input["path"].startswith(f"{PLAN_PATH}?answers=")
    assert f"proxy/neuroscale{PLAN_ROUTE}" == PLAN_PATH
    assert PLAN_ROUTE == "/api/v1/plan"


def test_a_refused_plan_stops_backstage_with_the_reason_first() -> None:
    response = ask({**ANSWERS, "model": "deepseek-ai/DeepSeek-V3", "environment": "local"})
    assert response.status_code == 422
    assert fields(response) == [""]
    body = response.json()
    assert body["verdict"] == "refused"
    assert body["message"].startswith("support-chat cannot be served: ")
    assert body["plan"]["verdict"] == "refused"
    assert "values" not in body


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": "gemma-9"}, ["model"]),
        ({"team": "x", "environment": "y"}, ["team", "environment"]),
        ({"model": "gemma-9", "team": "x", "concurrent_users": 0}, ["model", "team", "concurrent_users"]),
        ({"service": "A\n---\nkind: Secret"}, ["service"]),
        ({"concurrent_users": "many"}, ["concurrent_users"]),
        ({"gpus": 8}, ["gpus"]),
        ({"model": {"a": 1}}, ["model"]),
    ],
)
def test_wrong_answers_are_named(changes: dict[str, Any], named: list[str]) -> None:
    response = ask({**ANSWERS, **changes})
    assert response.status_code == 422
    assert fields(response) == named
    assert response.json()["verdict"] == "invalid"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"service": NaN}',
        b'{"concurrent_users": Infinity}',
        b'{"service": "a", "service": "b"}',
        b'{"a": {"b": 1, "b": 2}}',
        b"[" * 20_000,
    ],
)
def test_a_body_that_is_no_plain_json_object_is_refused(content: bytes) -> None:
    response = post(content)
    assert response.status_code == 422
    assert fields(response)


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_only_json_is_read(content_type: str) -> None:
    """A web page can make a browser send the others without asking first."""
    response = post(json.dumps(ANSWERS), content_type)
    assert response.status_code == 422
    assert "not sent as JSON" in response.json()["message"]


@pytest.mark.parametrize("kibibytes", [65, 1000, 100_000])
def test_a_large_body_is_refused_before_it_is_read_whole_and_read_on_within_bounds(kibibytes: int) -> None:
    sent, refused_after = 0, 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(kibibytes):
            sent += 1024
            yield b" " * 1024

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def seen(message: Any) -> None:
            nonlocal refused_after
            refused_after = refused_after or sent
            await send(message)

        await APP(scope, receive, seen)

    response = call("POST", PLAN_ROUTE, body(), app=watched)
    assert response.status_code == 413
    fields(response)
    assert refused_after <= LARGEST_BODY + 2048
    assert sent <= 17 * 1024 * 1024


def test_a_body_of_the_largest_size_is_read() -> None:
    assert post(json.dumps(ANSWERS).encode().ljust(LARGEST_BODY)).status_code == 200


def test_unknown_paths_and_methods_answer_in_the_same_shape() -> None:
    for response, status in ((call("GET", "/api/nowhere"), 404), (call("PUT", PLAN_ROUTE), 405)):
        assert response.status_code == status
        fields(response)


def test_a_fault_of_the_server_shows_nothing_of_its_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(api, "body", broken)
    response = ask(ANSWERS)
    assert response.status_code == 500
    fields(response)
    assert "secret detail" not in response.text


def test_the_catalog_names_what_the_form_offers() -> None:
    body = call("GET", "/api/v1/catalog").json()
    for name, names in expected_enums(CATALOG, SETTINGS).items():
        assert body[name] == names
    assert body["availability"] == ["standard", "high"]
    assert body["catalog_digest"] == CATALOG.digest
    assert body["template_version"] == TEMPLATE.version


def test_it_says_when_it_is_alive() -> None:
    assert call("GET", "/healthz").json() == {"status": "ok"}


def test_it_listens_on_this_machine_only_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[Any] = []

    def listened(*given: Any) -> None:
        addresses.append(given[-1].getsockname()[0])

    monkeypatch.setattr("neuroscale.portal.app.serve", listened)
    assert CliRunner().invoke(app, ["serve", "--port", "0", "--repository", str(ROOT)]).exit_code == 0
    assert addresses == ["127.0.0.1"]


def test_an_address_in_use_is_refused_in_words() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match=r"this program cannot listen at 127.0.0.1 port") as caught,
    ):
        serve_plans("127.0.0.1", taken.getsockname()[1], repository=ROOT)
    assert caught.value.exit_status == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(ANSWERS)) | st.text(max_size=8), json_values, max_size=4))
def test_any_json_object_gets_an_answer(changes: dict[str, Any]) -> None:
    response = ask({**ANSWERS, **changes})
    assert response.status_code in (200, 422)
    if response.status_code == 422:
        fields(response)


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_get_an_answer(content: bytes) -> None:
    response = post(content)
    assert response.status_code == 422
    fields(response)

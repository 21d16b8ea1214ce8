"""OpenCost's own cost of tokens, by a server of the documented shape: no release that has it was run here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

from neuroscale.metering.inference import InferenceCosts
from neuroscale.metering.opencost import OpenCost
from neuroscale.metering.opencost_answer import OpenCostError
from neuroscale.metering.window import Window
from opencost_answers import URL, inference_answer, model

DAY = Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
CHAT = model("google/gemma", "one", 10, 1_000_000, 1_000_000, 4, 6)


def asked(*bodies: str, status: int = 200, window: Window = DAY) -> InferenceCosts | None:
    """What OpenCost answers, by one body for each day; the last one from then on."""
    left = list(bodies)
    questions: list[httpx.URL] = []

    def respond(request: httpx.Request) -> httpx.Response:
        questions.append(request.url)
        return httpx.Response(status, text=left.pop(0) if len(left) > 1 else left[0])

    opencost = OpenCost(URL, httpx.Client(transport=httpx.MockTransport(respond)), first_pause=0)
    found = opencost.inference(window)
    assert {one.path for one in questions} == {"/inferenceCost/total"}
    assert {one.params["aggregate"] for one in questions} == {"model_name,namespace"}
    return found


def test_costs_and_tokens_of_the_days_of_a_window_add_up() -> None:
    found = asked(inference_answer(CHAT), window=Window(DAY.start, DAY.end + timedelta(days=2)))
    assert found is not None
    (chat,) = found.models
    assert (chat.namespace, chat.model) == ("one", "google/gemma")
    assert (chat.cost, chat.prompt) == (Decimal(30), Decimal(3_000_000))
    assert (chat.each, chat.input, chat.output, chat.method) == (
        Decimal("5.00"),
        Decimal("4.00"),
        Decimal("6.00"),
        "compute_time",
    )


def test_a_model_whose_pods_opencost_did_not_find_has_no_price() -> None:
    found = asked(inference_answer(model("google/gemma", "one", 0, 9, 9)))
    assert found is not None
    (one,) = found.models
    assert (one.known, one.each, one.input, one.output) == (False, None, None, None)


@pytest.mark.parametrize("tokens", [1_000_000, 1])
def test_a_day_whose_tokens_cost_nothing_does_not_dilute_the_price_of_another(tokens: int) -> None:
    days = inference_answer(model("google/gemma", "one", 0, 10, 10)), inference_answer({**CHAT, "promptTokens": tokens})
    found = asked(*days, window=Window(DAY.start, DAY.end + timedelta(days=1)))
    assert found is not None
    (chat,) = found.models
    assert (chat.known, chat.partly, chat.each) == (False, True, None)


def test_a_day_in_which_opencost_names_no_model_is_named() -> None:
    nothing = '{"code": 200, "data": {"inferenceCosts": null}}'
    days = nothing, inference_answer(CHAT), nothing, inference_answer()
    found = asked(*days, window=Window(DAY.start, DAY.end + timedelta(days=3)))
    assert found is not None
    assert found.empty == (DAY, Window(DAY.end + timedelta(days=1), DAY.end + timedelta(days=3)))
    assert found.models[0].each == Decimal("5.00")


@pytest.mark.parametrize(("status", "body"), [(404, "404 page not found"), (501, "not available")])
def test_a_server_without_it_is_noticed(status: int, body: str) -> None:
    assert asked(body, status=status) is None


def test_no_models_are_no_costs() -> None:
    assert asked(inference_answer()) == InferenceCosts((), (DAY,))


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ('{"code": 500, "message": "collecting metrics"}', 200, "answers 500"),
        ('{"code": 400, "message": "unsupported dimension"}', 400, "unsupported dimension"),
        ('{"code": 200, "data": ', 200, "not complete JSON"),
        ('{"code": 200, "data": []}', 200, "inferenceCosts"),
        ('{"code": 200, "data": {"inferenceCosts": []}}', 200, "inferenceCosts"),
        (inference_answer({**CHAT, "totalCost": None}), 200, "no number as totalCost"),
        (inference_answer({**CHAT, "promptTokens": -1}), 200, "-1 as promptTokens"),
        ('{"code": 200, "data": {"inferenceCosts": {"x": 1}}}', 200, "without its model and namespace"),
        (inference_answer(CHAT, window={"start": "2026-01-01T00:00:00Z"}), 200, "answers about another time"),
    ],
)
def test_an_answer_that_cannot_be_used_is_told_and_is_never_a_number(body: str, status: int, words: str) -> None:
    with pytest.raises(OpenCostError) as error:
        asked(body, status=status)
    assert words in str(error.value)


def test_a_server_that_does_not_answer_is_told() -> None:
    def respond(request: httpx.Request) -> Any:
        raise httpx.ConnectError("refused", request=request)

    http = httpx.Client(transport=httpx.MockTransport(respond))
    with pytest.raises(OpenCostError, match="does not answer: refused"):
        OpenCost(URL, http, first_pause=0).inference(DAY)


def test_a_fault_that_passes_is_asked_again() -> None:
    found = asked('{"code": 500, "message": "later"}', inference_answer(CHAT)[:40], inference_answer(CHAT))
    assert found is not None
    assert found.models[0].each == Decimal("5.00")


def test_a_price_of_less_than_a_cent_keeps_its_digits() -> None:
    found = asked(inference_answer(model("google/gemma", "one", 10.98, 900_000_000, 30_000_000, 9, 1.98)))
    assert found is not None
    assert (found.models[0].each, found.models[0].input) == (Decimal("0.01181"), Decimal("0.01"))

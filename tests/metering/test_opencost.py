"""What is asked of OpenCost, what its answers mean, and what each of its faults becomes: a sentence and no number."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import pytest

from neuroscale.core.errors import InputError
from neuroscale.metering.allocation import Place
from neuroscale.metering.opencost_answer import OpenCostError
from neuroscale.metering.window import Window, read_window
from opencost_answers import SYSTEM, UNMOUNTED, answering, costs, envelope, key, saying

NOW = datetime(2026, 11, 23, 15, 30, 20, tzinfo=UTC)
HOUR = read_window("1h", NOW)
ROWS = {key("chat", "cc-one"): costs(1.5, 2), "__idle__": costs(0.25)}


def told(*bodies: str, status: int = 200) -> str:
    with pytest.raises(OpenCostError) as caught:
        saying(*bodies, status=status).meter(HOUR)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("90m", "2026-11-23T14:00", "2026-11-23T15:30"),
        ("7d", "2026-11-16T15:30", "2026-11-23T15:30"),
        ("today", "2026-11-23T00:00", "2026-11-23T15:30"),
        ("yesterday", "2026-11-22T00:00", "2026-11-23T00:00"),
        ("month", "2026-11-01T00:00", "2026-11-23T15:30"),
        ("lastmonth", "2026-10-01T00:00", "2026-11-01T00:00"),
        ("2026-02", "2026-02-01T00:00", "2026-03-01T00:00"),
        ("2026-11", "2026-11-01T00:00", "2026-11-23T15:30"),
        ("2026-11-01", "2026-11-01T00:00", "2026-11-02T00:00"),
        ("2026-11-01..2026-11-07", "2026-11-01T00:00", "2026-11-08T00:00"),
    ],
)
def test_a_window_is_exactly_what_its_text_names(text: str, start: str, end: str) -> None:
    found = read_window(text, NOW)
    assert (f"{found.start:%Y-%m-%dT%H:%M}", f"{found.end:%Y-%m-%dT%H:%M}") == (start, end)


@pytest.mark.parametrize(
    "text", ["", "7", "0d", "7x", "2026-13", "2026-02-30", "2026-11-07..2026-11-01", "2027-01", "400d", "2026-11-24"]
)
def test_a_wrong_window_is_told_with_the_option_and_what_to_write(text: str) -> None:
    with pytest.raises(InputError, match="--window"):
        read_window(text, NOW)


def test_a_long_window_is_asked_for_day_by_day_and_no_step_overruns_it() -> None:
    asked = []

    def answer(window: str) -> httpx.Response:
        asked.append(window)
        return httpx.Response(200, text=envelope({key("chat", "cc-one"): costs(0.1), "__idle__": costs(0)}))

    meter = answering(answer).meter(read_window("3d", NOW))
    assert asked == [
        "2026-11-20T15:30:00Z,2026-11-21T00:00:00Z",
        "2026-11-21T00:00:00Z,2026-11-22T00:00:00Z",
        "2026-11-22T00:00:00Z,2026-11-23T00:00:00Z",
        "2026-11-23T00:00:00Z,2026-11-23T15:30:00Z",
    ]
    service = next(one for one in meter.metered if one.kind == "pods")
    assert service.total == Decimal("0.4")  # in binary floating point it is 0.4000000000000001


def test_costs_before_a_cut_are_kept_apart_from_those_after_it() -> None:
    asked = []

    def answer(window: str) -> httpx.Response:
        asked.append(window)
        return httpx.Response(200, text=envelope({key("chat", "cc-one"): costs(1), "__idle__": costs(0)}))

    cut = datetime(2026, 11, 22, 9, tzinfo=UTC)
    meter = answering(answer).meter(read_window("2d", NOW), [cut])
    assert asked == [
        "2026-11-21T15:30:00Z,2026-11-22T00:00:00Z",
        "2026-11-22T00:00:00Z,2026-11-22T09:00:00Z",
        "2026-11-22T09:00:00Z,2026-11-23T00:00:00Z",
        "2026-11-23T00:00:00Z,2026-11-23T15:30:00Z",
    ]
    chat = [one for one in meter.metered if one.place.service]
    assert [(one.part, one.total) for one in chat] == [(0, Decimal(2)), (1, Decimal(2))]
    assert [part.end for part in meter.parts] == [cut, meter.window.end]


def test_a_row_is_read_by_its_labels_and_what_has_none_is_kept_apart() -> None:
    rows = {
        key("chat", "cc-one", ratio="0.151", owner="ann"): costs(1.5, 2),
        SYSTEM: costs(0.5),
        UNMOUNTED: costs(0.125),
        "__unallocated__": costs(0.0625),
        "__idle__": costs(0.25),
    }
    meter = saying(envelope(rows, warning="prices are old")).meter(HOUR)
    assert {(one.kind, one.place, one.total) for one in meter.metered} == {
        ("pods", Place("prod", "cc-one", "cc-one", "ann", "chat", "0.151"), Decimal("1.5")),
        ("pods", Place("prod", "kube-system"), Decimal("0.5")),
        ("unmounted", Place(), Decimal("0.125")),
        ("pods", Place(), Decimal("0.0625")),
        ("idle", Place(), Decimal("0.25")),
    }
    assert meter.warnings == ("prices are old",)


def test_a_name_of_a_cluster_may_hold_slashes() -> None:
    name = key("chat", "cc-one", cluster="arn:aws:eks:eu-west-1:1:cluster/prod")
    meter = saying(envelope({name: costs(1), "__idle__": costs(0)})).meter(HOUR)
    places = {one.place.cluster: one.place.service for one in meter.metered if one.kind == "pods"}
    assert places == {"arn:aws:eks:eu-west-1:1:cluster/prod": "chat"}


def test_a_fault_that_passes_is_asked_again() -> None:
    meter = saying('{"code": 500, "message": "later"}', envelope(ROWS)[:40], envelope(ROWS)).meter(HOUR)
    assert sum(one.total for one in meter.metered) == Decimal("1.75")


# ------------------------------------------------------------------------------------------ injected faults


def test_an_error_inside_of_a_success_is_told() -> None:
    message = told('{"code": 500, "status": "error", "message": "error computing allocations: no data", "data": null}')
    assert "answers 500" in message
    assert "error computing allocations: no data" in message


@pytest.mark.parametrize(("status", "body"), [(500, '{"code": 500, "message": "boom"}'), (503, "<html>busy</html>")])
def test_an_error_of_http_is_told(status: int, body: str) -> None:
    message = told(body, status=status)
    assert f"answers {status}" in message
    assert ("boom" in message) or ("busy" in message)


def test_a_refusal_is_not_asked_again() -> None:
    asked = []

    def answer(window: str) -> httpx.Response:
        asked.append(window)
        return httpx.Response(400, text="Invalid 'window' parameter")

    with pytest.raises(OpenCostError, match="answers 400 and says: Invalid 'window' parameter"):
        answering(answer).meter(HOUR)
    assert len(asked) == 1


def test_half_a_document_is_told() -> None:
    assert "not complete JSON" in told(envelope(ROWS)[:60])


def test_an_answer_that_takes_too_long_is_told_after_three_attempts() -> None:
    asked = []

    def answer(window: str) -> httpx.Response:
        asked.append(window)
        raise httpx.ReadTimeout("timed out")

    with pytest.raises(OpenCostError, match=r"does not answer about .* within 2 min. Ask about a shorter window"):
        answering(answer).meter(HOUR)
    assert len(asked) == 3


@pytest.mark.parametrize("field", ["totalCost", "gpuHours", "gpuCost", "cpuCost", "ramCost", "ramByteHours", "minutes"])
@pytest.mark.parametrize("value", [None, "1.5", True, "missing"])
def test_a_cost_without_a_number_ends_the_bill(field: str, value: Any) -> None:
    row = costs(1.5, 2, **{field: value})
    if value == "missing":
        del row[field]
    message = told(envelope({key("chat", "cc-one"): row, "__idle__": costs(0)}))
    assert f"no number as {field} of 'prod/cc-one/cc-one/owner/chat/1'" in message


@pytest.mark.parametrize("field", ["gpuCost", "cpuCost", "ramCost"])
def test_a_part_of_a_cost_above_the_whole_ends_the_bill(field: str) -> None:
    row = costs(1.5, 2, **{"gpuCost": 0, field: 2.5})
    message = told(envelope({key("chat", "cc-one"): row, "__idle__": costs(0)}))
    assert f"a {field} of 2.5, above its totalCost of 1.5" in message
    saying(envelope({key("chat", "cc-one"): costs(1.5, 2, **{"gpuCost": 0, field: 1.5000001})})).meter(HOUR)


@pytest.mark.parametrize("gpu", [-21.6, 0.0, 21.6])
@pytest.mark.parametrize("cpu", [-3.1, 3.1])
@pytest.mark.parametrize("memory", [-1.4, 1.4])
def test_parts_of_what_is_idle_may_have_any_sign(gpu: float, cpu: float, memory: float) -> None:
    total = round(gpu + cpu + memory, 5)
    row = costs(total, gpuCost=gpu, cpuCost=cpu, ramCost=memory)
    meter = saying(envelope({key("chat", "cc-one"): costs(1.5, 2), "__idle__": row})).meter(HOUR)
    idle = next(one for one in meter.metered if one.kind == "idle")
    assert (idle.total, idle.gpu) == (Decimal(str(total)), Decimal(str(gpu)))


@pytest.mark.parametrize(
    "row", [costs(-41.2, 48, gpuCost=-43.2, cpuCost=1.2, ramCost=0.8), costs(30, 48, gpuCost=43.2)]
)
def test_a_pods_cost_with_a_negative_part_or_a_credit_ends_the_bill(row: dict[str, Any]) -> None:
    assert "above its totalCost" in told(envelope({key("chat", "cc-one"): row, "__idle__": costs(0)}))


@pytest.mark.parametrize("data", [[], [None], [{}]])
def test_a_window_before_the_first_sample_is_told(data: list[Any]) -> None:
    assert "has no data of 2026-11-23 14:30 to 2026-11-23 15:30 UTC" in told(json.dumps({"code": 200, "data": data}))


@pytest.mark.parametrize(
    "body",
    ["[]", "{}", "null", '{"status": "success"}', '{"code": 200, "data": 7}', '{"code": 200, "data": [{}, {}]}', "NaN"],
)
def test_an_answer_of_something_else_is_told(body: str) -> None:
    assert told(body).startswith("OpenCost at http://127.0.0.1:9003 answers")


def test_a_label_that_opencost_dropped_is_noticed() -> None:
    message = told(envelope({"prod/cc-one/cc-one/ann/chat": costs(1.5)}))
    assert "divided its costs by other labels than it was asked for" in message


def test_an_answer_about_another_time_is_noticed() -> None:
    other = {"start": "2026-11-23T00:00:00Z", "end": "2026-11-24T00:00:00Z"}
    message = told(envelope({key("chat", "cc-one"): costs(1.5, window=other)}))
    assert "answers about another time" in message


def test_a_window_of_which_a_part_has_no_data_says_which() -> None:
    def answer(window: str) -> httpx.Response:
        late = window.startswith(("2026-11-22", "2026-11-23"))
        return httpx.Response(200, text=envelope(ROWS if late else None))

    meter = answering(answer).meter(read_window("3d", NOW))
    day = datetime(2026, 11, 22, tzinfo=UTC)
    assert meter.empty == (Window(read_window("3d", NOW).start, day),)
    assert meter.idle_known


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}:00+00:00")


def sampled(*spans: tuple[str, str]) -> dict[str, Any]:
    """The rows of an answer: a service for each span of samples, and what is idle in all of them."""
    times: list[dict[str, Any]] = [{"start": f"{start}:00Z", "end": f"{end}:00Z"} for start, end in spans]
    whole: dict[str, Any] = {"start": min(one["start"] for one in times), "end": max(one["end"] for one in times)}
    services = {key(f"chat-{number}", "cc-one"): costs(1, **one) for number, one in enumerate(times)}
    return {**services, "__idle__": costs(0, **whole)}


def test_a_meter_that_was_away_over_midnight_and_stopped_before_now_is_a_gap_each() -> None:
    answers = {
        "2026-11-21T15:30": sampled(("2026-11-21T15:35", "2026-11-21T18:00")),
        "2026-11-22T00:00": sampled(("2026-11-22T09:00", "2026-11-23T00:00"), ("2026-11-22T12:00", "2026-11-22T13:00")),
        "2026-11-23T00:00": {
            **sampled(("2026-11-23T00:05", "2026-11-23T11:00")),
            UNMOUNTED: costs(1, start="2026-11-23T00:00:00Z", end="2026-11-23T15:30:00Z"),
        },
    }
    meter = answering(lambda window: httpx.Response(200, text=envelope(answers[window[:16]]))).meter(
        read_window("2d", NOW)
    )
    assert meter.empty == (
        Window(at("2026-11-21T18:00"), at("2026-11-22T09:00")),
        Window(at("2026-11-23T11:00"), at("2026-11-23T15:30")),
    )


@pytest.mark.parametrize(
    ("span", "empty"),
    [
        (("2026-11-23T14:40", "2026-11-23T15:20"), ()),
        (("2026-11-23T14:45", "2026-11-23T15:30"), (Window(at("2026-11-23T14:30"), at("2026-11-23T14:45")),)),
        (("2026-11-23T14:30", "2026-11-23T15:15"), (Window(at("2026-11-23T15:15"), at("2026-11-23T15:30")),)),
        (("0001-01-01T00:00", "0001-01-01T00:00"), ()),  # OpenCost's word for times that it does not know
    ],
)
def test_two_steps_of_opencost_at_an_end_are_no_gap(span: tuple[str, str], empty: tuple[Window, ...]) -> None:
    assert saying(envelope(sampled(span))).meter(HOUR).empty == empty


def test_a_window_is_moved_back_to_the_moments_at_which_opencost_looks() -> None:
    asked = []

    def answer(window: str) -> httpx.Response:
        asked.append(window)
        return httpx.Response(200, text=envelope(ROWS))

    found = answering(answer).meter(read_window("1h", NOW.replace(minute=33)))
    assert asked == ["2026-11-23T14:30:00Z,2026-11-23T15:30:00Z"]
    assert found.window == Window(
        NOW.replace(hour=14, minute=30, second=0, microsecond=0), NOW.replace(second=0, microsecond=0)
    )


def test_a_window_shorter_than_opencosts_step_gives_no_figure() -> None:
    with pytest.raises(OpenCostError, match=r"too short .* looks every 5 minutes.*60m"):
        saying(envelope(ROWS)).meter(read_window("2m", NOW.replace(minute=33)))

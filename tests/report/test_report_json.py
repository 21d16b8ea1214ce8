"""The JSON report and its published schema."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator, FormatChecker

from neuroscale.gate.verdict import Verdict
from neuroscale.report.json_report import to_json
from neuroscale.report.json_schema import SCHEMA_FILE, schema_json
from report_examples import CHECKS, VERDICTS, passed, refused, verdict

_SCHEMA: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="ascii"))
_VALIDATOR = Draft202012Validator(_SCHEMA, format_checker=FormatChecker())


def test_the_published_schema_is_the_one_of_the_types() -> None:
    assert SCHEMA_FILE.read_text(encoding="ascii") == schema_json(), "run python -m neuroscale.report.json_schema"


def test_the_published_schema_is_a_valid_one_and_closed_everywhere() -> None:
    Draft202012Validator.check_schema(_SCHEMA)
    for described in (_SCHEMA, *(one for one in _SCHEMA["$defs"].values() if one["type"] == "object")):
        assert described["additionalProperties"] is False
        assert set(described["required"]) == set(described["properties"])


@settings(deadline=None)
@given(VERDICTS)
def test_any_verdict_is_valid_and_reads_back_the_same(value: Verdict) -> None:
    text = to_json(value)
    assert text.isascii()
    assert text.endswith("}\n")
    _VALIDATOR.validate(json.loads(text))
    again = Verdict.model_validate_json(text)
    assert to_json(again) == text
    if not re.search(r"\\ud[89a-f]", repr(value)):  # a lone surrogate, which no encoding holds
        assert again == value


def test_bytes_of_a_file_name_that_are_not_utf_8_are_written_out() -> None:
    finding = refused().findings[0].model_copy(update={"file": "manifests/\udcff\ud800.yaml"})
    text = to_json(verdict(findings=(finding,)))
    assert json.loads(text)["findings"][0]["file"] == r"manifests/\xff\ud800.yaml"


def test_decimals_are_text_and_fields_stand_in_the_order_of_the_types() -> None:
    read = json.loads(to_json(passed()))
    assert list(read) == list(Verdict.model_fields)
    assert read["services"][0]["plan"]["cost"] == {
        "hourly": "0.71",
        "monthly_min": "518.30",
        "monthly_max": "1554.90",
        "price_date": "2026-11-01",
        "price_source": "https://cloud.google.com/run/pricing",
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("exit_status",), 4),
        (("exit_status",), "0"),
        (("schema_version",), 2),
        (("surprise",), 1),
        (("checks", 0, "outcome"), "green"),
        (("checks", 0, "evaluated"), "5"),
        (("findings", 0, "severity"), "warning"),
        (("findings", 0, "line"), "3"),
        (("services", 0, "plan", "cost", "hourly"), 0.71),
        (("services", 0, "plan", "cost", "price_date"), "yesterday"),
        (("services", 0, "plan", "verdict"), "maybe"),
    ],
)
def test_the_schema_refuses_what_a_report_never_holds(path: tuple[str | int, ...], value: object) -> None:
    read: Any = json.loads(to_json(refused()))
    place = read
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert not _VALIDATOR.is_valid(read)


def test_the_schema_misses_no_field() -> None:
    read = json.loads(to_json(verdict(CHECKS)))
    for name in Verdict.model_fields:
        assert not _VALIDATOR.is_valid({key: value for key, value in read.items() if key != name})

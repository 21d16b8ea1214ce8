"""What the gate reads of a verdict that another version of it wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from neuroscale.gate.gate_code_of_base import read_verdict
from report_examples import refused


def written() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(refused().model_dump_json())
    return value


def test_what_a_newer_gate_says_beside_is_left_out() -> None:
    value = written()
    value["forecast"] = {"of": "tomorrow"}
    value["findings"][0]["colour"] = "red"
    value["checks"][-1]["seconds_of_others"] = [1, 2]
    assert read_verdict(json.dumps(value)) == refused()


@pytest.mark.parametrize("field", ["exit_status", "headline"])
def test_what_this_gate_needs_must_be_there(field: str) -> None:
    value = written()
    value["forecast"] = 1
    del value[field]
    with pytest.raises(ValueError, match=field):
        read_verdict(json.dumps(value))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"exit_status": 0}'])
def test_other_texts_are_no_verdict(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_verdict(text)

"""All reports of one verdict tell the same story."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from rich.console import Console

from neuroscale.gate.verdict import Verdict
from neuroscale.report.annotations import to_annotations
from neuroscale.report.json_report import to_json
from neuroscale.report.junit import to_junit
from neuroscale.report.markdown import markdown
from neuroscale.report.terminal import print_verdict
from report_examples import CONSISTENT_VERDICTS, EXAMPLES, VERDICTS


class Told(NamedTuple):
    """What a report says: whether the run passed, and how many findings refuse it."""

    passed: bool
    errors: int


@settings(deadline=None)
@given(CONSISTENT_VERDICTS)
def test_all_reports_of_a_verdict_agree(value: Verdict) -> None:
    told = _told(value)
    assert set(told.values()) == {told["json"]}, told


@pytest.mark.parametrize("name", EXAMPLES)
def test_all_reports_of_an_example_agree(name: str) -> None:
    value = EXAMPLES[name]()
    told = _told(value)
    assert set(told.values()) == {
        Told(value.exit_status == 0, len([f for f in value.findings if f.severity == "error"]))
    }


@settings(deadline=None)
@given(VERDICTS)
def test_no_report_is_green_over_a_run_that_did_not_pass(value: Verdict) -> None:
    told = _told(value)
    if value.exit_status != 0:
        assert not any(one.passed for one in told.values()), told
    people = {name: one.passed for name, one in told.items() if name not in ("json", "junit")}
    assert len(set(people.values())) == 1, told


def test_only_the_terminal_views_load_rich() -> None:
    modules = "annotations, json_report, junit, markdown, memory_bar, phrases, summary"
    code = f"import sys; from neuroscale.report import {modules}; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def _told(value: Verdict) -> dict[str, Told]:
    return {
        "json": _json(to_json(value)),
        "markdown": _markdown(markdown(value)),
        "junit": _junit(to_junit(value)),
        "annotations": _annotations(to_annotations(value)),
        "terminal": _terminal(value),
    }


def _json(text: str) -> Told:
    read = json.loads(text)
    return Told(read["exit_status"] == 0, sum(one["severity"] == "error" for one in read["findings"]))


def _markdown(text: str) -> Told:
    title, _, counts = text.splitlines()[1:4]
    return Told(title.startswith("## ✅"), _number(r"\*\*([\d,]+) errors?\*\*", counts))


def _junit(text: str) -> Told:
    root = ET.fromstring(text)
    failures = sum(
        case.find("failure") is not None for case in root.iter("testcase") if case.get("classname") != "neuroscale.gate"
    )
    return Told((root.get("failures"), root.get("errors")) == ("0", "0"), failures)


def _annotations(text: str) -> Told:
    *commands, last = text.splitlines()
    passed = {not any(line.startswith("::error ") for line in commands), last.endswith("exit status 0")}
    assert len(passed) == 1
    return Told(passed.pop(), _number(r"([\d,]+) errors?, ", last))


def _terminal(value: Verdict) -> Told:
    buffer = io.StringIO()
    print_verdict(value, Console(file=buffer, width=100))
    title, counts = buffer.getvalue().splitlines()[-2:]
    assert title.startswith("✔") == counts.endswith("exit status 0")
    return Told(title.startswith("✔"), _number(r"([\d,]+) errors?, ", counts))


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, text
    return int(found[1].replace(",", ""))

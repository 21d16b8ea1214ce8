"""The JUnit report: as red as its verdict, with counts that add up, and valid XML for any text."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings

from neuroscale.gate.verdict import Check, Finding, Outcome, Severity, Verdict
from neuroscale.report.junit import to_junit
from report_examples import (
    VERDICTS,
    many_findings,
    nothing_to_check,
    passed,
    plain_folder,
    refused,
    untrusted,
    verdict,
    with_outcome,
)

_NUMBERS = {"tests", "failures", "errors", "skipped", "time"}
_RESULTS = ("failure", "error", "skipped")


def test_a_passed_check_is_one_passed_case() -> None:
    root = _parse(passed())
    assert [suite.get("name") for suite in root] == ["files", "policy", "schema", "secrets", "drift"]
    assert root.attrib == {
        "name": "neuroscale gate",
        "tests": "5",
        "failures": "0",
        "errors": "0",
        "skipped": "0",
        "time": "1.521",
    }


def test_each_finding_that_refuses_is_one_failed_case_with_its_fix() -> None:
    root = _parse(refused())
    assert (root.get("failures"), root.get("errors")) == ("4", "0")
    case = _only(root, ".//testsuite[@name='policy']/testcase")
    assert case.get("name") == (
        "no-mutable-tags manifests/dev/support-chat/inferenceservice.yaml:31 InferenceService team-alpha/support-chat"
    )
    assert case.get("classname") == "neuroscale.policy"
    failure = _only(case, "failure")
    assert failure.get("type") == "policy/no-mutable-tags"
    assert "Fix: Name a version" in (failure.text or "")


def test_a_notice_fails_nothing_and_is_not_lost() -> None:
    root = _parse(refused())
    assert "stale-lock" not in {case.get("name", "").split()[0] for case in root.iter("testcase")}
    assert "drift/stale-lock" in (_only(root, ".//testsuite[@name='drift']/system-out").text or "")


def test_an_untrusted_run_is_an_error_beside_the_checks_that_passed() -> None:
    root = _parse(untrusted())
    assert root.get("errors") == "1"
    error = _only(root, ".//testsuite[@name='policy']/testcase/error")
    assert error.get("type") == "untrusted"
    assert "caught 11 of 12 tripwires" in (error.text or "")


def test_unusable_input_is_an_error() -> None:
    root = _parse(verdict(with_outcome("files", Outcome.UNUSABLE, detail="no manifest")))
    assert _only(root, ".//error").get("type") == "unusable"


def test_a_check_that_was_not_run_is_skipped_with_its_reason() -> None:
    root = _parse(plain_folder())
    assert root.get("skipped") == "1"
    skipped = _only(root, ".//testsuite[@name='drift']/testcase/skipped")
    assert skipped.get("message") == "no service folder of this repository is among the files"


def test_nothing_to_check_passes() -> None:
    root = _parse(nothing_to_check())
    assert (root.get("failures"), root.get("errors"), root.get("tests")) == ("0", "0", "5")


@pytest.mark.parametrize("status", [1, 2, 3])
def test_a_verdict_without_checks_is_still_red(status: Any) -> None:
    root = _parse(Verdict(tool_version="1", exit_status=status, headline="Passed"))
    assert int(root.get("failures", "0")) + int(root.get("errors", "0")) == 1


def test_a_check_with_findings_that_names_none_is_still_red() -> None:
    assert _parse(verdict(with_outcome("policy", Outcome.FINDINGS))).get("failures") == "1"


def test_findings_of_one_name_are_all_kept_apart() -> None:
    finding = Finding(gate="policy", rule="a", file="x.yaml", message="m", fix="f")
    root = _parse(verdict(with_outcome("policy", Outcome.FINDINGS), findings=(finding, finding, finding)))
    names = [case.get("name") for case in root.iterfind(".//testsuite[@name='policy']/testcase")]
    assert names == ["a x.yaml", "a x.yaml (2)", "a x.yaml (3)"]


def test_all_findings_are_there() -> None:
    assert _parse(many_findings(1000)).get("failures") == "1000"


def test_control_characters_and_undecodable_bytes_are_written_out() -> None:
    finding = Finding(gate="g", rule="r", file="a\udcff\x1b.yaml", message="line 1\nline 2\x00\ufffe", fix="]]>")
    root = _parse(verdict(with_outcome("policy", Outcome.FINDINGS), findings=(finding,)))
    failure = _only(root, ".//failure")
    assert failure.get("message") == r"line 1 line 2\x00\ufffe"
    assert failure.text == "a\\xff\\x1b.yaml\nline 1\nline 2\\x00\\ufffe\nFix: ]]>"


@settings(deadline=None)
@given(VERDICTS)
def test_any_verdict_gives_a_valid_report_as_red_as_it_is(value: Verdict) -> None:
    root = _parse(value)
    failures, errors = int(root.get("failures", "")), int(root.get("errors", ""))
    if value.exit_status != 0:
        assert failures + errors
    if value.exit_status == 3 or any(check.outcome is Outcome.UNTRUSTED for check in value.checks):
        assert errors
    assert failures >= sum(finding.severity is Severity.ERROR for finding in value.findings)
    assert int(root.get("skipped", "")) == sum(check.outcome is Outcome.NOT_RUN for check in value.checks)


@settings(deadline=None)
@given(VERDICTS)
def test_checks_of_one_name_share_a_suite_and_lose_nothing(value: Verdict) -> None:
    twice = value.model_copy(update={"checks": tuple(_named(check, "same") for check in value.checks)})
    root = _parse(twice)
    wanted = sum(check.outcome is not Outcome.FINDINGS for check in value.checks)
    assert len(root.findall("./testsuite[@name='same']/testcase")) >= wanted


def _named(check: Check, name: str) -> Check:
    return check.model_copy(update={"name": name})


def _only(place: ET.Element, path: str) -> ET.Element:
    (found,) = place.findall(path)
    return found


def _parse(value: Verdict) -> ET.Element:
    """The report as XML, held against the rules that the published JUnit schemas have in common."""
    text = to_junit(value)
    root = ET.fromstring(text.encode("utf-8"))
    assert root.tag == "testsuites"
    assert set(root.attrib) == {"name", *_NUMBERS}
    for suite in root:
        assert suite.tag == "testsuite"
        assert set(suite.attrib) == {"name", *_NUMBERS}
        tags = [child.tag for child in suite]
        cases = suite.findall("testcase")
        assert tags == ["testcase"] * len(cases) + ["system-out"] * (len(tags) - len(cases))
        assert len(tags) - len(cases) <= 1
        assert suite.get("tests") == str(len(cases))
        for case in cases:
            assert set(case.attrib) == {"name", "classname", "time"}
            assert float(case.get("time", "")) >= 0
            assert len(case) <= 1
            assert all(child.tag in _RESULTS and set(child.attrib) <= {"message", "type"} for child in case)
        names = [case.get("name") for case in cases]
        assert len(set(names)) == len(names)
        for attribute, tag in zip(("failures", "errors", "skipped"), _RESULTS, strict=True):
            assert suite.get(attribute) == str(len(suite.findall(f"testcase/{tag}")))
    for attribute in _NUMBERS - {"time"}:
        assert root.get(attribute) == str(sum(int(suite.get(attribute, "")) for suite in root))
    return root

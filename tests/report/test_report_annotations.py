"""Workflow annotations: at most what GitHub shows, and no text of a change that issues a command."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from neuroscale.gate.verdict import CHANGE_CHECK, Finding, Outcome, Severity, Verdict
from neuroscale.report.annotations import to_annotations
from report_examples import (
    FRAGMENTS,
    VERDICTS,
    many_findings,
    nothing_to_check,
    passed,
    refused,
    untrusted,
    verdict,
    with_outcome,
)

_COMMAND = re.compile(r"::(error|notice) (?:file=([^,:]*),)?(?:line=(-?\d+),)?title=([^,:]*)::(.*)")
_SUMMARY = re.compile(r"neuroscale gate: [A-Z][a-z ]+: [\d,]+ errors?, [\d,]+ notices?, exit status [0-3]")


def test_a_pass_has_only_its_summary() -> None:
    assert to_annotations(passed()) == "neuroscale gate: Passed: 0 errors, 0 notices, exit status 0\n"
    assert to_annotations(nothing_to_check()) == to_annotations(passed())


def test_a_finding_stands_at_its_file_and_line() -> None:
    lines = to_annotations(refused()).splitlines()
    assert lines[1] == (
        "::error file=manifests/dev/support-chat/inferenceservice.yaml,line=31,title=policy/no-mutable-tags"
        "::the image docker.io/vllm/vllm-openai:latest has a tag that can move%0A"
        "Fix: Name a version and its digest: docker.io/vllm/vllm-openai:v0.14.0@sha256:..."
    )
    assert lines[4].startswith("::notice file=manifests/dev/support-chat/plan.yaml,title=drift/stale-lock::")
    assert lines[-1] == "neuroscale gate: Refused: 4 errors, 1 notice, exit status 1"


def test_an_untrusted_run_is_an_error_without_a_file() -> None:
    lines = to_annotations(untrusted()).splitlines()
    assert lines[0].startswith("::error title=The gate cannot be trusted%3A policy::Policies: caught 11 of 12")
    assert lines[-1] == "neuroscale gate: The gate cannot be trusted: 0 errors, 0 notices, exit status 3"


def test_what_a_change_loosens_comes_before_other_notices() -> None:
    findings = [
        Finding(gate=gate, rule=rule, severity=Severity.NOTICE, file=file, message="told", fix="")
        for gate, rule, file in (
            ("drift", "old-lock", "a.yaml"),
            (CHANGE_CHECK, "weaker-test", "b.yaml"),
            (CHANGE_CHECK, "removed-policy", "c.yaml"),
        )
    ]
    lines = to_annotations(verdict(findings=tuple(findings))).splitlines()
    assert [line.partition("title=")[2] for line in lines[:3]] == [
        "change/removed-policy::told",
        "change/weaker-test::told",
        "drift/old-lock::told",
    ]


def test_more_than_ten_are_counted_in_the_tenth() -> None:
    value = many_findings(1000)
    notices = tuple(one.model_copy(update={"severity": Severity.NOTICE}) for one in value.findings[:11])
    lines = to_annotations(value.model_copy(update={"findings": (*value.findings, *notices)})).splitlines()
    errors = [line for line in lines if line.startswith("::error ")]
    assert len(errors) == 10
    assert errors[-1] == "::error title=neuroscale gate::and 991 more, see the JSON report"
    shown = [line for line in lines if line.startswith("::notice ")]
    assert len(shown) == 10
    assert shown[-1].endswith("::and 2 more, see the JSON report")
    assert lines[-1] == "neuroscale gate: Refused: 1,000 errors, 11 notices, exit status 1"


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_hostile_text_stays_in_its_place(fragment: str) -> None:
    finding = Finding(gate=fragment, rule=fragment, file=f"a{fragment}b", line=3, message=fragment, fix=fragment)
    text = to_annotations(verdict(with_outcome("policy", Outcome.FINDINGS), fragment, findings=(finding,)))
    command, summary = _lines(text)
    assert _COMMAND.fullmatch(command)
    assert _SUMMARY.fullmatch(summary)


def test_a_file_name_with_separators_reads_back_the_same() -> None:
    finding = Finding(gate="g", rule="r", file="a,b:c%2C/d=e.yaml", line=1, message="50 % done", fix="")
    (line, _) = to_annotations(verdict(with_outcome("policy", Outcome.FINDINGS), findings=(finding,))).splitlines()
    found = _COMMAND.fullmatch(line)
    assert found is not None
    assert _unescaped(found[2]) == "a,b:c%2C/d=e.yaml"
    assert _unescaped(found[5]) == "50 % done"


@settings(deadline=None)
@given(VERDICTS)
def test_any_verdict_gives_only_whole_commands(value: Verdict) -> None:
    *commands, last = _lines(to_annotations(value))
    assert all(_COMMAND.fullmatch(command) for command in commands)
    assert _SUMMARY.fullmatch(last)
    errors = sum(command.startswith("::error ") for command in commands)
    assert errors <= 10
    assert len(commands) - errors <= 10
    assert errors or value.exit_status == 0


def _lines(text: str) -> list[str]:
    """Lines as a runner parts them, which knows carriage returns too."""
    text.encode("utf-8")
    assert text.endswith("\n")
    return re.split(r"\r\n|\r|\n", text.removesuffix("\n"))


def _unescaped(text: str) -> str:
    for escape, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(escape, character)
    return text

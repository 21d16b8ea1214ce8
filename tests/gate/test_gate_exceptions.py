"""How long an exception may last, what its reason must say, and that each one in force is told."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from neuroscale.catalog.settings import LONGEST_DAYS
from neuroscale.gate.check import Run, Subject
from neuroscale.gate.checks.drift import evaluate_drift
from neuroscale.gate.judged_files import GateInput, ServiceFolder
from neuroscale.gate.verdict import Finding
from neuroscale.planning.planner import plan
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import SETTINGS as SETTINGS_FILE
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.snapshot import MemorySnapshot, Snapshot
from neuroscale.request.service_request import Override
from plan_factory import ANSWERS, make_request
from platform_repository import CATALOG, PLATFORM, SETTINGS, SNAPSHOT

TODAY = date(2026, 11, 21)
SERVICE = ServicePath("dev", "support-chat")
REASON = "The launch needs more replicas."


def judged(expires: str = "2027-01-31", reason: str = REASON, longest_days: int = LONGEST_DAYS) -> Finding:
    """The one finding for a service with an override."""
    override = Override(field="replicas.min", value=2, reason=reason, expires=date.fromisoformat(expires))
    (finding,) = findings(override, longest_days=longest_days)
    return finding


def findings(*overrides: Override, longest_days: int = LONGEST_DAYS, **answers: Any) -> tuple[Finding, ...]:
    request = make_request(**{**ANSWERS, **answers}, overrides=overrides)
    files = render(request, plan(request, CATALOG, SETTINGS, PLATFORM.template.version), PLATFORM.template)
    snapshot = MemorySnapshot({f"{SERVICE.folder}/{name}": text.encode() for name, text in files.items()})
    service = ServiceFolder(SERVICE, "added", tuple(snapshot.entries()), plan_changed=True)
    found = evaluate_drift(snapshot, (service,), PLATFORM, TODAY, longest_days=longest_days)[0].findings
    assert {one.file for one in found} == {f"{SERVICE.folder}/request.yaml"}
    assert all(f"`neuroscale replan {SERVICE.folder}`" in one.fix for one in found)
    return found


def test_an_override_in_force_is_a_notice_with_its_value_day_and_reason() -> None:
    finding = judged()
    assert (finding.rule, finding.severity.value) == ("override", "notice")
    assert finding.message == f"the override of replicas.min with 2 is in force until 2027-01-31: {REASON}"


def test_an_override_that_gives_less_than_the_form_asks_for_is_a_notice() -> None:
    values = {"max_num_seqs": 1, "replicas.min": 1}
    overrides = [
        Override(field=field, value=value, reason=REASON, expires=date(2027, 1, 31)) for field, value in values.items()
    ]
    found = [one for one in findings(*overrides, concurrent_users=40) if one.rule == "less-than-asked"]
    assert [one.severity.value for one in found] == ["notice"]
    assert "39 of them wait in the queue" in found[0].message


@pytest.mark.parametrize(
    ("expires", "reason", "rule", "fix"),
    [
        ("2026-11-20", REASON, "override-expired", "Remove it"),
        ("2027-11-23", REASON, "override-term", '"2027-11-22" or an earlier day'),
        ("9999-12-31", ".", "override-term", "exceptions.longest_days"),
        ("2027-01-31", ".", "override-reason", "Write why it is needed, in 10 letters or more"),
        ("2027-01-31", "because ..........", "override-reason", "Write why it is needed"),
    ],
)
def test_an_override_that_lasts_too_long_or_says_nothing_is_refused(
    expires: str, reason: str, rule: str, fix: str
) -> None:
    finding = judged(expires, reason)
    assert (finding.rule, finding.severity.value) == (rule, "error")
    assert fix in finding.fix


def test_the_last_day_may_be_as_far_ahead_as_the_settings_say() -> None:
    assert judged(expires="2027-11-22").severity.value == "notice"
    assert judged(expires="2026-12-21", longest_days=30).severity.value == "notice"
    assert judged(expires="2026-12-22", longest_days=30).rule == "override-term"


def with_term(days: int) -> Snapshot:
    text = (SNAPSHOT.read(SETTINGS_FILE) or b"").decode()
    return MemorySnapshot({SETTINGS_FILE: text.replace("longest_days: 366", f"longest_days: {days}").encode()})


@pytest.mark.parametrize(("base", "head", "days"), [(30, 366, 30), (366, 30, 30), (100, 100, 100)])
def test_a_change_of_the_longest_term_does_not_lengthen_its_own(base: int, head: int, days: int) -> None:
    assert longest_days(GateInput(with_term(head)), with_term(base)) == days
    assert longest_days(GateInput(MemorySnapshot({})), MemorySnapshot({})) == LONGEST_DAYS


def longest_days(given: GateInput, judge: Snapshot) -> int:
    return Run(Subject(given, list, judge), TODAY, Path()).longest_days

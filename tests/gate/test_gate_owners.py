"""The owners check: an object cannot charge a team that it does not belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from neuroscale.gate.check import Anew, Run, Subject, begin
from neuroscale.gate.checks import owners
from neuroscale.gate.checks.owners import OwnersCheck
from neuroscale.gate.evaluation import GateResult
from neuroscale.gate.judged_files import GateInput
from neuroscale.gate.verdict import Effects, Outcome, Severity
from neuroscale.manifests.objects import COST_CENTER, OWNER, read_manifests
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.snapshot import MemorySnapshot, read_all
from platform_repository import SNAPSHOT

FILES = read_all(SNAPSHOT, SNAPSHOT.entries("platform/catalog"))
TEAM = "platform/catalog/teams/team-alpha.yaml"
RICHER = {**FILES, TEAM: FILES[TEAM].replace(b"cc-ml-inference", b"cc-new")}
WITHOUT = {name: data for name, data in FILES.items() if name != TEAM and "budgets" not in name}
ALPHA = ("team-alpha", "cc-ml-inference", "team-alpha")


def judged(
    *objects: tuple[str | None, str | None, str],
    strict: bool = True,
    base: Mapping[str, bytes] = FILES,
    head: Mapping[str, bytes] | None = None,
    service: ServicePath | None = None,
    anew: bool = False,
) -> GateResult | None:
    """The check's result for objects with an owner, a cost centre and a namespace. `anew`: they are rendered anew."""
    snapshot = MemorySnapshot(head or base)
    given = GateInput(snapshot)
    judge = snapshot if head is None else MemorySnapshot(base)
    run = Run(Subject(given, list, judge, strict=strict), date(2026, 11, 21), Path())
    manifests = []
    for index, (owner, center, namespace) in enumerate(objects):
        labels: dict[str, Any] = {OWNER: owner, COST_CENTER: center}
        metadata = {"name": f"a-{index}", "namespace": namespace, "labels": labels}
        text = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        manifests += read_manifests(text.encode(), f"{index}.json", service)
    check = OwnersCheck()
    run = run.ended_with("files", None, () if anew else tuple(manifests))
    run = run.ended_with(
        "effects",
        None,
        Anew(Effects(rendered=1, changed=1), tuple(manifests), imagined=tuple(manifests)) if anew else None,
    )
    result = begin(check, run)()
    if result is not None:
        run = run.ended_with(check.name, result, None)
        named = any(one.rule == owners.UNKNOWN and one.severity is Severity.NOTICE for one in result.findings)
        assert bool(list(check.not_checked(run))) == named
    return result


@pytest.mark.parametrize(
    ("owner", "center", "namespace", "rules"),
    [
        (*ALPHA, []),
        ("team-alpha", None, "elsewhere", []),
        ("platform", "cc-platform", "kserve", []),
        ("team-alpha", "cc-search", "team-alpha", [owners.OTHER_CENTER]),
        ("team-alpha", "cc-nobody", "team-alpha", [owners.OTHER_CENTER]),
        ("team-beta", "cc-search", "team-alpha", [owners.OTHER_NAMESPACE]),
        ("team-beta", "cc-ml-inference", "team-alpha", [owners.OTHER_CENTER, owners.OTHER_NAMESPACE]),
        ("nobody", "cc-ml-inference", "elsewhere", [owners.UNKNOWN]),
        ("nobody", "none", "team-alpha", [owners.UNKNOWN]),
        ("Team-Alpha", "cc-ml-inference", "team-alpha", [owners.UNKNOWN]),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_labels_charge_the_team_of_the_namespace(
    owner: str, center: str | None, namespace: str, rules: list[str], strict: bool
) -> None:
    result = judged((owner, center, namespace), strict=strict)
    assert result is not None
    assert [(one.rule, one.severity) for one in result.findings] == [(rule, Severity.ERROR) for rule in rules]
    assert result.check.outcome is (Outcome.FINDINGS if rules else Outcome.PASSED)
    assert all(one.line is not None and "platform/catalog/teams" in one.fix for one in result.findings)


@pytest.mark.parametrize(
    ("strict", "service", "severity"),
    [
        (False, None, Severity.NOTICE),
        (True, None, Severity.ERROR),
        (False, ServicePath("dev", "chat"), Severity.ERROR),
    ],
)
def test_an_object_of_another_platform_is_named_and_refused_where_it_is_strict(
    strict: bool, service: ServicePath | None, severity: Severity
) -> None:
    result = judged(("nobody", "none", "elsewhere"), ALPHA, strict=strict, service=service)
    assert result is not None
    assert [(one.rule, one.severity) for one in result.findings] == [(owners.UNKNOWN, severity)]
    assert result.check.evaluated == 2


@pytest.mark.parametrize(
    ("base", "head", "center", "severity"),
    [
        (FILES, RICHER, "cc-new", Severity.ERROR),
        (WITHOUT, FILES, "cc-ml-inference", Severity.NOTICE),
        (FILES, RICHER, "cc-search", Severity.ERROR),
        (WITHOUT, FILES, "cc-search", Severity.ERROR),
    ],
    ids=["a changed team", "a new team", "another's, beside a changed team", "another's, of a new team"],
)
def test_teams_that_the_change_brings_are_named(
    base: Mapping[str, bytes], head: Mapping[str, bytes], center: str, severity: Severity
) -> None:
    result = judged(("team-alpha", center, "team-alpha"), base=base, head=head)
    assert result is not None
    assert {one.severity for one in result.findings} == {severity}


def test_only_an_object_that_exists_is_judged_by_the_bases_teams_alone() -> None:
    kinds = {}
    for exists in (True, False):
        result = judged(("team-alpha", "cc-new", "team-alpha"), base=FILES, head=RICHER, anew=not exists)
        assert result is not None
        (found,) = result.findings
        kinds[exists] = (found.rule, found.severity)
        assert ("merge its entry first" in found.fix) is exists
    assert kinds == {True: (owners.OTHER_CENTER, Severity.ERROR), False: ("new-team", Severity.NOTICE)}
    wrong = judged(("team-alpha", "cc-search", "team-alpha"), base=FILES, head=RICHER, anew=True)
    assert wrong is not None
    assert [one.rule for one in wrong.findings] == [owners.OTHER_CENTER]


def test_objects_without_an_owner_are_left_to_the_policy_and_a_broken_catalog_is_said() -> None:
    assert judged((None, "cc-search", "team-alpha")) is None
    broken = judged(ALPHA, base={**FILES, TEAM: b"name: [\n"})
    assert broken is not None
    assert broken.check.outcome is Outcome.NOT_RUN


@pytest.mark.parametrize("rule", [owners.UNKNOWN, owners.OTHER_CENTER, owners.OTHER_NAMESPACE])
def test_a_check_that_lost_a_rule_is_not_trusted(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    found = owners._judge
    without = lambda *given, strict: (one for one in found(*given, strict=strict) if one.rule != rule)  # noqa: E731
    monkeypatch.setattr(owners, "_judge", without)
    result = judged(ALPHA)
    assert result is not None
    assert result.check.outcome is Outcome.UNTRUSTED
    assert rule in result.check.detail

"""What the drift check says of a rollout: pods that the team's quota never holds, and a strategy edited by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any, Literal

import pytest

from neuroscale.catalog import Catalog, Quota
from neuroscale.gate.checks.drift import evaluate_drift
from neuroscale.gate.judged_files import ServiceFolder
from neuroscale.gate.service_reports import moved_services
from neuroscale.gate.verdict import Finding, ServiceReport
from neuroscale.planning.override_shortfalls import unmet_demands
from neuroscale.planning.plan import Plan, dump_plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.report.change_phrases import rollout
from neuroscale.request.service_request import Override, Request
from plan_factory import ANSWERS, make_plan, make_request
from platform_repository import CATALOG, PLATFORM, SETTINGS

TODAY = date(2026, 11, 21)
SERVICE = ServicePath("dev", "support-chat")


def asked(availability: str = "high", rollout: str | None = None) -> Request:
    """A service of two replicas of one accelerator each, or of one."""
    way = (
        Override(field="rollout", value=rollout or "", reason="a full pool of L4", expires=date(2027, 1, 31))
        if rollout
        else None
    )
    return make_request(**ANSWERS | {"availability": availability}, overrides=(way,) if way else ())


def with_quota(**limits: Any) -> Catalog:
    team = CATALOG.teams["team-alpha"]
    quota = Quota.model_validate(
        {"cpu": 512, "memory_gib": 8192, "pods": 200, "accelerators": {"nvidia.com/gpu": 64}} | limits
    )
    teams = {**CATALOG.teams, "team-alpha": team.model_copy(update={"quota": quota})}
    return Catalog(CATALOG.models, CATALOG.accelerators, CATALOG.prices, CATALOG.runtimes, teams)


def findings(
    request: Request,
    catalog: Catalog,
    made: Plan | None = None,
    edit: tuple[str, str] = ("", ""),
    beside: dict[str, bytes] | None = None,
) -> list[Finding]:
    made = made or plan(request, catalog, SETTINGS, PLATFORM.template.version)
    files = render(request, made, PLATFORM.template)
    files["inferenceservice.yaml"] = files["inferenceservice.yaml"].replace(*edit)
    own = {f"{SERVICE.folder}/{name}": text.encode() for name, text in files.items()}
    snapshot = MemorySnapshot(own | (beside or {}))
    service = ServiceFolder(
        SERVICE, "added", tuple(MemorySnapshot(own).entries()), plan_changed=made.rollout is not None
    )
    found = evaluate_drift(snapshot, (service,), replace(PLATFORM, catalog=catalog), TODAY)[0].findings
    return [one for one in found if one.rule in ("beyond-quota", "edited")]


@pytest.mark.parametrize(
    ("limits", "told", "fix"),
    [
        (
            {"accelerators": {"nvidia.com/gpu": 2}},
            "3 nvidia.com/gpu, and the quota of team-alpha holds 2",
            "nvidia.com/gpu to 3",
        ),
        ({"pods": 2}, "3 pods, and the quota of team-alpha holds 2", "quota.pods to 3"),
        ({"cpu": 8}, "cpu, and the quota of team-alpha holds 8", "quota.cpu to"),
        ({"memory_gib": 95}, "GiB of memory, and the quota of team-alpha holds 95", "quota.memory_gib to"),
    ],
)
def test_a_surge_that_the_teams_quota_never_holds_is_refused_with_what_works(
    limits: dict[str, Any], told: str, fix: str
) -> None:
    catalog = with_quota(**limits)
    (finding,) = findings(asked(), catalog)
    assert (finding.rule, finding.severity.value, finding.file) == (
        "beyond-quota",
        "error",
        f"{SERVICE.folder}/plan.yaml",
    )
    assert "its rollout starts 1 pod beside its 2 replicas" in finding.message
    assert told in finding.message
    assert "Override rollout with replace in request.yaml" in finding.fix
    assert fix in finding.fix
    made = plan(asked(), catalog, SETTINGS)
    assert [told in sentence for sentence in unmet_demands(made, catalog, SETTINGS)] == [True]
    assert findings(asked(rollout="replace"), catalog) == []


def test_a_quota_that_holds_the_surge_passes_and_one_below_the_replicas_names_no_rollout() -> None:
    assert findings(asked(), with_quota(accelerators={"nvidia.com/gpu": 3})) == []
    assert findings(asked("standard"), with_quota(accelerators={"nvidia.com/gpu": 1})) == []
    for request in (asked(), asked(rollout="replace")):
        (finding,) = findings(request, with_quota(accelerators={"nvidia.com/gpu": 1}))
        assert "its 2 replicas need 2 nvidia.com/gpu, and the quota of team-alpha holds 1" in finding.message
        assert "replace" not in finding.fix


def test_what_the_teams_other_services_take_is_not_there_for_a_surge() -> None:
    """The quota holds three: two run, and one more is there for the rollout, until another service takes it."""
    catalog = with_quota(accelerators={"nvidia.com/gpu": 3})
    other = plan(asked("standard"), catalog, SETTINGS).model_copy(update={"service": "other"})
    beside = {"manifests/dev/other/plan.yaml": dump_plan(other).encode()}
    (finding,) = findings(asked(), catalog, beside=beside)
    assert (
        "with the team's other services in dev 4 nvidia.com/gpu, and the quota of team-alpha holds 3" in finding.message
    )
    assert "nvidia.com/gpu to 4" in finding.fix
    assert findings(asked(rollout="replace"), catalog, beside=beside) == []
    (finding,) = findings(asked(rollout="replace"), with_quota(accelerators={"nvidia.com/gpu": 2}), beside=beside)
    assert "its 2 replicas and the team's other services in dev take 3 nvidia.com/gpu" in finding.message
    assert finding.severity.value == "error", "a new service that would never start"
    elsewhere = other.model_copy(update={"tenancy": other.tenancy.model_copy(update={"team": "team-beta"})})
    assert findings(asked(), catalog, beside={"manifests/dev/other/plan.yaml": dump_plan(elsewhere).encode()}) == []
    assert findings(asked(), catalog, beside={"manifests/prod/other/plan.yaml": dump_plan(other).encode()}) == []


def test_a_plan_from_before_rolls_out_as_kserve_does_and_is_only_told_of_it() -> None:
    catalog = with_quota(accelerators={"nvidia.com/gpu": 1})
    old = plan(asked("standard"), catalog, SETTINGS, PLATFORM.template.version).model_copy(update={"rollout": None})
    (finding,) = findings(asked("standard"), catalog, old)
    assert (finding.rule, finding.severity.value) == ("beyond-quota", "notice")
    assert "Renew the plan" in finding.fix
    assert findings(asked("standard"), CATALOG, old) == []


@pytest.mark.parametrize("edit", [("maxSurge: 1", "maxSurge: 0"), ("type: RollingUpdate", "type: Recreate")])
def test_a_strategy_that_somebody_edited_is_drift(edit: tuple[str, str]) -> None:
    (finding,) = findings(asked(), CATALOG, edit=edit)
    assert finding.rule == "edited"
    assert edit[1] in finding.message


BETA = {"team": "team-beta", "namespace": "team-beta", "cost_center": "cc-search"}
LEAVES = "A gap of about 14 min, another address and another API key: the service moves from "
PAYS = " Argo CD deletes the old pods at once. cc-search pays for it in place of cc-ml-inference."


def moved(*reports: ServiceReport) -> list[tuple[str, str, str]]:
    return [(one.file, one.severity.value, one.message) for one in moved_services(reports)]


def test_a_service_that_moves_says_so_whichever_way_it_is_changed() -> None:
    here = make_plan()
    there = here.model_copy(update={"tenancy": here.tenancy.model_copy(update=BETA)})
    renamed = there.model_copy(update={"service": "beta-chat"})

    def report(
        change: Literal["added", "changed", "removed"], before: Plan | None, after: Plan | None
    ) -> ServiceReport:
        named = after or before
        assert named is not None
        return ServiceReport(
            environment=named.environment, name=named.service, change=change, plan=after, plan_before=before
        )

    # By hand, in request.yaml; the merge line and the pull request's description have the same sentence.
    by_hand = report("changed", here, there)
    told = f"{LEAVES}namespace team-alpha to team-beta.{PAYS}"
    assert moved(by_hand) == [("manifests/dev/support-chat", "notice", told)]
    assert told in rollout(here, there)
    # By two folders.
    (found,) = moved(report("removed", here, None), report("added", None, renamed))
    taken = "if it takes the place of support-chat, which the change removes: "
    assert found == ("manifests/dev/beta-chat", "notice", f"{taken}{told}")
    # By another name for the same team.
    again = here.model_copy(update={"service": "chat"})
    assert moved(report("removed", here, None), report("added", None, again))[0][2] == (
        f"{taken}{LEAVES}dev/support-chat to dev/chat. Argo CD deletes the old pods at once."
    )
    other = renamed.model_copy(update={"model": "Qwen/Qwen3-8B"})
    elsewhere = renamed.model_copy(update={"environment": "prod"})
    for harmless in (
        [report("changed", here, here)],
        [report("added", None, renamed)],
        [report("removed", here, None)],
        [report("removed", here, None), report("added", None, other)],
        [report("removed", here, None), report("added", None, elsewhere)],
        [report("removed", None, here), report("added", None, renamed)],
    ):
        assert moved(*harmless) == []

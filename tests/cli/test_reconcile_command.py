"""`neuroscale reconcile`: what it compares, and the one issue that it keeps on a real forge."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cluster_lab import run
from command_line import Said
from forge_lab import GiteaLab, forge_of
from forge_server import ForgeServer
from neuroscale.actions import chosen_metrics
from neuroscale.forge.rest import Forge
from neuroscale.planning.plan import Cost, Tenancy, dump_plan
from opencost_answers import costs, envelope, key
from opencost_server import opencost_server
from plan_factory import make_plan, make_request
from repositories import Repository
from roots import ROOT

WINDOW = "2026-11-01"  # 24 hours


def repository_of(root: Path, merged: str) -> Repository:
    """A platform repository with a service of one replica at $5 an hour, which was merged at that time."""
    repository = Repository(root)
    for folder in ("platform", "templates"):
        shutil.copytree(ROOT / folder, root / folder)
    team = (ROOT / "platform/catalog/teams/team-alpha.yaml").read_text().replace("team-alpha", "team-one")
    (root / "platform/catalog/teams/team-one.yaml").write_text(f'{team}alerts: {{email: "oncall@example.com"}}\n')
    place = root / "manifests/prod/chat"
    place.mkdir(parents=True)
    hourly = Cost(hourly=Decimal("5"), monthly_min=None, monthly_max=None, price_date=None, price_source="")
    tenancy = Tenancy(team="one", owner="ann", cost_center="one", namespace="team-one")
    plan = make_plan(make_request(service="chat", environment="prod"), cost=hourly, tenancy=tenancy)
    (place / "plan.yaml").write_text(dump_plan(plan))
    repository.commit({}, at=merged)
    return repository


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its service was merged long before the window."""
    return repository_of(tmp_path_factory.mktemp("repository"), "2026-10-01T00:00:00Z").root


def metered(total: float, gpu_hours: float = 24, rows: dict[str, Any] | None = None) -> str:
    chat = costs(total, gpu_hours, minutes=24 * 60)
    return envelope({key("chat", "one", namespace="team-one"): chat, "__idle__": costs(0), **(rows or {})})


def reconcile(repository: Path, answer: str, *arguments: object) -> Said:
    with opencost_server(answer) as url:
        asked = ("--window", WINDOW, "--opencost-url", url, "--repository", repository)
        return run("reconcile", *asked, *arguments)


def test_what_cost_as_much_as_planned_is_no_finding(repository: Path) -> None:
    said = reconcile(repository, metered(120), "--dry-run")
    assert said.status == 0, said.err
    assert "None of 1 service differs by more than 50.00 USD and 20 %." in said.out
    assert "prod/chat" in said.out


def test_a_second_replica_that_nobody_planned_is_told_with_its_cause(repository: Path) -> None:
    said = reconcile(repository, metered(240, 48), "--dry-run", "--json")
    assert said.status == 1
    (service,) = said.json["services"]
    assert (service["estimate"], service["difference"], service["beyond"]) == ("120.00", "120.00", True)
    assert service["causes"] == {"hours": "0.00", "replicas": "120.00", "price": "0.00", "idle": "0.00"}


def test_a_service_of_no_plan_is_a_finding_that_says_why(repository: Path) -> None:
    other = {key("gone", "one", namespace="team-one"): costs(1, 1)}
    said = reconcile(repository, metered(120, rows=other), "--dry-run")
    assert said.status == 1
    assert "team-one/gone cannot be compared: the repository has no plan of it" in said.out


def test_a_service_is_promised_from_its_merge_until_its_removal(tmp_path: Path) -> None:
    made = repository_of(tmp_path / "repository", "2026-11-01T12:00:00Z")
    said = reconcile(made.root, metered(60, 12), "--dry-run")
    assert said.status == 0, said.out
    assert "- prod/chat in this window: merged on 2026-11-01 12:00 UTC" in said.out
    made.commit({"manifests/prod/chat/plan.yaml": None}, at="2026-11-01T18:00:00Z")
    said = reconcile(made.root, metered(30, 6), "--dry-run", "--json")
    assert said.status == 0, said.out
    (service,) = said.json["services"]
    assert (service["estimate"], service["difference"]) == ("30.00", "0.00")
    assert service["changes"] == ["merged on 2026-11-01 12:00 UTC", "removed on 2026-11-01 18:00 UTC"]


def test_a_clone_without_the_history_is_warned_of_and_never_complete(tmp_path: Path, repository: Path) -> None:
    shallow = tmp_path / "shallow"
    Repository(repository).run("clone", "--quiet", "--depth=1", f"file://{repository}", str(shallow))
    late = repository_of(tmp_path / "late", "2026-11-02T00:00:00Z")
    late.run("clone", "--quiet", "--depth=1", f"file://{late.root}", str(tmp_path / "shallow-late"))
    assert reconcile(shallow, metered(120), "--dry-run").status == 0
    said = reconcile(tmp_path / "shallow-late", metered(120), "--dry-run")
    assert said.status == 1
    assert "Warning: Which plans were merged before 2026-11-02 00:00 UTC is not known here" in said.out


def test_no_issue_is_written_about_the_local_meter_unless_it_is_named(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chosen_metrics, "runs_in", lambda folder: True)
    monkeypatch.setattr(chosen_metrics, "local_state", lambda where: None)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    asked = ("reconcile", "--window", WINDOW, "--repository", repository)
    with opencost_server(metered(120)) as url:
        monkeypatch.setattr(chosen_metrics, "address_in", lambda folder: url)
        shown, written = run(*asked, "--dry-run"), run(*asked)
    assert shown.status == 0, shown.err
    assert "OpenCost here is the local platform's" in shown.out
    assert (written.status, written.out) == (2, "")


@pytest.fixture
def forge(forge_server: ForgeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Forge:
    """A repository on a real Gitea, in whose workflow the command runs."""
    lab = GiteaLab(forge_server)
    place = lab.repository()
    token = tmp_path / "token"
    token.write_text(lab.token("owner").secret)
    token.chmod(0o600)
    monkeypatch.setenv("NEUROSCALE_FORGE_TOKEN_FILE", str(token))
    monkeypatch.setenv("GITHUB_SERVER_URL", place.server)
    monkeypatch.setenv("GITHUB_REPOSITORY", place.slug)
    return forge_of(lab, "owner", place)


@pytest.mark.tools
def test_one_issue_is_opened_updated_and_closed(repository: Path, forge: Forge) -> None:
    def said(answer: str) -> str:
        return reconcile(repository, answer).out.splitlines()[-1].split(":")[1].strip()

    assert said(metered(120)) == "nothing to say"
    assert said(metered(240, 48)) == "opened"
    assert said(metered(240, 48)) == "unchanged"
    (issue,) = forge.open_issues()
    assert issue.title == "Metered cost differs from the estimate: prod"
    assert (
        "| prod/chat | 120.00 USD | 240.00 USD | 0.00 USD | +120.00 USD (+100.0 %) | 0.00 USD | +120.00 USD |"
        in issue.body
    )
    assert "Tell these teams: `team-one (oncall@example.com)`." in issue.body
    assert said(metered(300, 48)) == "updated"
    # Nothing is seen to differ, and yet nothing shows that the difference is gone.
    partly = {key("gone", "one", namespace="team-one"): costs(1, 1)}
    assert said(metered(120, rows=partly)) == "updated"
    (issue,) = forge.open_issues()
    assert issue.title == "Metered cost cannot be compared in full: prod"
    assert "No difference counts; 1 service cannot be compared." in issue.body
    assert "- team-one/gone: the repository has no plan of it" in issue.body
    assert "300.00" not in issue.body
    assert said(metered(120)) == "closed"
    assert forge.open_issues() == []
    assert said(metered(120, rows=partly)) == "nothing to say"
    assert forge.open_issues() == []

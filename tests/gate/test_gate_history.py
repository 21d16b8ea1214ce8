"""What a revert brings back, by hand or after a failed smoke test, is no edit, whatever changed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from neuroscale.catalog import Catalog
from neuroscale.forge.commits import make_commit
from neuroscale.forge.interface import Account
from neuroscale.forge.revert import last_change, with_trees
from neuroscale.gate.checks import earlier_states as history_module
from neuroscale.gate.checks.drift import evaluate_drift
from neuroscale.gate.checks.earlier_states import History
from neuroscale.gate.merged_change import find_change, read_change
from neuroscale.gate.verdict import Finding
from neuroscale.planning.planner import plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import TEMPLATE
from neuroscale.repo.snapshot import MemorySnapshot
from plan_factory import ANSWERS, make_request
from platform_repository import CATALOG, PLATFORM, SETTINGS, SNAPSHOT
from repositories import Repository

FOLDER = "manifests/dev/support-chat"
INFO = f"{FOLDER}/catalog-info.yaml"
TODAY = date(2026, 11, 21)
BOT = Account("bot", "Bot", "bot@example.org")
SKELETON = {entry.path: SNAPSHOT.read(entry.path) or b"" for entry in SNAPSHOT.entries(TEMPLATE)}
NOW = PLATFORM


def dearer() -> PlanningInputs:
    """The platform after a change of its prices."""
    prices = {
        name: one.model_copy(
            update={"prices": tuple(price.model_copy(update={"usd": price.usd * 2}) for price in one.prices)}
        )
        for name, one in CATALOG.prices.items()
    }
    catalog = Catalog(CATALOG.models, CATALOG.accelerators, prices, CATALOG.runtimes, CATALOG.teams)
    return PlanningInputs(catalog, SETTINGS, NOW.template)


def rendered_otherwise() -> PlanningInputs:
    """The platform after a change of its template."""
    changed = f"{TEMPLATE}/skeleton/networkpolicy.yaml"
    return PlanningInputs(
        CATALOG, SETTINGS, load_template(MemorySnapshot({**SKELETON, changed: SKELETON[changed] + b"# new\n"}))
    )


def files(platform: PlanningInputs, users: int, **edits: str) -> dict[str, bytes | str | None]:
    """The service's folder. `edits`: what is appended to a file, by its name's first part."""
    request = make_request(**{**ANSWERS, "concurrent_users": users})
    planned = plan(request, platform.catalog, platform.settings, platform.template.version)
    found = render(request, planned, platform.template)
    return {f"{FOLDER}/{name}": text + edits.get(name.partition(".")[0], "") for name, text in found.items()}


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    """Main has the service for four users, then for eight."""
    made = Repository(tmp_path / "repository")
    made.commit({"README.md": "start", **SKELETON})
    made.commit(files(NOW, 4), "four")
    made.commit(files(NOW, 8), "eight")
    made.commit({"README.md": "the platform changes"})
    yield made
    made.git.close()


def found(repository: Repository, platform: PlanningInputs, base: str = "main~1", head: str = "main") -> list[Finding]:
    change = find_change(repository.git, base, head)
    given = read_change(change)
    history = History(change, [service.path.folder for service in given.services])
    return list(evaluate_drift(given.snapshot, given.services, platform, TODAY, history)[0].findings)


def told(findings: list[Finding]) -> dict[str, str]:
    return {finding.rule: finding.severity.value for finding in findings}


def short(repository: Repository, commit: str) -> str:
    return repository.run("rev-parse", commit)[:12]


@pytest.mark.parametrize(
    ("platform", "expected"),
    [(dearer(), {"restored-plan": "notice"}), (rendered_otherwise(), {"restored-files": "notice"})],
    ids=["prices", "template"],
)
def test_a_revert_after_the_platform_changed_is_no_edit_and_names_its_commit(
    repository: Repository, platform: PlanningInputs, expected: dict[str, str]
) -> None:
    repository.run("revert", "--no-edit", "main~1")
    findings = found(repository, platform)
    assert told(findings) == expected
    assert all(f"commit {short(repository, 'main~3')} of 20" in finding.message for finding in findings)

    # Nor is it one for the next change that looks at every service.
    repository.commit({"policies/README.md": "new"})
    assert "error" not in told(found(repository, platform)).values()


def test_the_automatic_revert_after_the_prices_changed_is_no_edit(repository: Repository) -> None:
    git = repository.git
    blamed = last_change(git, "main", FOLDER)
    assert blamed is not None
    tree = with_trees(git, "main", {FOLDER: git.tree(blamed.before, FOLDER)})
    head = make_commit(git, tree, [repository.run("rev-parse", "main")], "Revert", BOT)
    assert told(found(repository, dearer(), "main", head)) == {"restored-plan": "notice"}


def test_what_stood_on_a_branch_alone_and_what_is_put_together_of_two_states_are_edits(repository: Repository) -> None:
    four = files(NOW, 4)
    edited = {
        f"{FOLDER}/plan.yaml": str(four[f"{FOLDER}/plan.yaml"]).replace("max_concurrency: ", "max_concurrency: 9")
    }
    # A commit of a merged branch was never judged by itself.
    repository.run("switch", "--quiet", "--create", "feature")
    repository.commit({**four, **edited}, "edited")
    repository.commit(files(NOW, 8), "back")
    repository.run("switch", "--quiet", "main")
    repository.run("merge", "--quiet", "--no-ff", "--no-edit", "feature")
    repository.run("switch", "--quiet", "--create", "again")
    repository.run("checkout", "--quiet", "feature~1", "--", FOLDER)
    repository.commit({})
    assert told(found(repository, dearer(), "main", "again"))["edited-plan"] == "error"

    repository.run("switch", "--quiet", "--force-create", "mixed", "main")
    repository.commit({**four, f"{FOLDER}/networkpolicy.yaml": str(four[f"{FOLDER}/networkpolicy.yaml"]) + "# open\n"})
    findings = found(repository, dearer(), "main", "mixed")
    assert told(findings) == {"edited-plan": "error", "edited": "error"}
    assert "no such folder was found on the base branch" in findings[0].message


@pytest.mark.parametrize("edited", ["networkpolicy", "inferenceservice", "plan"])
def test_a_state_that_stood_on_main_and_was_never_judged_is_an_edit(repository: Repository, edited: str) -> None:
    """A merge by rebasing brings every commit of a pull request, of which the gate judged the last one alone."""
    folder: dict[str, bytes | str | None] = files(NOW, 4)
    folder[f"{FOLDER}/{edited}.yaml"] = str(folder[f"{FOLDER}/{edited}.yaml"]).replace("8000", "8001") + "# open\n"
    if edited == "plan":
        plan_text = str(files(NOW, 4)[f"{FOLDER}/plan.yaml"])
        folder[f"{FOLDER}/plan.yaml"] = plan_text.replace("--max-num-seqs=", "--max-num-seqs=9")
    repository.commit(folder, "never judged")
    repository.commit(files(NOW, 8), "the head of that pull request")
    repository.commit({"README.md": "later"})
    repository.run("checkout", "--quiet", "main~2", "--", FOLDER)
    repository.commit({}, "restore what nobody judged")
    findings = found(repository, dearer())
    assert "error" in told(findings).values()
    assert any("does not render it: it may be unjudged" in finding.message for finding in findings)


def test_a_state_that_an_older_template_rendered_is_restored(repository: Repository) -> None:
    newer = rendered_otherwise()
    changed = f"{TEMPLATE}/skeleton/networkpolicy.yaml"
    repository.commit({changed: SKELETON[changed] + b"# new\n", **files(newer, 8)}, "another template")
    repository.commit({"README.md": "later"})
    repository.run("checkout", "--quiet", "main~4", "--", FOLDER)
    repository.commit({}, "restore four")
    findings = found(repository, newer)
    assert told(findings) == {"restored-files": "notice"}
    assert all(short(repository, "main~5") in finding.message for finding in findings)


def test_a_service_that_a_change_of_the_template_leaves_alone_stays_as_it_is(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "_MOST_CHANGES", 0)  # however long ago it was made
    changed, newer = f"{TEMPLATE}/skeleton/networkpolicy.yaml", rendered_otherwise()
    repository.commit({changed: SKELETON[changed] + b"# new\n"}, "another template")
    (notice,) = found(repository, newer)
    assert (notice.rule, notice.severity.value) == ("old-files", "notice")
    assert notice.message.endswith("the template renders something else by now: networkpolicy.yaml")
    assert short(repository, "main~2") in notice.message
    repository.commit({"policies/README.md": "new"})
    assert told(found(repository, newer)) == {"old-files": "notice"}, "nor is it an edit for later changes"
    # A change of the service brings what the template renders by now.
    monkeypatch.undo()
    repository.commit(files(NOW, 4), "four again, as the old template renders it")
    assert told(found(repository, newer)) == {"restored-files": "notice"}
    repository.commit({f"{FOLDER}/networkpolicy.yaml": str(files(NOW, 4)[f"{FOLDER}/networkpolicy.yaml"]) + "# open\n"})
    assert told(found(repository, newer))["edited"] == "error"
    repository.commit({"policies/README.md": "newer"})
    assert told(found(repository, newer))["edited"] == "error", "and stays an edit"


def test_an_edit_that_stands_on_main_is_found_until_it_is_repaired(repository: Repository) -> None:
    """That a folder stands there now is no proof: a forced merge would excuse itself."""
    repository.commit(files(NOW, 8, networkpolicy="# open\n"))
    repository.commit({"policies/README.md": "new"})
    assert told(found(repository, NOW)) == {"edited": "error"}


def test_a_file_of_backstages_catalog_is_missed_only_where_the_change_removes_it(repository: Repository) -> None:
    old = {**files(NOW, 4), INFO: None}
    repository.commit({INFO: None}, "without it")
    (finding,) = found(repository, NOW)
    assert (finding.rule, finding.severity.value, finding.file) == ("edited", "error", INFO)
    repository.commit({f"{FOLDER}/request.yaml": files(NOW, 8)[f"{FOLDER}/request.yaml"], "README.md": "other"})
    assert found(repository, NOW) == [], "a folder without it, from before"
    repository.commit({name: text for name, text in old.items() if text is not None and name != INFO}, "four again")
    assert [one.rule for one in found(repository, NOW)] == []
    repository.commit(files(NOW, 8), "with it")
    repository.run("revert", "--no-edit", "HEAD")
    assert {(one.rule, one.severity.value) for one in found(repository, NOW)} == {("restored-files", "notice")}


def test_a_service_that_comes_back_for_an_accelerator_that_its_environment_lost_is_refused(
    repository: Repository,
) -> None:
    back = repository.run("rev-parse", "HEAD")
    repository.run("rm", "-r", "-q", FOLDER)
    repository.commit({})
    repository.run("checkout", "-q", back, "--", FOLDER)
    repository.commit({})
    others = ("nvidia-rtx-pro-6000",)
    lost = SETTINGS.environments["dev"].model_copy(update={"accelerators": others})
    settings = SETTINGS.model_copy(update={"environments": {**SETTINGS.environments, "dev": lost}})
    seen = found(repository, PlanningInputs(CATALOG, settings, NOW.template))
    (refused,) = [one for one in seen if one.severity.value == "error"]
    assert (refused.rule, refused.file) == ("no-accelerator", f"{FOLDER}/plan.yaml")
    assert "asks for nvidia-l4, which dev no longer has" in refused.message
    assert "error" not in told(found(repository, NOW)).values()


def test_a_revert_to_an_accelerator_that_its_environment_lost_is_refused_like_a_return(repository: Repository) -> None:
    others = ("nvidia-rtx-pro-6000",)
    lost = SETTINGS.environments["dev"].model_copy(update={"accelerators": others})
    settings = SETTINGS.model_copy(update={"environments": {**SETTINGS.environments, "dev": lost}})
    platform = PlanningInputs(CATALOG, settings, NOW.template)
    repository.commit(files(platform, 8), "on another accelerator")
    repository.run("revert", "--no-edit", "HEAD")
    refused = [one for one in found(repository, platform) if one.severity.value == "error"]
    assert [one.rule for one in refused] == ["no-accelerator"]
    assert "it chooses among nvidia-rtx-pro-6000. Or give dev the accelerator back" in refused[0].fix
    assert "error" not in told(found(repository, NOW)).values(), "the environment has it again"
    # The change that loses it leaves a running service alone.
    repository.commit({"policies/README.md": "new"})
    assert "error" not in told(found(repository, platform)).values()


def test_a_running_service_beyond_the_quota_with_others_may_go_on_and_not_grow(repository: Repository) -> None:
    team = CATALOG.teams["team-alpha"]
    quota = team.quota.model_copy(update={"accelerators": {"nvidia.com/gpu": 2}})
    teams = {**CATALOG.teams, "team-alpha": team.model_copy(update={"quota": quota})}
    small = Catalog(CATALOG.models, CATALOG.accelerators, CATALOG.prices, CATALOG.runtimes, teams)
    platform = PlanningInputs(small, SETTINGS, NOW.template)
    for other in ("other", "another"):
        repository.commit({name.replace("support-chat", other): text for name, text in files(platform, 8).items()})
    repository.commit(files(platform, 4), "four again")
    assert told(found(repository, platform)) == {"beyond-quota": "notice"}
    repository.commit(files(platform, 30), "two accelerators")
    assert told(found(repository, platform)) == {"beyond-quota": "error"}
    repository.run("rm", "-r", "-q", FOLDER)
    repository.commit({})
    repository.commit(files(platform, 8), "as a new one")
    assert told(found(repository, platform)) == {"beyond-quota": "error"}


def test_how_far_back_was_looked_is_told(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "_MOST_CHANGES", 1)
    repository.run("revert", "--no-edit", "main~1")
    (finding,) = found(repository, dearer())
    assert finding.rule == "edited-plan"
    assert "in the last 1 changes of the base branch (older ones were not looked at)" in finding.message

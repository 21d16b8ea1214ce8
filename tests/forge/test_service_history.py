"""A service's history on a real forge: who asked and approved, what changed, what was checked, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from after_merge_lab import Project, Seen, passing
from cluster_lab import run
from forge_server import ForgeServer
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.interface import PullRequest
from neuroscale.forge.main_protection import REQUIRED_CHECK
from neuroscale.forge.service_history import Change, Live, changes, with_deployments
from neuroscale.kube.client import Cluster, Object
from neuroscale.planning.planner import plan
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import ServicePath
from neuroscale.report.markdown import MARKER
from neuroscale.request.service_request import Override, Request
from plan_factory import make_request
from platform_repository import CATALOG, SETTINGS, TEMPLATE
from repositories import Repository
from waiting import wait_for

PATH = ServicePath("dev", "support-chat")
GENERATED = (
    "<!-- neuroscale-request 0123456789abcdef -->\n`owner` asks, on behalf of `jane`, for a new service.\n\n"
    "- It moves from dev\\: see #<!---->1.\n\n### What is asked for\n\n- Model: x\n<!-- /neuroscale-request -->"
)
MODEL = "google/gemma-4-26B-A4B-it-qat-w4a16-ct"


def files(**changes: Any) -> dict[str, bytes | str | None]:
    request: Request = make_request(model=MODEL, **changes)
    made = plan(request, CATALOG, SETTINGS, TEMPLATE.version)
    return {f"{PATH.folder}/{name}": text for name, text in render(request, made, TEMPLATE).items()}


def override() -> Override:
    ends = date(2027, 1, 1)
    return Override(field="replicas.min", value=2, reason="The launch brings twice the users.", expires=ends)


@pytest.fixture(scope="module")
def project(forge_server: ForgeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    found = Project(forge_server, tmp_path_factory.mktemp("history"))
    found.clone.run("remote", "add", "origin", found.repository.clone_url)
    yield found
    found.clone.git.close()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Repository]:
    found = Repository(tmp_path / "here")
    yield found
    found.git.close()


def merged(project: Project, content: dict[str, bytes | str | None], title: str, body: str = "") -> PullRequest:
    """A pull request of the owner, judged, approved by the administrator, and merged."""
    server, repository = project.server, project.repository
    branch = f"work-{title.replace(' ', '-')}"
    project.fetch()
    project.clone.run("switch", "--quiet", "--force-create", branch)
    commit = project.clone.commit(content)
    Branches(project.clone.git, Access(repository.clone_url, server.owner)).push(repository, branch, commit, None)
    pull = project.owner.open_pull(title, body, repository, branch, "main")
    status = {"context": REQUIRED_CHECK["gitea"], "state": "success"}
    server.api("POST", f"/repos/{repository.slug}/statuses/{commit}", server.admin, status)
    approver = server.forge(repository, server.admin)
    approver.approve(pull.number, pull.head_sha)
    approver.create_comment(pull.number, f"{MARKER}\n## ✅ Passed: nothing stands against it\n")
    project.owner.merge(pull.number, pull.head_sha)
    project.fetch()
    return project.owner.pull(pull.number)


def go_on(project: Project, pull: PullRequest, state: str) -> None:
    """Push another commit to the branch of a merged pull request, as a later change of a service does, with a status
    of the gate. The forge then names that commit as the pull request's head."""
    server, repository = project.server, project.repository
    tip = project.owner.pull(pull.number).head_sha
    project.clone.run("switch", "--quiet", "--detach", tip)
    later = project.clone.commit({"README.md": "A later change.\n"})
    Branches(project.clone.git, Access(repository.clone_url, server.owner)).push(
        repository, pull.head_branch, later, tip
    )
    status = {"context": REQUIRED_CHECK["gitea"], "state": state}
    server.api("POST", f"/repos/{repository.slug}/statuses/{later}", server.admin, status)
    wait_for(lambda: project.owner.pull(pull.number).head_sha == later, 30, "the forge names the later commit")
    project.fetch()


def told(project: Project, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[str, dict[str, Any]]:
    """The history as text and as JSON."""
    monkeypatch.setenv("NEUROSCALE_FORGE_TOKEN", project.server.owner.secret)
    monkeypatch.setenv("KUBECONFIG", str(project.folder / "none"))
    command = ("history", "support-chat", "--repository", project.clone.root, *options)
    text, data = run(*command), run(*command, "--json")
    assert (text.status, data.status) == (0, 0), text.err + data.err
    return text.out, json.loads(data.out)


@pytest.mark.tools
def test_a_retired_services_history_names_who_what_why_and_what_was_checked(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = merged(project, files(), "Serve it", f"{GENERATED}\nFor the support desk.")
    project.tell(Seen(passing(PATH.service)))
    go_on(project, first, "failure")
    second = merged(project, files(concurrent_users=16, overrides=(override(),)), "Serve more")
    gone = dict.fromkeys(files())
    project.clone.commit({**gone})
    project.push()
    text, data = told(project, monkeypatch)

    removed, changed, added = data["changes"]
    assert [one["kind"] for one in data["changes"]] == ["removed", "changed", "added"]
    assert removed["asked"] is None
    answers = {one["field"]: (one["before"], one["after"]) for one in changed["answers"]}
    assert answers == {"concurrent_users": ("8", "16"), "overrides.replicas.min": (None, "2 until 2027-01-01")}
    assert any(row.startswith("replicas from") for row in changed["plan"])
    assert any(row.startswith("price from") for row in changed["plan"])
    assert changed["reasons"] == ["replicas.min: The launch brings twice the users."]
    assert (changed["asked"]["number"], changed["asked"]["smoke_tests"]) == (second.number, [])
    asked = added["asked"]
    assert (asked["number"], asked["asked_by"], asked["asked_for"]) == (first.number, "owner", "jane")
    assert (asked["gate"], changed["asked"]["asked_for"]) == ("success", "")
    assert asked["approved_by"] == [project.server.forge(project.repository, project.server.admin).account().login]
    assert asked["why"] == "For the support desk. It moves from dev: see #1."
    assert asked["gate_comments"][0]["text"] == "Passed: nothing stands against it"
    (smoke,) = asked["smoke_tests"]
    assert smoke == {"author": project.bot.login, "text": f"Smoke test passed: `dev/{PATH.service}`"}
    assert [one.split(":")[0] for one in data["missing"]] == ["Argo CD"]
    for line in (
        "dev/support-chat: 3 changes on main, the newest first",
        "answers     concurrent_users 8 -> 16; overrides.replicas.min not set -> 2 until 2027-01-01",
        f"asked by    owner on behalf of jane, approved by {asked['approved_by'][0]}: {first.url}",
        "why         For the support desk. It moves from dev: see #1.",
        "smoke tests no comment",
    ):
        assert line in text


@pytest.mark.tools
def test_without_the_forge_git_alone_answers_and_the_missing_part_is_named(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(project, files(), "Serve it again")
    project.clone.run("fetch", "--quiet", "origin")
    monkeypatch.setattr("neuroscale.actions.open_repository.remote_address", lambda *_: "http://127.0.0.1:1/a/b.git")
    _, data = told(project, monkeypatch, "--limit", "1")
    (newest,) = data["changes"]
    assert (newest["kind"], newest["asked"]) == ("added", None)
    assert [one.split(":")[0].split(" (")[0] for one in data["missing"]] == ["The forge", "Argo CD"]


@pytest.mark.tools
def test_a_service_that_never_was_is_refused(project: Project) -> None:
    done = run("history", "nobody", "--repository", project.clone.root)
    assert done.status == 2
    assert "'nobody' is not a service of main, nor was it one" in done.err


@dataclass
class OneApplication:
    """A cluster whose Argo CD has deployed these revisions, each an hour after the one before it."""

    revisions: list[str]
    first: int = 0
    name: str = "here"

    def get(self, *_: str) -> Object | None:
        if not self.revisions:
            return None
        hours = [datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=number) for number in range(len(self.revisions))]
        rows = [
            {"id": self.first + number, "revision": revision, "deployedAt": f"{when:%Y-%m-%dT%H:%M:%SZ}"}
            for number, (revision, when) in enumerate(zip(self.revisions, hours, strict=True))
        ]
        return {"status": {"history": rows}}


def test_a_change_is_live_with_the_first_deployment_that_has_it(here: Repository) -> None:
    one = here.commit({f"{PATH.folder}/plan.yaml": "a: 1\n"})
    two = here.commit({f"{PATH.folder}/plan.yaml": "a: 2\n"})
    elsewhere = here.commit({"README.md": "hello\n"})
    three = here.commit({f"{PATH.folder}/plan.yaml": "a: 3\n"})
    found = changes(here.git, three, PATH, 10)
    assert [change.commit for change in found] == [three, two, one]

    def live(cluster: OneApplication) -> tuple[list[Live | None], list[str]]:
        dated, missing = with_deployments(here.git, cast("Cluster", cluster), PATH, found)
        return [change.live for change in dated], missing

    begins = datetime(2026, 11, 1, tzinfo=UTC)
    later = Live(begins + timedelta(hours=1), at_the_latest=False)
    assert live(OneApplication([one, elsewhere])) == ([None, later, Live(begins, at_the_latest=False)], [])
    # Argo CD has dropped what it deployed before.
    dropped, _ = live(OneApplication([two, three], first=7))
    assert dropped == [later, Live(begins, at_the_latest=True), Live(begins, at_the_latest=True)]
    _, missing = live(OneApplication([one, "f" * 40]))
    assert "lacks 1 of the deployed commits" in missing[0]
    _, missing = live(OneApplication([]))
    assert "has no application support-chat.dev" in missing[0]


def test_a_service_that_came_back_was_not_live_before_by_the_application_that_was_made_anew(here: Repository) -> None:
    one = here.commit({f"{PATH.folder}/plan.yaml": "a: 1\n"})
    two = here.commit({f"{PATH.folder}/plan.yaml": None})
    three = here.commit({f"{PATH.folder}/plan.yaml": "a: 1\n"})
    four = here.commit({f"{PATH.folder}/plan.yaml": "a: 2\n"})
    found = changes(here.git, four, PATH, 10)
    assert [change.commit for change in found] == [four, three, two, one]
    dated, missing = with_deployments(here.git, cast("Cluster", OneApplication([three, four])), PATH, found)
    begins = datetime(2026, 11, 1, tzinfo=UTC)
    lived = [Live(begins + timedelta(hours=1), at_the_latest=False), Live(begins, at_the_latest=False), None, None]
    assert [change.live for change in dated] == lived
    assert "was made anew when the service came back" in missing[0]


def test_a_file_that_this_version_cannot_read_is_no_error(here: Repository) -> None:
    tip = here.commit({f"{PATH.folder}/request.yaml": "nonsense: 1\n"})
    (found,) = changes(here.git, tip, PATH, 10)
    assert isinstance(found, Change)
    assert (found.kind, found.answers, found.files) == ("added", (), ("request.yaml",))

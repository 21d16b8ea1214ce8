"""What follows from a merge's smoke test, on a real forge: comments and reverts, also where the forge fails."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from after_merge_lab import Project, Seen, check, failing, passing
from fault_proxy import DropAfter, DropBefore, FaultProxy, Status, StatusAfter
from forge_server import ForgeServer
from neuroscale.forge.revert import PREFIX, before_all
from repositories import Repository

pytestmark = pytest.mark.tools

ODD = b"\xff\x00 not text\r\n"


@pytest.fixture(scope="module")
def project(forge_server: ForgeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """One repository for all of these tests; each has services of its own."""
    found = Project(forge_server, tmp_path_factory.mktemp("project"))
    yield found
    found.clone.git.close()


@pytest.fixture(autouse=True)
def without_open_reverts(request: pytest.FixtureRequest) -> Iterator[None]:
    """A later failure would join a revert that an earlier test left open."""
    yield
    if "project" in request.fixturenames:
        project: Project = request.getfixturevalue("project")
        for pull in project.pulls():
            if pull.state == "open":
                path = f"/repos/{project.repository.slug}/pulls/{pull.number}"
                project.server.api("PATCH", path, project.server.admin, {"state": "closed"})


@dataclass(frozen=True)
class Service:
    name: str

    @property
    def folder(self) -> str:
        return f"manifests/dev/{self.name}"

    def files(self, text: str) -> dict[str, bytes | str | None]:
        manifest = f"kind: InferenceService # {self.name} {text}\n"
        return {f"{self.folder}/inferenceservice.yaml": manifest, f"{self.folder}/odd": ODD}

    def passing(self) -> list[dict[str, Any]]:
        return passing(self.name)

    def failing(self, what: str = "answers 500") -> list[dict[str, Any]]:
        return failing(self.name, what)


def a_service() -> Service:
    return Service(f"chat-{secrets.token_hex(3)}")


@pytest.fixture
def chat() -> Service:
    return a_service()


@pytest.fixture
def other() -> Service:
    return a_service()


def test_a_merge_that_passes_gets_one_comment_with_its_url_and_nothing_else(project: Project, chat: Service) -> None:
    merged = project.merge(chat.files("one"))
    said = project.tell(Seen(chat.passing()))
    assert said.status == 0, said.text
    (comment,) = project.comments(merged)
    assert f"✅ Smoke test passed: `dev/{chat.name}`" in comment
    assert f"https://{chat.name}.example.com" in comment
    assert "| ✅ | Chat | 1.2 | 12 tokens |" in comment
    (command,) = re.findall(r"```sh\n(.*)\n```", comment)
    assert f"neuroscale key {chat.name} --print --environment=dev" in command
    assert f"https://{chat.name}.example.com/v1/chat/completions" in command
    assert f"{project.server.url}/{project.repository.slug}/actions/runs/{project.runs}" in comment
    assert project.reverts(merged) == []
    assert project.tell(Seen(chat.passing())).status == 0
    assert project.comments(merged) == [comment]


def test_a_merge_that_fails_is_taken_back_by_one_pull_request_that_restores_the_bytes(
    project: Project, chat: Service
) -> None:
    project.merge({**chat.files("one"), f"{chat.folder}/request.yaml": "team: team-alpha\n"})
    before = project.main
    manifest, new, odd = (f"{chat.folder}/{name}" for name in ("inferenceservice.yaml", "new", "odd"))
    merged = project.merge({manifest: "broken\n", new: "x\n", odd: None})
    assert project.files(project.main, chat.folder) != project.files(before, chat.folder)

    said = project.tell(Seen(chat.failing("answers `<script>` @admin #1")))
    assert said.status == 1, said.text
    assert "answers `<script>`" in said.text
    (revert,) = project.reverts(merged)
    assert revert.state == "open"
    assert (revert.author, revert.head_owner) == ("neuroscale-revert", "neuroscale-revert")
    assert revert.head_branch == f"{PREFIX}{merged.number}-{project.main[:12]}"
    head = project.fetch_pull(revert)
    assert project.files(head, chat.folder) == project.files(before, chat.folder)
    assert project.clone.run("diff", "--name-only", project.main, head).splitlines() == [manifest, new, odd]
    assert f"restores `{chat.folder}` as it was" in revert.body
    assert merged.url in revert.body
    assert "**Next:**" in revert.body
    assert f"Tell the team of `dev/{chat.name}`: `team-alpha (alpha@example.com)`." in revert.body
    assert "<script>" not in revert.body.replace("`<script>`", "")
    assert "@admin" not in revert.body
    (comment,) = project.comments(merged)
    assert f"❌ Smoke test failed: `dev/{chat.name}`" in comment
    assert revert.url in comment

    # A second run finds all of it.
    comments = [(one.id, one.body) for one in project.owner.comments(merged.number)]
    assert project.tell(Seen(chat.failing())).status == 1
    assert project.reverts(merged) == [revert]
    assert [(one.id, one.body) for one in project.owner.comments(merged.number)] == comments
    assert project.fetch_pull(revert) == head


def test_the_revert_of_a_new_service_removes_it_and_says_so(project: Project, chat: Service) -> None:
    merged = project.merge(chat.files("one"))
    before = project.clone.run("rev-parse", "HEAD^")
    project.tell(Seen(chat.failing()))
    (revert,) = project.reverts(merged)
    head = project.fetch_pull(revert)
    assert project.files(head, chat.folder) == {}
    assert project.clone.run("rev-parse", f"{head}^{{tree}}") == project.clone.run("rev-parse", f"{before}^{{tree}}")
    assert f"It **removes** `{chat.folder}`" in revert.body
    assert len(project.comments(merged)) == 1


def test_of_a_merge_of_several_services_only_what_fails_is_taken_back(
    project: Project, chat: Service, other: Service
) -> None:
    project.merge({**chat.files("one"), **other.files("one")})
    merged = project.merge({**chat.files("two"), **other.files("two")})
    said = project.tell(Seen([*chat.failing(), *other.passing()]))
    assert said.status == 1
    (revert,) = project.reverts(merged)
    head = project.fetch_pull(revert)
    assert project.files(head, chat.folder) == project.files(f"{project.main}^", chat.folder)
    assert project.files(head, other.folder) == project.files(project.main, other.folder)
    (comment,) = project.comments(merged)
    assert f"❌ `dev/{chat.name}`: failed" in comment
    assert f"✅ `dev/{other.name}`: passed" in comment


def test_of_a_pull_request_that_was_merged_by_rebasing_every_commit_goes_back(tmp_path: Path) -> None:
    clone = Repository(tmp_path / "clone")
    start, one, two, three = (clone.commit({"file": name}) for name in ("start", "one", "two", "three"))
    assert before_all(clone.git, two, {one, two, three}.__contains__) == start
    assert before_all(clone.git, two, lambda _: False) == two
    assert before_all(clone.git, two, lambda _: True) == ""


def test_a_failure_is_told_on_the_merge_that_changed_the_service_and_not_on_the_last_one(
    project: Project, chat: Service, other: Service
) -> None:
    blamed = project.merge(chat.files("one"))
    innocent = project.merge(other.files("one"))
    project.tell(Seen([*chat.failing(), *other.passing()]))
    assert len(project.reverts(blamed)) == 1
    assert project.reverts(innocent) == []
    assert "❌" in project.comments(blamed)[0]
    assert f"✅ Smoke test passed: `dev/{other.name}`" in project.comments(innocent)[0]


def test_others_that_fail_too_are_told_as_a_reason_to_look_at_the_cluster_first(
    project: Project, chat: Service, other: Service
) -> None:
    project.merge(other.files("one"))
    project.tell(Seen(other.passing()))
    merged = project.merge(chat.files("one"))
    project.tell(Seen([*chat.failing(), *other.failing()]))
    (revert,) = project.reverts(merged)
    assert "Look at the cluster first" in revert.body
    assert f"`dev/{other.name}`" in revert.body


def test_a_second_failure_joins_the_open_revert_unless_somebody_has_approved_it(
    project: Project, chat: Service, other: Service
) -> None:
    late = a_service()
    for one in (chat, other, late):
        project.merge(one.files("one"))
    before = project.main
    first, second, third = (project.merge(one.files("two")) for one in (chat, other, late))
    project.tell(Seen(chat.failing()))
    (revert,) = project.reverts(first)
    failing = [*chat.failing(), *other.failing()]
    project.tell(Seen(failing))
    assert project.reverts(second) == []
    (joined,) = project.reverts(first)
    head = project.fetch_pull(joined)
    assert joined.number == revert.number
    assert {path.rsplit("/", 1)[0] for path in project.clone.run("diff", "--name-only", "main", head).splitlines()} == {
        chat.folder,
        other.folder,
    }
    for one in (chat, other):
        assert project.files(head, one.folder) == project.files(before, one.folder)
    assert all(told in joined.title for told in (f"dev/{chat.name}", f"dev/{other.name}"))
    assert all(one.url in joined.body for one in (first, second))
    assert joined.url in project.comments(second)[0]
    assert "Look at the cluster first" not in joined.body, "each of the two was broken by its own merge"
    assert f"Other merges broke other services: `dev/{chat.name}` since" in joined.body
    assert first.url in joined.body

    # A run that is repeated, and one that ended before it told the second merge, change nothing.
    for comment in project.owner.comments(second.number):
        project.server.forge(project.repository, project.server.admin).delete_comment(comment.id)
    project.tell(Seen(failing))
    assert project.reverts(first) == [joined]
    assert joined.url in project.comments(second)[0]

    project.server.forge(project.repository, project.server.owner).approve(joined.number, joined.head_sha)
    project.tell(Seen([*failing, *late.failing()]))
    assert project.reverts(first) == [joined]
    assert len(project.reverts(third)) == 1

    # It is the revert of both, also after it was declined.
    project.server.api(
        "PATCH", f"/repos/{project.repository.slug}/pulls/{joined.number}", project.server.admin, {"state": "closed"}
    )
    project.tell(Seen(failing))
    assert project.reverts(second) == []


def test_open_reverts_come_on_top_of_main_when_it_moves_and_keep_what_people_wrote(
    project: Project, chat: Service, other: Service
) -> None:
    project.merge(chat.files("one"))
    before = project.main
    changed = project.merge(chat.files("two"))
    added = project.merge(other.files("one"))  # its revert removes it, and so stays alone
    failing = [*chat.failing(), *other.failing()]
    project.tell(Seen(failing))
    reverts = [project.reverts(one)[0] for one in (changed, added)]
    heads = [project.fetch_pull(one) for one in reverts]
    path = f"/repos/{project.repository.slug}/pulls/{reverts[0].number}"
    project.server.api("PATCH", path, project.server.admin, {"body": f"Please look.\n\n{reverts[0].body}"})
    project.server.forge(project.repository, project.server.owner).approve(reverts[1].number, reverts[1].head_sha)

    project.merge(a_service().files("one"))
    for _ in range(2):  # the second run finds nothing to do
        project.tell(Seen(failing))
        now = [project.reverts(one)[0] for one in (changed, added)]
        moved, approved = (project.fetch_pull(one) for one in now)
        assert [one.number for one in now] == [one.number for one in reverts]
        assert project.clone.run("rev-parse", f"{moved}^1", f"{moved}^2").split() == [heads[0], project.main]
        assert approved == heads[1], "a new commit would take the approval back"
    assert project.files(moved, chat.folder) == project.files(before, chat.folder)
    changed_paths = project.clone.run("diff", "--name-only", project.main, moved).splitlines()
    assert changed_paths == [f"{chat.folder}/inferenceservice.yaml"]
    assert now[0].body.startswith("Please look.")
    assert now[0].title == reverts[0].title


def test_a_revert_that_fails_too_is_not_taken_back(project: Project, chat: Service) -> None:
    project.merge(chat.files("one"))
    merged = project.merge(chat.files("two"))
    project.tell(Seen(chat.failing()))
    (revert,) = project.reverts(merged)
    project.owner.merge(revert.number, revert.head_sha)
    project.fetch()
    for _ in range(2):
        said = project.tell(Seen(chat.failing()))
        assert said.status == 1
        assert "is a revert itself" in said.text
        assert project.reverts(revert) == []
    (comment,) = project.comments(revert)
    assert "Not reverted" in comment
    assert "is a revert itself" in comment
    assert len(project.comments(merged)) == 1


def test_a_revert_by_hand_is_not_taken_back_to_what_failed(project: Project, chat: Service) -> None:
    project.merge(chat.files("one"))
    merged = project.merge(chat.files("two"))
    project.tell(Seen(chat.failing()))
    assert len(project.reverts(merged)) == 1
    by_hand = project.merge(chat.files("one"))
    said = project.tell(Seen(chat.failing()))
    assert "failed its smoke test as well" in said.text
    assert project.reverts(by_hand) == []
    assert "Not reverted" in project.comments(by_hand)[0]


def test_a_revert_that_was_declined_is_not_opened_again(project: Project, chat: Service) -> None:
    merged = project.merge(chat.files("one"))
    project.tell(Seen(chat.failing()))
    (revert,) = project.reverts(merged)
    path = f"/repos/{project.repository.slug}/pulls/{revert.number}"
    assert project.server.api("PATCH", path, body={"state": "closed"})[0] == 201
    # Its branch is gone as well.
    fork = f"/repos/neuroscale-revert/{project.repository.name}/branches/{revert.head_branch.replace('/', '%2F')}"
    assert project.server.api("DELETE", fork)[0] == 204
    # So that there is something to tell.
    again = Seen([*chat.failing(), check(chat.name, "metrics", "failed")])
    assert project.tell(again).status == 1
    assert [(one.number, one.state) for one in project.reverts(merged)] == [(revert.number, "closed")]
    assert "was closed unmerged" in project.comments(merged)[0]


def test_a_folder_that_was_changed_since_is_not_taken_back(project: Project, chat: Service) -> None:
    merged = project.merge(chat.files("one"))
    tested = project.main
    later = project.merge(chat.files("two"))
    said = project.tell(Seen(chat.failing(), revision=tested))
    assert said.status == 1
    assert project.reverts(merged) == []
    assert "changed again since" in project.comments(merged)[0]
    assert project.comments(later) == []


def test_what_still_starts_is_not_taken_back_until_it_is_seen_to_fail(project: Project, chat: Service) -> None:
    merged = project.merge(chat.files("one"))
    for verdict in ("starting", "not synced", "unknown"):
        said = project.tell(Seen(chat.failing(), verdicts={chat.name: verdict}))
        assert said.status == 1, said.text
        assert project.reverts(merged) == []
        (comment,) = project.comments(merged)
        assert "⏳ Smoke test not deployed yet" in comment
    assert project.tell(Seen(chat.failing(), verdicts={chat.name: "failed"})).status == 1
    assert len(project.reverts(merged)) == 1


def test_what_cannot_be_trusted_takes_nothing_back(project: Project, chat: Service) -> None:
    merged = project.merge(chat.files("one"))
    for seen in (
        Seen(chat.failing(), problems=("the run crashed",)),
        Seen([check(chat.name, "health", "error", "no answer")]),
        Seen([*chat.failing(), check("", "api-server", "error", "lost")]),
    ):
        said = project.tell(seen)
        assert said.status == 3, said.text
        assert project.reverts(merged) == []
        assert "🛑 Smoke test not tested" in project.comments(merged)[0]
    # What is seen later counts.
    assert project.tell(Seen(chat.passing())).status == 0
    assert "✅" in project.comments(merged)[0]


def test_without_a_report_nothing_is_passed_and_nothing_is_taken_back(project: Project, chat: Service) -> None:
    merged = project.merge(chat.files("one"))
    # Nor where the time was over before one of its checks ended.
    for tested in ((), (Seen([], problems=("the run took too long",)),)):
        said = project.tell(*tested, environments=("dev",))
        assert said.status == 3
        assert "left no report" in said.text or "took too long" in said.text
        (comment,) = project.comments(merged)
        assert f"🛑 Smoke test not tested: `dev/{chat.name}`" in comment
        assert "left no report" in comment or "took too long" in comment
    assert project.tell(Seen(chat.passing()), environments=("dev", "prod")).status == 0
    project.merge({f"manifests/prod/{chat.name}/inferenceservice.yaml": "kind: InferenceService\n"})
    said = project.tell(Seen(chat.passing()), environments=("dev", "prod"))
    assert said.status == 3
    assert "left no report" in said.text
    assert project.reverts(merged) == []


def test_a_failure_stays_told_where_a_later_run_cannot_be_trusted(project: Project, chat: Service) -> None:
    merged = project.merge(chat.files("one"))
    project.tell(Seen(chat.failing()))
    comments = project.comments(merged)
    assert project.tell(environments=("dev",)).status == 3
    assert project.tell(Seen(chat.failing(), problems=("the run crashed",))).status == 3
    assert project.comments(merged) == comments


def test_a_service_that_passed_after_its_merge_and_fails_later_is_told_in_the_log_alone(
    project: Project, chat: Service
) -> None:
    merged = project.merge(chat.files("one"))
    project.tell(Seen(chat.passing()))
    comments = project.comments(merged)
    said = project.tell(Seen(chat.failing("it is slow today")))
    assert said.status == 1
    assert "it is slow today" in said.text
    assert "not reverted. It passed after pull request" in said.text
    assert project.reverts(merged) == []
    assert project.comments(merged) == comments


def test_a_service_that_recovers_says_so_and_that_its_revert_can_be_closed(project: Project, chat: Service) -> None:
    merged = project.merge(chat.files("one"))
    project.tell(Seen(chat.failing()))
    (revert,) = project.reverts(merged)
    assert project.tell(Seen(chat.passing())).status == 0
    (comment,) = project.comments(merged)
    assert "✅ Smoke test passed" in comment
    assert f"pull request {revert.number}, can be closed" in comment
    project.tell(Seen(chat.failing()))
    assert project.reverts(merged) == [revert]


def test_what_nobody_asked_for_lately_by_a_pull_request_is_told_in_the_log_alone(
    project: Project, chat: Service, other: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.fetch()
    for name in ("GIT_COMMITTER_DATE", "GIT_AUTHOR_DATE"):
        monkeypatch.setenv(name, "2026-01-01T00:00:00Z")
    project.clone.commit(chat.files("one"))
    for name in ("GIT_COMMITTER_DATE", "GIT_AUTHOR_DATE"):
        monkeypatch.delenv(name)
    project.clone.commit(other.files("one"))
    project.push()
    before = len(project.pulls())
    said = project.tell(Seen([*chat.failing(), *other.failing()]))
    assert said.status == 1
    assert f"dev/{chat.name}: not reverted. Its last change" in said.text
    assert re.search(r"is [\d,]+ d( \d+ h)? old", said.text)
    assert f"dev/{other.name}: not reverted. Its last change" in said.text
    assert len(project.pulls()) == before


def test_a_merge_into_an_environment_that_nobody_tests_is_told_so_once(project: Project, chat: Service) -> None:
    project.merge(chat.files("one"))
    elsewhere = f"manifests/prod/{chat.name}/inferenceservice.yaml"
    merged = project.merge({elsewhere: "kind: InferenceService\n"})
    for _ in range(2):
        said = project.tell(Seen(chat.passing()))
        assert said.status == 0, said.text
        assert re.search(r"prod: \d+ services? not tested: the workflow does not cover it", said.text)
    (comment,) = project.comments(merged)
    assert f"⚪ Smoke test not run: `prod/{chat.name}`" in comment
    assert "does not cover the environment prod" in comment
    assert "NEUROSCALE\\_SMOKE\\_ENVIRONMENTS" in comment or "NEUROSCALE_SMOKE_ENVIRONMENTS" in comment
    assert project.reverts(merged) == []
    project.merge({elsewhere: None})


def test_checks_that_the_old_version_passed_are_marked_beside_the_new_one_that_failed(
    project: Project, chat: Service
) -> None:
    project.merge(chat.files("one"))
    merged = project.merge(chat.files("two"))
    told = "failed: the new version has waited for an accelerator for more than 15 min"
    rows = [
        check(chat.name, "ready", "failed", told),
        {**check(chat.name, "chat", message="12 tokens"), "version": "old"},
    ]
    assert project.tell(Seen(rows)).status == 1
    (comment,) = project.comments(merged)
    assert "| ⚠️ | Chat | 1.2 | 12 tokens |" in comment
    assert (
        "**The old version still answers**: 1 check marked ⚠️ passed, but not against the new version alone" in comment
    )
    assert "which has failed" in comment
    (revert,) = project.reverts(merged)
    assert "has waited for an accelerator" in revert.body


def test_without_a_token_of_its_own_it_fails_and_says_which(
    project: Project, chat: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = project.merge(chat.files("one"))
    # The token that every job has does not do.
    monkeypatch.setenv("GITHUB_TOKEN", project.server.owner.secret)
    said = project.tell(Seen(chat.failing()), token="")
    assert said.status == 2
    assert "answers 500" in said.text
    assert "NEUROSCALE_REVERT_TOKEN" in said.text
    assert project.reverts(merged) == []


@pytest.mark.parametrize(
    ("method", "path", "fault"),
    [
        ("POST", r"/pulls$", DropAfter()),
        ("POST", r"/pulls$", StatusAfter(502)),
        ("POST", r"git-receive-pack", DropAfter()),
        ("POST", r"git-receive-pack", DropBefore()),
        ("GET", r"/commits/.*/pull$", Status(500)),
        ("POST", r"/comments$", DropAfter()),
        ("GET", r"/pulls/main/", DropBefore()),
    ],
    ids=[
        "opened and not answered",
        "opened and answered with an error",
        "pushed and not answered",
        "not pushed",
        "not told who merged it",
        "commented and not answered",
        "not told whether it is there",
    ],
)
def test_a_fault_of_the_forge_leaves_one_revert_and_one_comment(
    method: str, path: str, fault: Any, project: Project, chat: Service
) -> None:
    merged = project.merge(chat.files("one"))
    with FaultProxy(project.server.url) as proxy:
        proxy.add(method, path, fault)
        said = project.tell(Seen(chat.failing()), proxy=proxy)
        assert proxy.hits == 1
    if said.status != 1:  # then the next run completes it
        assert project.tell(Seen(chat.failing())).status == 1
    assert len(project.reverts(merged)) == 1
    assert len(project.comments(merged)) == 1


@pytest.mark.parametrize("path", [r"/pulls$", r"/comments$"], ids=["before it was opened", "before it was told"])
def test_what_an_ended_run_left_the_next_one_completes(
    path: str, project: Project, chat: Service, other: Service
) -> None:
    merged = project.merge(chat.files("one"))
    with FaultProxy(project.server.url) as proxy:
        proxy.add("POST", path, Status(422), times=99)
        said = project.tell(Seen(chat.failing()), proxy=proxy)
        assert said.status == 2, said.text
    # Main moves on meanwhile.
    project.merge(other.files("one"))
    assert project.tell(Seen([*chat.failing(), *other.passing()])).status == 1
    (revert,) = project.reverts(merged)
    assert project.files(project.fetch_pull(revert), chat.folder) == {}
    assert revert.url in project.comments(merged)[0]

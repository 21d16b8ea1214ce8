"""Changes of a service without a forge: what update, promote, retire and restore make of it, and what they refuse."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from command_line import Said, commands
from neuroscale.actions.smoke_comments import smoke_tested
from neuroscale.core.errors import InputError
from neuroscale.forge.interface import Comment, PullRequest, RepositoryRef
from neuroscale.forge.request_flow import Change, Desk, Draft, Refused
from neuroscale.forge.rest import Forge
from neuroscale.forge.service_changes import Named, Promoted, Restored, Retired, Updated
from neuroscale.forge.service_pull_request import Base, OpenRequest, Publisher
from neuroscale.forge.token import FILE_VARIABLE, VARIABLE
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.rendering.service_folder import write_service
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.services import find_service, removed_services, services_of
from neuroscale.repo.snapshot import GitSnapshot
from neuroscale.report import change_view
from neuroscale.request.field_changes import FieldChanges, read_changes
from plan_factory import ANSWERS, pull_request_for
from repositories import Repository
from roots import ROOT

FOLDER = "manifests/dev/support-chat"
PULL = PullRequest(7, "https://forge.example.com/pulls/7", "t", "", "open", "me", "me", "b", "0" * 40, "main")
TODAY = datetime.now(UTC).date()
OVERRIDE = ("A load test until the fair.", str(TODAY + timedelta(100)))


class Main(Publisher):
    """A forge's main branch; `open`: the tip of the open pull request of every service, "" without one."""

    def __init__(self, commit: str, tip: str = "") -> None:
        self.commit = commit
        self.tip = tip

    def base(self) -> Base:
        return Base("main", self.commit)

    def open_request(self, base: Base, branch: str, among: Sequence[PullRequest] | None = None) -> OpenRequest | None:
        return OpenRequest(PULL, RepositoryRef("", "me", "x"), self.tip) if self.tip else None


@dataclass
class Clone:
    """A clone of a platform's repository, whose main branch serves dev/support-chat."""

    repository: Repository
    said: list[str] = field(default_factory=list)
    commits: list[str] | None = field(default_factory=list)

    @property
    def head(self) -> str:
        return self.repository.run("rev-parse", "HEAD")

    def desk(self, tip: str = "") -> Desk:
        return Desk(self.repository.git, Main(self.head, tip), self.said.append, newest=self.newest)

    def newest(self, name: str) -> str:
        """The Hub's newest commit of a model, which is another one each time. Raises InputError without a Hub."""
        if self.commits is None:
            raise InputError.at(name, "", "was not looked up: the Hub cannot be reached", "")
        self.commits.append(f"{len(self.commits) + 1}" * 40)
        return self.commits[-1]

    def look(self, change: Change, tip: str = "") -> Draft:
        looked = self.desk(tip).look(change)
        assert not isinstance(looked, Refused), looked.plan.reasons
        return looked[1]

    def named(self, text: str = "support-chat") -> Named:
        return Named(text, self.repository.root)

    def update(self, *given: str, removed: Sequence[str] = (), reason: str = "", until: str = "") -> Updated:
        return Updated(self.named("dev/support-chat"), read_changes(given, removed, reason, until))

    def promote(self, *given: str, to: str = "prod") -> Promoted:
        return Promoted(self.named("dev/support-chat"), to, read_changes(given, (), "", ""), lambda *_: ["It works."])

    def remove(self, folder: str = FOLDER) -> str:
        shutil.rmtree(self.repository.root / folder)
        return self.repository.commit({}, "Retire it")

    def put(self, files: dict[str, str]) -> str:
        return self.repository.commit(dict(files), "Serve it")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Repository(tmp_path_factory.mktemp("changes") / "repository")
    for folder in ("platform/catalog", "templates"):
        shutil.copytree(ROOT / folder, made.root / folder)
    shutil.copyfile(ROOT / "platform/settings.yaml", made.root / "platform/settings.yaml")
    commit = made.commit({}, "platform")
    write_service(pull_request_for(ANSWERS, read_planning_inputs(GitSnapshot(made.git, commit))).files, made.root)
    made.commit({}, "Serve it")
    made.git.close()
    return made.root


@pytest.fixture
def clone(platform: Path, tmp_path: Path) -> Iterator[Clone]:
    shutil.copytree(platform, tmp_path / "clone")
    made = Clone(Repository(tmp_path / "clone"))
    yield made
    made.repository.git.close()


def request_in(draft: Draft, folder: str = FOLDER) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(draft.files[f"{folder}/request.yaml"])
    return found


# update


def test_an_update_changes_the_named_fields_and_keeps_every_other_answer(clone: Clone) -> None:
    draft = clone.look(clone.update("concurrent_users=6", "p95_ttft_seconds=4.5"))
    before = yaml.safe_load((clone.repository.root / FOLDER / "request.yaml").read_text())
    assert request_in(draft) == {**before, "concurrent_users": 6, "p95_ttft_seconds": 4.5}
    assert draft.description.title == "Change dev/support-chat: concurrent_users 6, p95_ttft_seconds 4.5"
    assert draft.subject is not None
    rows = {name: (old, new) for name, old, new in change_view.rows(draft.subject.report)}
    assert rows["Concurrent users"] == ("4", "6")
    assert {"accelerators", "replicas", "memory", "price a month"} <= set(rows)
    assert change_view.merge(draft.subject.report).startswith("A restart with a gap of about ")


def test_an_override_needs_a_reason_and_an_end_which_it_keeps_with_another_value(clone: Clone) -> None:
    with pytest.raises(InputError, match="Add --reason TEXT and --until DATE"):
        clone.look(clone.update("overrides.max_num_seqs=12"))
    reason, until = OVERRIDE
    draft = clone.look(clone.update("overrides.max_num_seqs=12", reason=reason, until=until))
    assert request_in(draft)["overrides"] == [
        {"field": "max_num_seqs", "value": 12, "reason": reason, "expires": until}
    ]
    assert f"Why: {reason}" in draft.message
    tip = clone.put(dict(draft.files))
    clone.repository.run("reset", "--quiet", "--hard", "HEAD^")
    # The open pull request has it, and the next change goes on top.
    draft = clone.look(clone.update("overrides.max_num_seqs=10", "concurrent_users=5"), tip)
    assert request_in(draft)["overrides"][0] == {
        "field": "max_num_seqs",
        "value": 10,
        "reason": reason,
        "expires": until,
    }
    later = clone.put(dict(draft.files))
    end = str(TODAY + timedelta(200))
    draft = clone.look(clone.update("overrides.max_num_seqs=10", until=end))
    assert draft.description.title == f"Change dev/support-chat: overrides.max_num_seqs 10 until {end}"
    assert draft.subject is not None
    assert ("overrides.max_num_seqs", f"10 until {until}", f"10 until {end}") in change_view.rows(draft.subject.report)
    clone.repository.run("reset", "--quiet", "--hard", f"{later}^")
    draft = clone.look(clone.update(removed=["overrides.max_num_seqs"]), tip)
    assert draft.files[f"{FOLDER}/request.yaml"] == (clone.repository.root / FOLDER / "request.yaml").read_text()


def test_the_same_answers_again_leave_mains_files_as_they_are_whatever_the_template_renders_now(clone: Clone) -> None:
    skeleton = "templates/llm-inference-service/skeleton/networkpolicy.yaml"
    clone.put({skeleton: (clone.repository.root / skeleton).read_text() + "# another template\n"})
    draft = clone.look(clone.update("concurrent_users=4"))
    assert draft.files == {
        f"{FOLDER}/{path.name}": path.read_text() for path in (clone.repository.root / FOLDER).iterdir()
    }


@pytest.mark.parametrize(
    ("given", "removed", "words"),
    [
        (
            ["longest_prompt=9"],
            [],
            "--set: 'longest_prompt' is not a field of a service. Did you mean 'longest_prompt_tokens'",
        ),
        (["max_num_seqs=9"], [], "To override the plan, write overrides.max_num_seqs."),
        (["overrides.max_seqs=9"], [], "Did you mean 'overrides.max_num_seqs'"),
        (["concurrent_users"], [], "has no value. Write FIELD=VALUE."),
        (["concurrent_users=5", "concurrent_users=6"], [], "concurrent_users: is named twice"),
        ([], ["model"], "model: cannot be left out. Give another value: --set model=..."),
        (["concurrent_users=many"], [], "concurrent_users: "),
        (["model=google/gemma-4-26B"], [], "is not a model of the catalog. Did you mean "),
        (["environment=prod"], [], "neuroscale promote dev/support-chat --to prod); when it answers"),
        (
            ["team=team-beta"],
            [],
            "Two steps: ask for one of another name there (neuroscale request --interactive); when",
        ),
        (["service=other"], [], "it is another service, and not a change of it"),
    ],
)
def test_what_no_update_can_be_is_refused_in_words(
    clone: Clone, given: list[str], removed: list[str], words: str
) -> None:
    with pytest.raises(InputError) as refused:
        clone.look(clone.update(*given, removed=removed))
    assert words in str(refused.value)
    assert str(refused.value).startswith("the command line: ")


def test_what_cannot_be_served_is_refused_with_what_would_work(clone: Clone) -> None:
    refused = clone.desk().look(clone.update("longest_prompt_tokens=1000000"))
    assert isinstance(refused, Refused)
    assert refused.plan.alternatives


def test_a_service_that_main_lacks_is_named_with_those_near_it_and_a_clone_is_told_that_it_is_behind(
    clone: Clone,
) -> None:
    with pytest.raises(
        InputError, match=r"'suport-chat' is not a service of main on the forge\. Did you mean 'support-"
    ):
        clone.look(Updated(clone.named("suport-chat"), FieldChanges({"concurrent_users": 5})))
    with pytest.raises(InputError, match="'suport-chat' is not a service of main on the forge, nor was it one"):
        clone.look(Restored(clone.named("suport-chat"), anew=False, reason=""))
    main = clone.desk()
    clone.put({f"{FOLDER}/request.yaml": "changed: here\n"})
    main.look(clone.update("concurrent_users=6"))
    assert clone.said == [f"This clone's {FOLDER} is not that of main on the forge, which counts here"]
    only_here = replace_service(clone, "mine")
    clone.repository.run("reset", "--quiet", "--hard", "HEAD~2")
    write_service(only_here, clone.repository.root)
    with pytest.raises(InputError, match="'mine' is in this clone, and not on main"):
        clone.look(Updated(clone.named("mine"), FieldChanges({"concurrent_users": 5})))


def replace_service(clone: Clone, name: str) -> dict[str, str]:
    """The files of another service, committed."""
    clone.repository.run("checkout", "--quiet", "HEAD^", "--", FOLDER)
    inputs = read_planning_inputs(GitSnapshot(clone.repository.git, clone.head))
    files = dict(pull_request_for({**ANSWERS, "service": name}, inputs).files)
    clone.put(files)
    return files


# retire and restore


def test_a_retired_service_comes_back_to_the_byte_and_retiring_it_again_is_nothing(clone: Clone) -> None:
    there = {path.name: path.read_text() for path in (clone.repository.root / FOLDER).iterdir()}
    retire = Retired(clone.named(), lambda *_: ["It saves much."])
    draft = clone.look(retire)
    assert draft.files == {}
    assert draft.message == "Retire dev/support-chat\n\nIt saves much."
    changed = clone.put(dict(clone.look(clone.update("concurrent_users=6")).files))
    clone.repository.run("reset", "--quiet", "--hard", "HEAD^")
    assert draft.notes == ()
    assert clone.look(retire, changed).notes == (
        f"{PULL.url} asked for a change of it, which is dropped: it removes it now.",
    )
    tip = clone.remove()
    assert clone.look(retire).files == {}
    draft = clone.look(Restored(clone.named(), anew=False, reason="It was needed."))
    assert {path.rpartition("/")[2]: text for path, text in draft.files.items()} == there
    assert f"before {tip[:12]} removed it on " in draft.message
    assert draft.message.endswith("Why: It was needed.")
    clone.put(dict(draft.files))
    assert clone.look(Restored(clone.named(), anew=True, reason="")).files == draft.files


def test_an_open_removal_is_not_changed_by_an_update(clone: Clone) -> None:
    tip = clone.remove()
    clone.repository.run("reset", "--quiet", "--hard", "HEAD^")
    with pytest.raises(InputError, match=r"removes manifests/dev/support-chat\. Close it first"):
        clone.look(clone.update("concurrent_users=6"), tip)


def test_an_update_builds_on_no_pull_request_that_would_undo_what_main_changed_since(clone: Clone) -> None:
    began = clone.head
    theirs = clone.put(dict(clone.look(clone.update("longest_prompt_tokens=1024")).files))
    clone.repository.run("checkout", "-q", "--detach", began)
    ours = clone.put(dict(clone.look(clone.update("concurrent_users=8")).files))
    with pytest.raises(InputError, match="which main changed since it began"):
        clone.look(clone.update("p95_ttft_seconds=3"), theirs)
    # A branch that main has merged says nothing of its own.
    assert request_in(clone.look(clone.update("p95_ttft_seconds=3"), began))["concurrent_users"] == 8
    assert clone.head == ours


def test_a_folder_that_holds_a_link_does_not_come_back_as_text(clone: Clone) -> None:
    (clone.repository.root / FOLDER / "inferenceservice.yaml").unlink()
    (clone.repository.root / FOLDER / "inferenceservice.yaml").symlink_to("request.yaml")
    clone.repository.commit({}, "Link it")
    clone.remove()
    with pytest.raises(InputError, match="no plain file but of kind symlink"):
        clone.look(Restored(clone.named("dev/support-chat"), anew=False, reason=""))


def test_the_commit_that_removed_a_service_is_found_behind_a_merge(clone: Clone) -> None:
    clone.repository.run("switch", "--quiet", "--create", "retire")
    clone.remove()
    clone.repository.run("switch", "--quiet", "main")
    clone.put({"README.md": "more\n"})
    clone.repository.run("merge", "--quiet", "--no-ff", "--message=Merge", "retire")
    assert removed_services(clone.repository.git, clone.head) == {ServicePath("dev", "support-chat"): clone.head}


def test_a_service_in_two_environments_is_not_guessed(clone: Clone) -> None:
    both = [ServicePath("dev", "chat"), ServicePath("prod", "chat")]
    with pytest.raises(InputError, match="'chat' is in manifests/dev/chat, manifests/prod/chat"):
        find_service("chat", both)
    assert find_service("manifests/prod/chat/", both) == both[1]
    assert services_of(GitSnapshot(clone.repository.git, clone.head)) == (ServicePath("dev", "support-chat"),)


@pytest.mark.parametrize(
    ("reason", "days", "words"),
    [
        (OVERRIDE[0], -1, "overrides.max_num_seqs: expired on .* [(]--until[)]"),
        (OVERRIDE[0], 5000, "ends on .*, and may last 366 days at most"),
        ("Test", 5, "has the reason 'Test', which says nothing [(]--reason[)]"),
    ],
)
def test_an_override_that_the_gate_would_refuse_is_refused_before_anything_is_shown(
    clone: Clone, reason: str, days: int, words: str
) -> None:
    until = str(TODAY + timedelta(days))
    with pytest.raises(InputError, match=words):
        clone.look(clone.update("overrides.max_num_seqs=12", reason=reason, until=until))


@pytest.mark.parametrize(
    ("unfinished", "told"),
    [
        (True, "A gap of about "),
        (False, "Nothing: the running pods stay as they are."),
        (None, "Nothing while the newest version runs. While the newest version waits or loads, "),
    ],
)
def test_the_way_out_of_a_rollout_that_waits_says_on_every_face_what_it_ends(
    clone: Clone, unfinished: bool | None, told: str
) -> None:
    reason, until = OVERRIDE
    clone.put(dict(clone.look(clone.update("overrides.rollout=surge", reason=reason, until=until)).files))
    asked: list[ServicePath] = []

    def ask(path: ServicePath) -> bool | None:
        asked.append(path)
        return unfinished

    changes = read_changes(["overrides.rollout=replace"], (), reason, until)
    draft = clone.look(Updated(clone.named(), changes, ask))
    assert asked == [ServicePath("dev", "support-chat")]
    assert draft.subject is not None
    assert change_view.merge(draft.subject.report).startswith(told)
    assert f"**The merge** {told}" in "\n".join(draft.description.parts)
    # Where the merge does the same to every state of the cluster, nobody asks it.
    clone.look(Updated(clone.named(), read_changes(["concurrent_users=6"], (), "", ""), ask))
    assert len(asked) == 1


# promote


def test_a_promotion_carries_answers_and_tells_every_difference(clone: Clone) -> None:
    reason, until = OVERRIDE
    clone.put(dict(clone.look(clone.update("overrides.max_num_seqs=12", reason=reason, until=until)).files))
    draft = clone.look(clone.promote("availability=high"))
    asked = request_in(draft, "manifests/prod/support-chat")
    assert (asked["environment"], asked["availability"], asked["concurrent_users"]) == ("prod", "high", 4)
    assert asked["overrides"] == []
    assert "Not carried, since it was reviewed for dev alone: the override of max_num_seqs with 12." in draft.notes[0]
    for line in ("Promoted from dev/support-chat.", "It works.", "replicas: 1 in dev, 2 in prod"):
        assert line in draft.message.split("\n\n")
    clone.put(dict(draft.files))
    assert clone.look(clone.promote("availability=high")).files == draft.files


OF_THE_HUB = ("model=Qwen/Qwen3-0.6B", "p95_ttft_seconds=10")
PROMOTED = "manifests/prod/support-chat"


def test_a_promotion_takes_the_newest_commit_of_a_model_once_and_a_change_keeps_it(clone: Clone) -> None:
    clone.put(dict(clone.look(clone.update(*OF_THE_HUB)).files))
    assert clone.commits == []  # dev demands none
    draft = clone.look(clone.promote("availability=high"))
    assert clone.commits == ["1" * 40]
    assert request_in(draft, PROMOTED)["model_revision"] == "1" * 40
    assert f"--revision={'1' * 40}" in draft.files[f"{PROMOTED}/inferenceservice.yaml"]
    assert "the service takes the newest one, 111111111111" in draft.notes[-1]
    clone.put(dict(draft.files))
    assert clone.look(clone.promote("availability=high")).files == draft.files
    more = Updated(clone.named("prod/support-chat"), read_changes(["concurrent_users=5"], (), "", ""))
    assert request_in(clone.look(more), PROMOTED)["model_revision"] == "1" * 40
    other = Updated(clone.named("prod/support-chat"), read_changes(["model=Qwen/Qwen3-4B"], (), "", ""))
    newer = Updated(clone.named("prod/support-chat"), read_changes((), ["model_revision"], "", ""))
    revisions = [request_in(clone.look(change), PROMOTED)["model_revision"] for change in (other, newer)]
    assert revisions == ["2" * 40, "3" * 40]


def test_a_promotion_without_the_hub_says_what_to_run_where_it_can_be_reached(clone: Clone) -> None:
    clone.commits = None
    clone.put(dict(clone.look(clone.update(*OF_THE_HUB)).files))
    draft = clone.look(clone.promote("availability=high"))
    assert "model_revision" not in request_in(draft, PROMOTED)
    assert "Run `neuroscale catalog add Qwen/Qwen3-0.6B` where the Hub can be reached" in draft.notes[-1]


def test_a_promotion_never_changes_the_team_of_a_service_or_a_removal_that_is_open(clone: Clone) -> None:
    clone.put(dict(clone.look(clone.promote("availability=high")).files))
    path = clone.repository.root / "manifests/prod/support-chat/request.yaml"
    text = path.read_text()
    clone.put({str(path.relative_to(clone.repository.root)): text.replace("team-alpha", "team-beta")})
    with pytest.raises(InputError, match="belongs to team-beta, and the service that is promoted to team-alpha"):
        clone.look(clone.promote("availability=high"))
    clone.repository.run("reset", "--quiet", "--hard", "HEAD^")
    tip = clone.remove("manifests/prod/support-chat")
    clone.repository.run("reset", "--quiet", "--hard", "HEAD^")
    with pytest.raises(InputError, match=r"removes manifests/prod/support-chat\. Close it first"):
        clone.look(clone.promote("concurrent_users=5"), tip)


@pytest.mark.parametrize(("to", "words"), [("prd", "Did you mean 'prod'"), ("dev", "support-chat is in dev already")])
def test_a_promotion_to_nowhere_is_refused(clone: Clone, to: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        clone.look(clone.promote(to=to))


class SmokeForge:
    """A forge whose main came by the pull request 3 of `me`, with these comments: `AUTHOR: TEXT`."""

    def __init__(self, comments: Sequence[str]) -> None:
        self._comments = comments

    def merged_pull(self, sha: str, base_branch: str) -> PullRequest | None:
        return replace(PULL, number=3, state="merged")

    def comments(self, number: int) -> list[Comment]:
        parts = [text.partition(": ") for text in self._comments]
        return [Comment(index, author, text) for index, (author, _, text) in enumerate(parts)]


def smoke_comment(author: str, outcome: str) -> str:
    record = f'{{"services":{{"dev/support-chat":["{outcome}"]}},"revert":0}}'
    return f"{author}: <!-- neuroscale-smoke -->\n<!-- run -->\n<!-- neuroscale-smoke-record {record} -->\n## done"


@pytest.mark.parametrize(
    ("comments", "words"),
    [
        ([smoke_comment("Smoke-Bot", "passed")], ""),
        ([smoke_comment("smoke-bot", "failed")], "says of its smoke test: failed"),
        ([smoke_comment("smoke-bot", "passed"), smoke_comment("smoke-bot", "waiting")], "of its smoke test: waiting"),
        # Anybody may comment: the author, and a third account. The workflow may not cover the environment at all.
        ([smoke_comment("me", "passed")], "has no comment of the smoke tests' account smoke-bot on it"),
        ([smoke_comment("friend", "passed")], "has no comment of the smoke tests' account smoke-bot on it"),
        ([smoke_comment("smoke-bot", "uncovered"), smoke_comment("friend", "passed")], "smoke test: uncovered"),
        ([smoke_comment("smoke-bot", "passed"), smoke_comment("friend", "failed")], ""),
        (["smoke-bot: It passed, believe me."], "has no comment of the smoke tests' account"),
    ],
)
def test_a_service_counts_as_tested_only_by_a_comment_of_the_workflows_account(
    clone: Clone, comments: list[str], words: str
) -> None:
    forge, path = cast("Forge", SmokeForge(comments)), ServicePath("dev", "support-chat")
    tested = smoke_tested(forge, clone.desk().main(), path, "smoke-bot")
    assert tested.passed is (words == "")
    assert words in tested.sentence


def test_the_workflows_account_counts_where_it_opened_the_pull_request_itself(clone: Clone) -> None:
    forge = cast("Forge", SmokeForge([smoke_comment("me", "passed")]))
    assert smoke_tested(forge, clone.desk().main(), ServicePath("dev", "support-chat"), "me").passed


def test_no_comment_counts_where_the_settings_name_no_account(clone: Clone) -> None:
    forge = cast("Forge", SmokeForge([smoke_comment("", "passed")]))
    tested = smoke_tested(forge, clone.desk().main(), ServicePath("dev", "support-chat"), "")
    assert not tested.passed
    assert "platform/settings.yaml names no account of the smoke workflow (repository.smoke_account)" in tested.sentence


# a dry run without a token


@pytest.fixture
def tokenless(
    clone: Clone, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """Runs commands in a clone of `clone`, on a branch of its own."""
    for name in (VARIABLE, FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    mine = Repository(tmp_path / "mine")
    mine.run("remote", "add", "origin", str(clone.repository.root))
    mine.run("fetch", "--quiet", "origin")
    mine.run("checkout", "--quiet", "-b", "work", "origin/main")
    mine.git.close()
    monkeypatch.chdir(mine.root)
    return commands(capsys, monkeypatch)


def test_without_a_token_a_dry_run_looks_at_the_clone_and_says_so(clone: Clone, tokenless: Callable[..., Said]) -> None:
    update = ("update", "support-chat", "--set", "concurrent_users=6", "--dry-run")
    shown = tokenless(*update)
    assert (shown.status, "Concurrent users" in shown.out) == (0, True), shown.err
    assert "No token of the forge is named, so this looks at main as this clone has it" in shown.out
    # The origin's main is newer than what was fetched last.
    files = {f"{FOLDER}/request.yaml": yaml.safe_dump({**ANSWERS, "concurrent_users": 5})}
    head = clone.put(files)
    told = tokenless(*update, "--json").json
    assert (told["outcome"], told["base_commit"], told["changes"][0]["before"]) == ("dry_run", head, "5")
    assert told["notes"][0].startswith("No token of the forge is named")


def test_without_a_token_nothing_is_opened_and_the_forge_is_not_guessed(tokenless: Callable[..., Said]) -> None:
    update = ("update", "support-chat", "--set", "concurrent_users=6")
    promote = ("promote", "dev/support-chat", "--to", "prod", "--dry-run")
    for words in (update, promote, (*update, "--dry-run", "--token-file", "nowhere")):
        refused = tokenless(*words)
        assert (refused.status, "token" in refused.err) == (2, True), refused
    missing = tokenless("update", "nobody", "--set", "concurrent_users=6", "--dry-run")
    assert (missing.status, "on the forge" in missing.err) == (2, False)
    retired = tokenless("retire", "support-chat", "--dry-run")
    assert (retired.status, "No token of the forge is named" in retired.out) == (0, True), retired.err

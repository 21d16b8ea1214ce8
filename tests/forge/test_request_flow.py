"""The change stage without a forge: what it refuses before it asks one, and what it makes of answers and a base."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core.errors import InputError
from neuroscale.forge.branches import BranchMovedError
from neuroscale.forge.interface import Account, ForgeError, PullRequest, RepositoryInfo, RepositoryRef
from neuroscale.forge.request_flow import Desk, Outcome, Refused
from neuroscale.forge.request_flow import Main as MainBranch
from neuroscale.forge.service_changes import Requested
from neuroscale.forge.service_pull_request import Base, OpenRequest, Publisher
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.rendering.scaffolder.plan_step import FORM
from neuroscale.rendering.service_folder import write_service
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.snapshot import GitSnapshot
from neuroscale.request.service_request import Request
from plan_factory import ANSWERS, make_request, pull_request_for
from repositories import Repository
from roots import ROOT

UNSERVABLE = {"longest_prompt_tokens": 1_000_000}


class Main(Publisher):
    """A forge's main branch, and no pull request. `looks`: how often it was asked for pull requests."""

    def __init__(self, commit: str, moves: int = 0) -> None:
        self.commit = commit
        self.moves = moves
        self.looks = 0

    def base(self) -> Base:
        return Base("main", self.commit)

    def open_request(self, base: Base, branch: str, among: Sequence[PullRequest] | None = None) -> OpenRequest | None:
        self.looks += 1
        if self.looks <= self.moves:
            raise BranchMovedError(f"The branch {branch} moved.")
        return None


@dataclass
class Flow:
    """The stage on a clone of a platform's repository."""

    clone: Repository
    said: list[str] = field(default_factory=list)
    asked: int = 0

    def publisher(self, moves: int = 0) -> Main:
        return Main(self.clone.run("rev-parse", "HEAD"), moves)

    def run(self, publisher: Publisher, **changes: Any) -> Refused | Outcome:
        def answers(main: MainBranch) -> Request:
            assert main.inputs.catalog.models
            self.asked += 1
            return make_request(**{**ANSWERS, **changes})

        return Desk(self.clone.git, publisher, self.said.append).propose(Requested(answers))


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[Flow]:
    made = Repository(tmp_path / "clone")
    for folder in ("platform/catalog", "templates"):
        shutil.copytree(ROOT / folder, made.root / folder)
    shutil.copyfile(ROOT / "platform/settings.yaml", made.root / "platform/settings.yaml")
    made.commit({}, "platform")
    yield Flow(made)
    made.git.close()


@pytest.mark.parametrize("field_name", ["model", "team", "environment"])
def test_what_the_platform_lacks_is_refused_before_the_forge_is_asked_for_pull_requests(
    flow: Flow, field_name: str
) -> None:
    publisher = flow.publisher()
    with pytest.raises(InputError) as refused:
        flow.run(publisher, **{field_name: "nobody-knows-it"})
    (problem,) = refused.value.problems
    assert (problem.where, problem.field) == (FORM, field_name)
    assert "'nobody-knows-it' is not " in problem.message
    assert publisher.looks == 0


def test_it_is_the_forges_main_branch_that_decides_and_not_what_the_clone_has_checked_out(flow: Flow) -> None:
    publisher = flow.publisher()
    flow.clone.commit({"platform/settings.yaml": "nothing: at all\n"}, "An edit that nobody has seen")
    assert isinstance(flow.run(publisher, **UNSERVABLE), Refused)
    assert publisher.looks == 1


def test_a_refused_plan_is_an_outcome_with_its_numbers(flow: Flow) -> None:
    outcome = flow.run(flow.publisher(), **UNSERVABLE)
    assert isinstance(outcome, Refused)
    assert outcome.plan.verdict == "refused"
    assert outcome.plan.reasons


def test_what_main_serves_already_needs_no_pull_request(flow: Flow) -> None:
    inputs = read_planning_inputs(GitSnapshot(flow.clone.git, flow.clone.run("rev-parse", "HEAD")))
    write_service(pull_request_for(ANSWERS, inputs).files, flow.clone.root)
    flow.clone.commit({}, "Serve it")
    outcome = flow.run(flow.publisher())
    assert outcome == Outcome(
        "neuroscale/dev/support-chat", Base("main", flow.publisher().commit), ServicePath("dev", "support-chat")
    )


def test_the_answers_are_asked_for_once_however_often_somebody_came_first(flow: Flow) -> None:
    publisher = flow.publisher(moves=3)
    outcome = flow.run(publisher, **UNSERVABLE)
    assert isinstance(outcome, Refused)
    assert (flow.asked, publisher.looks) == (1, 4)
    assert flow.said == ["The branch neuroscale/dev/support-chat moved. Looking again"] * 3


def test_a_branch_that_moves_all_the_time_is_given_up(flow: Flow) -> None:
    publisher = flow.publisher(moves=100)
    with pytest.raises(ForgeError, match="keeps changing"):
        flow.run(publisher)
    assert publisher.looks == 5


# whose pull request is open


class Listed:
    """A forge and its branches with these open pull requests, seen by `login`, who may push or not."""

    repository = RepositoryRef("https://forge.example.com", "team", "platform")

    def __init__(self, login: str, *, may_push: bool, pulls: Sequence[PullRequest]) -> None:
        self._account = Account(login, login, login)
        self._info = RepositoryInfo(self.repository, "main", may_push)
        self._pulls = pulls

    def account(self) -> Account:
        return self._account

    def info(self) -> RepositoryInfo:
        return self._info

    def fork(self) -> RepositoryInfo:
        return replace(self._info, ref=replace(self.repository, owner=self._account.login))

    def open_pulls(self, base_branch: str) -> list[PullRequest]:
        return list(self._pulls)

    def fetch(self, repository: RepositoryRef, branch: str) -> str:
        return f"tip of {repository.owner}"


def opened(number: int, author: str, owner: str, branch: str = "neuroscale/dev/chat") -> PullRequest:
    return PullRequest(number, f"https://x/{number}", "t", "", "open", author, owner, branch, "", "main")


@pytest.mark.parametrize(
    ("login", "may_push", "pulls", "expected"),
    [
        ("me", False, [], None),
        ("me", False, [opened(1, "her", "her", "neuroscale/dev/other")], None),
        ("me", False, [opened(1, "me", "me")], 1),
        ("me", False, [opened(1, "portal", "me")], 1),
        ("me", True, [opened(1, "me", "team")], 1),
        ("github-actions[bot]", True, [opened(1, "upgrades[bot]", "team")], 1),
        ("me", True, [opened(1, "", "team")], 1),
        ("me", True, [opened(1, "her", "team")], "https://x/1: asks for a change of it already, and her opened it"),
        ("me", False, [opened(1, "me", "team")], "https://x/1: "),
        ("me", False, [opened(1, "me", "me"), opened(2, "her", "her")], "https://x/2: "),
        ("me", True, [opened(1, "her", "")], "and her opened it. Have it merged or closed first"),
    ],
)
def test_a_pull_request_of_somebody_else_is_named_and_left_alone(
    login: str, may_push: bool, pulls: list[PullRequest], expected: int | str | None
) -> None:
    listed: Any = Listed(login, may_push=may_push, pulls=pulls)
    publisher = Publisher(listed, listed)
    base = Base("main", "0" * 40)
    if isinstance(expected, str):
        with pytest.raises(InputError) as refused:
            publisher.open_request(base, "neuroscale/dev/chat")
        assert expected in str(refused.value)
        return
    there = publisher.open_request(base, "neuroscale/dev/chat")
    assert (there and there.pull.number) == expected

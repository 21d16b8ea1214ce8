"""The change stage without a forge: what it refuses before it asks one, and what it makes of answers and a base."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core.errors import InputError
from neuroscale.forge.branches import BranchMovedError
from neuroscale.forge.interface import ForgeError, PullRequest
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

UNSERVABLE = {"longest_prompt_tokens": 1_000_000}
ROOT = Path(__file__).resolve().parents[2]


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

        return Desk(self.clone.git, publisher, self.said.append).bring(Requested(answers))


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

"""The one issue that a workflow keeps, on real forges."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forge_lab import KINDS, Lab, forge_of, lab_for
from neuroscale.forge.interface import ForgeError, RepositoryRef
from neuroscale.forge.rest import Forge
from neuroscale.forge.sticky_comment import LONGEST, keep_issue

MARKER = "<!-- neuroscale-test -->"
TITLE = "Something differs"


@pytest.fixture(scope="module", params=KINDS)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    yield from lab_for(request)


@pytest.fixture
def repository(lab: Lab) -> RepositoryRef:
    return lab.repository()


@pytest.fixture
def forge(lab: Lab, repository: RepositoryRef) -> Forge:
    return forge_of(lab, "owner", repository)


def titles(forge: Forge) -> list[str]:
    return [issue.title for issue in forge.open_issues()]


def test_an_issue_is_opened_once_written_in_place_and_closed_when_there_is_nothing_to_say(forge: Forge) -> None:
    assert keep_issue(forge, MARKER, TITLE, None).outcome == "nothing to say"
    opened = keep_issue(forge, MARKER, TITLE, "by $5")
    assert opened.outcome == "opened"
    assert keep_issue(forge, MARKER, TITLE, "by $5").outcome == "unchanged"
    updated = keep_issue(forge, MARKER, f"{TITLE} more", "by $9")
    assert updated.outcome == "updated"
    assert opened.issue is not None
    assert updated.issue is not None
    assert updated.issue.number == opened.issue.number
    assert [(issue.title, "by $9" in issue.body) for issue in forge.open_issues()] == [(f"{TITLE} more", True)]
    assert keep_issue(forge, MARKER, TITLE, None).outcome == "closed"
    assert keep_issue(forge, MARKER, TITLE, None).outcome == "nothing to say"
    assert titles(forge) == []


def test_others_issues_stay_as_they_are_and_surplus_ones_are_closed(
    lab: Lab, repository: RepositoryRef, forge: Forge
) -> None:
    other = forge_of(lab, "developer", repository)
    other.create_issue("Mine", f"{MARKER}\nwritten by somebody else")
    forge.create_issue("By hand", f"It quotes {MARKER}")
    first = forge.create_issue("old", f"{MARKER}\nold")
    forge.create_issue("twice", f"{MARKER}\ntwice")
    kept = keep_issue(forge, MARKER, TITLE, "new")
    assert kept.issue is not None
    assert (kept.outcome, kept.issue.number) == ("updated", first.number)
    assert titles(forge) == ["Mine", "By hand", TITLE]
    keep_issue(forge, MARKER, TITLE, None)
    assert titles(forge) == ["Mine", "By hand"]


def test_a_pull_request_is_not_an_issue(lab: Lab, repository: RepositoryRef, forge: Forge) -> None:
    fork = forge_of(lab, "developer", repository).fork().ref
    lab.commit("developer", fork, "work")
    forge_of(lab, "developer", repository).open_pull("Serve it", MARKER, fork, "work", "main")
    assert titles(forge) == []


def test_a_text_that_no_forge_takes_is_refused_before_anything_is_written(forge: Forge) -> None:
    with pytest.raises(ForgeError, match="65,536 are allowed"):
        keep_issue(forge, MARKER, TITLE, "x" * LONGEST)
    assert titles(forge) == []

"""The gate's one comment on a pull request."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from fault_proxy import DropAfter, FaultProxy, Hold, Twice
from forge_lab import KINDS, Lab, Person, forge_of, lab_for
from neuroscale.forge.interface import ForgeError, RepositoryRef
from neuroscale.forge.rest import Forge
from neuroscale.forge.sticky_comment import LONGEST, Run, write_comment
from neuroscale.report.markdown import MARKER


@dataclass
class Pull:
    """A pull request of the developer's; `owner` is who the gate comments as."""

    lab: Lab
    repository: RepositoryRef
    fork: RepositoryRef
    branch: str
    number: int
    sha: str

    def forge(self, who: Person = "owner", server: str | None = None) -> Forge:
        return forge_of(self.lab, who, self.repository, server)

    def run(self, number: int = 1, attempt: int = 1) -> Run:
        return Run(number, attempt, self.sha)

    def publish(self, text: str, run: Run | None = None, who: Person = "owner") -> str:
        return write_comment(self.forge(who), self.number, f"{MARKER}\n{text}\n", run or self.run())

    def push(self) -> str:
        """A newer commit on its branch."""
        return self.lab.commit("developer", self.fork, self.branch)

    def texts(self) -> list[str]:
        """The comments without the markers."""
        return [
            "\n".join(line for line in body.split("\n") if not line.startswith("<!-- neuroscale-")).strip()
            for body in self.lab.comments(self.repository, self.number)
        ]


@pytest.fixture(scope="module", params=KINDS)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    yield from lab_for(request)


@pytest.fixture(scope="module")
def repositories(lab: Lab) -> tuple[RepositoryRef, RepositoryRef]:
    repository = lab.repository()
    return repository, forge_of(lab, "developer", repository).fork().ref


@pytest.fixture
def pull(lab: Lab, repositories: tuple[RepositoryRef, RepositoryRef]) -> Pull:
    repository, fork = repositories
    branch = f"neuroscale/dev/{secrets.token_hex(4)}"
    sha = lab.commit("developer", fork, branch)
    number = forge_of(lab, "developer", repository).open_pull("Serve it", "", fork, branch, "main").number
    return Pull(lab, repository, fork, branch, number, sha)


def test_a_comment_is_made_once_changed_in_place_and_left_alone_when_it_is_right(pull: Pull) -> None:
    with FaultProxy(pull.lab.url) as proxy:
        forge = pull.forge(server=proxy.url)
        made = write_comment(forge, pull.number, f"{MARKER}\n## ❌ Red", pull.run(1))
        assert (made, pull.texts()) == ("created", ["## ❌ Red"])
        changed = write_comment(forge, pull.number, f"{MARKER}\n## ✅ Green", pull.run(2))
        assert (changed, pull.texts()) == ("updated", ["## ✅ Green"])
        written = len(proxy.made("PATCH", ".")) + len(proxy.made("POST", "."))
        assert write_comment(forge, pull.number, f"{MARKER}\n## ✅ Green", pull.run(2)) == "unchanged"
        assert written == len(proxy.made("PATCH", ".")) + len(proxy.made("POST", ".")) == 2
        assert proxy.made("DELETE", ".") == []


def test_the_marker_stays_the_first_line_and_the_run_is_hidden_in_the_second(pull: Pull) -> None:
    pull.publish("## Green", pull.run(12, 3))
    lines = pull.lab.comments(pull.repository, pull.number)[0].split("\n")
    assert lines[:3] == [MARKER, f"<!-- neuroscale-run number=12 attempt=3 head={pull.sha} -->", "## Green"]


@pytest.mark.parametrize(
    ("older", "newer"), [((1, 1), (2, 1)), ((3, 1), (3, 2)), ((9, 9), (10, 1)), ((99, 1), (100, 1))]
)
def test_an_older_run_never_overwrites_a_newer_one(pull: Pull, older: tuple[int, int], newer: tuple[int, int]) -> None:
    assert pull.publish("newer", pull.run(*newer)) == "created"
    assert pull.publish("older", pull.run(*older)) == "a newer run has written it"
    assert pull.texts() == ["newer"]
    assert pull.publish("newer, repeated", pull.run(*newer)) == "updated"


def test_nothing_is_written_about_a_commit_that_is_no_longer_the_head(pull: Pull) -> None:
    pull.publish("about the first commit", pull.run(1))
    head = pull.push()
    assert pull.publish("late", pull.run(7)) == "a newer commit is there"
    assert pull.texts() == ["about the first commit"]
    # A run of the new head replaces it whatever its number is.
    assert pull.publish("about the second commit", Run(1, 1, head)) == "updated"
    assert pull.texts() == ["about the second commit"]


def test_somebody_elses_comment_with_the_marker_is_never_adopted(pull: Pull) -> None:
    forged = f"{MARKER}\n{pull.run(999).marker}\n## ✅ Everything is fine"
    pull.forge("developer").create_comment(pull.number, forged)
    assert pull.publish("## ❌ Red") == "created"
    assert pull.texts() == ["## ✅ Everything is fine", "## ❌ Red"]
    assert pull.publish("## ❌ Still red") == "updated"
    assert pull.texts() == ["## ✅ Everything is fine", "## ❌ Still red"]


def test_what_the_account_wrote_otherwise_is_left_alone(pull: Pull) -> None:
    pull.forge().create_comment(pull.number, f"I quote: {MARKER}")
    assert pull.publish("## Green") == "created"
    assert pull.texts() == [f"I quote: {MARKER}", "## Green"]


def test_a_run_that_the_report_only_mentions_does_not_count(pull: Pull) -> None:
    pull.publish(f"first\n{pull.run(999).marker}")
    assert pull.publish("second", pull.run(2)) == "updated"
    assert pull.texts() == ["second"]


def test_duplicates_become_the_oldest_with_the_newest_text(pull: Pull) -> None:
    forge = pull.forge()
    first = forge.create_comment(pull.number, f"{MARKER}\n{pull.run(1).marker}\nfirst")
    forge.create_comment(pull.number, f"{MARKER}\n{pull.run(5).marker}\nfifth")
    forge.create_comment(pull.number, f"{MARKER}\nwithout a run")
    published = write_comment(forge, pull.number, "third", pull.run(3))
    assert published == "a newer run has written it"
    assert [one.id for one in forge.comments(pull.number)] == [first.id]
    assert pull.texts() == ["fifth"]


def test_a_comment_whose_making_was_not_answered_is_found_again(pull: Pull) -> None:
    with FaultProxy(pull.lab.url) as proxy:
        proxy.add("POST", "/comments$", DropAfter())
        write_comment(pull.forge(server=proxy.url), pull.number, "## Green", pull.run())
        assert len(proxy.made("POST", "/comments$")) == 1
    assert pull.texts() == ["## Green"]


def test_a_comment_that_was_made_twice_becomes_one(pull: Pull) -> None:
    with FaultProxy(pull.lab.url) as proxy:
        proxy.add("POST", "/comments$", Twice())
        write_comment(pull.forge(server=proxy.url), pull.number, "## Green", pull.run())
    assert pull.texts() == ["## Green"]


def test_a_comment_that_is_removed_meanwhile_is_made_anew(pull: Pull) -> None:
    pull.publish("old")
    with FaultProxy(pull.lab.url) as proxy:
        hold = Hold(after=False)
        proxy.add("PATCH", "/comments/", hold)
        ended = in_thread(lambda: write_comment(pull.forge(server=proxy.url), pull.number, "new", pull.run(2)))
        assert hold.reached.wait(30)
        pull.forge().delete_comment(pull.forge().comments(pull.number)[0].id)
        hold.release.set()
        assert ended() == "created"
    assert pull.texts() == ["new"]


@pytest.mark.parametrize("slow", [1, 2], ids=["the older run is slow", "the newer run is slow"])
def test_two_runs_that_both_find_no_comment_leave_one_with_the_newer_text(pull: Pull, slow: int) -> None:
    with FaultProxy(pull.lab.url) as proxy:
        hold = Hold(after=False)
        proxy.add("POST", "/comments$", hold)
        ended = in_thread(
            lambda: write_comment(pull.forge(server=proxy.url), pull.number, f"run {slow}", pull.run(slow))
        )
        assert hold.reached.wait(30)
        assert pull.publish(f"run {3 - slow}", pull.run(3 - slow)) == "created"
        hold.release.set()
        ended()
    assert pull.texts() == ["run 2"]


def test_a_commit_that_comes_while_a_slow_run_writes_gets_its_own_comment_last(pull: Pull) -> None:
    with FaultProxy(pull.lab.url) as proxy:
        hold = Hold(after=False)
        proxy.add("POST", "/comments$", hold)
        ended = in_thread(lambda: write_comment(pull.forge(server=proxy.url), pull.number, "old", pull.run(1)))
        assert hold.reached.wait(30)
        head = pull.push()
        hold.release.set()
        assert ended() == "a newer commit is there"
        assert pull.publish("new", Run(2, 1, head)) == "updated"
    assert pull.texts() == ["new"]


def test_a_comment_that_no_forge_takes_is_refused_before_it_is_sent(pull: Pull) -> None:
    with FaultProxy(pull.lab.url) as proxy:
        forge = pull.forge(server=proxy.url)
        asked = len(proxy.requests)
        with pytest.raises(ForgeError, match=r"65,\d\d\d characters, 65,536 are allowed"):
            write_comment(forge, pull.number, "x" * (LONGEST - 50), pull.run())
        assert len(proxy.requests) == asked
    assert pull.texts() == []


def test_the_longest_comment_that_is_allowed_comes_through_whole(pull: Pull) -> None:
    room = LONGEST - len(f"{MARKER}\n{pull.run().marker}\n")
    text = "ü" * room
    assert pull.publish(text[:-1]) == "created"
    assert pull.texts() == [text[:-1]]
    assert pull.publish(text[:-1]) == "unchanged"


def in_thread(call: Callable[[], str]) -> Callable[[], str]:
    """Start the call; what it returns waits for its end."""
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()

    def end() -> str:
        thread.join(60)
        return results[0]

    return end

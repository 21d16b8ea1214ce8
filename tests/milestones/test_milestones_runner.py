"""The runner of the lessons: what it calls green, what it calls red, and what it refuses to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import Said, commands
from lesson_folders import PAGE, START, UNTRUE, write_lesson, write_repository
from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.milestones import lessons
from neuroscale.milestones.lessons import choose, find_lessons, is_current, pasted, renew
from neuroscale.milestones.run_table import rows
from neuroscale.milestones.running import State, run_lesson

pytestmark = pytest.mark.slow  # it starts a program for each case


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A platform repository with one lesson, both of whose claims are true."""
    write_repository(tmp_path)
    write_lesson(tmp_path, "lesson")
    return tmp_path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    return commands(capsys, monkeypatch, "milestones")


def test_a_lesson_is_green_when_both_of_its_claims_are_true(repository: Path, command: Callable[..., Said]) -> None:
    said = command("--repository", repository)
    assert said.status == 0
    assert "1 of 1 lesson held" in said.out


def test_a_failure_that_no_longer_happens_is_red_and_called_history(
    repository: Path, command: Callable[..., Said]
) -> None:
    write_lesson(repository, "past", before=UNTRUE)
    said = command("--repository", repository)
    assert said.status == 1
    assert "the lesson is history" in said.out
    assert "NOT SO: It is so." in said.out


def test_a_failure_that_nothing_prevents_is_red(repository: Path, command: Callable[..., Said]) -> None:
    write_lesson(repository, "open", after=UNTRUE)
    said = command("--json", "--repository", repository)
    assert said.status == 1
    (found,) = [lesson for lesson in said.json["lessons"] if lesson["name"] == "open"]
    assert (found["green"], found["before"]["state"], found["after"]["state"]) == (False, "holds", "refuted")


def test_a_lesson_whose_tool_is_missing_is_not_run_and_not_green(
    repository: Path, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Path:
        raise UntrustedError(f"{name} is not built. Run `make setup`.")

    monkeypatch.setattr(tool_cache, "find", missing)
    write_lesson(repository, "without", needs="kyverno")
    said = command("--repository", repository)
    assert said.status == 3
    assert "1 of 2 lessons held, 1 not run, which is not green" in said.out
    assert "kyverno is not built" in said.out


@pytest.mark.parametrize("tool", ["kubeconform", "gitleaks", "kyverno"])
def test_a_lesson_of_the_gate_is_not_run_without_one_of_its_tools(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    def find(name: str) -> Path:
        if name == tool:
            raise UntrustedError(f"{name} is not built. Run `make setup`.")
        return repository

    monkeypatch.setattr(tool_cache, "find", find)
    write_lesson(repository, "lesson", needs="gate")
    (lesson,) = find_lessons(repository)
    assert run_lesson(lesson).after.state is State.NOT_RUN


def test_a_lesson_of_the_gate_is_not_run_without_the_schemas(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UntrustedError("The schemas are not built. Run `make setup`.")

    monkeypatch.setattr(tool_cache, "find", lambda name: repository)
    monkeypatch.setattr(schemas, "find", missing)
    write_lesson(repository, "lesson", needs="gate")
    (lesson,) = find_lessons(repository)
    assert run_lesson(lesson).before.state is State.NOT_RUN


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("", "made no true claim"),
        (f"{START}run(lambda program: None)\n", "claims nothing"),
        ("raise ValueError('oh')\n", "ValueError: oh"),
        ("def\n", "SyntaxError"),
        (f"{START}run(lambda program: program.replace('no', 'a', 'b'))\n", "No such file"),
        ("print('✔ It is so.')\nraise SystemExit(1)\n", "Exit status 1"),
        ("print('✔ It is so.')\nprint('✘ NOT SO: It is so.')\n", "made no true claim"),
        ("raise SystemExit(4)\n", "Exit status 4"),
    ],
)
def test_a_program_that_proves_nothing_is_broken(repository: Path, program: str, reason: str) -> None:
    write_lesson(repository, "lesson", before=program)
    (lesson,) = find_lessons(repository)
    outcome = run_lesson(lesson)
    assert outcome.before.state is State.BROKEN
    assert reason in outcome.before.reason
    assert outcome.red


def test_a_program_that_does_not_end_is_ended_with_what_it_started(repository: Path) -> None:
    write_lesson(repository, "lesson", before="import subprocess\nsubprocess.run(['sleep', '60'])\n")
    (lesson,) = find_lessons(repository)
    outcome = run_lesson(lesson, seconds=1)
    assert outcome.before.state is State.BROKEN
    assert "ended after 1 s" in outcome.before.reason
    assert outcome.before.seconds < 20


@pytest.mark.parametrize("name", ["BEFORE.md", "AFTER.md", "before", "after"])
def test_a_lesson_without_one_of_its_files_is_refused(
    repository: Path, name: str, command: Callable[..., Said]
) -> None:
    (repository / "milestones/lesson" / name).unlink()
    said = command("--list", "--repository", repository)
    assert said.status == 2
    assert f"{name}: is missing" in said.err


def test_a_need_that_nobody_knows_is_refused(repository: Path) -> None:
    write_lesson(repository, "lesson", needs="kyverno, kuberneets")
    with pytest.raises(InputError, match="names kuberneets"):
        find_lessons(repository)


@pytest.mark.parametrize(
    ("evidence", "message"), [("", "evidence: is missing"), ("a real tol", "is 'a real tol'")], ids=["none", "unknown"]
)
def test_a_lesson_that_does_not_say_how_it_shows_its_failure_is_refused(
    repository: Path, evidence: str, message: str
) -> None:
    write_lesson(repository, "lesson", evidence=evidence)
    with pytest.raises(InputError, match=message):
        find_lessons(repository)


def test_a_before_in_which_no_tool_fails_is_not_called_a_failure(
    repository: Path, command: Callable[..., Said]
) -> None:
    write_lesson(repository, "from-a-log", evidence="recorded log")
    write_lesson(repository, "from-figures", evidence="computed")
    listed = command("--list", "--json", "--repository", repository).json["lessons"]
    kinds = {one["name"]: one["evidence"] for one in listed}
    assert kinds == {"lesson": "real tool", "from-a-log": "recorded log", "from-figures": "computed"}
    rows = {
        words[0]: words[1:] for line in command("--repository", repository).out.splitlines() if (words := line.split())
    }
    assert {name: " ".join(rows[name][:-1]) for name in kinds} == {
        "lesson": "yes yes",
        "from-a-log": "recorded log yes",
        "from-figures": "computed yes",
    }


def test_lessons_that_need_the_platform_can_be_left_out(repository: Path, command: Callable[..., Said]) -> None:
    write_lesson(repository, "with-platform", needs="platform")
    assert [one["name"] for one in command("--list", "--json", "--repository", repository).json["lessons"]] == [
        "lesson",
        "with-platform",
    ]
    left = command("--list", "--json", "--without-platform", "--repository", repository).json["lessons"]
    assert [one["name"] for one in left] == ["lesson"]
    said = command("with-platform", "--without-platform", "--repository", repository)
    assert said.status == 2


def test_a_name_that_no_lesson_has_is_refused_with_the_names_there_are(repository: Path) -> None:
    with pytest.raises(InputError, match="Write one of lesson"):
        choose(find_lessons(repository), ["leson"], without_platform=False)


def test_a_page_is_renewed_with_the_output_and_the_rest_stays(repository: Path, command: Callable[..., Said]) -> None:
    said = command("--repository", repository)
    assert "lesson/BEFORE.md" in said.out
    said = command("--renew", "--repository", repository)
    assert "lesson/BEFORE.md" not in said.out
    page = (repository / "milestones/lesson/BEFORE.md").read_text()
    block = "<!-- output of ./before -->\n```text\n✔ It is so.\n```\n<!-- end of output -->"
    start = PAGE.format(part="before").replace("<!-- output of ./before -->\n<!-- end of output -->", block)
    assert page == f"{start}<!-- evidence: real tool -->\n"
    command("--renew", "--repository", repository)
    assert (repository / "milestones/lesson/BEFORE.md").read_text() == page
    assert rows((repository / "milestones/README.md").read_text()).keys() == {"lesson"}


def test_the_output_of_a_program_that_does_not_hold_is_not_pasted(
    repository: Path, command: Callable[..., Said]
) -> None:
    write_lesson(repository, "lesson", after=UNTRUE)
    command("--renew", "--repository", repository)
    (lesson,) = find_lessons(repository)
    assert pasted(lesson, "before") == "✔ It is so.\n"
    assert pasted(lesson, "after") is None


def test_outside_every_repository_the_delivered_lessons_run_but_for_the_platform_and_their_pages_stay(
    repository: Path, tmp_path: Path, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lesson(repository, "with-platform", needs="platform")
    (repository / "platform/settings.yaml").unlink()
    monkeypatch.setattr(lessons, "delivered", SimpleNamespace(FOLDER=repository))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    said = command()
    assert said.status == 3
    assert "1 of 2 lessons held, 1 not run" in said.out
    assert "with-platform, before: not run. The local platform needs a platform repository" in said.out
    before = (repository / "milestones/lesson/BEFORE.md").read_text()
    said = command("--renew", "lesson")
    assert said.status == 2
    assert "--renew: writes into pages" in said.err
    assert (repository / "milestones/lesson/BEFORE.md").read_text() == before
    assert command("--repository", tmp_path / "empty").status == 2, "a repository that a person names must be one"


def test_an_output_that_would_end_its_block_is_not_pasted(repository: Path) -> None:
    (lesson,) = find_lessons(repository)
    with pytest.raises(ValueError, match="would end its block"):
        renew(lesson, "before", "a\n```\nb")
    assert not is_current(lesson, "before", "")

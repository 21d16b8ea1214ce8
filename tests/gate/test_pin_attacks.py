"""Attacks by way of the pin: ways to another judge than the one that the base's publisher released. None may work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.gate import pin_change
from neuroscale.gate.checks.whole_tree import evaluate_tree
from neuroscale.gate.merged_change import Change, find_change
from neuroscale.gate.pin_change import PinChange, judge_pin_change, touches_pin
from neuroscale.gate.verdict import Severity
from neuroscale.repo.layout import PIN, REQUIREMENTS
from neuroscale.repo.tool_pin import ToolPin, pin_files, pin_text
from publisher import Publisher
from repositories import Repository

OLD, NEW, OTHER = "ab" * 32, "cd" * 32, "ef" * 32
OURS, THIEF = Publisher(), Publisher()
LOCKED = (delivered.FOLDER / "requirements/runtime.txt").read_text()
BASE = OURS.pin("1.1.0", OLD)
NEXT = OURS.pin("1.2.0", NEW)
Files = dict[str, bytes | str | None]


def files(pin: ToolPin, locked: str = LOCKED) -> Files:
    return dict(pin_files(pin, locked))


def next_with(edit: Callable[[str], str]) -> Files:
    """The next version's files, with an edit of what workflows install."""
    made = files(NEXT)
    text = edit(str(made[REQUIREMENTS]))
    assert text != made[REQUIREMENTS]
    return {**made, REQUIREMENTS: text}


def with_digest(text: str, name: str) -> str:
    return re.sub(rf"(?m)^({name}==\S+ \\\n)", rf"\1    --hash=sha256:{OTHER} \\\n", text)


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A repository whose main pins 1.1.0; every wheel that is fetched was released with the same packages."""
    package = tmp_path / "package"
    (package / "delivered/requirements").mkdir(parents=True)
    (package / "delivered/requirements/runtime.txt").write_text(LOCKED)
    monkeypatch.setattr(pin_change, "package_of", lambda version, sha256: package)
    made = Repository(tmp_path / "repository")
    made.commit({**files(BASE), "platform/catalog/models/a.yaml": "name: a\n", "README.md": "hi\n"})
    yield made
    made.git.close()


def judged(repository: Repository, changed: Files) -> PinChange:
    repository.commit(changed)
    change = last(repository)
    assert touches_pin(change)
    return judge_pin_change(change)


def last(repository: Repository) -> Change:
    return find_change(repository.git, "HEAD~1", "HEAD")


def errors(seen: PinChange) -> list[str]:
    return [finding.rule for finding in seen.findings if finding.severity is Severity.ERROR]


def test_the_next_version_of_the_bases_publisher_is_accepted(pinned: Repository) -> None:
    seen = judged(pinned, {**files(NEXT), "platform/catalog/models/a.yaml": "name: a\nnew_field: 1\n"})
    assert (errors(seen), seen.failure, seen.accepted) == ([], "", NEXT)


ATTACKS: dict[str, tuple[Files, str]] = {
    "a downgrade": (files(OURS.pin("1.0.0", NEW)), "older"),
    "a downgrade to a signed version with a known hole": (files(OURS.pin("1.0.9", OTHER)), "older"),
    "a preview of the base's version": (files(OURS.pin("1.1.0rc1", NEW)), "older"),
    "another wheel of the same version": (files(OURS.pin("1.1.0", NEW)), "same-version"),
    "the same version in other digits": (files(OURS.pin("1.01.0", NEW)), "same-version"),
    "an unsigned version": (files(NEXT.model_copy(update={"signature": BASE.signature})), "unsigned"),
    "a signature of another digest": (
        files(NEXT.model_copy(update={"signature": OURS.pin("1.2.0", OTHER).signature})),
        "unsigned",
    ),
    "a signature of another version": (
        files(NEXT.model_copy(update={"signature": OURS.pin("1.3.0", NEW).signature})),
        "unsigned",
    ),
    "a version that a stranger signed": (
        files(NEXT.model_copy(update={"signature": THIEF.pin("1.2.0", NEW).signature})),
        "unsigned",
    ),
    "another publisher with another version": (files(THIEF.pin("1.2.0", NEW)), "publisher"),
    "another publisher with another wheel": (files(THIEF.pin("1.1.0", NEW)), "publisher"),
    "another publisher and a model beside": (
        {**files(THIEF.pin("1.1.0", OLD)), "platform/catalog/models/a.yaml": "name: b\n"},
        "publisher",
    ),
    "another publisher and another workflow beside": (
        {**files(THIEF.pin("1.1.0", OLD)), ".github/workflows/gate.yaml": "on: push\n"},
        "publisher",
    ),
    "another publisher and another package beside": (
        files(THIEF.pin("1.1.0", OLD), with_digest(LOCKED, "pydantic")),
        "publisher",
    ),
    "no publisher and another version": (files(ToolPin(version="1.2.0", sha256=NEW)), "publisher"),
    "another publisher without a signature of its own": (
        files(BASE.model_copy(update={"publisher": THIEF.name})),
        "unsigned",
    ),
    "the pin removed": ({PIN: None}, "removed"),
    "the requirements removed": ({REQUIREMENTS: None}, "removed"),
    "both removed": ({PIN: None, REQUIREMENTS: None}, "removed"),
    "a package without a digest": (next_with(lambda text: f"{text}evil==1.0\n"), "requirements"),
    "the tool without a digest": (
        next_with(lambda text: text.replace(f" \\\n    --hash=sha256:{NEW}", "")),
        "requirements",
    ),
    "another index": (
        next_with(lambda text: f"--extra-index-url https://elsewhere.test/simple\n{text}"),
        "requirements",
    ),
    "an index in place of the user's": (next_with(lambda text: f"-i https://elsewhere.test/\n{text}"), "requirements"),
    "another folder of wheels": (next_with(lambda text: f"--find-links ./wheels\n{text}"), "requirements"),
    "another file of requirements": (next_with(lambda text: f"{text}-r more.txt\n"), "requirements"),
    "a folder of the checkout": (next_with(lambda text: f"{text}-e ./tool\n"), "requirements"),
    "an address": (next_with(lambda text: f"{text}evil @ https://elsewhere.test/evil.whl\n"), "requirements"),
    "a second tool": (
        next_with(lambda text: f"{text}NeuroScale==1.2.0 \\\n    --hash=sha256:{OTHER}\n"),
        "requirements",
    ),
    "a second digest of the tool": (
        next_with(lambda text: text.replace(NEW, f"{NEW} \\\n    --hash=sha256:{OTHER}")),
        "requirements",
    ),
    "a package that the release does not have": (
        next_with(lambda text: f"{text}evil==1.0 \\\n    --hash=sha256:{OTHER}\n"),
        "requirements",
    ),
    "another digest of a package": (next_with(lambda text: with_digest(text, "pydantic")), "requirements"),
    "another version of a package": (
        next_with(lambda text: re.sub(r"(?m)^pydantic==\S+", "pydantic==0.1", text)),
        "requirements",
    ),
    "another digest of a package, and the base's tool": (files(BASE, with_digest(LOCKED, "pydantic")), "requirements"),
    "the same key twice": (
        {**files(NEXT), PIN: pin_text(NEXT) + f'tool: {{version: "1.1.0", sha256: "{OLD}"}}\n'},
        "pin",
    ),
    "an anchor": ({**files(NEXT), PIN: pin_text(NEXT).replace("tool:", "tool: &tool")}, "pin"),
    "an unknown field": ({**files(NEXT), PIN: pin_text(NEXT) + '  index: "https://elsewhere.test"\n'}, "pin"),
    "two documents": ({**files(NEXT), PIN: f"{pin_text(NEXT)}---\n{pin_text(BASE)}"}, "pin"),
    "both sides of a merge": (
        {**files(NEXT), "platform/catalog/models/a.yaml": "<<<<<<< a\nname: a\n=======\nname: b\n>>>>>>> b\n"},
        "conflict-marker",
    ),
    "both sides of a merge in a document": (
        {**files(NEXT), "README.md": "x\r\n<<<<<<< a\r\nhi\r\n||||||| b\r\n=======\r\nho\r\n>>>>>>> c\r\n"},
        "conflict-marker",
    ),
    "the tool's code in the tree": ({"src/neuroscale/__init__.py": ""}, "second-tool"),
    "a module that Python loads first": ({"src/sitecustomize.py": "exit()\n"}, "second-tool"),
    "a package in place of a dependency": ({"src/pydantic/__init__.py": ""}, "second-tool"),
    "a set-up of the tree's own": ({"scripts/setup.py": "exit()\n"}, "second-tool"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_no_way_to_another_judge_passes(pinned: Repository, name: str) -> None:
    changed, rule = ATTACKS[name]
    seen = judged(pinned, changed)
    assert rule in errors(seen), seen
    assert seen.accepted is None


@pytest.mark.parametrize("kind", ["link", "submodule"])
@pytest.mark.parametrize("path", [PIN, REQUIREMENTS])
def test_what_is_no_plain_file_is_no_pin(pinned: Repository, path: str, kind: str) -> None:
    if kind == "link":
        (pinned.root / "elsewhere").write_text(str(files(NEXT)[path]))
        (pinned.root / path).unlink()
        (pinned.root / path).symlink_to("../elsewhere")
        pinned.commit({})
    else:
        pinned.run("update-index", "--cacheinfo", f"160000,{pinned.run('rev-parse', 'HEAD')},{path}")
        pinned.run("commit", "--quiet", "--message", "submodule")
    assert errors(judge_pin_change(last(pinned))) == ["removed"]


def test_another_publisher_alone_passes_and_stands_at_the_top(pinned: Repository) -> None:
    seen = judged(pinned, {PIN: pin_text(THIEF.pin("1.1.0", OLD))})
    assert (errors(seen), seen.accepted) == ([], None)
    (notice,) = seen.findings
    assert (notice.gate, notice.rule) == ("change", "changed-publisher")
    assert THIEF.name in notice.message


def test_a_base_without_a_publisher_takes_no_other_version(pinned: Repository) -> None:
    pinned.commit({PIN: pin_text(ToolPin(version="1.1.0", sha256=OLD))})
    seen = judged(pinned, files(NEXT))
    assert errors(seen) == ["publisher"]
    pinned.run("reset", "--quiet", "--hard", "HEAD~1")
    seen = judged(pinned, files(ToolPin(version="1.2.0", sha256=NEW)))
    assert errors(seen) == ["unsigned"]
    assert "first, in a change of its own" in seen.findings[0].fix
    pinned.run("reset", "--quiet", "--hard", "HEAD~1")
    assert errors(judged(pinned, files(BASE))) == []


def test_a_wheel_that_cannot_be_fetched_accepts_nothing(pinned: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(version: str, sha256: str) -> Path:
        raise InputError.at(REQUIREMENTS, "neuroscale", "has another digest", "Look.")

    monkeypatch.setattr(pin_change, "package_of", refuse)
    seen = judged(pinned, files(NEXT))
    assert "has another digest" in seen.failure
    assert seen.accepted is None


def test_nothing_is_fetched_for_a_version_that_nobody_signed(
    pinned: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(version: str, sha256: str) -> Any:
        raise AssertionError("fetched")

    monkeypatch.setattr(pin_change, "package_of", fetched)
    assert errors(judged(pinned, files(THIEF.pin("1.2.0", NEW)))) == ["publisher"]


@pytest.mark.parametrize("path", ["platform/Neuroscale.yaml", "platform/REQUIREMENTS.txt", "Platform/neuroscale.yaml"])
def test_a_pin_beside_the_pin_in_other_letters_is_refused(pinned: Repository, path: str) -> None:
    name = PIN if path.lower() == PIN else REQUIREMENTS
    pinned.commit({path: str(files(THIEF.pin("1.2.0", NEW))[name])})
    assert {finding.rule for finding in evaluate_tree(last(pinned))[0]} == {"similar-names"}


@pytest.mark.parametrize("path", ["neuroscale.yaml", "platform/catalog/neuroscale.yaml", ".github/neuroscale.yaml"])
def test_a_pin_elsewhere_is_no_pin(pinned: Repository, path: str) -> None:
    pinned.commit({path: pin_text(THIEF.pin("1.2.0", NEW))})
    change = last(pinned)
    assert not touches_pin(change)
    assert judge_pin_change(change).accepted is None


@pytest.mark.parametrize("path", ["uv.toml", "setup.cfg"])
def test_configuration_that_takes_a_protected_files_place_is_refused(pinned: Repository, path: str) -> None:
    pinned.commit({path: '[pip]\nindex-url = "https://elsewhere.test/simple"\n'})
    assert {finding.rule for finding in evaluate_tree(last(pinned))[0]} == {"takes-place"}

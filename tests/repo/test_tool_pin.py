"""The pin of the tool and the packages that workflows install name the same judge, each package by its digest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from neuroscale import __version__
from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.repo import tool_pin
from neuroscale.repo.layout import PIN, REQUIREMENTS
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.repo.tool_pin import ToolPin, other_tool, pin_files, pin_problems, pin_text, read_pin, read_releases
from publisher import Publisher

DIGEST, OTHER = "ab" * 32, "cd" * 32
PUBLISHER = Publisher()
LOCKED = (delivered.FOLDER / "requirements/runtime.txt").read_text()


def problems(pin: Callable[[str], str] = str, requirements: Callable[[str], str] = str) -> list[str]:
    files = pin_files(ToolPin(version="0.2.0", sha256=DIGEST), LOCKED)
    changed = {PIN: pin(files[PIN]), REQUIREMENTS: requirements(files[REQUIREMENTS])}
    return [
        f"{one.where}: {one.message}"
        for one in pin_problems(MemorySnapshot({k: v.encode() for k, v in changed.items()}))
    ]


def test_what_init_writes_agrees_and_a_repository_of_the_tool_has_neither() -> None:
    assert problems() == []
    assert pin_problems(MemorySnapshot({})) == []


@pytest.mark.parametrize(
    ("pin", "requirements"),
    [
        (lambda text: text.replace(DIGEST, OTHER), str),
        (lambda text: text.replace("0.2.0", "0.3.0"), str),
        (lambda text: text.replace("tool:", "tools:"), str),
        (str, lambda text: text.replace(DIGEST, OTHER)),
        (str, lambda text: f"{text}neuroscale==0.1.0 \\\n    --hash=sha256:{OTHER}\n"),
        (str, lambda text: text.replace(f"sha256:{DIGEST}", f"sha256:{DIGEST} \\\n    --hash=sha256:{OTHER}")),
        (str, lambda text: f"--extra-index-url https://elsewhere.test/simple\n{text}"),
        (str, lambda text: f"{text}evil @ https://elsewhere.test/evil.whl\n"),
        (str, lambda text: f"{text}evil==1.0\n"),
        (str, lambda text: f"{text}-r other.txt\n"),
        (str, lambda text: text.replace("neuroscale==0.2.0", "neuroscale>=0.2.0")),
    ],
)
def test_another_judge_or_a_package_without_a_digest_is_found(
    pin: Callable[[str], str], requirements: Callable[[str], str]
) -> None:
    assert problems(pin, requirements)


def test_a_publisher_signs_one_version_with_one_digest() -> None:
    pin = PUBLISHER.pin("0.2.0", DIGEST)
    text = pin_files(pin, LOCKED)
    snapshot = MemorySnapshot({path: content.encode() for path, content in text.items()})
    assert pin.is_signed
    assert read_pin(snapshot) == pin
    assert pin_problems(snapshot) == []
    for values in ({"version": "0.2.1"}, {"sha256": OTHER}, {"publisher": Publisher().name}):
        assert not pin.model_copy(update=values).is_signed


def test_a_signature_of_another_digest_is_found() -> None:
    other = PUBLISHER.pin("0.2.0", OTHER)
    files = pin_files(PUBLISHER.pin("0.2.0", DIGEST).model_copy(update={"signature": other.signature}), LOCKED)
    (problem,) = pin_problems(MemorySnapshot({path: text.encode() for path, text in files.items()}))
    assert problem.field == "tool.signature"


@pytest.mark.parametrize(
    "values",
    [
        {"publisher": "ed25519:AAAA", "signature": "AAAA"},
        {"publisher": PUBLISHER.name},
        {"signature": "AAAA"},
        {"version": "newest"},
        {"releases": "https://u:p@host.test/releases.json"},
    ],
)
def test_a_pin_that_names_no_publisher_properly_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        ToolPin.model_validate({"version": "0.2.0", "sha256": DIGEST, **values})


def test_a_list_of_releases_is_signed_release_by_release_and_sorted() -> None:
    listed = PUBLISHER.releases({"0.10.0": DIGEST, "0.9.0": OTHER})
    assert [entry.version for entry in read_releases(listed, "releases.json").releases] == ["0.9.0", "0.10.0"]
    with pytest.raises(InputError, match="is not signed by the list's publisher"):
        read_releases(listed.replace(OTHER, "ef" * 32), "releases.json")


@pytest.mark.parametrize(
    ("version", "recorded", "said"),
    [
        (__version__, "", ""),
        (__version__, DIGEST, ""),
        (__version__, OTHER, "of this version with another digest"),
        ("99.0.0", "", "pins 99.0.0"),
        ("99.0.0", DIGEST, "pins 99.0.0"),
    ],
)
def test_a_tool_that_is_not_the_pinned_one_says_how_to_install_that(
    monkeypatch: pytest.MonkeyPatch, version: str, recorded: str, said: str
) -> None:
    monkeypatch.setattr(tool_pin, "recorded_digest", lambda: recorded)
    told = other_tool(MemorySnapshot({PIN: pin_text(ToolPin(version=version, sha256=DIGEST)).encode()}))
    assert said in told
    assert bool(told) == bool(said)
    assert not told or f"--require-hashes --requirement {REQUIREMENTS}" in told


@pytest.mark.parametrize("files", [{}, {PIN: b"tool: 1\n"}])
def test_without_a_pin_that_can_be_read_nothing_is_said(files: dict[str, bytes]) -> None:
    assert other_tool(MemorySnapshot(files)) == ""

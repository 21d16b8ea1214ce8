"""The pin of the tool and the packages that workflows install name the same judge, each package by its digest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neuroscale.core import delivered
from neuroscale.repo.layout import PIN, REQUIREMENTS
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.repo.tool_pin import pin_files, pin_problems

DIGEST, OTHER = "ab" * 32, "cd" * 32
LOCKED = (delivered.FOLDER / "requirements/runtime.txt").read_text()


def problems(pin: Callable[[str], str] = str, requirements: Callable[[str], str] = str) -> list[str]:
    files = pin_files("0.2.0", DIGEST, LOCKED)
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
    assert len(problems(pin, requirements)) == 1

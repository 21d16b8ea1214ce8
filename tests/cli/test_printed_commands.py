"""Every command of the program that a message, a comment or a page names is one that the command line takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from printed_commands import commands_in, refusal, texts
from roots import CHECKOUT, ROOT

SOURCES = sorted((CHECKOUT / "src/neuroscale").rglob("*.py"))
PAGES = [*sorted((CHECKOUT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def test_the_scan_finds_commands_and_refuses_what_is_no_command() -> None:
    said = (
        "Run `neuroscale replan dev/x` and commit. See: neuroscale status x --state=1; or neuroscale request changes it"
    )
    assert list(commands_in(said)) == ["replan dev/x", "status x --state=1", "request changes it"]
    for good in ("replan dev/x", "status x --state=1", "request changes it", "gate", "update x --set a=1 --local"):
        assert refusal(good) == "", good
    for bad in ("status x --stat=1", "statuses x", "local upp"):
        assert refusal(bad), bad


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CHECKOUT / "src/neuroscale")))
def test_every_command_that_the_program_prints_is_taken_as_it_is_printed(path: Path) -> None:
    if "neuroscale " not in (text := path.read_text()) and ".own(" not in text:
        return
    wrong = {one: why for text in texts(path) for one in commands_in(text) if (why := refusal(one))}
    assert wrong == {}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_line_of_a_page_is_taken_as_it_stands(path: Path) -> None:
    lines = re.findall(
        r"^ {4}(?:\$ )?neuroscale ([a-z].*?)(?: +#.*)?$", path.read_text().replace("\\\n", ""), re.MULTILINE
    )
    wrong = {line: why for line in lines if (why := refusal(line))}
    assert wrong == {}

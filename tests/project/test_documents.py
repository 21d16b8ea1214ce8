"""The documents that a reader starts with: their links lead somewhere, and the README stays short."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from roots import CHECKOUT

DOCUMENTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "platform/**/*.md",
        "policies/**/*.md",
        "smoke-tests/*.md",
        "milestones/**/*.md",
    )
    for path in CHECKOUT.glob(pattern)
    if "node_modules" not in path.parts
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_every_link_to_a_file_leads_to_one(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", document.read_text())
    missing = [link for link in links if ":" not in link and not (document.parent / link).exists()]
    assert missing == []


def test_the_readme_takes_minutes_to_read() -> None:
    assert len((CHECKOUT / "README.md").read_text().split()) <= 700


def test_no_tracked_file_holds_the_two_sides_of_a_conflict() -> None:
    command = ["git", "grep", "--line-number", "-I", "-E", "^(<<<<<<<|>>>>>>>)( |$)"]
    found = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert (found.stdout, found.returncode) == ("", 1), found.stderr

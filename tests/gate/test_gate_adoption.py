"""A fork's own gate passes the change by which it comes to pin the tool."""

from __future__ import annotations

from functools import partial

import pytest

from gate_lab import check, gate, pristine, repository
from neuroscale import __version__
from neuroscale.core import delivered
from neuroscale.gate.gate_code_of_base import JUDGE
from neuroscale.rendering.repository_adoption import plan_adoption
from neuroscale.rendering.repository_upgrade import ToolVersion
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot
from neuroscale.repo.three_way_merge import merge_contents
from neuroscale.repo.tool_pin import ToolPin
from repositories import Repository
from roots import CHECKOUT

__all__ = ["pristine", "repository"]
pytestmark = [pytest.mark.tools, pytest.mark.slow]


def test_a_forks_gate_passes_the_change_that_pins_the_tool(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(JUDGE, raising=False)
    repository.run("switch", "--quiet", "--create", "adopt", "added")
    fork = GitSnapshot(repository.git, "HEAD")
    version = ToolVersion(__version__, FolderSnapshot(delivered.FOLDER), FolderSnapshot(delivered.START))
    pin = ToolPin(version=__version__, sha256="a" * 64)
    known = FolderSnapshot(CHECKOUT)
    plan = plan_adoption(fork, version, pin, known.read, partial(merge_contents, repository.git, names=("a", "b")))
    assert plan.conflicts == ()
    # The example's answers differ from this checkout's in the form's lists alone.
    repository.commit(
        {path: data for path, data in plan.files.items() if data is not None or fork.read(path) is not None}
    )
    verdict = gate(repository, base="added")
    assert verdict["exit_status"] == 0, verdict["headline"]
    rendered = check(verdict, "platform")
    assert (rendered["outcome"], rendered["evaluated"]) == ("passed", rendered["expected"])
    assert rendered["evaluated"] > 50, "what the pinned tool renders is compared, since no head's gate does"
    assert any("pins a tool in its place" in note for note in verdict["notes"])

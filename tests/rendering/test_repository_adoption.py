"""A fork that holds the tool's code comes to pin the tool: what stays, what goes, and what would be lost is named."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from neuroscale.core.errors import InputError
from neuroscale.rendering.repository_adoption import holds_tool, plan_adoption
from neuroscale.rendering.repository_upgrade import RepositoryUpgrade
from neuroscale.repo.git import Git
from neuroscale.repo.layout import PIN, REQUIREMENTS, FileClass, file_class
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.repo.three_way_merge import merge_contents
from tool_versions import made_by, pin_of, tool_version
from wheel_lab import ACME

VERSION = tool_version("0.3.0")
PINNED = made_by(VERSION, ACME)
TOOL = {
    "src/neuroscale/__init__.py": b'"""The tool."""\n\n__version__ = "0.3.0"\n',
    "src/neuroscale/core/errors.py": b"code\n",
    "docs/adopt.md": b"a page\n",
    "docs/gate.md": b"a page\n",
    "Makefile": b"check:\n",
    "smoke-tests/test_ready.py": b"code\n",
    ".github/workflows/ci.yaml": b"name: ci\n",
}
FORK = {path: data for path, data in PINNED.items() if path not in (PIN, REQUIREMENTS)} | TOOL
README = "platform/catalog/README.md"


def adoption(fork: dict[str, bytes], known: dict[str, bytes] | None = None) -> RepositoryUpgrade:
    merge = partial(merge_contents, Git(Path(__file__).parent), names=("a", "b"))
    return plan_adoption(MemorySnapshot(fork), VERSION, pin_of(VERSION), (known or TOOL).get, merge)


def after(fork: dict[str, bytes], plan: RepositoryUpgrade) -> dict[str, bytes]:
    return {path: data for path, data in {**fork, **plan.files}.items() if data is not None}


def test_a_fork_without_edits_becomes_what_a_new_repository_is() -> None:
    plan = adoption(FORK)
    assert (plan.lost, plan.conflicts, plan.kept) == ((), (), ())
    assert after(FORK, plan) == PINNED
    assert [*plan.files][-1] == "src/neuroscale/__init__.py", "broken off before that, it can be run again"
    assert not holds_tool(MemorySnapshot(PINNED))


def test_what_is_the_organisations_stays_and_what_would_be_lost_is_named() -> None:
    own = {
        README: FORK[README] + b"ours\n",
        "manifests/dev/chat/request.yaml": b"ours\n",
        ".gitea/workflows/own.yaml": b"ours\n",
        "src/.venv/x": b"not in git\n",
    }
    edited = {
        "Makefile": b"check: ours\n",
        "smoke-tests/test_ours.py": b"ours\n",
        "policies/allowed-registries/policy.yaml": FORK["policies/allowed-registries/policy.yaml"] + b"# looser\n",
    }
    plan = adoption(FORK | own | edited)
    assert set(plan.lost) == set(edited)
    result = after(FORK | own | edited, plan)
    assert {path: result[path] for path in own} == own
    assert [path for path in result if file_class(path) is FileClass.TOOL and path not in own] == []
    assert result["policies/allowed-registries/policy.yaml"] == PINNED["policies/allowed-registries/policy.yaml"]


def test_what_a_wheel_does_not_carry_is_not_compared_and_that_is_said() -> None:
    known = {path: data for path, data in TOOL.items() if not path.startswith("docs/")}
    assert adoption(FORK, known).lost == ("docs/: 2 files, which the tool's wheel does not carry: not compared",)


def test_a_fork_of_another_version_is_not_adopted() -> None:
    other = FORK | {"src/neuroscale/__init__.py": b'__version__ = "0.2.9"\n'}
    with pytest.raises(InputError, match=r"is not that of neuroscale 0\.3\.0.* upgrade afterwards"):
        adoption(other)


def test_broken_off_and_run_again_it_comes_to_the_same_end() -> None:
    plan = adoption(FORK)
    for count in (1, len(plan.files) // 2, len(plan.files) - 1):
        part = dict([*plan.files.items()][:count])
        half = {path: data for path, data in {**FORK, **part}.items() if data is not None}
        assert after(half, adoption(half)) == PINNED

"""The table of files: each tracked file has one class, and what it protects is protected everywhere."""

from __future__ import annotations

import re
import subprocess

import pytest

from neuroscale.rendering.platform.files import is_rendered
from neuroscale.repo.layout import CODE_OWNERS, DELIVERED_POLICIES, FileClass, file_class
from roots import CHECKOUT


def tracked() -> list[str]:
    listed = subprocess.run(["git", "-C", CHECKOUT, "ls-files", "-z"], capture_output=True, text=True, check=True)
    return listed.stdout.rstrip("\0").split("\0")


def test_each_tracked_file_has_a_class() -> None:
    assert [path for path in tracked() if file_class(path) is None] == []


def test_what_settings_and_catalog_render_to_is_of_the_rendered_class() -> None:
    rendered = {path for path in tracked() if file_class(path) is FileClass.RENDERED}
    others = {path for path in rendered if path.startswith("policies/")} | {CODE_OWNERS}
    assert rendered - others == {path for path in tracked() if is_rendered(path)}


def test_every_policy_of_the_tool_is_known_by_name() -> None:
    """The table of the policies' strength has a row for each. An organisation's own policies are in neither list."""
    table = (CHECKOUT / "docs/policy-strength.md").read_text()
    assert sorted(re.findall(r"^\| ([a-z][a-z-]+) \| \d", table, re.MULTILINE)) == sorted((*DELIVERED_POLICIES, "all"))
    assert all((CHECKOUT / f"policies/{name}/policy.yaml").is_file() for name in DELIVERED_POLICIES)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("platform/settings.yaml", FileClass.OWN),
        ("manifests/prod/chat/request.yaml", FileClass.OWN),
        ("platform/argocd/prod/root.yaml", FileClass.RENDERED),
        ("platform/argocd/values.yaml", FileClass.MERGED),
        ("platform/catalog/models/gemma.yaml", FileClass.MERGED),
        ("policies/no-host-access/policy.yaml", FileClass.RENDERED),
        ("policies/no-host-access/cases.yaml", FileClass.RENDERED),
        ("policies/no-host-access/mutations.yaml", FileClass.TOOL),
        ("policies/shared.yaml", FileClass.RENDERED),
        ("policies/our-labels/policy.yaml", FileClass.OWN),
        ("policies/our-labels/mutations.yaml", FileClass.OWN),
        ("policies/exceptions/prod.yaml", FileClass.OWN),
        (".github/workflows/gate.yaml", FileClass.MERGED),
        ("docs/operations.md", FileClass.TOOL),
        ("docs/runbooks/NeuroScaleServiceDown.md", FileClass.MERGED),
        (".github/workflows/nightly.yaml", FileClass.TOOL),
        ("src/neuroscale/cli/app.py", FileClass.TOOL),
        ("notes.txt", None),
    ],
)
def test_the_last_row_that_matches_is_a_files_own(path: str, expected: FileClass | None) -> None:
    assert file_class(path) is expected

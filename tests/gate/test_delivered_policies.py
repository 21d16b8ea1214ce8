"""The policies that the pinned tool delivers stay as it delivers them, where an organisation's repository pins it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gate_lab import thin
from neuroscale.gate.checks.platform_files import evaluate_platform
from neuroscale.repo.layout import PIN
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from roots import CHECKOUT

__all__ = ["thin"]  # a fixture
POLICY = "policies/non-root/policy.yaml"
REGISTRIES = "policies/allowed-registries/policy.yaml"
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def files(thin: Path) -> Files:
    snapshot = FolderSnapshot(thin)
    return {entry.path: snapshot.read(entry.path) or b"" for entry in snapshot.entries()}


def found(files: Files) -> list[tuple[str, str]]:
    return [(finding.rule, finding.file) for finding in evaluate_platform(MemorySnapshot(files)).findings]


def test_a_new_repository_holds_what_was_delivered_and_may_add_a_policy(files: Files) -> None:
    assert found(files) == []
    assert found({**files, "policies/our-own/policy.yaml": files[POLICY]}) == []


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        (POLICY, lambda text: text.replace(b"[Deny]", b"[Audit]")),
        (POLICY, lambda text: text + b"# Our remark.\n"),
        ("policies/non-root/cases.yaml", lambda text: b""),
        ("policies/non-root/good.yaml", lambda text: text + b"\n"),
        ("policies/tripwires.yaml", lambda text: text.replace(b"a", b"b", 1)),
        # Its list is rendered from the settings, and everything else in it is as it was delivered.
        (REGISTRIES, lambda text: text.replace(b"[Deny]", b"[Audit]")),
    ],
)
def test_a_delivered_file_that_differs_is_refused(files: Files, path: str, edit: Callable[[bytes], bytes]) -> None:
    changed = edit(files[path])
    assert changed != files[path]
    assert ("not-delivered", path) in found({**files, path: changed})


def test_a_delivered_policy_that_is_missing_is_refused(files: Files) -> None:
    rest = {path: data for path, data in files.items() if not path.startswith("policies/non-root/")}
    assert ("not-delivered", POLICY) in found(rest)


def test_the_findings_say_what_to_do_instead(files: Files) -> None:
    (finding,) = evaluate_platform(MemorySnapshot({**files, POLICY: files[POLICY] + b"#\n"})).findings
    assert "neuroscale repository upgrade" in finding.fix
    assert "exception" in finding.fix


def test_another_pinned_version_and_the_tools_own_repository_are_not_judged(files: Files) -> None:
    changed = {**files, POLICY: files[POLICY].replace(b"[Deny]", b"[Audit]")}
    other = files[PIN].replace(b'version: "', b'version: "9')
    assert found({**changed, PIN: other}) == []
    assert found({**changed, "src/neuroscale/__init__.py": b""}) == []
    assert (CHECKOUT / "src/neuroscale").is_dir()
    assert found({path: data for path, data in changed.items() if path != PIN}) == []

"""Files of a pull request outside services: some are removed, modes stay, and nothing of an earlier try is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroscale.actions.repository_upgrade import restored
from neuroscale.core.errors import InputError
from neuroscale.forge.commits import holds, with_files
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot
from neuroscale.repo.written_files import Content, write_files
from repositories import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    made.write({"a/run": "old", "a/text": "old", "b/c/only": "x", "kept": "x"})
    (made.root / "a/run").chmod(0o755)
    made.commit({})
    yield made
    made.git.close()


CHANGES: dict[str, Content] = {"a/run": b"\0new", "a/text": "new", "b/c/only": None, "d/new": "x", "e/never": None}


def test_a_tree_gets_loses_and_keeps_files_with_their_modes(repository: Repository) -> None:
    assert not holds(repository.git, "HEAD", None, CHANGES)
    tree = with_files(repository.git, "HEAD", None, CHANGES)
    assert holds(repository.git, tree, None, CHANGES)
    assert holds(repository.git, "HEAD", None, {})
    entries = {entry.path: entry.kind for entry in GitSnapshot(repository.git, tree).entries()}
    assert entries == {"a/run": "executable", "a/text": "file", "d/new": "file", "kept": "file"}
    assert not holds(repository.git, tree, None, {"a": None}), "files lie below it"


def test_a_work_tree_gets_loses_and_keeps_files_with_their_modes(repository: Repository) -> None:
    root = repository.root
    assert write_files(root, FolderSnapshot(root), CHANGES) == ["a/run", "a/text", "b/c/only", "d/new"]
    assert write_files(root, FolderSnapshot(root), CHANGES) == []
    repository.commit({})
    assert holds(repository.git, "HEAD", None, CHANGES)
    assert (root / "a/run").stat().st_mode & 0o111
    assert not (root / "b").exists()
    (root / "link").symlink_to("a")
    with pytest.raises(InputError, match="is a symlink"):
        write_files(root, FolderSnapshot(root), {"link/text": None})


def test_what_an_earlier_pull_request_changed_goes_back_and_the_organisations_files_stay(
    repository: Repository,
) -> None:
    base = repository.run("rev-parse", "HEAD")
    repository.commit(
        {"platform/README.md": "of an earlier version", "platform/settings.yaml": "ours", "notes": "ours"}
    )
    newest = repository.run("rev-parse", "HEAD")
    repository.run("switch", "--quiet", "--create", "moved", base)
    repository.commit({"manifests/README.md": "main moved on"})
    sides = (GitSnapshot(repository.git, commit) for commit in ("moved", newest))
    assert restored(*sides) == {"platform/README.md": None, "manifests/README.md": b"main moved on"}

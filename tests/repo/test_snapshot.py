"""A folder, a tree in git and files in memory show the same files, and none of them follows a link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroscale.core.errors import InputError
from neuroscale.repo import git as git_module
from neuroscale.repo.snapshot import (
    LARGEST_TEXT,
    Entry,
    FolderSnapshot,
    GitSnapshot,
    MemorySnapshot,
    Snapshot,
    Texts,
    child_folders,
    read_all,
    read_text,
)
from repositories import Repository

FILES = {"a.yaml": "a", "b/run": "#!/bin/sh\n", "b/c/d.yaml": "d", "übung.yaml": "ü"}


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    made.write(dict(FILES))
    (made.root / "b/run").chmod(0o755)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.yaml").write_text("secret")
    (made.root / "b/link").symlink_to("../../outside")
    (made.root / "b/link.yaml").symlink_to("../a.yaml")
    made.commit({})
    yield made
    made.git.close()


@pytest.fixture(params=["folder", "git", "memory"])
def snapshot(request: pytest.FixtureRequest, repository: Repository) -> Snapshot:
    if request.param == "folder":
        return FolderSnapshot(repository.root)
    if request.param == "git":
        return GitSnapshot(repository.git, "HEAD")
    files = {name: text.encode() for name, text in FILES.items()}
    return MemorySnapshot(files, {"b/run": "executable", "b/link": "symlink", "b/link.yaml": "symlink"})


def shown(entries: list[Entry]) -> list[tuple[str, str]]:
    return [(entry.path, entry.kind) for entry in entries]


def test_every_path_is_listed_with_its_kind(snapshot: Snapshot) -> None:
    assert shown(snapshot.entries()) == [
        ("a.yaml", "file"),
        ("b/c/d.yaml", "file"),
        ("b/link", "symlink"),
        ("b/link.yaml", "symlink"),
        ("b/run", "executable"),
        ("übung.yaml", "file"),
    ]
    assert shown(snapshot.entries("b/c", "a.yaml", "missing")) == [("a.yaml", "file"), ("b/c/d.yaml", "file")]


def test_files_are_read_and_links_are_not_followed(snapshot: Snapshot) -> None:
    assert {name: snapshot.read(name) for name in FILES} == {name: text.encode() for name, text in FILES.items()}
    for path in ("b/link/secret.yaml", "../outside/secret.yaml", "b", "missing"):
        assert snapshot.read(path) is None
    assert snapshot.read("b/link.yaml") == (b"../a.yaml" if isinstance(snapshot, GitSnapshot) else None)
    assert snapshot.entries("b/link/secret.yaml") == []


def test_all_files_and_the_folders_of_a_folder_are_found_at_once(snapshot: Snapshot) -> None:
    entries = [entry for entry in snapshot.entries() if entry.kind in ("file", "executable")]
    assert read_all(snapshot, entries) == {name: text.encode() for name, text in FILES.items()}
    assert list(child_folders(snapshot, "b")) == ["b/c"]
    ids = set(child_folders(snapshot, "b").values())
    assert (ids == {""}) is not isinstance(snapshot, GitSnapshot)


def test_git_shows_the_commit_and_not_the_work_tree(repository: Repository) -> None:
    (repository.root / "a.yaml").write_text("changed")
    (repository.root / "new.yaml").write_text("new")
    snapshot = GitSnapshot(repository.git, "HEAD")
    assert snapshot.read("a.yaml") == b"a"
    assert snapshot.read("new.yaml") is None


def test_a_submodule_is_listed_and_not_read(repository: Repository) -> None:
    commit = repository.run("rev-parse", "HEAD")
    repository.run("update-index", "--add", "--cacheinfo", f"160000,{commit},module")
    repository.run("commit", "--quiet", "--message=module")
    snapshot = GitSnapshot(repository.git, "HEAD")
    assert shown(snapshot.entries("module")) == [("module", "submodule")]
    assert snapshot.read("module") is None


def test_a_file_that_is_missing_too_large_or_no_text_is_told_by_its_path(
    snapshot: Snapshot, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"missing\.yaml: is missing"):
        read_text(snapshot, "missing.yaml")
    with pytest.raises(InputError, match=r"large\.yaml: has 262145 bytes"):
        read_text(MemorySnapshot({"large.yaml": b"a" * (LARGEST_TEXT + 1)}), "large.yaml")
    with pytest.raises(InputError, match=r"bytes\.yaml"):
        read_text(MemorySnapshot({"bytes.yaml": b"\xff"}), "bytes.yaml")
    if not isinstance(snapshot, MemorySnapshot):
        monkeypatch.setattr(git_module, "LARGEST_OBJECT", 1)
        for _ in range(2):  # before and after it was listed, which tells its id
            with pytest.raises(InputError, match="b/run: has"):
                snapshot.read("b/run")
            snapshot.entries()


def test_a_folder_of_texts_has_a_limit_of_its_own() -> None:
    texts = Texts(MemorySnapshot({"f/a": b"12345", "f/b": b"67890", "f/c": b"1"}), "f", most=9)
    assert texts.read("f/a") == "12345"
    for path in ("f/b", "f/c"):
        with pytest.raises(InputError, match="the files of f have more than 9 bytes"):
            texts.read(path)

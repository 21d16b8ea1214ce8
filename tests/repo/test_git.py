"""Git answers the same whatever the user configured, reads any path, and reports every failure in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroscale.core.errors import InputError
from neuroscale.core.waiting import attempts
from neuroscale.repo import git as git_module
from neuroscale.repo.git import Git, GitError, GitTimeoutError, TooLargeError
from node_lab import exists
from repositories import Repository

STRANGE = ("with space.yaml", "übung.yaml", "line\nbreak.yaml", "return.yaml\r", "-n", ":(glob)*", 'tab\tquote".yaml')


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    made.commit({**{name: name for name in STRANGE}, "folder/inner.yaml": "inner"})
    yield made
    made.git.close()


def test_a_file_of_any_name_is_read(repository: Repository) -> None:
    for name in STRANGE:
        assert repository.git.read_object(f"HEAD:{name}") == name.encode()
    assert repository.git.read_object("HEAD:missing.yaml") is None
    assert repository.git.read_object("HEAD:folder") is None, "a folder is no file"


def test_many_files_are_read_at_once_and_what_cannot_be_read_is_left_out(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = repository.git
    ids = [git.text("rev-parse", f"HEAD:{name}") for name in ("-n", "folder/inner.yaml")]
    tree = git.tree("HEAD", "folder")
    assert git.read_blobs([*ids, tree, "0" * 40]) == {ids[0]: b"-n", ids[1]: b"inner"}
    monkeypatch.setattr(git_module, "LARGEST_OBJECT", 4)
    assert git.read_blobs(ids) == {ids[0]: b"-n"}
    with pytest.raises(TooLargeError, match=r"folder/inner\.yaml"):
        git.read_object("HEAD:folder/inner.yaml")


def test_names_of_commits_and_folders(repository: Repository) -> None:
    git, head = repository.git, repository.run("rev-parse", "HEAD")
    assert git.commit("main", "--base") == head
    assert git.knows(head)
    assert not git.knows("")
    assert git.tree("HEAD", "folder") == repository.run("rev-parse", "HEAD:folder")
    assert git.tree("HEAD", "none") == ""
    for name in ("none", "--all", "-", "HEAD:folder"):
        with pytest.raises(InputError, match="--base"):
            git.commit(name, "--base")


@pytest.mark.parametrize("variable", ["GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_INDEX_FILE", "GIT_CONFIG_PARAMETERS"])
def test_variables_that_point_git_elsewhere_do_not_count(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A hook of git runs with such variables set."""
    head = repository.run("rev-parse", "HEAD")
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    assert repository.git.text("rev-parse", "HEAD") == head


def test_settings_of_the_user_change_no_comparison(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "attributes").write_text("*.yaml binary\n")
    (home / ".gitconfig").write_text(
        f"[core]\n\tattributesFile = {home / 'attributes'}\n\tquotePath = true\n[diff]\n\trenames = false\n"
    )
    monkeypatch.setenv("HOME", str(home))
    repository.run("mv", "folder/inner.yaml", "folder/other.yaml")
    repository.commit({})
    names = repository.git.records("diff", "--name-status", "-z", "HEAD~1", "HEAD")
    assert names == ["R100", "folder/inner.yaml", "folder/other.yaml"]


def test_a_replaced_commit_is_read_as_it_was_merged(repository: Repository) -> None:
    bad = repository.commit({"folder/inner.yaml": "bad"})
    repository.run("replace", bad, f"{bad}~1")
    assert repository.git.read_object(f"{bad}:folder/inner.yaml") == b"bad"


def test_a_failure_is_told_with_gits_own_words(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GitError, match=r"git merge-base failed with exit status 128: .*none"):
        repository.git.run("merge-base", "HEAD", "none")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GitError, match="git is not installed"):
        repository.git.run("status")


def test_a_git_that_does_not_end_is_stopped_with_what_it_started(repository: Repository, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(GitTimeoutError, match="did not end within 1 s"):
        repository.git.run("-c", f"alias.wait=!echo $$ >{pid}; sleep 600", "wait", timeout=1)
    shell = int(pid.read_text())
    # A killed process needs a moment to end.
    for _ in attempts(10, pause=0.02):
        if not exists(shell):
            return
    pytest.fail(f"process {shell} still runs")


def test_a_folder_without_a_repository_is_told(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not a git repository"):
        Git(tmp_path).text("rev-parse", "HEAD")

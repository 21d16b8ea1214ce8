"""What a change touches: found from git alone, for every way in which a path can come, go or hide."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroscale.core.errors import InputError
from neuroscale.gate import merged_change
from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.judged_files import GateInput
from neuroscale.gate.merged_change import find_change, read_change, texts_of
from neuroscale.repo.git import Git
from repositories import Repository

FILES: dict[str, bytes | str | None] = {
    f"manifests/dev/{service}/{name}": f"{service} {name}\n"
    for service in ("a", "b")
    for name in ("request.yaml", "plan.yaml", "inferenceservice.yaml")
}


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path / "repo")
    made.commit({**FILES, "README.md": "hi"})
    yield made
    made.git.close()


def changed(repository: Repository, base: str = "main~1", head: str = "main") -> GateInput:
    return read_change(find_change(repository.git, base, head))


def kinds(given: GateInput) -> dict[str, str]:
    return {service.path.folder: service.change for service in given.services}


def test_a_change_elsewhere_touches_no_service(repository: Repository) -> None:
    repository.commit({"README.md": "ho"})
    given = changed(repository)
    assert (given.services, given.strays) == ((), ())


def test_an_empty_change_touches_no_service(repository: Repository) -> None:
    assert changed(repository, "main", "main").services == ()


def test_added_changed_and_removed_services_are_told_apart(repository: Repository) -> None:
    repository.commit(
        {
            "manifests/dev/c/request.yaml": "c",
            "manifests/dev/a/plan.yaml": "edited",
            **{name: None for name in FILES if "/b/" in name},
        }
    )
    given = changed(repository)
    assert kinds(given) == {"manifests/dev/a": "changed", "manifests/dev/b": "removed", "manifests/dev/c": "added"}
    assert [service.plan_changed for service in given.services] == [True, True, False]
    notices = [one for one in evaluate_files(given, None)[0].findings if one.rule == "removed-service"]
    assert [(one.file, one.severity.value) for one in notices] == [("manifests/dev/b", "notice")]


def test_a_renamed_service_is_a_removed_and_an_added_one(repository: Repository) -> None:
    repository.run("mv", "manifests/dev/a", "manifests/dev/z")
    repository.commit({})
    assert kinds(changed(repository)) == {"manifests/dev/a": "removed", "manifests/dev/z": "added"}


def test_a_changed_service_brings_all_its_files(repository: Repository) -> None:
    repository.commit({"manifests/dev/a/plan.yaml": "edited"})
    (service,) = changed(repository).services
    assert len(service.entries) == 3


@pytest.mark.parametrize(
    "path",
    [
        "policies/x/policy.yaml",
        "templates/llm-inference-service/template.yaml",
        "platform/settings.yaml",
        "platform/catalog/models/m.yaml",
    ],
)
def test_a_change_to_what_judges_or_makes_services_touches_all_of_them(repository: Repository, path: str) -> None:
    repository.commit({path: "x"})
    assert kinds(changed(repository)) == {"manifests/dev/a": "checked", "manifests/dev/b": "checked"}


def test_the_merge_result_is_judged_and_not_the_head_alone(repository: Repository) -> None:
    repository.run("switch", "--quiet", "--create", "feature")
    repository.commit({"manifests/dev/a/plan.yaml": "feature"})
    repository.run("switch", "--quiet", "main")
    repository.commit({"manifests/dev/b/plan.yaml": "main"})
    change = find_change(repository.git, "main", "feature")
    assert kinds(read_change(change)) == {"manifests/dev/a": "changed"}
    assert change.after.read("manifests/dev/b/plan.yaml") == b"main"


def test_a_change_that_conflicts_is_unusable(repository: Repository) -> None:
    repository.run("switch", "--quiet", "--create", "feature")
    repository.commit({"manifests/dev/a/plan.yaml": "feature"})
    repository.run("switch", "--quiet", "main")
    repository.commit({"manifests/dev/a/plan.yaml": "main"})
    with pytest.raises(InputError, match="conflict"):
        find_change(repository.git, "main", "feature")


def test_a_merge_that_takes_too_long_is_unusable(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.run("switch", "--quiet", "--create", "feature")
    repository.commit({"manifests/dev/a/plan.yaml": "feature"})
    repository.run("switch", "--quiet", "main")
    repository.commit({"manifests/dev/b/plan.yaml": "main"})
    monkeypatch.setattr(merged_change, "MERGED_WITHIN", 0.0)
    with pytest.raises(InputError, match="does not merge into the base within 0 s"):
        find_change(repository.git, "main", "feature")


@pytest.mark.parametrize("revision", ["nowhere", "--help", "main:README.md", "", "main; rm -rf /"])
def test_a_revision_that_is_none_is_unusable(repository: Repository, revision: str) -> None:
    with pytest.raises(InputError, match="--head"):
        find_change(repository.git, "main", revision)


def test_a_shallow_clone_is_unusable_because_its_commits_cannot_be_searched(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit({"README.md": "ho"})
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", repository.root.as_uri(), str(clone)], check=True, capture_output=True
    )
    with pytest.raises(InputError, match="shallow"):
        find_change(Git(clone), "HEAD", "HEAD")


def strays(repository: Repository) -> list[str]:
    found = evaluate_files(changed(repository), None)[0].findings
    return [finding.file for finding in found if finding.rule == "stray-file"]


@pytest.mark.parametrize("path", ["manifests/x.yaml", "manifests/dev/kustomization.yaml"])
def test_a_file_outside_every_service_folder_is_found(repository: Repository, path: str) -> None:
    repository.commit({path: "x"})
    assert strays(repository) == [path]


@pytest.mark.parametrize("path", ["manifests", "manifests/dev", "manifests/dev/a"])
def test_a_link_in_place_of_a_folder_is_found(repository: Repository, path: str, tmp_path: Path) -> None:
    repository.run("mv", path, "elsewhere")
    (repository.root / path).parent.mkdir(parents=True, exist_ok=True)
    (repository.root / path).symlink_to(tmp_path)
    repository.commit({})
    assert strays(repository) == [path]


def test_a_submodule_in_place_of_a_service_is_found(repository: Repository) -> None:
    commit = repository.run("rev-parse", "HEAD")
    repository.run("update-index", "--add", "--cacheinfo", f"160000,{commit},manifests/dev/z")
    repository.run("commit", "--quiet", "--message", "submodule")
    assert strays(repository) == ["manifests/dev/z"]


def test_odd_file_names_are_read_and_found(repository: Repository) -> None:
    names = [
        "manifests/dev/a/wei\nrd.yaml",
        "manifests/dev/a/:(top)x",
        "manifests/dev/a/*",
        "manifests/dev/a/\udcff.yaml",
    ]
    for name in names:
        (repository.root / name).write_bytes(b"x")
    repository.commit({})
    found = evaluate_files(changed(repository), None)[0].findings
    assert {finding.file for finding in found if finding.rule == "unlisted-file"} == set(names)


def test_every_content_and_message_of_every_commit_is_searched(repository: Repository) -> None:
    repository.commit({"x.txt": "first secret"}, "message one")
    repository.run("switch", "--quiet", "--create", "side")
    repository.commit({"y.txt": "side secret"}, "message two")
    repository.run("switch", "--quiet", "main")
    repository.commit({"x.txt": None}, "message three")
    repository.run("merge", "--quiet", "--no-ff", "--message", "merge", "side")
    change = find_change(repository.git, "main~3", "main")
    texts = list(texts_of(change))
    contents = b"\n".join(text.content for text in texts)
    assert all(
        word in contents for word in (b"side secret", b"first secret", b"message one", b"message two", b"message three")
    )
    (side,) = [text for text in texts if text.name == "y.txt"]
    assert side.place().startswith("commit ")

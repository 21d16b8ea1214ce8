"""A copy of a platform repository turned into the example organisation's."""

from __future__ import annotations

from pathlib import Path

from neuroscale.core.delivered import EXAMPLE, FOLDER
from neuroscale.rendering.example_files import example_folder, make_example
from neuroscale.repo.layout import SETTINGS

OTHERS_TEAM, OTHERS_SERVICE = "platform/catalog/teams/red.yaml", "manifests/live/chat/inferenceservice.yaml"
OTHERS_TENANCY, NOTES = "platform/tenancy/red/namespace.yaml", "manifests/README.md"
POLICY = "policies/no-mutable-image-tags/policy.yaml"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_another_organisations_files_make_place_and_its_policies_stay(tmp_path: Path) -> None:
    example_folder(tmp_path)
    wanted = files(tmp_path)
    assert wanted[SETTINGS] == (EXAMPLE / SETTINGS).read_bytes()
    assert wanted[POLICY] == (FOLDER / POLICY).read_bytes()
    assert "platform/tenancy/team-alpha/namespace.yaml" in wanted
    assert not any(path.startswith("manifests/") for path in wanted), "no service is added"

    for path in (OTHERS_TEAM, OTHERS_SERVICE, OTHERS_TENANCY, NOTES, POLICY, SETTINGS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("another\n")
    (tmp_path / "platform/catalog/teams/team-alpha.yaml").unlink()
    assert make_example(tmp_path)
    assert files(tmp_path) == wanted | {POLICY: b"another\n", NOTES: b"another\n"}


def test_a_repository_that_is_the_example_already_is_not_written(tmp_path: Path) -> None:
    example_folder(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert not make_example(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before

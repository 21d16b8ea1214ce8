"""From one real wheel to the next by the commands: what the old tool hands over, the new one writes, and gates pass."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from forge_server import ForgeServer
from neuroscale import __version__
from neuroscale.core.errors import ExitStatus
from neuroscale.repo.layout import PIN
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.tool_pin import read_pin
from pin_lab import L4, NEW_FIELD, NEW_TEMPLATE, NEWER, TwoVersions, two_versions
from roots import CHECKOUT, files_of

pytestmark = [pytest.mark.tools, pytest.mark.slow]

EDITS = {
    **NEW_FIELD,
    **NEW_TEMPLATE,
    **{
        f"policies/probes-present/{name}.yaml": lambda text: text.replace("allows no time", "leaves no time")
        for name in ("policy", "cases")
    },
}
"""A new field of the catalog with a value, a policy and the template."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> TwoVersions:
    """The organisation edited a delivered file, and has a service."""
    made = two_versions(tmp_path_factory.mktemp("versions"), EDITS)
    adopter = made.adopter
    example = next(iter(sorted((adopter.root / "templates/examples").glob("gemma*qat.yaml"))))
    done = adopter.run("new", "--answers", example)
    assert done.returncode == 0, done.stderr
    text = (adopter.root / L4).read_text()
    (adopter.root / L4).write_text(f"# Ours, in the basement.\n{text}")
    adopter.git("add", "--all")
    adopter.git("commit", "--quiet", "--message=A service, and an edit")
    pin = read_pin(FolderSnapshot(adopter.root))
    assert pin is not None
    digests = {pin.version: pin.sha256, NEWER: made.newer.sha256}
    listed = made.publisher.releases(digests, {NEWER: "- a shelf for each accelerator\n"})
    (adopter.root.parent / "releases.json").write_text(listed)
    return made


def test_the_next_version_is_written_by_itself_and_passes_both_gates(two: TwoVersions) -> None:
    adopter, releases = two.adopter, two.adopter.root.parent / "releases.json"
    status = adopter.run("repository", "status", "--releases", releases, "--json")
    assert status.returncode == 0, status.stderr
    facts = json.loads(status.stdout)
    assert [release["version"] for release in facts["newer"]] == [NEWER]
    assert (facts["edited"], facts["differing"], facts["not_compared"]) == ([L4], [], "")

    upgrade = ("repository", "upgrade", "--releases", releases)
    looked = adopter.run(*upgrade, "--dry-run")
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert f"neuroscale {NEWER} does the upgrade itself" in looked.stderr
    assert f"goes from {__version__} to {NEWER}" in looked.stdout
    assert f"Merged with the edits of this repository:\n  {L4}\n" in looked.stdout
    assert "1 of 1 service would change by planning anew." in looked.stdout
    assert read_pin(FolderSnapshot(adopter.root)) != two.newer

    adopter.git("switch", "--quiet", "--create", "upgrade")
    done = adopter.run(*upgrade, "--write")
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_pin(FolderSnapshot(adopter.root)) == two.newer
    merged = (adopter.root / L4).read_text()
    assert merged.startswith("# Ours, in the basement.\n")
    assert merged.endswith("shelf: upper\n")
    adopter.git("add", "--all")
    adopter.git("commit", "--quiet", "--message=Upgrade")
    again = adopter.run(*upgrade, "--write")
    assert again.stdout == f"This repository is already at {NEWER}.\n", again.stderr

    exit_status, verdict, printed = two.gate("upgrade")
    assert exit_status == 0, printed
    rules = {finding["rule"] for finding in verdict["findings"] if finding["gate"] == "drift"}
    assert "old-files" in rules, "the service is left as it is"
    adopter.git("switch", "--quiet", "main")


def test_its_pull_request_opens_on_a_real_forge_and_stays_one(two: TwoVersions, forge_server: ForgeServer) -> None:
    adopter, releases = two.adopter, two.adopter.root.parent / "releases.json"
    there = forge_server.create_repository(adopter.root)
    adopter.git("remote", "add", "origin", there.clone_url)
    main = adopter.root / PIN
    before = main.read_bytes()
    upgrade = ("repository", "upgrade", "--releases", releases, "--token-file", forge_server.token_file("developer"))
    developer = forge_server.forge(there, forge_server.developer)
    for said in ("Opened pull request", "Nothing to do: up to date is pull request"):
        done = adopter.run(*upgrade, within=600)
        assert done.returncode == 0, done.stdout + done.stderr
        assert said in done.stdout
        (pull,) = developer.open_pulls("main")
    assert pull.title == f"Upgrade the repository to neuroscale {NEWER}"
    assert pull.head_branch == "neuroscale/upgrade"
    for part in ("- a shelf for each accelerator", f"- `{L4}`", "1 of 1 service would change", two.publisher.name):
        assert part in pull.body
    assert main.read_bytes() == before


def test_a_fork_is_adopted_by_the_wheel_of_its_version(two: TwoVersions, tmp_path: Path) -> None:
    """The fork has the organisation's files, and the tool's beside them."""
    adopter, fork = two.adopter, tmp_path / "fork"
    shutil.copytree(adopter.root, fork, ignore=shutil.ignore_patterns(".git"))
    for name in files_of(CHECKOUT):
        if not (fork / name).exists() and not name.startswith(("tests/", "docs/", "milestones/", "manifests/")):
            (fork / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, fork / name)
    before = {path: (fork / path).read_bytes() for path in (L4, "platform/settings.yaml", "README.md")}
    for name in (PIN, "platform/requirements.txt"):
        (fork / name).unlink()
    (fork / "smoke-tests/test_ours.py").write_text("# ours\n")
    (wheel,) = two.wheels.glob(f"neuroscale-{__version__}-*.whl")
    releases = adopter.root.parent / "releases.json"
    adopt = ("repository", "adopt", "--write", f"--wheel={wheel}", f"--releases={releases}", f"--repository={fork}")
    refused = adopter.run(*adopt)
    assert refused.returncode == ExitStatus.FINDINGS.value, refused.stdout + refused.stderr
    assert "  smoke-tests/test_ours.py\n" in refused.stdout
    assert "  src/" not in refused.stdout.partition("Edits that go")[2].partition("\n\n")[0]
    assert (fork / "src/neuroscale").is_dir()
    done = adopter.run(*adopt, "--accept-loss")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (fork / "src").exists()
    assert not (fork / "scripts").exists()
    pin = read_pin(FolderSnapshot(fork))
    assert pin is not None
    assert pin.is_signed
    assert {path: (fork / path).read_bytes() for path in before} == before
    assert "holds no code of the tool any more" in adopter.run(*adopt).stdout

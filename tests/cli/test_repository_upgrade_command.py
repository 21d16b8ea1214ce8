"""`neuroscale repository upgrade` and `status`: which release is taken, what is written, and what stops them."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from neuroscale import __version__
from neuroscale.actions import tool_versions
from neuroscale.cli import repository
from neuroscale.core.errors import InputError
from neuroscale.repo.layout import PIN, REQUIREMENTS
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.tool_pin import ToolPin, read_pin
from publisher import Publisher
from tool_versions import delivered_file, made_by, pin_of, tool_version, write_package
from wheel_lab import ACME

README = "platform/catalog/README.md"
POLICY = "policies/allowed-registries/policy.yaml"
OLDEST, NEWEST = "0.0.8", "9.0.0"
DIGESTS = {OLDEST: "8" * 64, "0.0.9": "9" * 64, __version__: "a" * 64}
CHANGES = {"0.0.9": "- a field of the catalog\n", __version__: "### Added\n- a <b>policy</b> of `pods`\n"}


class Lab:
    """A repository that pins an old version, the publisher's list, and the packages of the versions."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "acme"
        self.publisher = Publisher()
        self.versions = {
            OLDEST: tool_version(OLDEST),
            "0.0.9": tool_version("0.0.9"),
            __version__: tool_version(__version__, {README: delivered_file(README) + b"A new last line.\n"}),
        }
        for name, version in self.versions.items():
            write_package(folder / "packages" / name, version)
        self.list = folder / "releases.json"
        self.list.write_text(self.publisher.releases(DIGESTS, CHANGES))
        self.write(made_by(self.versions[OLDEST], ACME, self.pin()))

    def pin(self, version: str = OLDEST) -> ToolPin:
        return self.publisher.pin(version, DIGESTS[version], str(self.list))

    def write(self, files: dict[str, bytes]) -> None:
        for path, content in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(content)

    def files(self) -> dict[str, bytes]:
        paths = (path for path in self.root.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in paths}

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(repository.app, [*words, "--repository", str(self.root)], standalone_mode=False)

    def fault(self, *words: str) -> str:
        done = self.run(*words)
        assert isinstance(done.exception, InputError), done.output
        return str(done.exception)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(tmp_path)

    def package_of(version: str, sha256: str) -> Path:
        assert sha256 == DIGESTS[version]
        return tmp_path / "packages" / version

    monkeypatch.setattr(tool_versions, "package_of", package_of)
    return made


def test_it_writes_the_newest_release_and_a_second_time_nothing(lab: Lab) -> None:
    done = lab.run("upgrade", "--write")
    assert done.return_value == 0, done.output
    assert f"The tool of this repository goes from {OLDEST} to {__version__}." in done.output
    assert read_pin(FolderSnapshot(lab.root)) == lab.pin(__version__)
    files = lab.files()
    assert files[README].endswith(b"A new last line.\n")
    assert f"neuroscale=={__version__} ".encode() in files[REQUIREMENTS]
    again = lab.run("upgrade", "--write")
    assert (again.return_value, again.output) == (0, f"This repository is already at {__version__}.\n")
    assert lab.files() == files


def test_a_dry_run_looks_at_the_main_branch_and_writes_nothing(lab: Lab) -> None:
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "start"]):
        identity = ["-c", "user.name=A", "-c", "user.email=a@acme.test"]
        subprocess.run(["git", "-C", str(lab.root), *identity, *words], check=True)
    lab.write({PIN: b"not: a pin\n"})  # in the work tree alone
    before = lab.files()
    done = lab.run("upgrade", "--dry-run")
    assert (done.return_value, done.exception) == (0, None), done.output
    assert README in done.output
    assert "0 of 0 services would change" in done.output
    assert "Dry run: nothing was changed." in done.output
    assert lab.files() == before


def test_a_conflict_ends_with_1_and_waits_for_a_person(lab: Lab) -> None:
    mine = delivered_file(README) + b"Our last line.\n"
    lab.write({README: mine})
    before = lab.files()
    done = lab.run("upgrade", "--write", "--dry-run")
    line = len(mine.splitlines())
    assert done.return_value == 1
    assert f"{README}:{line}: was edited here in lines that the new version changes" in done.output
    assert lab.files() == before

    done = lab.run("upgrade", "--write")
    assert done.return_value == 1
    assert "Resolve the conflicts, and run the command again with --write" in done.output
    assert b"<<<<<<< this repository\nOur last line.\n=======\n" in lab.files()[README]
    lab.write({README: mine + b"A new last line.\n"})
    assert lab.run("upgrade", "--write").output == f"This repository is already at {__version__}.\n"


def test_edits_of_the_tools_own_files_go_only_if_somebody_says_so(lab: Lab) -> None:
    lab.write({POLICY: delivered_file(POLICY) + b"# looser\n"})
    before = lab.files()
    done = lab.run("upgrade", "--write")
    assert done.return_value == 1
    assert f"Edits that go, since the tool owns these files:\n  {POLICY}\n" in done.output
    assert "--accept-loss lets these edits go" in done.output
    assert lab.files() == before
    assert lab.run("upgrade", "--write", "--accept-loss").return_value == 0
    assert b"# looser" not in lab.files()[POLICY]


def test_another_version_is_installed_by_its_digest_and_does_the_work(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = []

    def environment_of(requirements: str) -> Path:
        installed.append(requirements)
        return program

    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\nenv > {tmp_path}/variables\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setattr(tool_versions, "environment_of", environment_of)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    done = lab.run("upgrade", "--to", "0.0.9", "--write", "--accept-loss", "--releases", str(lab.list))
    assert done.return_value == 1
    assert f"--hash=sha256:{DIGESTS['0.0.9']}" in installed[0]
    words = (tmp_path / "words").read_text().split()
    assert words[:5] == ["-P", "-m", "neuroscale", "repository", "upgrade"]
    assert words[words.index("--to") + 1] == "0.0.9"
    assert words[words.index("--releases") + 1] == str(lab.list)
    assert {"--write", "--accept-loss"} <= set(words)
    assert "--dry-run" not in words
    variables = (tmp_path / "variables").read_text()
    assert "PYTHONPATH" not in variables
    monkeypatch.setenv("NEUROSCALE_RUNS_VERSION", "0.0.9")
    assert "was started as 0.0.9" in lab.fault("upgrade", "--to", "0.0.9", "--write")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--to", "7.7.7"],
            f"--to: '7.7.7' is not in the publisher's list. Name one of {OLDEST}, 0.0.9, {__version__}",
        ),
        (["--releases", "/nowhere/releases.json"], "/nowhere/releases.json: cannot be read"),
    ],
)
def test_a_release_that_is_not_listed_is_not_taken(lab: Lab, words: Sequence[str], expected: str) -> None:
    assert expected in lab.fault("upgrade", "--write", *words)


def test_only_the_pins_publisher_names_what_follows(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(Publisher().releases(DIGESTS))
    before = lab.files()
    assert "whose key platform/neuroscale.yaml names" in lab.fault(
        "upgrade", "--write", "--releases", str(tmp_path / "other.json")
    )
    forged = json.loads(lab.list.read_text())
    forged["releases"][-1]["sha256"] = "b" * 64
    lab.list.write_text(json.dumps(forged))
    assert "is not signed by the list's publisher" in lab.fault("upgrade", "--write")
    lab.list.write_text(lab.publisher.releases({OLDEST: "b" * 64}))
    assert "has another digest than platform/neuroscale.yaml names" in lab.fault("upgrade", "--write")
    lab.list.write_text(lab.publisher.releases({"0.0.7": "b" * 64}))
    assert "is older than 0.0.8" in lab.fault("upgrade", "--write")
    assert lab.files() == before


def test_a_pin_without_a_publisher_or_a_list_says_what_to_add(lab: Lab) -> None:
    lab.write(made_by(lab.versions[OLDEST], ACME, pin_of(lab.versions[OLDEST])))
    assert "tool.publisher: is missing" in lab.fault("upgrade", "--write")
    done = lab.run("status")
    assert done.return_value == 0
    assert "Newer releases: not known. platform/neuroscale.yaml: tool.publisher: is missing" in done.output
    lab.write(made_by(lab.versions[OLDEST], ACME, lab.publisher.pin(OLDEST, DIGESTS[OLDEST])))
    assert "tool.releases: is missing. Name the publisher's list with --releases" in lab.fault("upgrade", "--write")
    (lab.root / PIN).unlink()
    assert "neuroscale repository adopt" in lab.fault("upgrade", "--write")


def test_status_says_how_far_behind_it_is_and_what_the_newer_ones_bring(lab: Lab) -> None:
    done = lab.run("status")
    assert done.return_value == 0, done.output
    assert done.output.startswith(f"Pinned: neuroscale {OLDEST}. Running: {__version__}.\n")
    assert f"Newest release: {__version__}, 2 releases ahead." in done.output
    assert "- a field of the catalog" in done.output
    assert "run the pinned one to see which files differ" in done.output


def test_status_of_the_running_version_names_edited_files(lab: Lab) -> None:
    lab.run("upgrade", "--write")
    lab.write({README: b"ours\n", POLICY: b"# ours\n", "platform/tenancy/extra.yaml": b"kind: Role\n"})
    done = lab.run("status", "--json")
    assert done.return_value == 0, done.output
    facts: dict[str, Any] = json.loads(done.output)
    assert (facts["newer"], facts["edited"], facts["not_compared"]) == ([], [README], "")
    assert set(facts["differing"]) >= {POLICY, "platform/tenancy/extra.yaml"}
    assert README not in facts["differing"]


@pytest.fixture
def server(lab: Lab) -> Iterator[str]:
    """An address that answers with the list, and another one that never ends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path != "/none" else 404)
            self.end_headers()
            parts = 8 if self.path == "/endless" else 0
            try:
                self.wfile.write(lab.list.read_bytes())
                for _ in range(parts):
                    self.wfile.write(b" " * 1024 * 1024)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_the_list_comes_over_http_too_within_bounds(lab: Lab, server: str) -> None:
    done = lab.run("status", "--releases", f"{server}/releases.json")
    assert f"Newest release: {__version__}" in done.output
    assert "has more than 4,194,304 bytes" in lab.fault("status", "--releases", f"{server}/endless")
    assert "cannot be read" in lab.fault("status", "--releases", f"{server}/none")

"""`neuroscale repository upgrade` and `status`: which release is taken, what is written, and what stops them."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from typer.testing import CliRunner, Result

import neuroscale
from neuroscale import __version__
from neuroscale.actions import repository_adoption, tool_versions
from neuroscale.actions.service_change import ForgeChoice
from neuroscale.cli import repository
from neuroscale.core.errors import InputError
from neuroscale.forge import request_flow
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.interface import Account, PullRequest, RepositoryRef, Token
from neuroscale.forge.service_pull_request import Base, OpenRequest, Prepared, Proposal, PullRequestOutcome
from neuroscale.forge.service_pull_request import Publisher as PullRequests
from neuroscale.repo.git import Git
from neuroscale.repo.layout import PIN, REQUIREMENTS, FileClass, file_class
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot
from neuroscale.repo.tool_pin import ToolPin, read_pin
from publisher import Publisher
from report_examples import passed
from repositories import Repository
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
        self.made = made_by(self.versions[OLDEST], ACME, self.pin())
        self.write(self.made)

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


@pytest.fixture
def started(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the command lines by which another version is started. It stands for that version, and finds
    something."""
    words, program = lab.folder / "words", lab.folder / "python"
    program.write_text(f"""#!/bin/sh
echo "$@" >> {words}
env > {lab.folder}/variables
case "$*" in *install*) exit 0;; esac
exit 1
""")
    program.chmod(0o755)

    def environment_of(requirements: str) -> Path:
        assert f"--hash=sha256:{DIGESTS['0.0.9']}" in requirements
        return program

    monkeypatch.setattr(tool_versions, "environment_of", environment_of)
    return words


def test_another_version_is_installed_by_its_digest_and_does_the_work(
    lab: Lab, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    done = lab.run("upgrade", "--to", "0.0.9", "--write", "--accept-loss", "--releases", str(lab.list))
    assert done.return_value == 1
    words = started.read_text().split()
    assert words[:5] == ["-P", "-m", "neuroscale", "repository", "upgrade"]
    assert words[words.index("--to") + 1] == "0.0.9"
    assert words[words.index("--releases") + 1] == str(lab.list)
    assert {"--write", "--accept-loss"} <= set(words)
    assert "--dry-run" not in words
    assert "PYTHONPATH" not in (lab.folder / "variables").read_text()
    monkeypatch.setenv("NEUROSCALE_RUNS_VERSION", "0.0.9")
    assert "was started as 0.0.9" in lab.fault("upgrade", "--to", "0.0.9", "--write")


def test_another_version_that_opens_a_pull_request_gets_the_tools_by_which_it_judges(
    lab: Lab, forge: OneForge, started: Path
) -> None:
    assert lab.run("upgrade", "--to", "0.0.9").return_value == 1
    install, upgrade = started.read_text().splitlines()
    assert install == "-P -m neuroscale tools install --for gate"
    assert upgrade.startswith("-P -m neuroscale repository upgrade --to 0.0.9 ")
    assert forge.there is None


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


# The pull request


class OneForge(PullRequests):
    """A forge whose main branch is the clone's, with at most one pull request."""

    def __init__(self, clone: Repository) -> None:
        self.clone = clone
        self._branches = Branches(clone.git, Access("https://git.acme.test/ml/models", Token("x")))
        self.account = Account("ada", "Ada", "ada@acme.test")
        self.there: OpenRequest | None = None
        self.description = ""

    def base(self) -> Base:
        return Base("main", self._branches.git.commit("main", ""))

    def open_request(self, base: Base, branch: str, among: Sequence[PullRequest] | None = None) -> OpenRequest | None:
        return self.there

    def publish(
        self, base: Base, there: OpenRequest | None, prepared: Prepared, wanted: Proposal
    ) -> PullRequestOutcome:
        ref = RepositoryRef("https://git.acme.test", "ml", "models")
        self.description = wanted.description.section("ada", ref)
        pull = PullRequest(
            7, "https://git.acme.test/7", wanted.description.title, "", "open", "ada", "ml", wanted.branch, "", "main"
        )
        result: Literal["opened", "updated", "unchanged"] = "opened" if there is None else "updated"
        self.there = OpenRequest(pull, ref, prepared.commit)
        return PullRequestOutcome(result if prepared.is_new else "unchanged", pull, ref, prepared.commit)

    @property
    def files(self) -> dict[str, bytes]:
        """The files that the pull request's branch holds."""
        assert self.there is not None
        snapshot = GitSnapshot(self._branches.git, self.there.tip)
        return {entry.path: snapshot.read(entry.path) or b"" for entry in snapshot.entries()}


@pytest.fixture
def forge(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneForge]:
    """The lab's repository as a clone; the gate passes whatever it is asked."""
    clone = Repository(lab.root)
    clone.commit({}, "start")
    made = OneForge(clone)

    @contextlib.contextmanager
    def opened(*_: object, **__: object) -> Iterator[tuple[Git, OneForge]]:
        yield clone.git, made

    monkeypatch.setattr(ForgeChoice, "opened", opened)
    monkeypatch.setattr(request_flow, "_judge", lambda *_: passed())
    yield made
    clone.git.close()


def test_its_pull_request_says_what_changes_and_is_brought_up_to_date(lab: Lab, forge: OneForge) -> None:
    main = lab.files()
    done = lab.run("upgrade")
    assert done.return_value == 0, done.output
    assert "Opened pull request 7" in done.output
    assert forge.there is not None
    assert forge.there.pull.title == f"Upgrade the repository to neuroscale {__version__}"
    assert forge.there.pull.head_branch == "neuroscale/upgrade"
    assert lab.files() == main, "the work tree stays as it is"
    text = forge.description
    for part in (
        f"goes from {OLDEST} to {__version__}",
        "0 of 0 services would change by planning anew",
        f"### What {__version__} brings\n\nAdded\n\n- a &lt;b&gt;policy&lt;/b&gt; of `pods`",
        "### What 0.0.9 brings\n\n- a field of the catalog",
        f"<summary>Taken whole from the new version: 3 files</summary>\n\n- `{README}`\n- `{PIN}`",
        "`neuroscale upgrade --all` plans them anew",
    ):
        assert part in text, text
    first = forge.files
    assert first[README].endswith(b"A new last line.\n")
    assert lab.run("upgrade").return_value == 0
    assert forge.files == first

    # Main moves on, in a file that the upgrade merges and in one that it never touches.
    mine = delivered_file(README).replace(b"# ", b"# Our ", 1)
    forge.clone.commit({README: mine, "manifests/dev/notes.txt": b"ours\n"})
    assert "Brought up to date pull request 7" in lab.run("upgrade").output
    assert forge.files == {**first, README: mine + b"A new last line.\n", "manifests/dev/notes.txt": b"ours\n"}


def test_an_open_pull_request_of_another_version_leaves_nothing_behind(lab: Lab, forge: OneForge) -> None:
    lab.run("upgrade")
    upgraded = forge.files
    write_package(lab.folder / "packages" / __version__, tool_version(__version__))
    lab.run("upgrade")
    assert upgraded[README] != forge.files[README] == delivered_file(README)


def test_conflicts_and_losses_open_nothing(lab: Lab, forge: OneForge) -> None:
    forge.clone.commit({README: delivered_file(README) + b"Our last line.\n"})
    done = lab.run("upgrade")
    assert done.return_value == 1
    assert "--write writes the files with git's markers" in done.output
    forge.clone.commit({README: delivered_file(README), POLICY: b"# ours\n"})
    assert lab.run("upgrade").return_value == 1
    assert forge.there is None
    assert lab.run("upgrade", "--accept-loss").return_value == 0
    assert forge.files[POLICY] == lab.made[POLICY]


# `adopt`

CODE = {"src/neuroscale/__init__.py": f'__version__ = "{__version__}"\n'.encode(), "docs/page.md": b"a page\n"}


@pytest.fixture
def wheel(lab: Lab, forge: OneForge, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This tool's wheel. The lab's repository is a fork of its version, with a smoke test of the organisation's own."""
    wheel = lab.folder / f"neuroscale-{__version__}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    digest = hashlib.sha256(b"a wheel").hexdigest()
    package = write_package(lab.folder / "package", tool_version(__version__))
    (package / "__init__.py").write_bytes(CODE["src/neuroscale/__init__.py"])

    def package_of(version: str, sha256: str) -> Path:
        assert (version, sha256) == (__version__, digest)
        return package

    for module in (tool_versions, repository_adoption):
        monkeypatch.setattr(module, "package_of", package_of)
    monkeypatch.setenv("NEUROSCALE_CACHE", str(lab.folder / "cache"))
    lab.list.write_text(lab.publisher.releases({__version__: digest}))
    fork: dict[str, bytes | str | None] = {**made_by(tool_version(__version__), ACME), **CODE}
    forge.clone.commit({**fork, PIN: None, REQUIREMENTS: None, "smoke-tests/test_ours.py": b"ours\n"})
    return wheel


def test_a_fork_is_adopted_by_a_pull_request_after_what_it_loses_is_accepted(
    lab: Lab, forge: OneForge, wheel: Path
) -> None:
    words = ("adopt", "--wheel", str(wheel), "--releases", str(lab.list))
    done = lab.run(*words)
    assert done.return_value == 1
    assert "  smoke-tests/test_ours.py\n" in done.output
    assert "docs/: 1 file, which the tool's wheel does not carry: not compared" in done.output
    assert forge.there is None

    # The tool's own commit of this version is known by its tag: then its documents are compared, too.
    forge.clone.run("tag", f"v{__version__}")
    forge.clone.commit({"docs/page.md": b"our page\n", "smoke-tests/test_ours.py": None})
    done = lab.run(*words)
    assert "Edits that go, since the tool owns these files:\n  docs/page.md\n" in done.output
    done = lab.run(*words, "--accept-loss")
    assert done.return_value == 0, done.output
    assert forge.there is not None
    assert forge.there.pull.title == f"Pin neuroscale {__version__} in place of the tool's own code"
    assert "`docs/page.md`" in forge.description
    files = forge.files
    assert [path for path in files if file_class(path) is FileClass.TOOL] == []
    pin = read_pin(GitSnapshot(forge.clone.git, forge.there.tip))
    assert pin is not None
    assert (pin.is_signed, pin.releases) == (True, str(lab.list))
    assert lab.run(*words, "--accept-loss").return_value == 0
    assert forge.files == files

    forge.clone.run("reset", "--quiet", "--hard", forge.there.tip)
    assert "holds no code of the tool any more" in lab.run(*words).output


def test_a_program_does_not_remove_itself_and_a_list_must_have_the_wheel(
    lab: Lab, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lab.files()
    other = lab.folder / "other.json"
    other.write_text(lab.publisher.releases({__version__: "b" * 64}))
    assert f"has no release {__version__} with the digest" in lab.fault(
        "adopt", "--write", "--wheel", str(wheel), "--releases", str(other)
    )
    monkeypatch.setattr(neuroscale, "__file__", str(lab.root / "src/neuroscale/__init__.py"))
    assert "would remove itself" in lab.fault("adopt", "--write", "--wheel", str(wheel))
    assert lab.files() == before

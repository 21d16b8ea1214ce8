"""Where packages come from: another host, an address or a missing digest in a lock is a finding."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.checks import locked_sources
from neuroscale.gate.checks.locked_sources import evaluate_locks, faults_of, reader_of
from neuroscale.gate.merged_change import find_change
from repositories import Repository
from roots import ROOT

LOCK = "platform/portal/package-lock.json"
SUM = "h1:" + "A" * 43 + "="
OTHER_SUM = "h1:" + "B" * 43 + "="
HASH, OTHER_HASH = f"--hash=sha256:{'a' * 64}", f"--hash=sha256:{'b' * 64}"
DIGEST = "sha512-" + "A" * 86 + "=="
HERE = "registry.example.org"


def npm(**entry: Any) -> str:
    """A lock with the package `left-pad`, whose entry has these values; None removes one."""
    values = {"version": "1.3.0", "integrity": DIGEST, **entry}
    package = {name: value for name, value in values.items() if value is not None}
    return json.dumps({"lockfileVersion": 3, "packages": {"": {}, "app": {}, "node_modules/left-pad": package}})


def named(**packages: Any) -> str:
    return json.dumps({"packages": {place: {"version": "1.0.0", **entry} for place, entry in packages.items()}})


FAULTY = [
    (LOCK, npm(resolved=f"https://{HERE}/left-pad-1.3.0.tgz"), "foreign-source"),
    (LOCK, npm(resolved=f"git+ssh://git@{HERE}/a/left-pad.git#{'a' * 40}", integrity=None), "foreign-source"),
    (LOCK, npm(version=f"git+https://{HERE}/a.git", integrity=None), "foreign-source"),
    (LOCK, npm(version="file:../left-pad", integrity=None), "foreign-source"),
    (LOCK, npm(link=True, resolved="../elsewhere", integrity=None), "foreign-source"),
    (LOCK, npm(link=True, resolved=f"https://{HERE}/a", integrity=None), "foreign-source"),
    (LOCK, npm(link="yes", resolved="app"), "foreign-source"),
    (LOCK, named(app={"resolved": f"https://{HERE}/a.tgz", "integrity": DIGEST}), "foreign-source"),
    (LOCK, json.dumps({"packages": {"app": {"dependencies": {"a": "github:a/b"}}}}), "foreign-source"),
    (LOCK, npm(dependencies={"a": "github:a/b"}), "foreign-source"),
    (LOCK, npm(optionalDependencies={"a": f"https://{HERE}/a.tgz"}), "foreign-source"),
    (LOCK, json.dumps({"packages": {"../app": {"version": "1.0.0", "integrity": DIGEST}}}), "foreign-source"),
    (LOCK, npm(integrity=None), "no-digest"),
    (LOCK, npm(integrity="sha1-AAAAAAAAAAAAAAAAAAAAAAAAAAA="), "no-digest"),
    (LOCK, npm(integrity=""), "no-digest"),
    (LOCK, json.dumps({"lockfileVersion": 1, "dependencies": {}}), "unread-lock"),
    (LOCK, json.dumps({"lockfileVersion": 2, "packages": {}, "dependencies": {}}), "unread-lock"),
    (LOCK, "[", "unread-lock"),
    (LOCK, "[" * 200_000, "unread-lock"),
    ("npm-shrinkwrap.json", npm(integrity=None), "no-digest"),
    *(
        ("platform/portal/app/package.json", json.dumps({part: {"a": spec}}), "foreign-source")
        for part in ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "overrides")
        for spec in ("a/b", "github:a/b", f"https://{HERE}/a.tgz", "file:../a", f"git+ssh://git@{HERE}/a.git")
    ),
    ("package.json", json.dumps({"overrides": {"a": {"b": "c/d"}}}), "foreign-source"),
    *(
        ("platform/portal/.npmrc", line, "foreign-source")
        for line in (
            f"registry=https://{HERE}/",
            f"@backstage:registry = https://{HERE}/",
            f"//{HERE}/:_authToken=${{TOKEN}}",
            "script-shell=/tmp/a",
            "node-options=--require=/tmp/a",
            "fund=true\u2028registry=a",
        )
    ),
    *(
        ("requirements/serve.txt", text, "foreign-source")
        for text in (
            f"--index-url https://{HERE}/simple\n",
            f"-i https://{HERE}/simple\n",
            f"--extra-index-url=https://{HERE}/simple\n",
            f"--find-links=https://{HERE}/\n",
            "--trusted-host=a\n",
            "-r other.txt\n",
            "-e .\n",
            f"a @ https://{HERE}/a.whl {HASH}\n",
            f"git+https://{HERE}/a.git {HASH}\n",
            f"./a.whl {HASH}\n",
            f"a>=1 {HASH}\n",
            f"a==1 {HASH} --index-url=b\n",
            f"a==1 ; python_version > '3' --index-url=b {HASH}\n",
            f"a==1 \\\n    {HASH} \\\n--index-url=b\n",
        )
    ),
    ("requirements/serve.txt", "a==1\n", "no-digest"),
    ("docs/requirements.txt", "a==1 ; python_version > '3'\n", "no-digest"),
    ("requirements/constraints.txt", "a==1\n", "no-digest"),
    # pip reads the second line by itself, since a comment is never continued; so does uv behind an entry.
    ("requirements/serve.txt", "# a \\\n--index-url=b\n", "unread-lock"),
    ("requirements/serve.txt", f"a==1 {HASH} # b \\\n--index-url=c\n", "unread-lock"),
    ("requirements/serve.txt", "# a\r--index-url=b\n", "unread-lock"),
    ("requirements/serve.txt", "# a\u2028--index-url=b\n", "unread-lock"),
    *(
        ("platform/portal/package.json", json.dumps({"packageManager": manager}), "foreign-source")
        for manager in (f"yarn@https://{HERE}/y.js", "yarn@git+ssh://a/b", "yarn@../y.js", "yarn", "", None, ["yarn@4"])
    ),
    *(
        ("platform/local/tools/caddy/go.mod", text, "foreign-source")
        for text in (
            "replace a.org/a => b.org/a v1.0.0\n",
            "replace a.org/a v1.0.0 => b.org/a v1.0.0 // why\n",
            "replace a.org/a => ../a\n",
            "replace a.org/a => a.org/a\n",
            "replace (\r\n\ta.org/a => b.org/a v1.0.0\r\n)\r\n",
            "replace a.org/a=>b.org/a v1.0.0",
            "replace(a.org/a => a.org/a v1.0.0)",
        )
    ),
    ("go.mod", 'replace "a.org/a//" => ../a\n', "unread-lock"),
    ("platform/local/tools/caddy/go.sum", "a v1.0.0\n", "no-digest"),
    ("platform/local/tools/caddy/go.sum", f"a v1.0.0 {SUM}\na v1.0.0 {OTHER_SUM}\n", "changed-digest"),
    (".pre-commit-config.yaml", f"repos:\n- repo: https://{HERE}/a\n  rev: v1\n", "no-digest"),
    (
        ".pre-commit-config.yaml",
        "repos:\n- repo: local\n  hooks: [{id: a, additional_dependencies: [b]}]\n",
        "no-digest",
    ),
    (".pre-commit-config.yaml", "repos: 1\n", "unread-lock"),
    ("catalog-info.yaml", f"spec:\n  targets: [./a, 'https://{HERE}/a']\n", "foreign-source"),
    ("catalog-info.yaml", "spec: {target: ../../a}\n", "foreign-source"),
    ("catalog-info.yaml", "docs/other.yaml", "unread-lock"),  # the text of a link
    ("catalog-info.yaml", f"spec:\n  definition:\n    $text: https://{HERE}/a\n", "foreign-source"),
]


@pytest.mark.parametrize(("path", "text", "rule"), FAULTY)
def test_another_source_and_a_missing_digest_are_found(path: str, text: str, rule: str) -> None:
    assert {fault.rule for fault in faults_of(path, text.encode(), {})} == {rule}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (LOCK, npm()),
        (LOCK, npm(link=True, resolved="app", version=None, integrity=None)),
        ("package.json", json.dumps({"dependencies": {"a": "^1.2.3 || 2.x", "b": "npm:@c/d@1.0.0-rc.1", "e": "*"}})),
        ("package.json", json.dumps({"workspaces": ["app"], "overrides": {"a": {".": "1", "b": "$c"}}})),
        ("package.json", json.dumps({"packageManager": "yarn@4.9.1"})),
        ("package.json", json.dumps({"packageManager": f"pnpm@10.0.0-rc.1+sha512.{'a' * 128}"})),
        ("go.mod", "module a\n\ngo 1.26.6\n\ntoolchain go1.26.7\n\nrequire b.org/b v1.0.0 // b => c\n"),
        ("go.mod", "replace a.org/a => a.org/a v1.0.0\n\nreplace (\n\tb.org/b v1.0.0 => b.org/b v1.1.0\n)\n"),
        (".npmrc", "; no hosts\nomit-lockfile-registry-resolved=true\nlegacy-peer-deps = true\n\n"),
        ("requirements/serve.txt", f"# made by uv\na==1.0+cpu ; python_version > '3' \\\n    {HASH} \\\n    {HASH}\n"),
        ("requirements/serve.txt", f"a[b,c]==1 {HASH}\n    # via d\n"),
        ("go.sum", f"a v1.0.0 {SUM}\na v1.0.0/go.mod {OTHER_SUM}\n"),
        (".pre-commit-config.yaml", f"repos:\n- repo: https://{HERE}/a\n  rev: {'a' * 40}\n- repo: local\n"),
        ("catalog-info.yaml", "spec: {targets: [./manifests/*/*/catalog-info.yaml]}\n"),
        ("catalog-info.yaml", f"metadata:\n  links: [{{url: 'https://{HERE}'}}]\n"),
    ],
)
def test_a_plain_lock_has_no_fault(path: str, text: str) -> None:
    assert faults_of(path, text.encode(), {}) == []


def test_no_lock_of_this_repository_has_a_fault() -> None:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True)
    # The replacements of a go.mod are judged against those of its base.
    locks = [path for path in filter(reader_of, listed.stdout.splitlines()) if not path.endswith("go.mod")]
    assert len(locks) > 30
    digests: dict[str, str] = {}
    assert [fault for path in locks for fault in faults_of(path, (ROOT / path).read_bytes(), digests)] == []
    assert len(digests) > 10_000


def test_a_go_mod_of_this_repository_has_only_the_replacements_of_its_base(repository: Repository) -> None:
    modules = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("platform/local/tools/*/go.mod")}
    assert len(modules) > 10
    repository.commit({**modules})
    released = {path: text.replace(" v0.", " v1000.0.0-0.") for path, text in modules.items()}
    assert findings_of(repository, **{path: f"{text}// Looked at again.\n" for path, text in modules.items()}) == []
    assert findings_of(repository, **released) == [], "another version of a replacement that the base has"
    led_away = {path: f"{text}\nreplace a.org/a => b.org/a v1.0.0\n" for path, text in modules.items()}
    assert findings_of(repository, **led_away) == [("foreign-source", path) for path in sorted(modules)]
    changed = {path: text.replace("=> gitea.com/gitea/act", "=> b.org/act") for path, text in led_away.items()}
    assert findings_of(repository, **changed) == [("foreign-source", "platform/local/tools/gitea/go.mod")]


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    made.commit(
        {
            LOCK: npm(),
            "requirements/serve.txt": f"a==1 {HASH}\n",
            "go.sum": f"a v1.0.0 {SUM}\n",
            ".npmrc": "registry=//here\n",
        }
    )
    yield made
    made.git.close()


def findings_of(repository: Repository, **files: bytes | str | None) -> list[tuple[str, str]]:
    repository.commit({name.replace("__", "/"): text for name, text in files.items()})
    findings, tripwires = evaluate_locks(find_change(repository.git, "main~1", "main"))
    assert tripwires > 8
    assert all(finding.severity.value == "error" and finding.fix for finding in findings)
    return [(finding.rule, finding.file) for finding in findings]


def test_another_digest_of_the_same_version_is_found_and_a_new_version_is_not(repository: Repository) -> None:
    assert findings_of(repository, **{LOCK: npm(integrity="sha512-" + "B" * 86 + "==")}) == [("changed-digest", LOCK)]
    assert findings_of(repository, **{LOCK: npm(version="1.3.1")}) == []
    assert findings_of(repository, **{"go.sum": f"a v1.0.0 {OTHER_SUM}\n"}) == [("changed-digest", "go.sum")]
    assert findings_of(repository, **{"go.sum": f"a v1.0.0 {OTHER_SUM}\nb v2.0.0 {SUM}\n"}) == []
    path = "requirements/serve.txt"
    assert findings_of(repository, **{path: f"a==1 {OTHER_HASH}\n"}) == [("changed-digest", path)]
    assert findings_of(repository, **{path: f"a==1 {OTHER_HASH} {HASH}\n"}) == []  # one more file of the same release


def test_faults_that_the_base_has_are_not_the_changes_and_those_of_a_new_place_are(repository: Repository) -> None:
    kept = "registry=//here\n"
    assert findings_of(repository, **{".npmrc": f"{kept}fund=false\n"}) == []
    assert findings_of(repository, **{".npmrc": f"{kept}proxy=//b\n"}) == [("foreign-source", ".npmrc")]
    umlaut = "# für alle\n"
    assert findings_of(repository, **{"requirements.txt": umlaut}) == [("unread-lock", "requirements.txt")]
    assert findings_of(repository, **{"requirements.txt": f"{umlaut}-r b\n"}) == [("unread-lock", "requirements.txt")]
    assert findings_of(repository, **{".npmrc": None, "platform/portal/.npmrc": kept}) == [
        ("foreign-source", "platform/portal/.npmrc")
    ]


def test_the_faults_of_a_lock_are_bounded_and_one_that_is_too_large_is_found(repository: Repository) -> None:
    assert len(findings_of(repository, **{"requirements/serve.txt": "a==1\n" * 100})) == 1
    many = "".join(f"a{number}==1\n" for number in range(100))
    assert findings_of(repository, **{"requirements/serve.txt": many})[-1] == ("unread-lock", "requirements/serve.txt")
    assert findings_of(repository, **{LOCK: b" " * (16 * 2**20 + 1)}) == [("unread-lock", LOCK)]


@pytest.mark.parametrize("path", ["requirements.txt", ".npmrc", "go.sum", "go.mod", LOCK, ".pre-commit-config.yaml"])
@pytest.mark.parametrize("sign", ["#", " ", "=", "a;", "[", "a v", "-\n", "a==1 ", "\\\n", "v => "])
def test_a_large_lock_of_one_sign_takes_no_long_time(path: str, sign: str) -> None:
    start = time.process_time()
    faults_of(path, (sign * (2**20 // len(sign))).encode(), {})
    assert time.process_time() - start < 5


def test_a_reader_that_sees_nothing_makes_the_gate_untrusted(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = find_change(repository.git, "main", "main")
    for name in {*locked_sources._READERS}:
        with monkeypatch.context() as patched:
            patched.setitem(locked_sources._READERS, name, lambda *_: iter(()))
            if name == "npm-shrinkwrap.json":
                continue
            with pytest.raises(UntrustedError, match="did not find its tripwire"):
                evaluate_locks(change)

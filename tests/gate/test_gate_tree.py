"""The whole tree of a merge result: what breaks or abuses a checkout is found wherever it lies."""

from __future__ import annotations

import hashlib
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.checks import whole_tree as tree_module
from neuroscale.gate.checks.git_attributes import attribute_findings, hiding_findings
from neuroscale.gate.checks.whole_tree import MOST_FINDINGS, evaluate_tree, tree_findings
from neuroscale.gate.merged_change import find_change
from neuroscale.gate.verdict import Severity
from neuroscale.repo.git import Git
from neuroscale.repo.layout import MANIFESTS, PROTECTED, TAKES_PLACE_OF, WRITTEN, is_written
from repositories import Repository
from roots import CHECKOUT

NFC, NFD = "caf\u00e9.md", "cafe\u0301.md"
FILES: dict[str, bytes | str | None] = {
    "README.md": "hi",
    "docs/guide.md": "guide",
    "docs/deep/er/page.md": "page",
    "src/neuroscale/cli/app.py": "pass",
    "manifests/README.md": "hi",
}


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    made.run("config", "core.quotePath", "false")
    made.commit(FILES)
    yield made
    made.git.close()


def found(repository: Repository, base: str = "HEAD~1", head: str = "HEAD") -> set[tuple[str, str]]:
    return {(one.rule, one.file) for one in evaluate_tree(find_change(repository.git, base, head))[0]}


def link(repository: Repository, path: str, target: str) -> None:
    """Commit a link by the index alone, so that nothing of this machine is followed."""
    blob = subprocess.run(
        ["git", "-C", str(repository.root), "hash-object", "-w", "--stdin"],
        input=target.encode(),
        capture_output=True,
        check=True,
    )
    repository.run("update-index", "--add", "--cacheinfo", f"120000,{blob.stdout.decode().strip()},{path}")
    repository.run("commit", "--quiet", "--message", "link")


def blob(repository: Repository, path: str = "README.md") -> str:
    return repository.run("rev-parse", f"HEAD:{path}")


# What passes


def test_this_repository_passes_as_it_is() -> None:
    git = Git(CHECKOUT)
    try:
        assert tree_findings(git.read_object, "", git.tree("HEAD", "")) == []
    finally:
        git.close()


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("LICENSE", "docs/guide.md"),
        ("docs/readme", "../README.md"),
        ("docs/deep/er/guide", "../../guide.md"),
        ("docs/deep/er/root", "../../.."),
        ("docs/here", "./deep//er/"),
        ("docs/nowhere", "not-there.md"),
        ("docs/dots", "..hidden"),
    ],
)
def test_a_relative_link_inside_the_repository_passes(repository: Repository, path: str, target: str) -> None:
    link(repository, path, target)
    assert found(repository) == set()


def test_ordinary_changes_pass(repository: Repository) -> None:
    repository.commit({NFC: "ü", "docs/latin-\udce9.md": "x", "Docs-of-ours/guide.md": "x", "state/a": "", "venv": ""})
    repository.run("mv", "README.md", "readme.md")
    repository.commit({"x" * 255: "long", "scripts/run": "#!/bin/sh"})
    (repository.root / "scripts/run").chmod(0o755)
    repository.commit({})
    assert found(repository, "HEAD~3") == set()


def test_what_stood_on_the_base_already_is_not_the_changes_finding(repository: Repository) -> None:
    link(repository, "docs/out", "/etc/passwd")
    repository.run("checkout", "--", ".")
    repository.commit({"docs/guide.md": "edited"})
    assert repository.run("ls-tree", "HEAD", "docs/out")
    assert found(repository) == set()


@pytest.mark.parametrize("path", ["pytest.ini", "conftest.py", "setup.cfg", "Ruff.toml", ".mypy.ini", "GNUmakefile"])
def test_a_file_that_tools_read_in_place_of_a_protected_one_is_protected_and_named(
    repository: Repository, path: str
) -> None:
    repository.commit({path: "x", f"docs/{path}": "x"})
    (notice,) = evaluate_tree(find_change(repository.git, "HEAD~1", "HEAD"))[0]
    assert (notice.rule, notice.file, notice.severity) == ("takes-place", path, Severity.NOTICE)
    assert {*TAKES_PLACE_OF} <= {*PROTECTED}


# Where the machinery writes


@pytest.mark.parametrize(
    "path",
    [
        ".venv/bin/python",
        ".venv",
        ".VENV/pyvenv.cfg",
        ".state/smoke-credential",
        "src/neuroscale/__pycache__/cli.cpython-311.pyc",
        "tests/node/node_modules/.neuroscale-setup.json",
        "neuroscale.egg-info/entry_points.txt",
        ".mypy_cache/x",
        "docs/.hypothesis/x",
    ],
)
def test_nothing_is_tracked_where_the_machinery_writes(repository: Repository, path: str) -> None:
    repository.commit({path: "x"})
    (rule, file), *others = found(repository)
    assert (rule, others) == ("written-path", [])
    assert path == file or path.startswith(f"{file}/")


def test_a_link_in_place_of_a_folder_that_a_workflow_writes_is_found(repository: Repository) -> None:
    link(repository, ".state/smoke-credential", "smoke")
    assert found(repository) == {("written-path", ".state")}


def test_the_list_of_what_is_written_is_what_git_ignores_and_what_cleaning_removes() -> None:
    ignored = (CHECKOUT / ".gitignore").read_text().split()
    assert sorted(ignored) == sorted(f"{name}/" for name in WRITTEN)
    makefile = (CHECKOUT / "Makefile").read_text()
    (cleaned,) = (line for line in makefile.splitlines() if line.startswith("\trm -rf "))
    assert all(is_written(path.rpartition("/")[2]) for path in cleaned.split()[2:])


# Links, submodules and names


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("docs/out", "/etc/passwd"),
        ("docs/out", "../../outside"),
        ("out", ".."),
        ("docs/deep/out", "../../../outside"),
        ("docs/deep/out", "er/../../../../outside"),
        ("docs/out", "deep/../guide.md"),  # what `deep` is may change, and then where this leads
        ("config", ".git/config"),
        ("docs/python", "../.venv/bin/python"),
        ("empty", "x" * 1001),
    ],
)
def test_a_link_that_leads_elsewhere_is_found(repository: Repository, path: str, target: str) -> None:
    link(repository, path, target)
    assert found(repository) == {("link", path)}


def test_a_chain_through_a_linked_folder_does_not_lead_out(repository: Repository) -> None:
    """`docs/deep/up` being a link to the root, `up/../x` is beside the repository, though its letters say otherwise."""
    link(repository, "docs/deep/up", "../..")
    link(repository, "docs/deep/out", "up/../x")
    assert found(repository, "HEAD~2") == {("link", "docs/deep/out")}


@pytest.mark.parametrize("path", ["docs/theirs", "theirs"])
def test_a_submodule_is_found_wherever_it_lies(repository: Repository, path: str) -> None:
    repository.run("update-index", "--add", "--cacheinfo", f"160000,{repository.run('rev-parse', 'HEAD')},{path}")
    repository.run("commit", "--quiet", "--message", "submodule")
    assert found(repository) == {("submodule", path)}


@pytest.mark.parametrize("path", [".gitmodules", "docs/.gitmodules", ".GitModules"])
def test_settings_of_submodules_are_found(repository: Repository, path: str) -> None:
    repository.commit({path: '[submodule "x"]\n'})
    assert found(repository) == {("submodule", path)}


def test_a_name_that_no_file_system_can_hold_is_found(repository: Repository) -> None:
    name = "ü" * 128
    repository.commit_tree(("100644", name.encode(), blob(repository)))
    assert found(repository) == {("long-name", name)}


def test_a_path_that_not_every_checkout_can_hold_is_found(repository: Repository) -> None:
    repository.run("update-index", "--add", "--cacheinfo", f"100644,{blob(repository)},{'x' * 200}" + "/y" * 401)
    repository.run("commit", "--quiet", "--message", "long")
    ((rule, file),) = found(repository)
    assert (rule, len(file)) == ("long-name", 1002)


@pytest.mark.parametrize(
    ("one", "other"), [("guide.md", "Guide.md"), (NFC, NFD), ("STRASSE", "straße"), ("deep/a.md", "Deep/b.md")]
)
def test_names_that_differ_by_case_or_unicode_form_are_found(repository: Repository, one: str, other: str) -> None:
    repository.commit({f"docs/{one}": "one"})
    repository.commit({f"docs/{other}": "other"})
    file = "docs/" + max(one.split("/")[0], other.split("/")[0])
    assert found(repository) == {("similar-names", file)}


def test_an_edit_beside_a_name_that_stood_there_already_passes(repository: Repository) -> None:
    repository.commit({"Makefile": "all:\n", "makefile": "all:\n"})
    repository.commit({"makefile": "edited:\n"})
    assert found(repository) == set()


def test_the_same_name_in_two_folders_passes(repository: Repository) -> None:
    repository.commit({"a/guide.md": "", "b/Guide.md": ""})
    assert found(repository) == set()


def test_a_second_entry_of_the_same_name_is_found(repository: Repository) -> None:
    """Git reads the first of them, and a checkout writes the last."""
    first, second = blob(repository), blob(repository, "docs/guide.md")
    repository.commit_tree(("100644", b"README.md", first), ("100644", b"README.md", second))
    assert found(repository) == {("repeated-name", "README.md")}


def test_the_same_entry_twice_is_found(repository: Repository) -> None:
    repository.commit_tree(*[("100644", b"README.md", blob(repository))] * 2)
    assert found(repository) == {("repeated-name", "README.md")}


def test_a_file_and_a_folder_of_one_name_are_found(repository: Repository) -> None:
    docs = repository.run("rev-parse", "HEAD:docs")
    one = blob(repository)
    repository.commit_tree(("100644", b"docs", one), ("100644", b"docs-x", one), ("40000", b"docs", docs))
    assert found(repository) == {("repeated-name", "docs")}


@pytest.mark.parametrize(
    "entry", [("100644", b".git"), ("100644", b".GIT"), ("100644", b"a/b"), ("100644", b".."), ("100664", b"odd")]
)
def test_an_entry_that_git_does_not_make_is_found(repository: Repository, entry: tuple[str, bytes]) -> None:
    repository.commit_tree((*entry, blob(repository)))
    assert found(repository) == {("broken-tree", entry[1].decode())}


def _tree_of(*entries: tuple[str, str]) -> bytes:
    """A tree object of an empty file (or an empty folder) for each mode and name."""
    blob, folder = (hashlib.sha1(f"{kind} 0\0".encode()).digest() for kind in ("blob", "tree"))
    return b"".join(
        f"{mode} {name}\0".encode() + (folder if mode.lstrip("0") == "40000" else blob) for mode, name in entries
    )


def test_whatever_git_fsck_refuses_in_a_tree_is_found(repository: Repository) -> None:
    names = ("", ".", "..", ".git", ".GIT", "git~1", "GIT~1", ".git. .", ".git::$INDEX_ALLOCATION", ".g\u200cit")
    trees = [_tree_of(("40000", name)) for name in (*names, "a\\.git", "a\\git~1 ")]
    trees += [_tree_of((mode, "a")) for mode in ("040000", "0", "", "10x644")]
    trees += [
        _tree_of(("100644", "a/b")),
        _tree_of(("100644", "b"), ("100644", "a")),
        _tree_of(("40000", "a"), ("100644", "a.b")),
        _tree_of(("100644", "a"), ("40000", "a")),
        _tree_of(("100644", "a"), ("100644", "a.b"), ("40000", "a")),
        _tree_of(("120000", ".gitmodules")),
    ]
    passing = _tree_of(("100644", ".gita"), ("40000", "git"), ("100644", "git~"), ("100644", "git~10"))
    ids = {hashlib.sha1(b"tree %d\0" % len(tree) + tree).hexdigest(): tree for tree in (*trees, passing)}
    for name, tree in ids.items():
        file = repository.root / ".git/objects" / name[:2] / name[2:]
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(zlib.compress(b"tree %d\0" % len(tree) + tree))
    command = ["git", "-C", str(repository.root), "fsck", "--strict", "--no-dangling"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    refused = {name for name in ids if f"error in tree {name}" in said.stderr + said.stdout}
    assert len(refused) == len(trees)

    def read(name: str, kind: str) -> bytes:
        return ids.get(name, b"") if kind == "tree" else b"elsewhere"

    assert {name for name in ids if tree_findings(read, "", name)} == refused


def test_entries_in_another_order_which_git_does_not_find_are_found(repository: Repository) -> None:
    repository.commit_tree(("100644", b"b", blob(repository)), ("100644", b"a", blob(repository)))
    assert found(repository) == {("broken-tree", ".")}


# How it reads


def test_folders_that_did_not_change_are_not_read(repository: Repository) -> None:
    repository.commit({"docs/guide.md": "edited"})
    change = find_change(repository.git, "HEAD~1", "HEAD")
    read: list[str] = []

    def counted(object_id: str, kind: Literal["blob", "tree"]) -> bytes | None:
        read.append(object_id)
        return repository.git.read_object(object_id, kind)

    tree_findings(counted, repository.git.tree(change.base, ""), change.tree)
    roots = {repository.git.tree(commit, "") for commit in ("HEAD", "HEAD~1")}
    docs = {repository.git.tree(commit, "docs") for commit in ("HEAD", "HEAD~1")}
    assert set(read) == roots | docs


def test_a_tree_that_cannot_be_read_is_not_trusted() -> None:
    with pytest.raises(UntrustedError, match="cannot read"):
        tree_findings(lambda *_: None, "", "0" * 40)
    with pytest.raises(UntrustedError, match="damaged"):
        tree_findings(lambda *_: b"100644 name", "", "0" * 40)


def test_the_findings_are_bounded_and_say_so() -> None:
    id_ = hashlib.sha1(b"x", usedforsecurity=False)
    data = b"".join(b"160000 %05d\0" % number + id_.digest() for number in range(MOST_FINDINGS + 50))
    listed = tree_findings(lambda *_: data, "", "0" * 40)
    assert len(listed) == MOST_FINDINGS + 1
    assert listed[-1].rule == "too-many"


def test_a_known_bad_tree_that_is_not_found_ends_the_check(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "is_written", lambda _: False)
    with pytest.raises(UntrustedError, match="written-path"):
        found(repository, "HEAD", "HEAD")


# Attributes


@pytest.mark.parametrize(
    "line",
    [
        "* text=auto",
        "* text=auto eol=lf",
        "*.sh text eol=lf",
        "*.md diff=markdown",
        "*.png filter=lfs diff=lfs merge=lfs -text",
        "*.ipynb linguist-vendored",
        "src/** linguist-generated=true",
        "requirements/*.txt -diff linguist-generated",
        "/docs/** export-ignore",
        "docs/*.md ident",
        "*.py -ident !filter -export-ignore",
        "# * filter=lfs",
        "",
    ],
)
def test_attributes_that_change_nothing_that_is_trusted_pass(line: str) -> None:
    assert attribute_findings(".gitattributes", f"{line}\n".encode()) == []


@pytest.mark.parametrize(
    "line",
    [
        "* filter=lfs",
        "*.yaml working-tree-encoding=UTF-16",
        "*.py ident",
        "Makefile text eol=crlf",
        "\ufeffsrc/** export-ignore",
        '"src/**" export-subst',
        "/platform/settings.yaml\tfilter=x",
        "**/*.yaml eol=crlf",
        "[ms]* filter=x",
        "*.so filter=lfs",
        "manifests/** text=auto eol=crlf",
    ],
)
@pytest.mark.parametrize("path", [".gitattributes", "src/.gitattributes"])
def test_attributes_that_change_what_is_trusted_are_found(line: str, path: str) -> None:
    (finding,) = attribute_findings(path, f"{line}\r\n* text=auto\n".encode())
    assert (finding.rule, finding.file, finding.line) == ("attributes", path, 1)


def test_attributes_of_a_folder_that_nothing_trusts_pass() -> None:
    assert attribute_findings("docs/.gitattributes", b"* filter=lfs\n") == []


def test_attributes_in_every_changed_folder_are_read(repository: Repository) -> None:
    repository.commit({"src/neuroscale/.gitattributes": "*.py filter=x\n", "docs/.gitattributes": "* ident\n"})
    assert found(repository) == {
        ("attributes", "src/neuroscale/.gitattributes"),
        ("converted-file", "src/neuroscale/cli/app.py"),
        ("attributes-changed", "src/neuroscale/.gitattributes"),
        ("attributes-changed", "docs/.gitattributes"),
    }
    link(repository, "src/.gitattributes", "../README.md")
    assert found(repository) == {
        ("link", "src/.gitattributes"),
        ("converted-file", "src/neuroscale/cli/app.py"),
        ("attributes-changed", "src/.gitattributes"),
    }


def test_attributes_that_hide_changes_from_reviewers_are_notices(repository: Repository) -> None:
    lines = ("*.png binary", "/docs/** linguist-generated", "* text=auto diff", "manifests/** -diff", "*.yaml binary")
    repository.commit({".gitattributes": "\n".join(lines)})
    assert found(repository) == {("hidden-changes", ".gitattributes"), ("attributes-changed", ".gitattributes")}
    seen = hiding_findings(".gitattributes", "\n".join(lines).encode())
    assert [(one.line, one.severity) for one in seen] == [(4, Severity.NOTICE), (5, Severity.NOTICE)]
    repository.commit({"other.txt": "x"})
    assert found(repository) == set(), "what stands there already is told once"


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ("[attr]docs.png working-tree-encoding=UTF-7\n/manifests/** docs.png\n", "manifests/README.md"),
        ("[attr]x.zip text eol=crlf\n/src/** x.zip\n", "src/neuroscale/cli/app.py"),
        ("[attr]a ident\n[attr]b.png a\n/src/** b.png\n", "src/neuroscale/cli/app.py"),
        ('"[attr]c.png" filter=x\n/manifests/** filter=x\n', "manifests/README.md"),
    ],
)
def test_an_attribute_that_stands_for_others_is_refused_and_git_says_what_it_does(
    repository: Repository, content: str, path: str
) -> None:
    repository.commit({".gitattributes": content})
    rules = found(repository)
    assert ("attribute-macro", ".gitattributes") in rules
    assert ("converted-file", path) in rules
    assert attribute_findings("docs/.gitattributes", content.encode())


def test_git_answers_for_files_that_a_line_of_the_base_converts(repository: Repository) -> None:
    repository.commit({"src/.gitattributes": "*.cfg ident\n"})
    repository.commit({"src/new.cfg": "x"})
    assert found(repository) == {("converted-file", "src/new.cfg")}


def test_attributes_of_this_machine_neither_hide_nor_add_an_answer(repository: Repository) -> None:
    repository.commit({"src/.gitattributes": "*.py filter=x\n"})
    info = repository.root / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text("src/** !filter\nmanifests/** filter=own\n")
    assert ("converted-file", "src/neuroscale/cli/app.py") in found(repository)
    assert ("converted-file", "manifests/README.md") not in found(repository)


def test_git_without_its_answer_is_not_believed(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit({"docs/.gitattributes": "*.md text\n"})
    real = Git.run

    def without_index(self: Git, *arguments: str, **options: object) -> object:
        changed = [part for part in arguments if part != "--cached"] if arguments[0] == "check-attr" else arguments
        return real(self, *changed, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Git, "run", without_index)
    with pytest.raises(UntrustedError, match="tripwire"):
        found(repository)


def test_every_change_of_attributes_is_named_with_its_lines(repository: Repository) -> None:
    repository.commit({"docs/.gitattributes": "*.md text\n*.txt text\n"})
    repository.commit({"docs/.gitattributes": "*.md text\n*.rst -text \x1b[31m\n"})
    (notice,) = evaluate_tree(find_change(repository.git, "HEAD~1", "HEAD"))[0]
    assert (notice.rule, notice.severity) == ("attributes-changed", Severity.NOTICE)
    assert "- '*.txt text'" in notice.message
    assert "+ '*.rst -text \\x1b[31m'" in notice.message
    repository.commit({"docs/.gitattributes": None})
    assert found(repository) == {("attributes-changed", "docs/.gitattributes")}


def test_attributes_that_are_too_large_to_be_judged_are_found() -> None:
    (finding,) = attribute_findings(".gitattributes", b"# x\n" * 30_000)
    assert "larger than" in finding.message


def test_every_trusted_folder_is_covered() -> None:
    for path in (*PROTECTED, f"{MANIFESTS}/", "platform/catalog/", "templates/"):
        pattern = f"/{path}**" if path.endswith("/") else f"/{path}"
        assert attribute_findings(".gitattributes", f"{pattern} filter=x\n".encode()), path

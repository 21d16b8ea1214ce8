"""A repository takes another version: whose edits stay, what is merged, what conflicts, and that nothing is guessed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.core.errors import InputError
from neuroscale.rendering.platform.files import differences, render_repository
from neuroscale.rendering.repository_upgrade import RepositoryUpgrade, ToolVersion, edited_files, plan_upgrade
from neuroscale.rendering.scaffolder.form import as_configured
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.git import Git
from neuroscale.repo.layout import PIN, REQUIREMENTS, SETTINGS
from neuroscale.repo.snapshot import Kind, MemorySnapshot
from neuroscale.repo.three_way_merge import merge_contents
from neuroscale.repo.tool_pin import read_pin
from tool_versions import delivered_file, made_by, pin_of, tool_version
from wheel_lab import ACME

OLD = tool_version("0.3.0")
CATALOG_README = "platform/catalog/README.md"
WORKFLOW = ".github/workflows/gate.yaml"
FORM = "templates/llm-inference-service/template.yaml"
SKELETON = "templates/llm-inference-service/skeleton/networkpolicy.yaml"
MODEL = "platform/catalog/models/Qwen3-0.6B.yaml"
POLICY = "policies/allowed-registries/policy.yaml"
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def git() -> Iterator[Git]:
    with closing(Git(Path(__file__).parent)) as git:
        yield git


def planned(
    git: Git, files: Mapping[str, bytes], new: ToolVersion, old: ToolVersion = OLD, kinds: dict[str, Kind] | None = None
) -> RepositoryUpgrade:
    merge = partial(merge_contents, git, names=("this repository", f"neuroscale {new.version}"))
    return plan_upgrade(MemorySnapshot(files, kinds), old, new, pin_of(new), merge)


def after(files: Mapping[str, bytes], upgrade: RepositoryUpgrade) -> Files:
    both = {**files, **upgrade.files}
    return {path: data for path, data in both.items() if data is not None}


def upgraded(git: Git, files: Mapping[str, bytes], new: ToolVersion, old: ToolVersion = OLD) -> Files:
    """The repository after an upgrade that needs nobody; a second time changes nothing."""
    upgrade = planned(git, files, new, old)
    assert (upgrade.conflicts, upgrade.lost) == ((), ())
    result = after(files, upgrade)
    assert planned(git, result, new, new).files == {}
    snapshot = MemorySnapshot(result)
    assert differences(snapshot, render_repository(snapshot)) == []
    return result


@pytest.fixture(scope="module")
def acme() -> Files:
    return made_by(OLD, ACME)


# Edits of lines. A line's number is that in the text of the old version.


class Edit(NamedTuple):
    """Of one line: it gets another behind it, or becomes another, or goes."""

    line: int
    kind: str
    text: bytes


def edited(text: bytes, edits: list[Edit]) -> bytes:
    lines = text.splitlines(keepends=True)
    for edit in edits:
        new = edit.text + b"\n"
        lines[edit.line] = {"behind": lines[edit.line] + new, "another": new, "gone": b""}[edit.kind]
    return b"".join(lines)


@st.composite
def edits_of(draw: st.DrawFn, path: str, text: bytes) -> tuple[list[Edit], list[Edit]]:
    """The tool's edits of a file and the organisation's, with lines between them that both leave alone."""
    lines = text.splitlines()
    numbers = draw(st.lists(st.integers(1, len(lines) // 4 - 1), min_size=2, max_size=6, unique=True))
    sides: tuple[list[Edit], list[Edit]] = ([], [])
    for index, number in enumerate(numbers):
        line = number * 4
        # Git cannot tell which of several equal lines went. In YAML, only comments are added.
        is_free = path.endswith(".md") and lines.count(lines[line]) == 1
        kind = draw(st.sampled_from(["behind", "another", "gone"])) if is_free else "behind"
        pad = lines[line][: len(lines[line]) - len(lines[line].lstrip())]
        sides[draw(st.integers(0, 1)) if index > 1 else index].append(
            Edit(line, kind, pad + b"# %d of %d" % (draw(st.integers(0, 9)), number))
        )
    return sides


@st.composite
def both_sides(draw: st.DrawFn) -> dict[str, tuple[list[Edit], list[Edit]]]:
    paths = draw(st.lists(st.sampled_from([CATALOG_README, WORKFLOW, MODEL, SKELETON]), min_size=1, unique=True))
    return {path: draw(edits_of(path, delivered_file(path))) for path in paths}


@settings(max_examples=6, deadline=None)
@given(both_sides())
def test_edits_of_lines_that_the_tool_left_alone_survive_as_if_made_in_a_new_repository(
    git: Git, acme: Files, edits: dict[str, tuple[list[Edit], list[Edit]]]
) -> None:
    new = tool_version("0.4.0", {path: edited(delivered_file(path), both[0]) for path, both in edits.items()})
    mine = {path: edited(delivered_file(path), both[1]) for path, both in edits.items()}
    both = {path: edited(delivered_file(path), [*tools, *hers]) for path, (tools, hers) in edits.items()}
    assert upgraded(git, acme | mine, new) == made_by(new, ACME) | both


def history(count: int) -> tuple[list[ToolVersion], dict[str, list[Edit]]]:
    """Versions that differ by small changes of delivered files, and lines of these that none of them changes."""
    chosen, changes = random.Random(7), dict[str, bytes | None]()
    paths = [CATALOG_README, WORKFLOW, MODEL, SKELETON, "platform/README.md", "manifests/README.md"]
    free = {path: [Edit(4, "behind", b"# ours")] for path in paths}
    edits: dict[str, list[Edit]] = {path: [] for path in paths}
    versions = [tool_version("0.3.0")]
    for number in range(1, count + 1):
        path = chosen.choice(paths)
        line = chosen.randrange(2, len(delivered_file(path).splitlines()) // 4) * 4
        edits[path] = [edit for edit in edits[path] if edit.line != line]
        edits[path].append(Edit(line, "behind", b"# tool %d" % number))
        changes[path] = edited(delivered_file(path), edits[path])
        if number % 3 == 0:
            changes[f"platform/catalog/models/new-{number}.yaml"] = renamed(MODEL, f"new-{number}")
        if number % 5 == 0:
            changes[POLICY] = delivered_file(POLICY) + b"# %d\n" % number
        if number == count // 2:
            changes["policies/README.md"] = None
        versions.append(tool_version(f"0.3.{number}", changes))
    return versions, free


def renamed(path: str, name: str) -> bytes:
    """A model of the catalog under another name."""
    text = delivered_file(path)
    return text.replace(b"name: Qwen/Qwen3-0.6B\n", f"name: Qwen/{name}\n".encode())


TWO: dict[str, Any] = {
    **ACME,
    "environments": {"staging": ACME["environments"]["staging"]},
    "organization": "Two",
    "owners": ["@two/all"],
}
FIVE: dict[str, Any] = {
    **ACME,
    "environments": {"live": {**ACME["environments"]["staging"], "cluster": "eks", "production": True}},
    "registries": ["registry.five.test"],
    "default_branch": "trunk",
}
FIVE["environments"]["live"] |= {"price_lists": ["aws-us-east-1"], "store": "s3://five"}
FIVE["storage"] = ["hf://", "s3://five"]


def test_three_adopters_of_other_settings_and_ages_upgrade_without_a_hand(git: Git) -> None:
    versions, free = history(20)
    newest = versions[-1]
    for answers, behind in ((TWO, 2), (FIVE, 5), (ACME, 20)):
        old = versions[-1 - behind]
        before = made_by(old, answers)
        mine = {path: edited(before[path], edits) for path, edits in free.items()}
        mine["platform/catalog/models/of-our-own.yaml"] = renamed(MODEL, "of-our-own")
        wanted = made_by(newest, answers)
        wanted |= {path: edited(wanted[path], edits) for path, edits in free.items()}
        wanted["platform/catalog/models/of-our-own.yaml"] = mine["platform/catalog/models/of-our-own.yaml"]
        result = upgraded(git, before | mine, newest, old)
        wanted[FORM] = form_of(wanted)
        assert result == wanted
        assert result[SETTINGS] == before[SETTINGS]
        again = planned(git, before | mine, newest, old)
        assert after(before | mine, again) == result, "the same bytes twice"


def form_of(files: Files) -> bytes:
    snapshot = MemorySnapshot(files)
    return as_configured(load_template(snapshot), load_catalog(snapshot), load_settings(snapshot)).encode()


# The rules, one by one.


def test_the_pin_keeps_its_publisher_and_the_requirements_follow_it(git: Git, acme: Files) -> None:
    new = tool_version("0.4.0", {"requirements/runtime.txt": b"rich==1.0 \\\n    --hash=sha256:" + b"a" * 64 + b"\n"})
    assert [*planned(git, acme, new).files] == [PIN, REQUIREMENTS], "last, so that a run broken off is run again"
    result = upgraded(git, acme, new)
    assert read_pin(MemorySnapshot(result)) == pin_of(new)
    assert result[REQUIREMENTS].startswith(b"rich==1.0 ")
    assert b"neuroscale==0.4.0 " in result[REQUIREMENTS]


def test_two_lists_of_the_form_that_both_grew_are_no_conflict(git: Git, acme: Files) -> None:
    title = delivered_file(FORM).replace(b"\n", b"\n# another head\n", 1)
    theirs = {"platform/catalog/models/theirs.yaml": renamed(MODEL, "theirs"), FORM: title}
    files = acme | {"platform/catalog/models/ours.yaml": renamed(MODEL, "ours")}
    files[FORM] = form_of(files) + b"# our last line\n"
    form = upgraded(git, files, tool_version("0.4.0", theirs))[FORM].decode()
    lines = form.splitlines()
    assert "# another head" in lines
    assert "# our last line" in lines
    assert {"ours", "theirs"} <= {line.rpartition("/")[2] for line in lines if "- Qwen/" in line}
    assert "team-alpha" not in form


def test_what_the_organisation_removed_stays_removed_and_what_it_has_of_its_own_stays(git: Git, acme: Files) -> None:
    mine = {path: data for path, data in acme.items() if path not in (CATALOG_README, "manifests/README.md")}
    mine |= {
        "platform/catalog/models/both.yaml": renamed(MODEL, "both"),
        "notes.txt": b"mine\n",
        SETTINGS: acme[SETTINGS],
    }
    mine["policies/our-rule/policy.yaml"] = b"# ours\n"
    changes = {
        CATALOG_README: b"# new\n",
        "platform/catalog/models/both.yaml": renamed(MODEL, "both") + b"# theirs\n",
        "platform/catalog/models/added.yaml": renamed(MODEL, "added"),
    }
    upgrade = planned(git, mine, tool_version("0.4.0", changes))
    assert upgrade.conflicts == ()
    assert set(upgrade.kept) == {CATALOG_README, "platform/catalog/models/both.yaml"}
    assert upgrade.of("added") == ["platform/catalog/models/added.yaml"]
    result = after(mine, upgrade)
    assert CATALOG_README not in result
    assert "manifests/README.md" not in result
    for path in ("platform/catalog/models/both.yaml", "notes.txt", SETTINGS, "policies/our-rule/policy.yaml"):
        assert result[path] == mine[path]


def test_what_the_tool_no_longer_delivers_goes_unless_it_was_edited(git: Git, acme: Files) -> None:
    gone = {WORKFLOW: None, CATALOG_README: None, "policies/README.md": None}
    files = acme | {CATALOG_README: acme[CATALOG_README] + b"ours\n"}
    upgrade = planned(git, files, tool_version("0.4.0", gone))
    assert upgrade.of("removed") == [WORKFLOW, "policies/README.md"]
    (conflict,) = upgrade.conflicts
    assert (conflict.where, conflict.message) == (
        CATALOG_README,
        "was edited here, and the new version no longer has it",
    )
    assert CATALOG_README not in upgrade.files


def test_a_conflict_names_file_and_lines_and_its_markers_are_gits(git: Git, acme: Files) -> None:
    lines = delivered_file(WORKFLOW).splitlines()
    new = tool_version("0.4.0", {WORKFLOW: edited(delivered_file(WORKFLOW), [Edit(2, "another", b"# theirs")])})
    files = acme | {WORKFLOW: edited(acme[WORKFLOW], [Edit(2, "another", b"# ours")])}
    upgrade = planned(git, files, new)
    assert [(each.where, each.line) for each in upgrade.conflicts] == [(WORKFLOW, 3)]
    content = upgrade.files[WORKFLOW]
    assert content is not None
    wanted = [*lines[:2], b"<<<<<<< this repository", b"# ours", b"=======", b"# theirs", b">>>>>>> neuroscale 0.4.0"]
    assert content.splitlines()[:7] == wanted

    # Resolved by a person, the same version again only finishes.
    resolved = after(files, upgrade) | {WORKFLOW: files[WORKFLOW]}
    assert planned(git, resolved, new, new).files == {}


def test_a_conflict_in_the_catalog_leaves_rendering_for_the_next_run(git: Git, acme: Files) -> None:
    changed = delivered_file(MODEL).replace(b"name: ", b"name:  ", 1)
    new = tool_version("0.4.0", {MODEL: changed, POLICY: delivered_file(POLICY) + b"# new\n"})
    files = acme | {MODEL: acme[MODEL].replace(b"name: ", b"name:   ", 1)}
    upgrade = planned(git, files, new)
    assert [each.where for each in upgrade.conflicts] == [MODEL]
    resolved = after(files, upgrade) | {MODEL: files[MODEL]}
    finished = planned(git, resolved, new, new)
    assert finished.conflicts == ()
    snapshot = MemorySnapshot(after(resolved, finished))
    assert differences(snapshot, render_repository(snapshot)) == []


def test_bytes_that_are_no_text_and_links_are_never_merged(git: Git, acme: Files) -> None:
    new = tool_version("0.4.0", {CATALOG_README: b"\0new", WORKFLOW: b"name: new\n"})
    files = acme | {CATALOG_README: b"\0ours"}
    upgrade = planned(git, files, new, kinds={WORKFLOW: "symlink"})
    assert {(each.where, each.line) for each in upgrade.conflicts} == {(CATALOG_README, None), (WORKFLOW, None)}
    assert not {CATALOG_README, WORKFLOW} & set(upgrade.files)


def test_edits_of_what_the_tool_owns_are_named_before_they_go(git: Git, acme: Files) -> None:
    own, other = "policies/our-rule/policy.yaml", "policies/probes-present/policy.yaml"
    files = acme | {POLICY: acme[POLICY] + b"# looser\n", own: b"# ours\n"}
    del files[other]
    upgrade = planned(git, files, tool_version("0.4.0"))
    assert set(upgrade.lost) == {POLICY, other}
    result = after(files, upgrade)
    assert (result[POLICY], result[other], result[own]) == (acme[POLICY], acme[other], b"# ours\n")


def test_a_price_list_that_both_renewed_stays_the_organisations(git: Git, acme: Files) -> None:
    path = "platform/catalog/prices/google-cloud.yaml"
    ours, theirs = (delivered_file(path).replace(b"\n", b" # %s\n" % who, 3) for who in (b"ours", b"theirs"))
    upgrade = planned(git, acme | {path: ours}, tool_version("0.4.0", {path: theirs}))
    assert (upgrade.conflicts, upgrade.kept) == ((), (path,))
    assert path not in upgrade.files
    assert after(acme, planned(git, acme, tool_version("0.4.0", {path: theirs})))[path] == theirs


def test_a_version_that_cannot_read_what_the_repository_would_be_says_which_file(git: Git, acme: Files) -> None:
    with pytest.raises(InputError, match=r"Qwen3-0\.6B\.yaml"):
        planned(git, acme, tool_version("0.4.0", {MODEL: b"name: x\n"}))


def test_the_start_of_a_repository_is_merged_under_the_organisations_name(git: Git, acme: Files) -> None:
    start = OLD.start.read("README.md") or b""
    new = tool_version("0.4.0", start={"README.md": start + b"\nA word more for {organization}.\n"})
    files = acme | {"README.md": b"Ours first.\n\n" + acme["README.md"]}
    readme = upgraded(git, files, new)["README.md"].decode()
    assert readme.startswith("Ours first.\n")
    assert readme.endswith("A word more for Acme & Söhne.\n")


def test_edited_files_are_those_that_an_upgrade_would_merge(acme: Files) -> None:
    assert edited_files(MemorySnapshot(acme), OLD) == []
    files = acme | {CATALOG_README: b"ours\n", SETTINGS: acme[SETTINGS] + b"# ours\n", PIN: acme[PIN] + b"# ours\n"}
    del files[WORKFLOW]
    assert edited_files(MemorySnapshot(files), OLD) == [WORKFLOW, CATALOG_README]

"""Finds what a change brings: merges head into base, and compares the result with base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.money_and_time import duration
from neuroscale.gate.judged_files import LARGEST_TEXT, GateInput, ServiceFolder, Text, group_services
from neuroscale.repo.git import Git, GitTimeoutError
from neuroscale.repo.layout import (
    CATALOG,
    EXAMPLES,
    GATE_CODE,
    MANIFESTS,
    PLAN_FILE,
    POLICIES,
    RUNTIMES,
    SETTINGS,
    TEMPLATE,
    ServicePath,
)
from neuroscale.repo.snapshot import Entry, GitSnapshot

RENDERED_FROM = (TEMPLATE, SETTINGS, CATALOG, RUNTIMES)
"""The files that decide the content of a service when it is next rendered."""
_MOST_PATHS = 300  # on one command line of git
MERGED_WITHIN = 120.0
"""Seconds that git may take to merge head into base."""


@dataclass(frozen=True)
class Change:
    """`base` and `head` are commits, `tree` the merge result; `states` has git's letter for each path that differs from
    base: `A` for an added one, `D` for a removed one, another for any other."""

    git: Git
    base: str
    head: str
    tree: str
    states: Mapping[str, str] = field(hash=False)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every path that differs from base."""
        return tuple(self.states)

    @property
    def before(self) -> GitSnapshot:
        """The files at base: the policies and their exceptions come from them."""
        return GitSnapshot(self.git, self.base)

    @property
    def after(self) -> GitSnapshot:
        """The files as they will be once the change is merged."""
        return GitSnapshot(self.git, self.tree)

    def touches(self, *prefixes: str) -> bool:
        """Whether a changed path is one of `prefixes` or lies below one."""
        return any(
            path == prefix.rstrip("/") or path.startswith(f"{prefix.rstrip('/')}/")
            for path in self.paths
            for prefix in prefixes
        )


def touches_rendering(change: Change) -> bool:
    """Whether a change alters what services are rendered from, or the examples that show it."""
    return change.touches(*RENDERED_FROM, EXAMPLES)


def find_change(git: Git, base: str, head: str) -> Change:
    """The change that merging `head` into `base` makes.

    Raises InputError for unknown revisions, for a change that does not merge, for a folder inside a repository (git
    names its files by other paths), and for a shallow clone: missing commits cannot be searched for secrets.
    """
    shallow, _, inside = git.text("rev-parse", "--is-shallow-repository", "--show-prefix").partition("\n")
    if shallow == "true":
        raise InputError.at(
            "the repository", "", "is a shallow clone", "Fetch the whole history (git fetch --unshallow)."
        )
    if inside:
        fix = "Keep the platform repository in a git repository of its own, and name its root."
        raise InputError.at("the repository", "", f"is only the folder {inside} of a git repository", fix)
    base_commit, head_commit = git.commit(base, "--base"), git.commit(head, "--head")
    tree = _merged_tree(git, base_commit, head_commit)
    # Otherwise a .gitmodules of the change could leave out its own submodules.
    options = ("-r", "-z", "--no-renames", "--name-status", "--ignore-submodules=none")
    records = git.records("diff-tree", *options, base_commit, tree)
    states = dict(zip(records[1::2], records[::2], strict=True))
    return Change(git, base_commit, head_commit, tree, states)


def _merged_tree(git: Git, base: str, head: str) -> str:
    if git.run("merge-base", "--is-ancestor", base, head, check=False).returncode == 0:
        return git.text("rev-parse", f"{head}^{{tree}}")
    command = ("merge-tree", "--write-tree", "--no-messages", "-z", base, head)
    try:
        done = git.run(*command, check=False, timeout=MERGED_WITHIN)
    except GitTimeoutError as error:
        told = f"does not merge into the base within {duration(MERGED_WITHIN)}"
        fix = "Merge or rebase onto the base branch, so that nothing is left to merge, or split the change."
        raise InputError.at("the command line", "--head", told, fix) from error
    if done.returncode == 0:
        return done.stdout.decode().split("\0")[0].strip()
    if done.returncode == 1:
        fix = "Merge or rebase onto the base branch and resolve the conflicts."
        raise InputError.at("the command line", "--head", "does not merge into the base without conflicts", fix)
    text = done.stderr.decode(errors="replace").strip()
    raise InputError.at(
        "the command line",
        "--head",
        f"cannot be merged: {text}",
        "Use revisions of one history, and git 2.38 or newer.",
    )


def read_change(change: Change) -> GateInput:
    """The services that a change touches: those that differ, or all if it alters files that judge or render them."""
    after, before = change.after, change.before
    below = [path for path in change.paths if path == MANIFESTS or path.startswith(f"{MANIFESTS}/")]
    differing = {service for path in below if (service := ServicePath.of(path)) is not None}
    touched = set(differing)
    if change.touches(POLICIES, *RENDERED_FROM, EXAMPLES, *GATE_CODE):
        touched |= set(group_services(after.entries(MANIFESTS))[0])
    # A link or a submodule in place of an environment can hide all of its service folders.
    outside = [path for path in below if ServicePath.of(path) is None]
    listed = after.entries(*few_paths(outside)) if outside else []
    strays = group_services(listed)[1]
    entries = _by_service(after, touched)
    entries_before = _by_service(before, touched)
    folders = []
    for service in sorted(touched, key=lambda service: service.folder):
        now, then = entries.get(service, ()), entries_before.get(service, ())
        plan = f"{service.folder}/{PLAN_FILE}"
        plan_ids = [{entry.path: entry.object_id for entry in side}.get(plan) for side in (now, then)]
        folders.append(
            ServiceFolder(
                service,
                "removed" if not now else "added" if not then else "changed" if service in differing else "checked",
                tuple(now),
                plan_changed=plan_ids[0] != plan_ids[1],
            )
        )
    return GateInput(after, tuple(folders), tuple(strays))


def few_paths(below: Sequence[str]) -> Sequence[str]:
    """Paths below manifests/ for one command line of git, which may not be too long: all of manifests/ instead."""
    return below if len(below) <= _MOST_PATHS else [MANIFESTS]


def _by_service(snapshot: GitSnapshot, services: set[ServicePath]) -> dict[ServicePath, list[Entry]]:
    if not services:
        return {}
    grouped, _ = group_services(snapshot.entries(*few_paths([service.folder for service in services])))
    return grouped


def texts_of(change: Change) -> Iterator[Text]:
    """Every file name, file content and message of every commit that head has and base does not have.

    Raises UntrustedError when an object of the range cannot be read.
    """
    git = change.git
    for commit in git.text("rev-list", f"{change.base}..{change.head}").split():
        yield _text("commit message", git, commit, "commit", partial(str, f"commit {commit[:12]}"))
    listed = git.run("rev-list", "--objects", f"{change.base}..{change.head}").stdout
    names = {}
    # Git cuts a name at its first line end: the name of a file can seem empty.
    for line in listed.decode(errors="surrogateescape").split("\n"):
        object_id, _, name = line.partition(" ")
        if object_id:
            names[object_id] = name
    yield Text("file names", "\n".join(sorted(names.values())).encode(errors="surrogateescape"), lambda: "the change")
    kinds = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", data="\n".join(names).encode())
    for line in kinds.stdout.decode().splitlines():
        object_id, _, kind = line.partition(" ")
        if kind in ("tree", "commit"):
            continue
        if kind != "blob":
            raise UntrustedError(f"git cannot read the object {object_id} of the range ({kind}).")
        yield _text(names[object_id] or object_id, git, object_id, kind, partial(_introduced, change, object_id))


def _text(name: str, git: Git, object_id: str, kind: str, place: Callable[[], str]) -> Text:
    """An object as a text to search, without its content if that is too large. Raises UntrustedError if unreadable."""
    known = git.size_of(object_id)
    if known is not None and known[1] > LARGEST_TEXT:
        return Text(name, b"", place, known[1])
    content = git.read_object(object_id, kind)
    if content is None:
        raise UntrustedError(f"git cannot read the object {object_id} of the range ({kind}).")
    return Text(name, content, place)


def _introduced(change: Change, object_id: str) -> str:
    """The oldest commit of the range that holds the object."""
    found = change.git.text("log", "--format=%h", "-m", f"--find-object={object_id}", f"{change.base}..{change.head}")
    return f"commit {found.split()[-1]}" if found else "a commit of the change"

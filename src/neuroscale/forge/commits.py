"""Reads, merges and makes commits in a clone, without touching its work tree, index, branches or HEAD.

Git's plumbing builds them from trees: the clone only gains objects.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from neuroscale.core.errors import InputError
from neuroscale.core.files import scratch_folder
from neuroscale.core.printable import one_line
from neuroscale.forge.interface import Account
from neuroscale.repo.git import Git, GitError
from neuroscale.repo.snapshot import GitSnapshot
from neuroscale.repo.written_files import Content, as_bytes


def check_branch_name(git: Git, branch: str) -> None:
    """Raises InputError for a name that git does not accept for a branch."""
    if git.run("check-ref-format", f"refs/heads/{branch}", check=False).returncode != 0 or branch.startswith("-"):
        raise InputError.at(
            "the template", "branchName", f"{branch!a} is not a valid branch name", "Correct the template."
        )


def is_ancestor(git: Git, old: str, new: str) -> bool:
    """Whether `new` holds everything that `old` holds."""
    return git.run("merge-base", "--is-ancestor", old, new, check=False).returncode == 0


def holds(git: Git, tree: str, folder: str | None, files: Mapping[str, Content]) -> bool:
    """Whether the folder of a tree (or a commit) holds exactly these plain files, by their path in the repository.

    Without a folder: whether the tree holds these files (and not those that are None), beside whatever others.
    """
    snapshot = GitSnapshot(git, tree)
    places = [*files] if folder is None else [folder]
    entries = snapshot.entries(*places) if places else []
    wanted = {path: data for path, content in files.items() if (data := as_bytes(content)) is not None}
    kinds = ("file", "executable") if folder is None else ("file",)
    if any(entry.kind not in kinds for entry in entries) or {entry.path for entry in entries} != set(wanted):
        return False
    return all(snapshot.read(path) == data for path, data in wanted.items())


def with_files(git: Git, tree: str, folder: str | None, files: Mapping[str, Content]) -> str:
    """The tree in which `folder` holds exactly `files` (by path in the repository). Returns its id.

    Without a folder: the tree with these files, without those that are None, and all others as they are. A file that is
    executable stays so.
    """
    places = [*files] if folder is None else [folder]
    there = {entry.path: entry for entry in GitSnapshot(git, tree).entries(*places)} if places else {}
    # The mode 0 removes a path.
    records = [f"0 {entry.object_id}\t{entry.path}" for entry in there.values()]
    for path, content in files.items():
        if (data := as_bytes(content)) is not None:
            blob = git.run("hash-object", "-w", "--stdin", "--no-filters", data=data).stdout.decode().strip()
            kept = folder is None and path in there and there[path].kind == "executable"
            records.append(f"{'100755' if kept else '100644'} {blob}\t{path}")
    with scratch_index(git, tree) as index:
        data = "".join(f"{record}\0" for record in records).encode(errors="surrogateescape")
        git.run("update-index", "-z", "--add", "--replace", "--index-info", data=data, environment=index)
        return git.run("write-tree", environment=index).stdout.decode().strip()


@contextmanager
def scratch_index(git: Git, tree: str) -> Iterator[dict[str, str]]:
    """Variables for git commands that change an index which holds this tree, and not the clone's own."""
    with scratch_folder("neuroscale-index-") as folder:
        variables = {"GIT_INDEX_FILE": str(folder / "index")}
        git.run("read-tree", tree, environment=variables)
        yield variables


def merged_tree(git: Git, ours: str, theirs: str, places: Collection[str]) -> tuple[str, bool]:
    """The tree of a merge of two commits, and whether it is clean. It may hold conflicts in these files and folders.

    Raises InputError for conflicts elsewhere.
    """
    done = git.run("merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", ours, theirs, check=False)
    if done.returncode not in (0, 1):
        text = one_line(done.stderr.decode(errors="replace"), 400)
        raise GitError(f"git cannot merge {theirs[:12]} into {ours[:12]}: {text}")
    tree, *conflicts = [part for part in done.stdout.decode(errors="surrogateescape").split("\0") if part]
    within = tuple(f"{place}/" for place in places)
    outside = sorted({path for path in conflicts if path not in places and not path.startswith(within)})
    if outside:
        named = ", ".join(outside[:5]) + (" and others" if len(outside) > 5 else "")
        raise InputError.at(
            "the pull request's branch",
            "",
            f"conflicts with its base outside {', '.join(places)}: {one_line(named, 400)}",
            "Merge the base into the branch by hand, resolve these conflicts, push, and run the command again.",
        )
    return tree, done.returncode == 0


def make_commit(git: Git, tree: str, parents: Sequence[str], message: str, account: Account) -> str:
    """A commit by the account. Returns its id; no branch points to it yet."""
    name = _ident(account.name) or _ident(account.login) or "neuroscale"
    email = _ident(account.email) or _ident(account.login) or "neuroscale"
    variables = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", name), ("EMAIL", email))
    }
    parent_options = [part for parent in parents for part in ("-p", parent)]
    done = git.run(
        "-c",
        "i18n.commitEncoding=UTF-8",
        "commit-tree",
        *parent_options,
        "-F",
        "-",
        tree,
        data=f"{message.strip()}\n".encode(errors="replace"),
        environment=variables,
    )
    return done.stdout.decode().strip()


def same_commit(git: Git, left: str, right: str) -> bool:
    """Whether two commits have the same files and the same parents."""
    return git.text("show", "--no-patch", "--format=%T %P", left) == git.text(
        "show", "--no-patch", "--format=%T %P", right
    )


def _ident(text: str) -> str:
    """The part of a name or an address that git keeps in a commit."""
    return re.sub(r"[<>\x00-\x1f\x7f]", "", text.encode(errors="replace").decode()).strip(" .,:;\"'\\")[:200]

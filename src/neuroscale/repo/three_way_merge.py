"""Merges two edits of one file, line by line, as git does. No renamed file is guessed."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.core.files import scratch_folder
from neuroscale.core.printable import one_line
from neuroscale.repo.git import Git, GitError


@dataclass(frozen=True)
class Merged:
    """The result of a merge. `lines`: where each conflict begins, counted from 1, with git's markers. `is_text` is
    False where one side is no text: the content is then `ours`."""

    content: bytes
    lines: tuple[int, ...] = ()
    is_text: bool = True


def merge_contents(git: Git, base: bytes, ours: bytes, theirs: bytes, names: tuple[str, str]) -> Merged:
    """Bring what `theirs` changed of the base into `ours`. `names`: what markers call the two. Raises GitError."""
    if any(b"\0" in side for side in (base, ours, theirs)):
        return Merged(ours, is_text=False)
    with scratch_folder("neuroscale-merge-") as folder:
        sides = {"ours": ours, "base": base, "theirs": theirs}
        for name, content in sides.items():
            (folder / name).write_bytes(content)
        labels = (names[0], "base", names[1])
        options = [option for label in labels for option in ("-L", label)]
        # A user's own style of conflicts would change the bytes.
        command = ("-c", "merge.conflictStyle=merge", "merge-file", "--stdout", "--quiet", *options)
        done = git.run(*command, *(str(folder / name) for name in sides), check=False)
    if done.returncode > 127:
        raise GitError(f"git cannot merge a file: {one_line(done.stderr.decode(errors='replace'), 400)}")
    marker = f"<<<<<<< {names[0]}".encode()
    lines = [number for number, line in enumerate(done.stdout.split(b"\n"), 1) if line.rstrip(b"\r") == marker]
    return Merged(done.stdout, tuple(lines) if done.returncode else ())

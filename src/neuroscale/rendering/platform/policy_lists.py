"""Writes the places that the settings allow for images and models into the policies that judge them."""

from __future__ import annotations

from functools import lru_cache

from neuroscale.catalog.settings import Settings
from neuroscale.core import delivered
from neuroscale.core.errors import Problem
from neuroscale.policies.allowed_list import with_entries
from neuroscale.policies.bad_objects import CASES
from neuroscale.policies.render import KYVERNO_TEST, cases_of
from neuroscale.repo.layout import POLICIES, POLICY_FILE, FileClass, file_class, is_written
from neuroscale.repo.snapshot import FolderSnapshot, Snapshot, read_text

FOLDERS = {"registries": f"{POLICIES}/allowed-registries", "storage": f"{POLICIES}/allowed-storage"}
"""The folder of the policy whose list each setting decides."""


def render_policy_lists(snapshot: Snapshot, settings: Settings) -> dict[str, str]:
    """The files of policies that depend on the settings, by path: the policy with its list, and the names of its test
    objects, of which some stand for an entry each.

    Everything else in a policy is as it is in the repository. A setting that is left out leaves its policy as it is; a
    policy that the repository lacks is not written, nor are names of test objects that it lacks. Raises InputError.
    """
    files = {}
    for setting, entries in (("registries", settings.registries), ("storage", settings.storage)):
        folder = FOLDERS[setting]
        file = f"{folder}/{POLICY_FILE}"
        if entries is not None and snapshot.entries(file):
            files[file] = with_entries(read_text(snapshot, file), file, setting, entries)
            name = folder.removeprefix(f"{POLICIES}/")
            if snapshot.entries(f"{folder}/{CASES}"):
                files[f"{folder}/{KYVERNO_TEST}"] = cases_of(snapshot, name, entries)
    return files


def delivered_policies(settings: Settings) -> dict[str, bytes]:
    """The files of the policies that this tool delivers, by path, with the lists of an organisation's settings.

    Raises InputError if a setting cannot be written into its policy.
    """
    lists = render_policy_lists(FolderSnapshot(delivered.FOLDER), settings)
    return _delivered() | {path: text.encode() for path, text in lists.items()}


@lru_cache(maxsize=1)
def _delivered() -> dict[str, bytes]:
    files = FolderSnapshot(delivered.FOLDER)
    return {
        entry.path: files.read(entry.path) or b""
        for entry in files.entries(POLICIES)
        if file_class(entry.path) is FileClass.RENDERED and not any(map(is_written, entry.path.split("/")))
    }


def differences_of_policies(snapshot: Snapshot, policies: dict[str, bytes]) -> list[Problem]:
    """The delivered policies' files that a repository lacks or has with another content."""
    kinds = {entry.path: entry.kind for entry in snapshot.entries(POLICIES)}
    fix = (
        "`neuroscale repository upgrade` writes it as it was delivered. To judge otherwise, add a policy of your own, "
        "or an exception."
    )
    problems = []
    for path, content in policies.items():
        if kinds.get(path) != "file":
            message = f"is a {kinds[path]}" if path in kinds else "is missing"
            problems.append(Problem(path, "", f"{message}: the pinned tool delivers this file", fix))
        elif snapshot.read(path) != content:
            problems.append(Problem(path, "", "differs from what the pinned tool delivers", fix))
    return problems

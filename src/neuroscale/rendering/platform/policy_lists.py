"""Writes the places that the settings allow for images and models into the policies that judge them."""

from __future__ import annotations

from neuroscale.catalog.settings import Settings
from neuroscale.policies.allowed_list import with_entries
from neuroscale.policies.bad_objects import CASES
from neuroscale.policies.render import KYVERNO_TEST, cases_of
from neuroscale.repo.layout import POLICIES, POLICY_FILE
from neuroscale.repo.snapshot import Snapshot, read_text

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

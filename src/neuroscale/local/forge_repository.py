"""Defines the settings of the platform's repository on the forge, and the protection of its main branch."""

from __future__ import annotations

from typing import Any

from neuroscale.forge.main_protection import REQUIRED_CHECK
from neuroscale.local.forge_accounts import ADMIN, LOGINS
from neuroscale.repo.layout import PROTECTED, WRITTEN

TEAM = "platform-owners"
MAIN = "main"
REQUIRED_STATUS = REQUIRED_CHECK["gitea"]

REPOSITORY_SETTINGS: dict[str, Any] = {
    "has_wiki": False,
    "has_projects": False,
    "has_packages": False,
    "has_releases": False,
    "default_branch": MAIN,
    "allow_merge_commits": False,
    "allow_rebase": False,
    "allow_rebase_explicit": False,
    "allow_fast_forward_only_merge": False,
    "allow_squash_merge": True,
    "default_merge_style": "squash",
}


def protection() -> dict[str, Any]:
    """The protection of the main branch, in Gitea's fields.

    This rule lets nobody merge a change of protected files: an administrator merges it by hand, past the rule.
    """
    return {
        "enable_push": False,
        "enable_force_push": False,
        "enable_status_check": True,
        "status_check_contexts": [REQUIRED_STATUS],
        "required_approvals": 1,
        "enable_approvals_whitelist": True,
        "approvals_whitelist_username": [],
        "approvals_whitelist_teams": [TEAM],
        "enable_merge_whitelist": True,
        "merge_whitelist_usernames": [LOGINS[ADMIN]],
        "merge_whitelist_teams": [TEAM],
        "block_on_rejected_reviews": True,
        "block_on_outdated_branch": True,
        "dismiss_stale_approvals": True,
        "ignore_stale_approvals": True,
        "protected_file_patterns": protected_patterns(),
        "unprotected_file_patterns": "",
        "block_admin_merge_override": False,
    }


def protected_patterns() -> str:
    """PROTECTED as Gitea's patterns, where a folder is `name/**`, and WRITTEN, in every folder.

    Git quotes a path with a quotation mark or a control character in it, so each folder stands there quoted as well.
    """
    patterns = [f"{path}**" if path.endswith("/") else path for path in PROTECTED]
    for name in WRITTEN:
        anywhere = name.replace("*", "**")  # one star ends at a point or a slash
        patterns += [pattern for place in (anywhere, f"**/{anywhere}") for pattern in (place, f"{place}/**")]
    return ";".join([*patterns, *(f'"{pattern}' for pattern in patterns if pattern.endswith("**"))])

"""Renders `.github/CODEOWNERS`: who must approve a change of which files on GitHub, out of the table of files."""

from __future__ import annotations

from neuroscale.catalog.settings import Owners
from neuroscale.repo.layout import OWNED_FACTS, PROTECTED, WRITTEN

_HEAD = """\
# Who must approve a change, on GitHub. `neuroscale platform render` writes this file: the owners are named in
# platform/settings.yaml. `neuroscale local up` protects the same paths on Gitea.
"""
_JUDGES = """\

# What judges, what clusters get, and what every service is rendered from: gate code, workflows, policies and their
# exceptions, the platform's manifests, the template, the settings, the runtimes, the budgets, and what runs elsewhere
# with a credential: the portal, the forge's rules, tests, lessons and hooks.
"""
_FACTS = "# What plans and prices. The last match counts: facts that change every week may have owners of their own.\n"
_WRITTEN = "# Where set-up, workflows, tools and tests write, in every folder: nothing of it is tracked.\n"


def render_code_owners(owners: Owners) -> str:
    """The file's text. The last row that matches a path counts."""

    def rows(paths: list[str], names: tuple[str, ...]) -> str:
        return "".join(f"{path} {' '.join(names)}\n" for path in paths)

    return "".join(
        (
            _HEAD,
            rows(["*"], owners.services),
            _JUDGES,
            rows([f"/{path}" for path in sorted(PROTECTED)], owners.platform),
            _FACTS,
            rows(["/platform/"], owners.platform),
            rows([f"/{path}" for path in sorted(OWNED_FACTS)], owners.catalog),
            _WRITTEN,
            rows(sorted(WRITTEN), owners.platform),
        )
    )

"""Says what another version of the tool changes in a repository: for a terminal, and in Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from neuroscale.core.printable import counted, markdown, markdown_code, plainly_counted
from neuroscale.rendering.repository_upgrade import RepositoryUpgrade
from neuroscale.rendering.upgrade import Upgrade
from neuroscale.repo.layout import PIN, ServicePath
from neuroscale.repo.tool_pin import ListedRelease
from neuroscale.report.upgrade_view import sentences as service_sentences

_MOST = 60
"""Entries of a list in a pull request's description."""
AFTERWARDS = (
    "Services stay as they are. After the merge, `neuroscale upgrade --all` plans them anew, a few pull requests at "
    "a time."
)


def groups(upgrade: RepositoryUpgrade) -> dict[str, list[str]]:
    """The paths by what happens to them, without empty groups."""
    named = {
        "Merged with the edits of this repository": upgrade.of("merged"),
        "Added": upgrade.of("added"),
        "Removed": upgrade.of("removed"),
        "Kept as they are here, though the new version has others": sorted(upgrade.kept),
        "Edits that go, since the tool owns these files": sorted(upgrade.lost),
        "Taken whole from the new version": upgrade.of("replaced"),
        "Rendered from settings and catalog": upgrade.of("rendered"),
    }
    return {name: paths for name, paths in named.items() if paths}


def summary(upgrade: RepositoryUpgrade) -> list[str]:
    """The upgrade in sentences."""
    counts = [f"{len(paths)} {name[0].lower()}{name[1:]}" for name, paths in groups(upgrade).items()]
    title = f"The tool of this repository goes from {upgrade.old} to {upgrade.new}."
    if PIN in upgrade.of("added"):
        title = f"This repository pins neuroscale {upgrade.new} by its digest, in place of the tool's own code."
    elif upgrade.old == upgrade.new:
        title = f"This repository pins neuroscale {upgrade.new} already, and files of that version are missing."
    return [title, f"Files: {'; '.join(counts) or 'none changes'}."]


def of_services(upgrades: Mapping[ServicePath, Upgrade | str], count: int) -> list[str]:
    """What planning each service anew would change, a sentence or more each; a text says why one cannot be planned."""
    lines = [f"{len(upgrades):,} of {counted(count, 'service')} would change by planning anew."]
    for path, upgrade in upgrades.items():
        why = f"cannot be planned: {upgrade}" if isinstance(upgrade, str) else " ".join(service_sentences(upgrade))
        lines.append(f"{path.name}: {why}")
    return lines


def parts(upgrade: RepositoryUpgrade, newer: Iterable[ListedRelease], services: Iterable[str]) -> tuple[str, ...]:
    """The sections of a pull request's description, the most important first."""
    sections = [f"### Services\n\n{_listed(services)}\n\n{markdown(AFTERWARDS)}"]
    for release in newer:
        if changes := _changes(release.changes):
            sections.append(f"### What {release.version} brings\n\n{changes}")
    for name, paths in groups(upgrade).items():
        files = _listed(paths, code=True)
        sections.append(
            f"<details><summary>{name}: {plainly_counted(len(paths), 'file')}</summary>\n\n{files}\n\n</details>"
        )
    return tuple(sections)


def _changes(text: str) -> str:
    """A part of the changelog as plain lines and lists: its text comes from outside."""
    rows = []
    for line in text.splitlines():
        words = line.strip().lstrip("#").strip()
        if words:
            item = words.startswith("- ")
            rows.append(f"- {markdown(words[2:])}" if item else f"\n{markdown(words)}\n")
    return "\n".join(rows).strip()


def _listed(lines: Iterable[str], *, code: bool = False) -> str:
    rows = [f"- {markdown_code(line, 200) if code else markdown(line, 1000)}" for line in lines]
    return "\n".join(rows[:_MOST] + ([f"- and {len(rows) - _MOST:,} more"] if len(rows) > _MOST else []))

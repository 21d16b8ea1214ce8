"""Finds new lines of the skeleton and changed entries of the catalog that no rendered service shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from neuroscale.gate.check import file_finding
from neuroscale.gate.checks.effects_requests import GATE
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import Finding
from neuroscale.planning.plan import Plan
from neuroscale.rendering.scaffolder.actions import FETCH
from neuroscale.rendering.scaffolder.conditional_lines import branches, in_words, reached
from neuroscale.rendering.scaffolder.template import Template
from neuroscale.repo.layout import CATALOG, EXAMPLES, TEMPLATE

_ENTRIES = {"models": "model", "accelerators": "accelerator", "runtimes": "runtime", "teams": "team"}


def skeletons(template: Template) -> dict[str, str]:
    """The template's files that become files of a service, by their paths in the template."""
    folders = tuple(f"{step.folder}/" for step in template.steps if step.action == FETCH)
    return {path: text for path, text in template.files.items() if path.startswith(folders)}


def listed(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def unreached_lines(before: Template | None, after: Template, values: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """New lines of the skeleton that no rendered request shows, because no request meets their conditions.

    `values`: the template values of each request that was rendered.
    """
    old = skeletons(before) if before is not None else {}
    for path, text in skeletons(after).items():
        known = branches(old[path]) if path in old else {}
        for conditions, branch in branches(text).items():
            if any(reached(conditions, one) for one in values):
                continue
            if conditions in known and known[conditions].text == branch.text:
                continue
            told = f"no service and no example is rendered with these lines, which need {in_words(conditions)}"
            fix = f"Add an example to {EXAMPLES}/ that does, or remove the lines."
            yield file_finding(GATE, "unreached", f"{TEMPLATE}/{path}", told, fix, branch.line)


def unused_entries(change: Change, plans: Iterable[Plan]) -> list[str]:
    """Changed entries of the catalog that no rendered service uses, in words."""
    plans = list(plans)
    used = {
        "model": {one.model for one in plans},
        "accelerator": {one.accelerator for one in plans},
        "runtime": {one.runtime.name for one in plans},
        "team": {one.tenancy.team for one in plans},
    }
    unused = []
    for path in change.paths:
        folder, _, file = path.removeprefix(f"{CATALOG}/").partition("/")
        if not path.startswith(f"{CATALOG}/") or folder not in _ENTRIES:
            continue
        name, what = file.removesuffix(".yaml"), _ENTRIES[folder]
        if not any(one.rpartition("/")[2] == name for one in used[what]):
            unused.append(f"the {what} {name}")
    return unused

"""Chooses the requests that the gate renders to see what a change does: some of the repository's own, and examples.

Finds new lines of the skeleton and changed entries of the catalog that no rendered service shows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.core.printable import shortened
from neuroscale.gate.evaluation import file_finding, problem_findings
from neuroscale.gate.judged_files import ServiceFolder
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.planning.plan import Plan, read_plan
from neuroscale.rendering.scaffolder.lint import branches, in_words, reached
from neuroscale.rendering.scaffolder.template import FETCH, Template
from neuroscale.repo.layout import CATALOG, EXAMPLES, REQUEST_FILE, SETTINGS, TEMPLATE, ServicePath
from neuroscale.repo.snapshot import GitSnapshot, read_file
from neuroscale.request.service_request import Request, load_request

GATE = "effects"

_MOST_SERVICES = 24  # of the repository's own that are rendered
_MOST_EXAMPLES = 24
_REQUEST = 64 * 1024  # bytes at a request's start that are searched for its kind
# The fields of a request that decide the form of its service, without numbers: enough to find one of each kind.
_KIND = re.compile(rb"^(?:model|availability|  - field|    value): .*$", re.MULTILINE)


@dataclass(frozen=True)
class RequestToRender:
    """A request to render. `label` names it to readers, `file` is where it lies.

    `locked`: the plan to render, None for a new plan. `own`: it is a service of the repository. `of_base`: it is an
    example of the base that the change removes or alters. `earlier`: an altered example's request at the base.
    """

    label: str
    file: str
    request: Request
    locked: Plan | None = None
    own: bool = False
    of_base: bool = False
    earlier: Request | None = None

    @property
    def path(self) -> ServicePath:
        return ServicePath(self.request.environment, self.request.service)


@dataclass(frozen=True)
class Requests:
    """The requests to render. `findings`: examples that cannot be used; `said`: what is not rendered, in words."""

    own: tuple[RequestToRender, ...]
    examples: tuple[RequestToRender, ...]
    findings: tuple[Finding, ...]
    said: tuple[str, ...]


def choose_requests(change: Change, services: Sequence[ServiceFolder]) -> Requests:
    """A bounded number of the services of the merge result, and every example."""
    choice = _Choice(change)
    own = tuple(choice.own([service for service in services if service.change != "removed"]))
    examples = tuple(choice.examples())
    return Requests(own, examples, tuple(choice.findings), tuple(choice.said))


class _Choice:
    """The choice, with the findings and remarks on the way."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.findings: list[Finding] = []
        self.said: list[str] = []

    def own(self, services: Sequence[ServiceFolder]) -> Iterator[RequestToRender]:
        """One service of each kind, and others while there is room."""
        kinds: dict[tuple[str, tuple[bytes, ...]], list[ServiceFolder]] = {}
        for service in services:
            data = self.change.after.read(f"{service.path.folder}/{REQUEST_FILE}") or b""
            kinds.setdefault((service.path.environment, tuple(_KIND.findall(data[:_REQUEST]))), []).append(service)
        first = [group[0] for group in kinds.values()]
        others = [member for group in kinds.values() for member in group[1:]]
        chosen = [*first, *others][:_MOST_SERVICES]
        if left := len(services) - len(chosen):
            more = len(first) - len(chosen)
            alike = f"{more} of other kinds among them" if more > 0 else "each of a kind that was rendered"
            self.said.append(f"Rendered anew: {left} of {len(services)} services were not rendered, {alike}.")
        for service in sorted(chosen, key=lambda member: member.path.folder):
            yield from self._recorded(service)

    def _recorded(self, service: ServiceFolder) -> Iterator[RequestToRender]:
        folder = service.path.folder
        label, file = folder.partition("/")[2], f"{folder}/{REQUEST_FILE}"
        try:
            request = read_file(self.change.after, file, load_request)
            locked = read_plan(self.change.after, folder)
        except InputError:
            return  # the drift check reports what is wrong with them
        if (
            request is None
            or locked is None
            or (request.environment, request.service) != (service.path.environment, service.path.service)
        ):
            return  # the files check and the drift check report it
        yield RequestToRender(label, file, request, locked, own=True)
        if self.change.touches(CATALOG, SETTINGS):
            yield RequestToRender(label, file, request, own=True)

    def examples(self) -> Iterator[RequestToRender]:
        """The examples of both sides: an example that a change removes or weakens still shows what the change does."""
        before, after = (_examples_in(side) for side in (self.change.before, self.change.after))
        gone = [path for path, object_id in before.items() if after.get(path) != object_id]
        if (count := len(after) + len(gone)) > _MOST_EXAMPLES:
            message = f"holds {count} examples, with those of the base, and {_MOST_EXAMPLES} are rendered"
            fix = f"Keep at most {_MOST_EXAMPLES // 2} examples."
            self.findings.append(file_finding(GATE, "too-many-examples", EXAMPLES, message, fix))
        earlier = {path: request for path in gone if (request := _readable(self.change.before, path)) is not None}
        for path, request in list(earlier.items())[:_MOST_EXAMPLES]:
            yield RequestToRender(f"{path} of the base", path, request, of_base=True)
        for path in list(after)[: max(_MOST_EXAMPLES - len(earlier), 0)]:
            try:
                request = read_file(self.change.after, path, load_request)
            except InputError as error:
                self.findings += problem_findings(GATE, "example", error)
                continue
            if request is not None:
                yield RequestToRender(path, path, request, earlier=earlier.get(path))
            else:
                fix = "Replace it with the file itself."
                self.findings.append(file_finding(GATE, "example", path, "is not a plain file", fix))


def _examples_in(snapshot: GitSnapshot) -> dict[str, str]:
    """The files of examples, each with the id of its content."""
    return {
        entry.path: entry.object_id for entry in snapshot.entries(EXAMPLES) if entry.path.endswith((".yaml", ".yml"))
    }


def _readable(snapshot: GitSnapshot, path: str) -> Request | None:
    """The request in a file; None if it cannot be read."""
    try:
        return read_file(snapshot, path, load_request)
    except InputError:
        return None


_ENTRIES = {"models": "model", "accelerators": "accelerator", "runtimes": "runtime", "teams": "team"}


def skeletons(template: Template) -> dict[str, str]:
    """The template's files that become files of a service, by their paths in the template."""
    folders = tuple(f"{step.folder}/" for step in template.steps if step.action == FETCH)
    return {path: text for path, text in template.files.items() if path.startswith(folders)}


def listed(names: Sequence[str]) -> str:
    return shortened(list(dict.fromkeys(names)), 5)


def unreached_lines(
    before: Template | None, after: Template, values: Sequence[Mapping[str, Any]], unset: Collection[str] = ()
) -> Iterator[Finding]:
    """New lines of the skeleton that no rendered request shows, because no request meets their conditions.

    `values`: the template values of each request that was rendered. `unset`: those that no environment of the settings
    turns on. No example could reach lines that need them, so these are notices.
    """
    old = skeletons(before) if before is not None else {}
    for path, text in skeletons(after).items():
        known = branches(old[path], path) if path in old else {}
        for conditions, branch in branches(text, path).items():
            if any(reached(conditions, filling) for filling in values):
                continue
            if conditions in known and known[conditions].text == branch.text:
                continue
            message = f"no service and no example is rendered with these lines, which need {in_words(conditions)}"
            fix, severity = f"Add an example to {EXAMPLES}/ that does, or remove the lines.", Severity.ERROR
            if any(wanted and name in unset for name, wanted in conditions):
                fix, severity = "Read the lines: no environment of the settings makes them so far.", Severity.NOTICE
            yield file_finding(GATE, "unreached", f"{TEMPLATE}/{path}", message, fix, branch.line, severity=severity)


def unused_entries(change: Change, plans: Iterable[Plan]) -> list[str]:
    """Changed entries of the catalog that no rendered service uses, in words."""
    plans = list(plans)
    used = {
        "model": {plan.model for plan in plans},
        "accelerator": {plan.accelerator for plan in plans},
        "runtime": {plan.runtime.name for plan in plans},
        "team": {plan.tenancy.team for plan in plans},
    }
    unused = []
    for path in change.paths:
        folder, _, file = path.removeprefix(f"{CATALOG}/").partition("/")
        if not path.startswith(f"{CATALOG}/") or folder not in _ENTRIES:
            continue
        name, what = file.removesuffix(".yaml"), _ENTRIES[folder]
        if not any(used_name.rpartition("/")[2] == name for used_name in used[what]):
            unused.append(f"the {what} {name}")
    return unused

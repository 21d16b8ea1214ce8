"""What a change does to services when they are next rendered: its template, settings, catalog and runtimes at work.

The same requests are rendered twice, by what the base holds and by what the merge would bring. Both are data to this
process: a skeleton is filled in the sandbox of `scaffolder`, and only once its lint has found nothing in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.yaml_io import Document
from neuroscale.gate.change import RENDERED_FROM, Change
from neuroscale.gate.check import Evaluation, problem_findings
from neuroscale.gate.checks.drift import Platform, read_file
from neuroscale.gate.checks.files import read_service
from neuroscale.gate.checks.object_diff import FieldChange, field_changes
from neuroscale.gate.inputs import ServiceFolder
from neuroscale.gate.verdict import Effect, Effects, Finding, Severity
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.platform.runtimes import FOLDER as RUNTIMES
from neuroscale.rendering.scaffolder.actions import FETCH
from neuroscale.rendering.scaffolder.conditional_lines import branches, in_words, reached
from neuroscale.rendering.scaffolder.lint import lint
from neuroscale.rendering.service_folder import Template, load_template, render, template_values
from neuroscale.repo.layout import (
    CATALOG,
    EXAMPLES,
    PLAN_FILE,
    RENDERED_KINDS,
    REQUEST_FILE,
    SETTINGS,
    TEMPLATE,
    ServicePath,
)
from neuroscale.repo.snapshot import GitSnapshot, MemorySnapshot
from neuroscale.request.service_request import Request, check_request, load_request

GATE = "effects"
TITLE = "Services, rendered anew"
FIT, FIT_TITLE = "effects-fit", "Fit of services, rendered anew"

_MOST_SERVICES = 24  # of the repository's own that are rendered
_MOST_EXAMPLES = 24
_MOST_DIFFERENCES = 200  # of the verdict's list
_REQUEST = 64 * 1024  # bytes of a request in which its kind is searched
_MOST_FIELDS = 300  # of one object that are compared with other objects'
# What of a request decides how its service looks, but for numbers: enough to find one of each kind.
_KIND = re.compile(rb"^(?:model|availability|  - field|    value): .*$", re.MULTILINE)
_RENDERERS = tuple(
    f"src/neuroscale/{name}" for name in ("catalog", "models", "planning", "rendering.py", "scaffolder", "yaml_io.py")
)
_ENTRIES = {"models": "model", "accelerators": "accelerator", "runtimes": "runtime", "teams": "team"}


@dataclass(frozen=True)
class Anew:
    """What rendering showed. `manifests`: what the change renders otherwise, which nobody else has judged.

    `servers`: those, and what it renders as before, whose runtimes and facts may differ. `said`: what was not looked
    at, in words.
    """

    effects: Effects
    manifests: tuple[Manifest, ...] = ()
    servers: tuple[Manifest, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Asked:
    """A request to render. `label` names it to readers, `file` is where it lies.

    `locked`: the plan that is rendered, None for a new one. `own`: a service of the repository.
    """

    label: str
    file: str
    request: Request
    locked: Plan | None = None
    own: bool = False

    @property
    def path(self) -> ServicePath:
        return ServicePath(self.request.environment, self.request.service)


@dataclass(frozen=True)
class _Side:
    """A request as one side renders it; `why` it cannot, and whether the planner itself says so."""

    files: Mapping[str, str] = field(default_factory=dict)
    plan: Plan | None = None
    why: str = ""
    refused: bool = False


def touches(change: Change) -> bool:
    """Whether a change alters what services are rendered from, or the examples that show it."""
    return change.touches(*RENDERED_FROM, EXAMPLES)


def unseen(change: Change) -> Iterator[str]:
    """What of a change rendering cannot show, in words: its own planner and renderer are code, and do not run."""
    if change.touches(*_RENDERERS):
        yield "Rendered anew: what the change's own planner and renderer would make of services. The base's rendered."


def evaluate_effects(
    change: Change, services: Sequence[ServiceFolder], after: Platform, given: Sequence[Manifest]
) -> tuple[Evaluation, Anew]:
    """Render a bounded number of services and every example by both sides, and compare the objects.

    `after`: what the merge would bring. `given`: the objects that are judged already. Raises UntrustedError where a
    difference that is there is not seen.
    """
    caught = _tripwires()
    work = _Work(change, after, _before(change, after), given)
    work.run(services)
    findings = tuple(dict.fromkeys(work.findings))
    done = work.rendered
    return Evaluation(findings, done, done, "renderings", caught, caught), work.anew()


def _before(change: Change, after: Platform) -> Platform | None:
    """The base's platform; None where it cannot be read. What the change does not touch is the same."""
    base = change.before
    try:
        return Platform(
            load_catalog(base) if change.touches(CATALOG) else after.catalog,
            load_settings(base) if change.touches(SETTINGS) else after.settings,
            load_template(base) if change.touches(TEMPLATE) else after.template,
        )
    except InputError:
        return None


class _Work:
    """One run over every request."""

    def __init__(self, change: Change, after: Platform, before: Platform | None, given: Sequence[Manifest]) -> None:
        self.change = change
        self.before = before
        self.after = after
        self.findings: list[Finding] = []
        self.rendered = 0
        self._given = {_key(one): one.value for one in given}
        self._differences: dict[tuple[str, str, str | None, str | None], tuple[FieldChange, str, set[str]]] = {}
        self._manifests: dict[str, Manifest] = {}
        self._servers: list[Manifest] = []
        self._values: dict[bool, list[Mapping[str, Any]]] = {True: [], False: []}
        self._plans: dict[str, Plan] = {}
        self._refused: list[str] = []
        self._new: list[str] = []
        self._said: list[str] = []

    def run(self, services: Sequence[ServiceFolder]) -> None:
        own = list(self._own([one for one in services if one.change != "removed"]))
        examples = list(self._examples())
        for asked in (*own, *examples, *self._elsewhere([*own, *examples])):
            self._one(asked)
        self._runtimes()
        self._unreached()
        if not self._plans:
            told = "nothing can be rendered by it, no service and no example: what it would do to services is not known"
            self._find("nothing-rendered", TEMPLATE, told, f"Add an example to {EXAMPLES}/ that the planner can serve.")
        self._uncovered()

    def anew(self) -> Anew:
        """What was found, once everything is rendered."""
        if self.before is None:
            self._said.append(
                "The template, the settings or the catalog of the base cannot be read: nothing to compare."
            )
        if self._refused:
            told = f"Rendered anew: the planner refuses, before the change and after it, {_listed(self._refused)}."
            self._said.append(told)
        if self._new and self.before is not None:
            self._said.append(f"Rendered anew: could not be rendered before the change: {_listed(self._new)}.")
        rows = sorted(
            self._differences.values(), key=lambda row: (-len(row[2]), row[1], row[0].field, row[0].after or "")
        )
        listed = tuple(
            Effect(
                kind=kind,
                field=one.field,
                before=one.before,
                after=one.after,
                services=len(labels),
                example=min(labels, default=""),
            )
            for one, kind, labels in rows[:_MOST_DIFFERENCES]
        )
        changed = set[str]().union(*(labels for one, _, labels in rows))
        effects = Effects(
            rendered=len(self._plans),
            changed=len(changed),
            differences=listed,
            left_out=len(rows) - len(listed),
        )
        return Anew(effects, tuple(self._manifests.values()), tuple(self._servers), tuple(self._said))

    # What is rendered.

    def _own(self, services: Sequence[ServiceFolder]) -> Iterator[_Asked]:
        """One service of each kind, and others while there is room."""
        kinds: dict[tuple[str, tuple[bytes, ...]], list[ServiceFolder]] = {}
        for service in services:
            data = self.change.after.read(f"{service.path.folder}/{REQUEST_FILE}") or b""
            kinds.setdefault((service.path.environment, tuple(_KIND.findall(data[:_REQUEST]))), []).append(service)
        first = [group[0] for group in kinds.values()]
        others = [one for group in kinds.values() for one in group[1:]]
        chosen = [*first, *others][:_MOST_SERVICES]
        if left := len(services) - len(chosen):
            more = len(first) - len(chosen)
            alike = f"{more} of other kinds among them" if more > 0 else "each like one that was"
            self._said.append(f"Rendered anew: {left} of {len(services)} services were not rendered, {alike}.")
        for service in sorted(chosen, key=lambda one: one.path.folder):
            yield from self._recorded(service)

    def _recorded(self, service: ServiceFolder) -> Iterator[_Asked]:
        folder = service.path.folder
        label, file = folder.partition("/")[2], f"{folder}/{REQUEST_FILE}"
        try:
            request = read_file(self.change.after, file, load_request)
            locked = read_file(self.change.after, f"{folder}/{PLAN_FILE}", load_plan)
        except InputError:
            return  # the drift check says what is wrong with them
        if request is None or locked is None or (request.environment, request.service) != _names(service.path):
            return  # the files check and the drift check say so
        yield _Asked(label, file, request, locked, own=True)
        if self.change.touches(CATALOG, SETTINGS):
            yield _Asked(label, file, request, own=True)

    def _examples(self) -> Iterator[_Asked]:
        """The examples of both sides: one that a change removes or eases still shows what the change does."""
        there: dict[tuple[str, str], GitSnapshot] = {}
        for snapshot in (self.change.before, self.change.after):
            for entry in snapshot.entries(EXAMPLES):
                if entry.path.endswith((".yaml", ".yml")):
                    there[entry.path, entry.object_id] = snapshot
        if len(there) > _MOST_EXAMPLES:
            told = f"holds {len(there)} examples, with those of the base, and {_MOST_EXAMPLES} are rendered"
            self._find("too-many-examples", EXAMPLES, told, f"Keep at most {_MOST_EXAMPLES // 2} examples.")
        for (path, _), snapshot in list(there.items())[:_MOST_EXAMPLES]:
            try:
                request = read_file(snapshot, path, load_request)
            except InputError as error:
                if snapshot.tree == self.change.tree:
                    self.findings += problem_findings(GATE, "example", error)
                continue
            if request is not None:
                yield _Asked(path, path, request)
            elif snapshot.tree == self.change.tree:
                self._find("example", path, "is not a plain file", "Replace it by the file itself.")

    def _elsewhere(self, asked: Sequence[_Asked]) -> Iterator[_Asked]:
        """For each environment that no request names: the examples, moved there, until one is rendered."""
        for name in self.after.settings.environments:
            if any(one.request.environment == name for one in asked):
                continue
            for one in asked:
                moved = one.request.model_copy(update={"environment": name})
                if not one.own and self._side(self.after, moved, None).files:
                    yield replace(one, label=f"{one.label} in {name}", request=moved)
                    break
            else:
                told = f"Rendered anew: no example can be served in the environment {name}, and it has no service."
                self._said.append(told)

    def _side(self, platform: Platform, request: Request, locked: Plan | None) -> _Side:
        try:
            check_request(request, platform.catalog, platform.settings, REQUEST_FILE)
            version = platform.template.version
            made = locked or plan(request, platform.catalog, platform.settings, version)
            if made.verdict == "refused":
                return _Side(why=" ".join(made.reasons), refused=True)
            self.rendered += 1
            return _Side(render(request, made, platform.template), made)
        except InputError as error:
            one = error.problems[0]
            return _Side(why=" ".join(filter(None, (one.where, one.field, one.message))))

    def _one(self, asked: _Asked) -> None:
        after = self._side(self.after, asked.request, asked.locked)
        before = self._side(self.before, asked.request, asked.locked) if self.before is not None else _Side()
        for side, values in ((before, self._values[False]), (after, self._values[True])):
            if side.plan is not None and self.change.touches(TEMPLATE):
                values.append(template_values(asked.request, side.plan))
        if after.plan is None:
            self._not_rendered(asked, before, after)
            return
        self._plans[asked.label] = after.plan
        objects = self._objects(asked, after.files, judged=before.files != after.files)
        if before.plan is None:
            self._new.append(asked.label)
        elif before.files != after.files:
            self._compare(asked, self._objects(asked, before.files, judged=None), objects)

    def _not_rendered(self, asked: _Asked, before: _Side, after: _Side) -> None:
        if before.plan is None and after.refused:
            self._refused.append(asked.label)
            return
        if asked.own and asked.locked is not None:
            return  # the drift check says so
        severity = Severity.NOTICE if asked.own and after.refused else Severity.ERROR
        told = f"could be rendered before the change, and not after it: {after.why}"
        if before.plan is None:
            told = f"cannot be rendered: {after.why}"
        fix = "Correct the template, the settings or the catalog, or what the request asks for."
        self._find("not-rendered", asked.file, told, fix, severity)

    def _objects(self, asked: _Asked, files: Mapping[str, str], judged: bool | None) -> dict[str, Manifest]:
        """The objects by their file's name. `judged`: they are new, and None for those of the base."""
        folder = asked.path.folder
        snapshot = MemorySnapshot({f"{folder}/{name}": text.encode() for name, text in files.items()})
        findings, objects = read_service(snapshot, asked.path)
        named = {one.file.rpartition("/")[2]: one for one in objects}
        if judged is None:
            return named
        if judged:
            self.findings += [self._of_skeleton(one, asked) for one in findings]
        for name, one in named.items():
            # Lines are those of the rendered file, which lies nowhere.
            placed = replace(one, file=self._skeleton(name), document=Document(one.value))
            if self._given.get(_key(one)) == one.value:
                continue
            self._servers.append(placed)
            if judged:
                self._manifests.setdefault(f"{asked.label} {asked.locked is None} {name}", placed)
        return named

    def _compare(self, asked: _Asked, before: Mapping[str, Manifest], after: Mapping[str, Manifest]) -> None:
        for name in RENDERED_KINDS:
            if name in before and name in after:
                self._add(after[name].kind, before[name].value, after[name].value, asked.label, asked.request.service)

    def _add(self, kind: str, before: Any, after: Any, label: str, service: str) -> None:
        """Note the differences of two objects; those of other services are the same but for the service's name."""
        name = re.compile(rf"(?<![A-Za-z0-9]){re.escape(service)}(?![A-Za-z0-9])") if service else None

        def plain(text: str | None) -> str | None:
            return text if text is None or name is None else name.sub("\0", text)

        for index, one in enumerate(field_changes(before, after)):
            if index == _MOST_FIELDS:
                told = f"differs in more than {_MOST_FIELDS} fields of its {kind}: the others are not listed"
                self._find("too-different", TEMPLATE, f"{label} {told}", "Bring the change in smaller steps.")
                return
            key = (kind, one.field, plain(one.before), plain(one.after))
            _, _, labels = self._differences.setdefault(key, (one, kind, set()))
            labels.add(label)

    def _runtimes(self) -> None:
        """KServe puts a runtime's container under each service's own: it is compared and judged as it stands."""
        for path in sorted(path for path in self.change.paths if path.startswith(f"{RUNTIMES}/")):
            try:
                before = read_file(self.change.before, path, _manifests) or []
            except InputError:
                before = []
            try:
                after = read_file(self.change.after, path, _manifests) or []
            except InputError as error:
                self.findings += problem_findings(GATE, "runtime", error)
                continue
            sides = [{one.subject: one for one in side} for side in (before, after)]
            for subject in sorted({*sides[0], *sides[1]}):
                old, new = (side.get(subject) for side in sides)
                name = subject.rpartition(" ")[2]
                users = {label for label, one in self._plans.items() if one.runtime.name == name}
                values = [None if one is None else one.value for one in (old, new)]
                changes = list(field_changes(*values))
                if len(changes) > _MOST_FIELDS:
                    told = f"{subject} differs in {len(changes)} fields, and {_MOST_FIELDS} are listed"
                    self._find("too-different", path, told, "Bring the change in smaller steps.")
                for one in changes[:_MOST_FIELDS]:
                    self._differences[subject, one.field, one.before, one.after] = (one, subject, users)
            self._manifests |= {new.subject: new for new in after}

    # What is said of it.

    def _unreached(self) -> None:
        """Lines of the skeleton that are new and that nothing shows: no request meets their conditions."""
        if not self.change.touches(TEMPLATE):
            return
        old = _skeletons(self.before.template) if self.before is not None else {}
        for path, text in _skeletons(self.after.template).items():
            known = branches(old[path]) if path in old else {}
            for conditions, branch in branches(text).items():
                if any(reached(conditions, values) for values in self._values[True]):
                    continue
                if conditions in known and known[conditions].text == branch.text:
                    continue
                told = f"no service and no example is rendered with these lines, which need {in_words(conditions)}"
                fix = f"Add an example to {EXAMPLES}/ that does, or remove the lines."
                self._find("unreached", f"{TEMPLATE}/{path}", told, fix, line=branch.line)

    def _uncovered(self) -> None:
        """Changed entries of the catalog that no rendered service uses."""
        used = {
            "model": {one.model for one in self._plans.values()},
            "accelerator": {one.accelerator for one in self._plans.values()},
            "runtime": {one.runtime.name for one in self._plans.values()},
            "team": {one.tenancy.team for one in self._plans.values()},
        }
        unused = []
        for path in self.change.paths:
            folder, _, file = path.removeprefix(f"{CATALOG}/").partition("/")
            if not path.startswith(f"{CATALOG}/") or folder not in _ENTRIES:
                continue
            name, what = file.removesuffix(".yaml"), _ENTRIES[folder]
            if not any(one.rpartition("/")[2] == name for one in used[what]):
                unused.append(f"the {what} {name}")
        if unused:
            self._said.append(f"Rendered anew: no service and no example was rendered with {_listed(unused)}.")

    def _skeleton(self, name: str) -> str:
        """Where a file of a service comes from."""
        found = [path for path in _skeletons(self.after.template) if path.rpartition("/")[2] == name]
        return f"{TEMPLATE}/{found[0]}" if found else self.after.template.where

    def _of_skeleton(self, finding: Finding, asked: _Asked) -> Finding:
        name = finding.file.rpartition("/")[2]
        told = f"rendered for {asked.label}: {finding.message}"
        changed = {"gate": GATE, "file": self._skeleton(name), "line": None, "message": told}
        return finding.model_copy(update=changed)

    def _find(
        self, rule: str, file: str, message: str, fix: str, severity: Severity = Severity.ERROR, line: int | None = None
    ) -> None:
        self.findings.append(
            Finding(gate=GATE, rule=rule, severity=severity, file=file, line=line, message=message, fix=fix)
        )


def merged(findings: Sequence[Finding], rendered: Sequence[Manifest]) -> list[Finding]:
    """The findings of a run, with one for all that says the same of several rendered objects."""
    places = {(one.file, one.subject): one for one in rendered if one.service is not None}
    kept: dict[tuple[str, ...], Finding] = {}
    others: dict[tuple[str, ...], set[str]] = {}
    for number, finding in enumerate(findings):
        one = places.get((finding.file, finding.subject))
        if one is None:
            kept[str(number),] = finding
            continue
        message = finding.message.replace(one.name, "\0")
        key: tuple[str, ...] = (finding.gate, finding.rule, finding.severity, finding.file, message, finding.fix)
        kept.setdefault(key, finding)
        others.setdefault(key, set()).add(finding.subject)
    for key, subjects in others.items():
        more = f" and {len(subjects) - 1} more like it" if len(subjects) > 1 else ""
        first = kept[key]
        kept[key] = first.model_copy(update={"message": f"rendered for {first.subject}{more}: {first.message}"})
    return list(kept.values())


def _key(manifest: Manifest) -> tuple[str, tuple[str, str, str, str]]:
    return (manifest.service.environment if manifest.service else "", manifest.identity)


def _names(path: ServicePath) -> tuple[str, str]:
    return path.environment, path.service


def _skeletons(template: Template) -> dict[str, str]:
    """The files that become a service's, by their paths in the template."""
    folders = tuple(f"{step.folder}/" for step in template.steps if step.action == FETCH)
    return {path: text for path, text in template.files.items() if path.startswith(folders)}


def _manifests(text: str, path: str) -> list[Manifest]:
    return read_manifests(text.encode(), path)


def _listed(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _tripwires() -> int:
    """Differences that must be seen, and template syntax that must be refused; returns how many."""
    good: dict[str, Any] = {
        "spec": {"ingress": [{"from": [{"podSelector": {}}]}], "env": [{"name": "A", "value": "1"}]}
    }
    for bad in (
        {"spec": {**good["spec"], "hostNetwork": True}},
        {"spec": {**good["spec"], "ingress": [{}]}},
        {"spec": {**good["spec"], "env": []}},
        {"spec": {**good["spec"], "env": [{"name": "A", "value": 1}]}},
    ):
        if not list(field_changes(good, bad)):
            raise UntrustedError(f"the comparison of rendered services did not see that {bad} differs from {good}.")
    for text in ("${{ values.service.__class__ }}\n", "{% include 'x' %}\n", "${{ cycler }}\n"):
        if not lint(text, "tripwire"):
            raise UntrustedError(f"the template's lint did not refuse {text!r}.")
    return 7

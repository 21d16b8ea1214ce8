"""Shows how a change of the template, the settings, the catalog or the runtimes alters services when next rendered.

It renders the same requests twice: by the files of the base, and by those of the merge result. Both are data to this
process: the sandbox of `scaffolder` fills a skeleton, and only after its lint has found no fault in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.yaml_io import Document, read_document
from neuroscale.gate.check import Anew, GateCheck, LeftOut, Run
from neuroscale.gate.checks.effects_platforms import platform_before, with_names_of_base
from neuroscale.gate.checks.effects_requests import (
    GATE,
    RequestToRender,
    choose_requests,
    listed,
    skeletons,
    unreached_lines,
    unused_entries,
)
from neuroscale.gate.checks.files import read_service
from neuroscale.gate.evaluation import Evaluation, file_finding, problem_findings
from neuroscale.gate.judged_files import ServiceFolder
from neuroscale.gate.merged_change import Change, touches_rendering
from neuroscale.gate.object_diff import FieldChange, field_changes
from neuroscale.gate.platform_sources import UNREADABLE, PlatformSources
from neuroscale.gate.verdict import Effect, Effects, Finding, Severity
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.planning.plan import Plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.lint import lint, plain_name
from neuroscale.rendering.scaffolder.skeleton_values import template_values, unset_by
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import (
    CATALOG_INFO,
    EXAMPLES,
    POSSIBLE_KINDS,
    REQUEST_FILE,
    RUNTIMES,
    TEMPLATE,
)
from neuroscale.repo.snapshot import MemorySnapshot, read_file
from neuroscale.request.service_request import Request, check_request

_MOST_DIFFERENCES = 200  # of the verdict's list
_MOST_FIELDS = 300  # of one object that are compared with other objects'
_SMALLER = "Bring the change in smaller steps."
RENDERERS = tuple(
    f"src/neuroscale/{name}"
    for name in (
        *("catalog", "core/yaml_io.py", "models", "planning"),
        *("rendering/scaffolder", "rendering/service_folder.py"),
    )
)
"""The code that plans and renders services."""


class EffectsCheck(GateCheck):
    """Renders services anew. Hands on what the change does to them, and objects for the checks of manifests."""

    name = GATE
    title = "Services, rendered again"
    needs = ("files", "catalog")

    def left_out(self, run: Run) -> LeftOut | None:
        if run.change is None or not touches_rendering(run.change):
            return LeftOut()
        return LeftOut(UNREADABLE) if run.platform is None else None

    def evaluate(self, run: Run) -> Evaluation:
        if run.change is None or run.platform is None:
            raise UntrustedError("this run has no change to compare, or no platform.")
        evaluation, self.value = evaluate_effects(
            run.change, run.given.services, run.platform, run.judge, run.manifests
        )
        return evaluation

    def not_checked(self, run: Run) -> Iterable[str]:
        said = self.value.said if self.value else ()
        return () if run.change is None else (*unseen(run.change), *said)


@dataclass(frozen=True)
class _Side:
    """A request as one side renders it; `why` it cannot render it, and whether the planner itself `refused` it."""

    files: Mapping[str, str] = field(default_factory=dict)
    plan: Plan | None = None
    why: str = ""
    refused: bool = False


def unseen(change: Change) -> Iterator[str]:
    """The effects of a change that rendering cannot show, in words: its own planner and renderer do not run here."""
    if change.touches(*RENDERERS):
        yield "Rendered anew: the change's own planner and renderer did not run; the base's rendered the services."


def evaluate_effects(
    change: Change,
    services: Sequence[ServiceFolder],
    after: PlanningInputs,
    base: PlatformSources,
    given: Sequence[Manifest],
) -> tuple[Evaluation, Anew]:
    """Render a bounded number of services and every example by both sides, and compare the objects.

    An example that the change alters or removes is rendered with the names that the base's files have for teams,
    environments and models; the change's own examples with the names of the change.

    `after`: the platform of the merge result. `base`: the base's. `given`: the objects that are judged already. Raises
    UntrustedError if the comparison does not see a known difference.
    """
    caught = _tripwires()
    work = _Work(change, after, platform_before(change, after, base), given)
    work.run(services)
    findings = tuple(dict.fromkeys(work.findings))
    done = work.rendered
    return Evaluation(findings, done, done, "renderings", caught, caught), work.anew()


class _Work:
    """One run over every request."""

    def __init__(
        self, change: Change, after: PlanningInputs, before: PlanningInputs | None, given: Sequence[Manifest]
    ) -> None:
        self.change = change
        self.before = before
        self.after = after
        self._after_of_base = after if before is None else with_names_of_base(after, before)
        self.findings: list[Finding] = []
        self.rendered = 0
        self._given = {_key(one): one.value for one in given}
        self._differences: dict[tuple[str, str, str | None, str | None], tuple[FieldChange, str, set[str]]] = {}
        self._manifests: dict[str, Manifest] = {}
        self._servers: list[Manifest] = []
        self._imagined: list[Manifest] = []
        self._values: list[Mapping[str, Any]] = []
        self._plans: dict[str, Plan] = {}
        self._refused: list[str] = []
        self._new: list[str] = []
        self._said: list[str] = []

    def run(self, services: Sequence[ServiceFolder]) -> None:
        chosen = choose_requests(self.change, services)
        self.findings += chosen.findings
        self._said += chosen.said
        asked = [*chosen.own, *chosen.examples]
        for one in (*asked, *self._elsewhere(asked)):
            self._one(one)
        self._runtimes()
        if self.change.touches(TEMPLATE):
            before = self.before.template if self.before is not None else None
            self.findings += unreached_lines(before, self.after.template, self._values, unset_by(self.after.settings))
        if not self._plans:
            told = "no service and no example can be rendered with it: its effect on services is not known"
            fix = f"Add an example to {EXAMPLES}/ that the planner can serve."
            self.findings.append(file_finding(GATE, "nothing-rendered", TEMPLATE, told, fix))
        if unused := unused_entries(self.change, self._plans.values()):
            self._said.append(f"Rendered anew: no service and no example was rendered with {listed(unused)}.")

    def anew(self) -> Anew:
        """The result, once everything is rendered."""
        if self.before is None:
            self._said.append(
                "The template, the settings or the catalog of the base cannot be read: there is nothing to compare."
            )
        if self._refused:
            told = f"Rendered anew: the planner refuses, before the change and after it, {listed(self._refused)}."
            self._said.append(told)
        if self._new and self.before is not None:
            self._said.append(f"Rendered anew: could not be rendered before the change: {listed(self._new)}.")
        rows = sorted(
            self._differences.values(), key=lambda row: (-len(row[2]), row[1], row[0].field, row[0].after or "")
        )
        differences = tuple(
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
            differences=differences,
            left_out=len(rows) - len(differences),
        )
        rendered, said = tuple(self._manifests.values()), tuple(self._said)
        return Anew(effects, rendered, tuple(self._servers), said, tuple(self._imagined))

    # Rendering.

    def _elsewhere(self, asked: Sequence[RequestToRender]) -> Iterator[RequestToRender]:
        """For each environment that no request names: the examples with that environment, until one can be rendered."""
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

    def _side(self, platform: PlanningInputs, request: Request, locked: Plan | None) -> _Side:
        try:
            check_request(request, platform.known, REQUEST_FILE)
            made = locked or platform.plan(request)
            if made.verdict == "refused":
                return _Side(why=" ".join(made.reasons), refused=True)
            self.rendered += 1
            return _Side(render(request, made, platform.template), made)
        except InputError as error:
            one = error.problems[0]
            return _Side(why=" ".join(filter(None, (one.where, one.field, one.message))))

    def _one(self, asked: RequestToRender) -> None:
        platform = self._after_of_base if asked.of_base else self.after
        after = self._side(platform, asked.request, asked.locked)
        before = self._side(self.before, asked.request, asked.locked) if self.before is not None else _Side()
        if before.plan is None and asked.earlier is not None and self.before is not None:
            before = self._side(self.before, asked.earlier, None)
        if after.plan is None and asked.of_base:
            self._example_of_base_not_rendered(asked, before, after)
            return
        if after.plan is None:
            self._not_rendered(asked, before, after)
            return
        if self.change.touches(TEMPLATE):
            self._values.append(template_values(asked.request, after.plan))
        self._plans[asked.label] = after.plan
        self._objects(asked, after.files, judged=before.files != after.files)
        if before.plan is None:
            self._new.append(asked.label)
        else:
            self._compare(asked, before.files, after.files)

    def _not_rendered(self, asked: RequestToRender, before: _Side, after: _Side) -> None:
        if before.plan is None and after.refused:
            self._refused.append(asked.label)
            return
        if asked.own and asked.locked is not None:
            return  # the drift check reports it
        as_before = self.before is not None and before.plan is None and before.why == after.why
        severity = Severity.NOTICE if asked.own and (after.refused or as_before) else Severity.ERROR
        told = f"could be rendered before the change, and not after it: {after.why}"
        if before.plan is None:
            told = f"cannot be rendered: {after.why}"
        fix = "Correct the template, the settings or the catalog, or what the request asks for."
        self.findings.append(file_finding(GATE, "not-rendered", asked.file, told, fix, severity=severity))

    def _example_of_base_not_rendered(self, asked: RequestToRender, before: _Side, after: _Side) -> None:
        """An example that the change removes or alters need not be possible after it; the template must render it."""
        if before.plan is None or self.before is None:
            return
        template = replace(self.before, template=self.after.template)
        if why := self._side(template, asked.request, None).why:
            told = f"no longer renders {asked.label}, which the change removes or alters: {why}"
            fix = "Correct the template, so that it renders what it rendered before."
            self.findings.append(file_finding(GATE, "not-rendered", TEMPLATE, told, fix))
        else:
            self._said.append(f"Rendered anew: with the change's files, {asked.label} is not possible: {after.why}")

    def _objects(self, asked: RequestToRender, files: Mapping[str, str], *, judged: bool) -> None:
        """Hand on the objects of a service. `judged`: the change renders them anew."""
        folder = asked.path.folder
        snapshot = MemorySnapshot({f"{folder}/{name}": text.encode() for name, text in files.items()})
        findings, objects = read_service(snapshot, asked.path)
        if judged:
            self.findings += [self._of_skeleton(one, asked) for one in findings]
        for one in objects:
            name = one.file.rpartition("/")[2]
            # Its lines are those of a rendered file that exists nowhere.
            placed = replace(one, file=self._skeleton(name), document=Document(one.value))
            if self._given.get(_key(one)) == one.value:
                continue
            self._servers.append(placed)
            if judged:
                key = f"{asked.label} {asked.locked is None} {name}"
                if self._manifests.setdefault(key, placed) is placed and not asked.own:
                    self._imagined.append(placed)

    def _compare(self, asked: RequestToRender, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Note how each rendered file differs, by its values, or by its text where they are the same."""
        for name in (*POSSIBLE_KINDS, CATALOG_INFO):
            sides = [files.get(name) for files in (before, after)]
            if sides[0] != sides[1]:
                kind, values = POSSIBLE_KINDS.get(name, name), [_value(text, name) for text in sides]
                if values[0] == values[1]:
                    kind, values = f"{name}, its text alone:", [_different_line(*sides), _different_line(*sides[::-1])]
                self._add(kind, values[0], values[1], asked.label, asked.request.service)

    def _add(self, kind: str, before: Any, after: Any, label: str, service: str) -> None:
        """Note the differences of two objects; two services differ alike if only their name differs."""
        name = re.compile(rf"(?<![A-Za-z0-9]){re.escape(service)}(?![A-Za-z0-9])") if service else None

        def plain(text: str | None) -> str | None:
            return text if text is None or name is None else name.sub("\0", text)

        for index, one in enumerate(field_changes(before, after)):
            if index == _MOST_FIELDS:
                told = f"differs in more than {_MOST_FIELDS} fields of its {kind}: the others are not listed"
                self.findings.append(file_finding(GATE, "too-different", TEMPLATE, f"{label} {told}", _SMALLER))
                return
            key = (kind, one.field, plain(one.before), plain(one.after))
            _, _, labels = self._differences.setdefault(key, (one, kind, set()))
            labels.add(label)

    def _runtimes(self) -> None:
        """Compare and judge the runtimes as they stand: KServe merges a runtime's container into each service's own."""
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
                    self.findings.append(file_finding(GATE, "too-different", path, told, _SMALLER))
                for one in changes[:_MOST_FIELDS]:
                    self._differences[subject, one.field, one.before, one.after] = (one, subject, users)
            self._manifests |= {new.subject: new for new in after}

    def _skeleton(self, name: str) -> str:
        """Where a file of a service comes from."""
        found = [path for path in skeletons(self.after.template) if plain_name(path).rpartition("/")[2] == name]
        return f"{TEMPLATE}/{found[0]}" if found else self.after.template.where

    def _of_skeleton(self, finding: Finding, asked: RequestToRender) -> Finding:
        name = finding.file.rpartition("/")[2]
        told = f"rendered for {asked.label}: {finding.message}"
        changed = {"gate": GATE, "file": self._skeleton(name), "line": None, "message": told}
        return finding.model_copy(update=changed)


def _key(manifest: Manifest) -> tuple[str, tuple[str, str, str, str]]:
    return (manifest.service.environment if manifest.service else "", manifest.identity)


def _value(text: str | None, name: str) -> Any:
    """The value of a rendered file; its text if it is not one document."""
    try:
        return None if text is None else read_document(text, name).value
    except InputError:
        return text


def _different_line(text: str | None, other: str | None) -> str:
    """The first line of a text at which another text goes on differently."""
    lines, others = (text or "").splitlines(), (other or "").splitlines()
    return next((line for number, line in enumerate(lines) if others[number : number + 1] != [line]), "")


def _manifests(text: str, path: str) -> list[Manifest]:
    return read_manifests(text.encode(), path)


def _tripwires() -> int:
    """Check known differences, which must be seen, and template syntax that must be refused; returns how many."""
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

"""Reads a software template from the repository: template.yaml and the skeleton beside it.

Lists the Backstage actions that a template may use here, and the implemented inputs of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.yaml_io import Document, Path, dotted, read_mapping, sha256_of
from neuroscale.rendering.scaffolder import expressions, unchanged_structure
from neuroscale.rendering.scaffolder.lint import lint, lint_name
from neuroscale.rendering.scaffolder.template_engine import Whitespace
from neuroscale.repo.layout import TEMPLATE
from neuroscale.repo.snapshot import Snapshot, Texts

PLAN_ROUTE = "/api/v1/plan"
"""The planner's path on its own server."""

PLAN_PATH = f"proxy/neuroscale{PLAN_ROUTE}"
"""The same path through Backstage's proxy, under the endpoint `/neuroscale` of its configuration."""

PLAN_QUESTION = f"{PLAN_PATH}?answers=${{{{ parameters | dump | urlencode }}}}"
"""What the planning step asks: all answers of the form, as they are, so that what is rendered belongs to the request
that the planner planned. Backstage's dry run sends no request but GET."""

REQUEST = "http:backstage:request"
FETCH = "fetch:template"
PUBLISH = "publish:github:pull-request"


@dataclass(frozen=True)
class Action:
    """Names of the inputs, and of the outputs that later steps may use."""

    required: frozenset[str]
    optional: frozenset[str]
    outputs: frozenset[str]

    @property
    def inputs(self) -> frozenset[str]:
        return self.required | self.optional


ACTIONS = {
    REQUEST: Action(required=frozenset({"path", "method"}), optional=frozenset(), outputs=frozenset({"body"})),
    FETCH: Action(
        required=frozenset({"url", "targetPath", "values"}),
        optional=frozenset({"trimBlocks", "lstripBlocks"}),
        outputs=frozenset(),
    ),
    PUBLISH: Action(
        required=frozenset({"repoUrl", "branchName", "title", "description"}),
        optional=frozenset({"targetBranchName", "commitMessage", "update", "createWhenEmpty"}),
        outputs=frozenset({"remoteUrl", "pullRequestNumber", "targetBranchName"}),
    ),
}


DEFINITION = "template.yaml"
VERSION_ANNOTATION = "neuroscale.dev/template-version"

_MOST_BYTES = 256 * 1024  # of all files together
_MOST_FILES = 50
_STEP_FIELDS = frozenset({"id", "name", "action", "input"})


@dataclass(frozen=True)
class Step:
    """One step; `input` holds its references unevaluated, `path` is its place in template.yaml."""

    id: str
    action: str
    input: Mapping[str, Any]
    path: Path

    @property
    def whitespace(self) -> Whitespace:
        """The white-space inputs of `fetch:template`."""
        return Whitespace(self.input.get("trimBlocks", False), self.input.get("lstripBlocks", False))

    @property
    def folder(self) -> str:
        """The folder that `fetch:template` reads, below the template's own."""
        url: str = self.input["url"]
        return url.removeprefix("./").removesuffix("/")


@dataclass(frozen=True)
class Template:
    """A checked template. `files`: every text by its path below the folder `root`, template.yaml included."""

    root: str
    files: Mapping[str, str]
    document: Document
    steps: tuple[Step, ...]
    version: str

    @cached_property
    def digest(self) -> str:
        """`sha256:` and 64 hexadecimal digits over every file."""
        return sha256_of(dict(self.files))

    @property
    def where(self) -> str:
        """The path of template.yaml, for messages."""
        return f"{self.root}/{DEFINITION}"

    def folder(self, name: str) -> dict[str, str]:
        """The files below the folder `name`, by their path in it."""
        return {path.removeprefix(f"{name}/"): text for path, text in self.files.items() if path.startswith(f"{name}/")}

    def form(self) -> dict[str, dict[str, Any]]:
        """The JSON schema of every field of the form, by its name."""
        return {name: schema for page in self.pages() for name, schema in page.get("properties", {}).items()}

    def optional(self) -> list[str]:
        """The fields of the form that may be left empty."""
        required = {name for page in self.pages() for name in page.get("required", [])}
        return [name for name in self.form() if name not in required]

    def pages(self) -> list[dict[str, Any]]:
        """The JSON schemas of the form's pages."""
        parameters = self.document.value["spec"]["parameters"]
        return parameters if isinstance(parameters, list) else [parameters]


def load_template(snapshot: Snapshot, root: str = TEMPLATE) -> Template:
    """The template of a repository, checked. Raises InputError listing every problem of every file."""
    problems: list[Problem] = []
    files: dict[str, str] = {}
    entries = snapshot.entries(root)
    if len(entries) > _MOST_FILES:
        told = f"holds {len(entries)} files"
        raise InputError.at(root, "", told, f"Keep a template to {_MOST_FILES} files.")
    texts = Texts(snapshot, root, _MOST_BYTES)
    for entry in entries:
        if entry.kind != "file":
            problems.append(
                Problem(entry.path, "", f"is a {entry.kind}, not a plain file", "Keep plain text files in a template.")
            )
            continue
        try:
            files[entry.path.removeprefix(f"{root}/")] = texts.read(entry.path)
        except InputError as error:
            problems += error.problems
    where = f"{root}/{DEFINITION}"
    if DEFINITION not in files and not problems:
        problems.append(Problem(where, "", "is missing", "Restore the template."))
    if problems:
        raise InputError(problems)
    document = read_mapping(files[DEFINITION], where)
    definition = _Definition(document, where, files)
    template = Template(
        root=root,
        files=MappingProxyType(dict(sorted(files.items()))),
        document=document,
        steps=definition.steps(),
        version=definition.version(),
    )
    definition.check_output()
    if not definition.problems:
        for step in template.steps:
            if step.action == FETCH:
                definition.problems += _skeleton_problems(template, step)
    if definition.problems:
        raise InputError(definition.problems)
    return template


def _skeleton_problems(template: Template, step: Step) -> list[Problem]:
    problems: list[Problem] = []
    for path, text in template.folder(step.folder).items():
        where = f"{template.root}/{step.folder}/{path}"
        found = [*lint_name(path, where), *lint(text, where)]
        problems += found or unchanged_structure.check_places(text, step.whitespace, where)
    return problems


class _Definition:
    """Reads template.yaml and notes every part that this program would not run as Backstage does."""

    def __init__(self, document: Document, where: str, files: Mapping[str, str]) -> None:
        self.document = document
        self.where = where
        self.files = files
        self.problems: list[Problem] = []
        self.known: set[str] = set()

    def refuse(self, path: Path, message: str, fix: str) -> None:
        self.problems.append(Problem(self.where, dotted(path), message, fix, self.document.line(*path)))

    def version(self) -> str:
        path: Path = ("metadata", "annotations", VERSION_ANNOTATION)
        version = self._at(path)
        if not isinstance(version, str) or not re.fullmatch(r"\d+\.\d+\.\d+", version):
            self.refuse(path, "is not a version", 'Write the template\'s version as quoted text, such as "1.0.0".')
            return ""
        return version

    def steps(self) -> tuple[Step, ...]:
        parameters = self._at(("spec", "parameters"))
        pages = parameters if isinstance(parameters, list) else [parameters]
        for page in pages:
            properties = page.get("properties") if isinstance(page, dict) else None
            if not isinstance(properties, dict):
                self.refuse(("spec", "parameters"), "has no properties", "List the form's fields under `properties:`.")
                return ()
            self.known |= {f"parameters.{name}" for name in properties}
        entries = self._at(("spec", "steps"))
        if not isinstance(entries, list) or not entries:
            self.refuse(("spec", "steps"), "lists no step", "Add the template's steps.")
            return ()
        steps = [self._step(entry, ("spec", "steps", index)) for index, entry in enumerate(entries)]
        found = tuple(step for step in steps if step is not None)
        if not self.problems:
            for action in (REQUEST, FETCH, PUBLISH):
                if action not in (step.action for step in found):
                    self.refuse(("spec", "steps"), f"has no step with the action {action}", "Add that step.")
        return found

    def check_output(self) -> None:
        """Check the links that Backstage shows at the end; nothing else reads them."""
        path: Path = ("spec", "output")
        self._references(self._at(path), path)

    def _step(self, entry: Any, path: Path) -> Step | None:
        if not isinstance(entry, dict):
            self.refuse(path, "is not a mapping", "Write a step with id, name, action and input.")
            return None
        for field in sorted(entry.keys() - _STEP_FIELDS):
            self.refuse((*path, field), "is not supported in a step here", "A step has id, name, action and input.")
        step_id, action, given = entry.get("id"), entry.get("action"), entry.get("input")
        if not isinstance(step_id, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", step_id):
            self.refuse((*path, "id"), "is missing or not a plain word", "Give the step an id of letters and digits.")
            return None
        if not isinstance(action, str) or action not in ACTIONS:
            self.refuse(
                (*path, "action"),
                f"{action!a} is not an action that is known here",
                f"Use one of {', '.join(sorted(ACTIONS))}.",
            )
            return None
        if not isinstance(given, dict):
            self.refuse((*path, "input"), "is missing", f"Give {', '.join(sorted(ACTIONS[action].required))}.")
            return None
        before = len(self.problems)
        for name in sorted(given.keys() - ACTIONS[action].inputs):
            self.refuse(
                (*path, "input", name),
                f"is not an input of {action} that is known here",
                f"Use {', '.join(sorted(ACTIONS[action].inputs))}.",
            )
        for name in sorted(ACTIONS[action].required - given.keys()):
            self.refuse((*path, "input"), f"lacks {name}", f"Add `{name}:`.")
        if len(self.problems) == before:
            if action != REQUEST:  # its inputs are fixed texts
                self._references(given, (*path, "input"))
            self._inputs(action, given, (*path, "input"))
        step_name = f"steps.{step_id}.output"
        if any(name.startswith(f"{step_name}.") for name in self.known):
            self.refuse((*path, "id"), f"{step_id!r} stands twice", "Give each step an id of its own.")
        self.known |= {f"{step_name}.{output}" for output in ACTIONS[action].outputs}
        return Step(step_id, action, given, path)

    def _inputs(self, action: str, given: Mapping[str, Any], path: Path) -> None:
        def expect(name: str, fits: bool, what: str) -> None:
            if not fits:
                self.refuse((*path, name), f"is not {what}", f"Write {what}.")

        if action == REQUEST:
            expect("path", given["path"] == PLAN_QUESTION, PLAN_QUESTION)
            expect("method", given["method"] == "GET", "GET")
        elif action == FETCH:
            for name in ("trimBlocks", "lstripBlocks"):
                expect(name, isinstance(given.get(name, False), bool), "true or false")
            folder = given["url"].removeprefix("./").removesuffix("/") if isinstance(given["url"], str) else ""
            expect(
                "url",
                bool(folder) and any(file.startswith(f"{folder}/") for file in self.files),
                "a folder beside template.yaml that holds files, such as ./skeleton",
            )
            # Any other value would put text into manifests that is not encoded.
            name = expressions.sole_reference(given["values"]) or ""
            expect(
                "values",
                re.fullmatch(r"steps\.[^.]+\.output\.body\.values", name) is not None,
                "`${{ steps.ID.output.body.values }}` of the planning step",
            )
            expect("targetPath", isinstance(given["targetPath"], str), "a path")
        else:
            for name in sorted(ACTIONS[action].inputs & given.keys()):
                kind = bool if name in ("update", "createWhenEmpty") else str
                expect(name, isinstance(given[name], kind), "true or false" if kind is bool else "text")

    def _references(self, value: Any, path: Path) -> None:
        for place, text in expressions.strings(value, path):
            try:
                names = expressions.references(text)
            except ValueError as error:
                self.problems.append(expressions.problem(self.where, place, error, self.document.line(*place)))
                continue
            for name in names:
                # Only the action knows the content of a step's output; whether the step has this output is known here.
                head = ".".join(name.split(".")[: 2 if name.startswith("parameters.") else 4])
                if head not in self.known:
                    self.refuse(
                        place, f"{name} has no value at this point", f"Use one of {', '.join(sorted(self.known))}."
                    )

    def _at(self, path: Path) -> Any:
        value = self.document.value
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return value

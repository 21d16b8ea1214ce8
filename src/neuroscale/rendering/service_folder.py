"""Turns a request and its plan into the exact files of a service folder.

There is one way: the steps of the template (`scaffolder.interpreter`). `run_template` runs them for a request and its
plan; `render` keeps the files in memory, and `scaffold` begins with a form's answers and publishes the result.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.planning.plan import Plan
from neuroscale.planning.planner import plan as make_plan
from neuroscale.rendering.scaffolder import interpreter, plan_step
from neuroscale.rendering.scaffolder.interpreter import Outcome, Publish, RenderedPullRequest
from neuroscale.rendering.scaffolder.plan_step import FORM, RefusedPlanError
from neuroscale.rendering.scaffolder.skeleton_values import TemplateValues, template_values
from neuroscale.rendering.scaffolder.template import Template, load_template
from neuroscale.repo.layout import PLAN_FILE, RENDERED_KINDS, REQUEST_FILE, ServicePath
from neuroscale.request.service_request import KnownNames, Request

__all__ = [
    "RENDERED_FILES",
    "Outcome",
    "RefusedPlanError",
    "RenderedPullRequest",
    "Template",
    "TemplateValues",
    "load_template",
    "render",
    "run_template",
    "scaffold",
    "template_values",
    "to_work_tree",
    "write",
]

RENDERED_FILES = (REQUEST_FILE, PLAN_FILE, *RENDERED_KINDS)
"""Every file that a rendered service folder may hold."""


def render(request: Request, plan: Plan, template: Template) -> dict[str, str]:
    """Every file of the service folder, by name, byte for byte. Pure: it depends only on its arguments.

    Raises InputError for a plan that is refused or belongs to another request.
    """
    outcome = run_template(request, plan, template, plan_where=PLAN_FILE)
    folder = f"{ServicePath(request.environment, request.service).folder}/"
    files = {path.removeprefix(folder): text for path, text in outcome.files.items()}
    if sorted(files) != sorted(RENDERED_FILES):
        raise InputError(
            Problem(
                template.where,
                "",
                f"renders {', '.join(sorted(outcome.files))}",
                f"Let it render exactly {', '.join(RENDERED_FILES)} into {folder}.",
            )
        )
    return {name: files[name] for name in RENDERED_FILES}


def run_template(
    request: Request,
    plan: Plan,
    template: Template,
    publish: Publish = interpreter.not_published,
    plan_where: str = FORM,
) -> Outcome:
    """Runs the template for a request that has its plan. `plan_where` names the plan's file in messages.

    Raises InputError where the template sends anything but the form's answers to the planner, and for a plan that is
    refused or belongs to another request; nothing is published then.
    """
    answers = plan_step.answers_of(request)

    def answer(sent: Mapping[str, Any]) -> Mapping[str, Any]:
        given = {name: value for name, value in sent.items() if value is not None}
        if wrong := [name for name in sorted(given.keys() | answers) if given.get(name) != answers.get(name)]:
            raise InputError(
                Problem(
                    template.where,
                    "spec.steps",
                    f"send the planner other answers than the form's: {', '.join(wrong)}",
                    f"Write `{wrong[0]}: ${{{{ parameters.{wrong[0]} }}}}` into the body of that step.",
                )
            )
        return plan_step.body(request, plan, plan_where)

    return interpreter.run(template, answers, answer, publish)


def scaffold(
    answers: Mapping[str, Any], template: Template, catalog: Catalog, settings: Settings, publish: Publish
) -> Outcome:
    """Runs the template for a form's answers: plan, files, pull request (or whatever `publish` does instead).

    Raises InputError naming the fields for answers that cannot be used, and RefusedPlanError for a refused plan;
    nothing is published then.
    """
    request = plan_step.request_of(answers, KnownNames.of(catalog, settings))
    made = plan_step.served(make_plan(request, catalog, settings, template.version))
    return run_template(request, made, template, publish)


def to_work_tree(root: Path) -> Publish:
    """Publishes into the service folders below `root` instead of a pull request; the reviewer commits."""

    def publish(request: RenderedPullRequest) -> Mapping[str, Any]:
        folders: dict[str, dict[str, str]] = {}
        for path, text in request.files.items():
            service = ServicePath.of(path)
            if service is None or path != f"{service.folder}/{Path(path).name}":
                raise InputError(
                    Problem(path, "", "lies outside every service folder", "Correct the template's targetPath.")
                )
            # A symlink on the way would let the files land somewhere else.
            for parent in [*Path(path).parents][:-1]:
                if (root / parent).is_symlink():
                    raise InputError(Problem(str(parent), "", "is a symlink", "Replace it with a plain folder."))
            folders.setdefault(service.folder, {})[Path(path).name] = text
        for folder, files in folders.items():
            write(files, root / folder)
        return {
            "remoteUrl": ", ".join(sorted(folders)),
            "pullRequestNumber": 0,
            "targetBranchName": request.target_branch or "",
        }

    return publish


def write(files: Mapping[str, str], folder: Path) -> None:
    """Makes `folder` hold `files`, and none of the other names in `RENDERED_FILES`.

    Each file is replaced as a whole; a file that is right already is not touched. Raises InputError, before it writes
    anything, if a name is not that of a rendered file, or a path is a symlink or neither a folder nor a file.
    """
    targets = {name: folder / name for name in RENDERED_FILES}
    problems = [
        Problem(str(folder / name), "", "is not a file that the platform renders", "Correct the template's skeleton.")
        for name in files
        if name not in targets
    ]
    if folder.exists() and not folder.is_dir():
        problems.append(Problem(str(folder), "", "is not a folder", "Move the file away."))
    for target in targets.values():
        if target.is_symlink() or (target.exists() and not target.is_file()):
            problems.append(Problem(str(target), "", "is not a plain file", "Remove it and render again."))
    if problems:
        raise InputError(problems)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            _replace(targets[name], text.encode())
        for name, target in targets.items():
            if name not in files:
                target.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            Problem(
                str(error.filename or folder),
                "",
                f"cannot be written: {error.strerror}",
                "Name a folder that you may write to.",
            )
        ) from error


def _replace(target: Path, data: bytes) -> None:
    if target.is_file() and target.read_bytes() == data:
        return
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise

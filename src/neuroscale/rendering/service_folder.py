"""Turns a request and its plan into the exact files of a service folder.

There is one way: the steps of the template (`scaffolder.interpreter`). `render` runs them with an existing plan and
keeps the files in memory; `scaffold` runs them from a form's answers and publishes the result.
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
from neuroscale.rendering.scaffolder import interpreter, plan_step
from neuroscale.rendering.scaffolder.interpreter import Outcome, Publish, PullRequest
from neuroscale.rendering.scaffolder.plan_step import Existing, RefusedPlanError
from neuroscale.rendering.scaffolder.skeleton_values import TemplateValues, template_values
from neuroscale.rendering.scaffolder.template import Template, load_template
from neuroscale.repo.layout import PLAN_FILE, RENDERED_KINDS, REQUEST_FILE, ServicePath
from neuroscale.request.service_request import Request

__all__ = [
    "RENDERED_FILES",
    "Existing",
    "Outcome",
    "PullRequest",
    "RefusedPlanError",
    "Template",
    "TemplateValues",
    "load_template",
    "render",
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

    def published(request: PullRequest) -> Mapping[str, Any]:
        return {"remoteUrl": "", "pullRequestNumber": 0, "targetBranchName": request.target_branch or ""}

    outcome = interpreter.run(
        template,
        plan_step.answers_of(request),
        plan=lambda _: plan_step.body(request, plan, PLAN_FILE),
        publish=published,
    )
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


def scaffold(
    answers: Mapping[str, Any],
    template: Template,
    catalog: Catalog,
    settings: Settings,
    publish: Publish,
    there: Existing | None = None,
) -> Outcome:
    """Runs the template for a form's answers: plan, files, pull request (or whatever `publish` does instead).

    `there` is the existing service: its overrides stay, and so does its plan if the answers are the same.

    Raises InputError naming the fields for answers that cannot be used, and RefusedPlanError for a refused plan;
    nothing is published then.
    """
    # Read once before the steps, so that the message blames a missing answer, not the template.
    request = plan_step.request_of(answers)
    return interpreter.run(
        template,
        plan_step.answers_of(request),
        plan=lambda body: plan_step.answer(body, catalog, settings, template.version, there),
        publish=publish,
    )


def to_work_tree(root: Path) -> Publish:
    """Publishes into the service folders below `root` instead of a pull request; the reviewer commits."""

    def publish(request: PullRequest) -> Mapping[str, Any]:
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

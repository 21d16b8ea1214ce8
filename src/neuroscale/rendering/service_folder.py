"""Turns a request and its plan into the exact files of a service folder.

There is one way: the steps of the template (`scaffolder.interpreter`). `pull_request_of` runs them for a request and
its plan, `render` gives the files by their names, and `write` replaces those of a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.files import write_public
from neuroscale.core.validation import part
from neuroscale.core.yaml_io import decode, read_mapping
from neuroscale.planning.plan import Plan
from neuroscale.rendering.scaffolder import interpreter, plan_step
from neuroscale.rendering.scaffolder.interpreter import RenderedPullRequest
from neuroscale.rendering.scaffolder.template import Template
from neuroscale.repo.layout import (
    CATALOG_INFO,
    KEY_FILE,
    PLAN_FILE,
    RENDERED_KINDS,
    REQUEST_FILE,
    SERVICE_FILE,
    ServicePath,
)
from neuroscale.request.service_request import Request

RENDERED_FILES = (REQUEST_FILE, PLAN_FILE, *RENDERED_KINDS, CATALOG_INFO)
"""Every file of a rendered service folder, but for KEY_FILE."""


def render(request: Request, plan: Plan, template: Template) -> dict[str, str]:
    """Every file of the service folder, by name, byte for byte. Pure: it depends only on its arguments.

    Raises InputError for a plan that is refused or belongs to another request.
    """
    files = pull_request_of(request, plan, template, PLAN_FILE).files
    return {Path(path).name: text for path, text in files.items()}


def pull_request_of(
    request: Request, plan: Plan, template: Template, plan_where: str = plan_step.FORM
) -> RenderedPullRequest:
    """The pull request that the template opens for a request that has its plan; its files are exactly those of the
    service folder, in the order of `RENDERED_FILES`, and last KEY_FILE where the plan has a secret store. `plan_where`
    names the plan's file in messages.

    Raises InputError for a template that renders other files, and for a plan that is refused or belongs to another
    request.
    """
    body = plan_step.body(request, plan, plan_where)
    pull = interpreter.run(template, plan_step.answers_of(request), body)
    folder = ServicePath(request.environment, request.service).folder
    names = (*RENDERED_FILES, *([] if plan.surroundings.secret_store is None else [KEY_FILE]))
    wanted = [f"{folder}/{name}" for name in names]
    optional = f"{folder}/{CATALOG_INFO}"  # a template from before this file renders the others
    if {*pull.files, optional} != set(wanted):
        raise InputError.at(
            template.where,
            "",
            f"renders {', '.join(sorted(pull.files))}",
            f"Let it render exactly {', '.join(names)} into {folder}.",
        )
    return replace(pull, files={path: pull.files[path] for path in wanted if path in pull.files})


_NOT_OF_PODS = ("minReplicas", "maxReplicas", "deploymentStrategy")


def same_pods(before: bytes | None, after: bytes | None) -> bool | None:
    """Whether two files of an InferenceService make the same pods: all but their number and their rollout is equal.
    None if one is missing or cannot be read."""
    shown = []
    for data in (before, after):
        try:
            value = read_mapping(decode(data or b"", SERVICE_FILE), SERVICE_FILE).value
        except InputError:
            return None
        predictor = part(value, "spec", "predictor")
        pods = {name: field for name, field in predictor.items() if name not in _NOT_OF_PODS}
        shown.append({**value, "spec": {**part(value, "spec"), "predictor": pods}})
    return bool(shown[0] == shown[1])


def write_service(files: Mapping[str, str], root: Path) -> None:
    """Writes a service folder's files, by their path in the repository at `root`. Raises InputError as `write`, and
    where a symlink on the way would let the files land somewhere else."""
    (folder,) = {Path(path).parent for path in files}
    for parent in [folder, *folder.parents][:-1]:
        if (root / parent).is_symlink():
            raise InputError.at(str(parent), "", "is a symlink", "Replace it with a plain folder.")
    write({Path(path).name: text for path, text in files.items()}, root / folder)


def write(files: Mapping[str, str], folder: Path) -> None:
    """Makes `folder` hold `files`, and none of the other names of rendered files.

    Each file is replaced as a whole; a file that is right already is not touched. Raises InputError, before it writes
    anything, if a name is not that of a rendered file, or a path is a symlink or neither a folder nor a file.
    """
    targets = {name: folder / name for name in (*RENDERED_FILES, KEY_FILE)}
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
            if not targets[name].is_file() or targets[name].read_bytes() != text.encode():
                write_public(targets[name], text)
        for name, target in targets.items():
            if name not in files:
                target.unlink(missing_ok=True)
    except OSError as error:
        raise InputError.at(
            str(error.filename or folder),
            "",
            f"cannot be written: {error.strerror}",
            "Name a folder that you may write to.",
        ) from error

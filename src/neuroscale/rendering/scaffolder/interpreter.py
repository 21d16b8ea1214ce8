"""Runs the steps of a template as Backstage does, on files in memory.

It is the only way from answers to files: `neuroscale new`, `neuroscale render` and the drift check all use it,
with the same template.yaml and skeleton that the portal uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import dotted
from neuroscale.rendering.scaffolder import expressions, unchanged_structure
from neuroscale.rendering.scaffolder.template import FETCH, PUBLISH, REQUEST, Step, Template
from neuroscale.rendering.scaffolder.template_engine import fill

_TARGET = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


@dataclass(frozen=True)
class RenderedPullRequest:
    """Inputs of `publish:github:pull-request`. `files` by their path in the repository."""

    title: str
    target_branch: str | None
    commit_message: str
    files: Mapping[str, str]


def run(template: Template, parameters: Mapping[str, Any], planned: Mapping[str, Any]) -> RenderedPullRequest:
    """Runs every step in order, and returns the pull request that the last publishing step asks for.

    `parameters` are the form's answers by field; one that may be left out is null to the steps, as it is to
    Backstage's. `planned` is the planner's answer to them: a checked template sends it exactly these answers. Raises
    InputError at the first step that fails.
    """
    context: dict[str, Any] = {"parameters": {**dict.fromkeys(template.optional()), **parameters}, "steps": {}}
    workspace: dict[str, str] = {}
    pull_request: RenderedPullRequest | None = None
    for step in template.steps:
        context["steps"][step.id] = {"output": {"body": planned} if step.action == REQUEST else {}}
        if step.action == REQUEST:
            continue
        given: dict[str, Any] = expressions.evaluate(dict(step.input), context, template.where, (*step.path, "input"))
        if step.action == FETCH:
            _fetch(template, step, given, workspace)
        else:
            pull_request = _pull_request(given, workspace)
    if pull_request is None:
        raise _no_pull_request(template)
    return pull_request


def branch_name(template: Template, parameters: Mapping[str, Any]) -> str:
    """The branch of the pull request that the template would open for these answers, before anything is planned.

    Raises InputError if the template opens no pull request, or if the branch's name depends on the plan.
    """
    for step in template.steps:
        if step.action == PUBLISH:
            path = (*step.path, "input", "branchName")
            return str(expressions.evaluate(step.input["branchName"], {"parameters": parameters}, template.where, path))
    raise _no_pull_request(template)


def _no_pull_request(template: Template) -> InputError:
    return InputError.at(template.where, "spec.steps", "open no pull request", f"Add a step {PUBLISH}.")


def _fetch(template: Template, step: Step, given: Mapping[str, Any], workspace: dict[str, str]) -> None:
    target = given["targetPath"]
    place = dotted((*step.path, "input", "targetPath"))
    if not _TARGET.fullmatch(target):
        raise InputError.at(
            template.where,
            place,
            f"becomes {target!a}, which is not a plain relative path",
            "Use letters, digits, '.', '_' and '-' between slashes, and no part that begins with a dot.",
        )
    for path, text in template.folder(step.folder).items():
        where = f"{template.root}/{step.folder}/{path}"
        name = fill(path, given["values"], step.whitespace, where)
        if not name:
            continue
        if f"{target}/{name}" in workspace:
            # Backstage keeps the first file without a message.
            raise InputError.at(where, "", "is written by two steps", "Give each step a target of its own.")
        filled = fill(text, given["values"], step.whitespace, where)
        unchanged_structure.check(text, step.whitespace, given["values"], filled, where)
        workspace[f"{target}/{name}"] = filled


def _pull_request(given: Mapping[str, Any], workspace: Mapping[str, str]) -> RenderedPullRequest:
    return RenderedPullRequest(
        title=given["title"],
        target_branch=given.get("targetBranchName"),
        commit_message=given.get("commitMessage", given["title"]),
        files=dict(workspace),
    )

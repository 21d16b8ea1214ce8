"""Defines the verdict: the versioned result of one run of the gate, from which every report is made."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from neuroscale.core.errors import ExitStatus
from neuroscale.core.frozen import Frozen
from neuroscale.costs.bill import CostChange
from neuroscale.planning.plan import Plan
from neuroscale.request.service_request import ChangedAnswer

SCHEMA_VERSION = 1
CHANGE_CHECK = "change"
"""The check whose notices a reviewer must see first: they tell what a change loosens, widens or moves."""


class Severity(StrEnum):
    """`ERROR` refuses the change; `NOTICE` is shown and refuses nothing."""

    ERROR = "error"
    NOTICE = "notice"


class Outcome(StrEnum):
    """How a check ended. `NOT_RUN` is never a pass: it is listed with its reason, also where it could judge nothing."""

    PASSED = "passed"
    FINDINGS = "findings"
    UNUSABLE = "unusable"
    UNTRUSTED = "untrusted"
    NOT_RUN = "not_run"


class Finding(Frozen):
    """One fault or remark that a person should look at.

    `file` is relative to the checked folder, `line` 1-based (None if the finding is about the whole file), `subject`
    the object as `Kind namespace/name` ("" if it is not about an object).
    """

    gate: str
    rule: str
    severity: Severity = Severity.ERROR
    file: str
    line: int | None = None
    subject: str = ""
    message: str
    fix: str


class Check(Frozen):
    """One check's own account of its run.

    `evaluated` counts the items that it really looked at, and `expected` those that it had to look at (`unit` names the
    items). `unjudged` counts those of them that it could not judge, because a fact is missing that a notice names;
    `tripwires` counts the known-bad objects that went through the same invocation, and `tripwires_caught` those
    that it refused with their own message. `detail` says why a check is unusable, untrusted or was not run.
    """

    name: str
    title: str
    outcome: Outcome
    evaluated: int = 0
    expected: int = 0
    unjudged: int = 0
    unit: str = "objects"
    tripwires: int = 0
    tripwires_caught: int = 0
    seconds: float = 0.0
    detail: str = ""


class Effect(Frozen):
    """One difference between objects as they are rendered before the change and after it.

    `kind` is the object's, with its name if it belongs to no single service. `before` and `after` are text, and None if
    the field is missing. `services` counts the services whose objects differ in this way; `example` names one of them.
    """

    kind: str
    field: str
    before: str | None
    after: str | None
    services: int
    example: str


class Effects(Frozen):
    """The effects of a change of the template, the settings, the catalog or the runtimes on services rendered anew.

    `rendered` counts services and examples, `changed` those whose objects differ, `left_out` the differences that are
    not listed.
    """

    rendered: int
    changed: int
    differences: tuple[Effect, ...] = ()
    left_out: int = 0


class ChangedFile(Frozen):
    """A path that the change touches."""

    path: str
    change: Literal["added", "changed", "removed"]


class ChangedFiles(Frozen):
    """The paths of one kind that the change touches. `kind`: what they are, in the singular.

    `review`: a person must look at them, since no check judges what they say. `protected` counts those that only an
    owner may merge. `files` lists the first of `count`.
    """

    kind: str
    review: bool
    count: int
    protected: int
    files: tuple[ChangedFile, ...]


class ChangedValue(Frozen):
    """A value of the settings, the catalog, a policy or a cluster's files that differs.

    `kind` is that of the file, `subject` the object as `Kind namespace/name` ("" outside objects), `field` its place
    ("" for the whole entry). `before` and `after` are text, and None if the field is missing. `notice` names the notice
    that tells of it, "" for a value that is only listed.
    """

    kind: str
    file: str
    subject: str = ""
    field: str
    before: str | None
    after: str | None
    notice: str = ""


class Alterations(Frozen):
    """Everything that a change alters, the most dangerous first. `left_out` counts the values that are not listed."""

    files: tuple[ChangedFiles, ...] = ()
    values: tuple[ChangedValue, ...] = ()
    left_out: int = 0


class ServiceReport(Frozen):
    """A service that the run judges. `change` is "checked" where there is no base, or where its files are the base's.
    `plan` is None if it has no readable plan (or was removed).

    `answers`: what the change asks for otherwise. `same_pods`: whether its pods stay as they are (None: not known).
    `quota`: the most accelerators of the plan's resource that the team's quota in Git holds (None: not known).
    `unfinished`: whether pods of an earlier version serve, since the newest does not run yet (None: not known).
    """

    environment: str
    name: str
    change: Literal["added", "changed", "removed", "checked"]
    plan: Plan | None = None
    plan_before: Plan | None = None
    answers: tuple[ChangedAnswer, ...] = ()
    same_pods: bool | None = None
    quota: int | None = None
    unfinished: bool | None = None


class Verdict(Frozen):
    """The result of one gate run.

    `base` and `head` are full commit ids, or "" for a run over plain paths. `not_checked` lists in words what the run
    did not look at.
    """

    schema_version: Literal[1] = 1
    tool_version: str
    exit_status: Literal[0, 1, 2, 3]
    headline: str
    base: str = ""
    head: str = ""
    paths: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()
    services: tuple[ServiceReport, ...] = ()
    cost: CostChange | None = Field(
        default=None, description="None if the change alters nothing that costs anything, or if there is no base."
    )
    effects: Effects | None = Field(
        default=None, description="None if the change alters nothing that services are rendered from."
    )
    altered: Alterations | None = Field(default=None, description="None if there is no base.")
    notes: tuple[str, ...] = Field(default=(), description="Remarks on the run itself, such as whose policies judged.")
    not_checked: tuple[str, ...] = ()


def exit_status(checks: tuple[Check, ...] | list[Check]) -> ExitStatus:
    """The exit status of a run: untrusted before unusable before findings before passed.

    A run in which no check gave an answer is untrusted.
    """
    outcomes = {check.outcome for check in checks}
    if Outcome.UNTRUSTED in outcomes or outcomes <= {Outcome.NOT_RUN}:
        return ExitStatus.UNTRUSTED
    if Outcome.UNUSABLE in outcomes:
        return ExitStatus.UNUSABLE
    if Outcome.FINDINGS in outcomes:
        return ExitStatus.FINDINGS
    return ExitStatus.PASSED

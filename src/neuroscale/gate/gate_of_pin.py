"""Judges a change of the pin by both tools: the base's decides, and the change's stands in where only it can know.

The base's publisher signed the change's tool, so it runs, without secrets, also where no code of a change may. Nothing
else of another version runs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from neuroscale import __version__
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.gate.gate_code_of_base import (
    JUDGE,
    JudgeAnswer,
    asked_judge,
    check_of_judge,
    kept_variables,
    with_findings_of,
)
from neuroscale.gate.make_verdict import refusal_of
from neuroscale.gate.merged_change import Change
from neuroscale.gate.pin_change import GATE, judge_pin_change
from neuroscale.gate.platform_sources import UNREADABLE
from neuroscale.gate.verdict import Check, Outcome, Verdict, exit_status
from neuroscale.repo.layout import PIN, REQUIREMENTS
from neuroscale.repo.snapshot import read_text
from neuroscale.repo.tool_pin import ToolPin, is_running
from neuroscale.tools.pinned_tool import environment_of

OF_VERSION = ("catalog", "effects", "effects-fit", "drift", "fit", "fit-of-head", "platform")
"""The checks that compare files with what this version reads, plans, renders, or knows about vLLM and memory: another
version may rightly answer otherwise. An error of the base's in one of these gives way to the answer of the change's
tool. Costs and the rules on production only count, so they stay with both."""
OF_NEW_POLICIES = ("policy-of-head", "policy-tests")
"""The checks that read the change's own policies, which may be written for the other version and its Kyverno: where the
base's tool cannot read them, the change's tool answers. Findings stay with both."""
_OWN_NUMBER = ("platform",)
"""The checks whose number of objects is a matter of the version: it may render more files, or fewer."""
_SECONDS = 1800
_FOR_SOURCES = ("GOPROXY", "GOSUMDB", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy")
"""Variables by which set-up reaches the sources of tools; no judge gets them."""


def judged_by_both_pins(change: Change, base: Verdict, *, server: bool, strict: bool) -> Verdict:
    """The verdict of this tool, the base's, made stricter by that of the change's tool, and complete by it.

    It stays as it is where the change pins no other tool, or one that the rules do not accept: that one never runs.
    """
    if JUDGE in os.environ or not change.touches(PIN):
        return base
    accepted = any(check.name == GATE and check.outcome is Outcome.PASSED for check in base.checks)
    pin = judge_pin_change(change).accepted if accepted else None
    if pin is None or is_running(pin):
        return base
    return combined(base, _judge_of(pin, change, server=server, strict=strict), pin)


def combined(base: Verdict, head: JudgeAnswer, pin: ToolPin) -> Verdict:
    """Both answers as one verdict. No check vanishes: what the base leaves to the change's tool must have run there, on
    no fewer objects."""
    theirs = {check.name: check for check in head.verdict.checks} if head.verdict else {}
    left = _left_to(base, theirs)
    lacking = [name for name, check in left.items() if not _stands_in(theirs.get(name), check)]
    judge = _check_of(head, pin, base, lacking)
    of_head = None if judge.outcome is Outcome.UNTRUSTED else head.verdict
    if of_head is None:
        left = {}
    checks = [theirs[check.name] if check.name in left else check for check in base.checks]
    checks += [theirs[name] for name in left if name not in {check.name for check in base.checks}]
    checks.append(judge)
    findings = with_findings_of(head, tuple(finding for finding in base.findings if finding.gate not in left))
    status = exit_status(checks)
    notes = [f"Judged by neuroscale {__version__}, the base's pin, and by {pin.version}, the change's."]
    if left:
        names = ", ".join(left)
        notes.append(f"Left to {pin.version}, since versions read, plan and render otherwise: {names}.")
    headline = refusal_of(status, checks, findings) or (of_head.headline if of_head else base.headline)
    return base.model_copy(
        update={
            "checks": tuple(checks),
            "findings": findings,
            "exit_status": status.value,
            "headline": headline,
            "services": of_head.services if of_head else base.services,
            "effects": (of_head.effects if of_head else None) or base.effects,
            "cost": base.cost or (of_head.cost if of_head else None),
            "notes": (*notes, *base.notes),
        }
    )


def _left_to(base: Verdict, theirs: Mapping[str, Check]) -> dict[str, Check]:
    """The base's checks that the change's tool must answer: those of OF_VERSION with findings, those of OF_NEW_POLICIES
    that the base cannot judge, and those that did not run, unless both say for one reason that nothing is to judge."""
    left = {
        check.name: check
        for check in base.checks
        if (check.name in OF_VERSION and check.outcome is Outcome.FINDINGS)
        or (check.name in OF_NEW_POLICIES and check.outcome is Outcome.UNTRUSTED)
        or (check.outcome is Outcome.NOT_RUN and not _same_reason(check, theirs.get(check.name)))
    }
    if "effects" in left and "effects-fit" not in left:
        # Without effects the base had nothing to fit.
        mine = [check for check in base.checks if check.name == "effects-fit"]
        left["effects-fit"] = mine[0] if mine else left["effects"].model_copy(update={"expected": 0})
    return left


def _same_reason(mine: Check, theirs: Check | None) -> bool:
    of_theirs = None if theirs is None else (theirs.outcome, theirs.detail)
    return mine.detail != UNREADABLE and of_theirs == (mine.outcome, mine.detail)


def _stands_in(theirs: Check | None, mine: Check) -> bool:
    """Whether the answer of the change's tool can take the place of the base's."""
    if theirs is None or theirs.outcome not in (Outcome.PASSED, Outcome.FINDINGS):
        return False
    is_whole = theirs.evaluated == theirs.expected and theirs.tripwires_caught == theirs.tripwires > 0
    return is_whole and (theirs.name in _OWN_NUMBER or theirs.expected >= mine.expected)


def _check_of(head: JudgeAnswer, pin: ToolPin, base: Verdict, lacking: Sequence[str]) -> Check:
    check = check_of_judge(head, "gate-of-pin", f"The change's tool, neuroscale {pin.version}")
    if check.outcome is Outcome.UNTRUSTED or head.verdict is None:
        return check
    why = ""
    if (head.verdict.base, head.verdict.head, head.verdict.tool_version) != (base.base, base.head, pin.version):
        why = "its verdict is of another change, or of another version"
    elif head.status != exit_status(head.verdict.checks):
        why = "its checks contradict its verdict"
    elif lacking:
        why = f"it did not judge all that {__version__} leaves to it: {', '.join(lacking)}"
    return check.model_copy(update={"outcome": Outcome.UNTRUSTED, "detail": why}) if why else check


def _judge_of(pin: ToolPin, change: Change, *, server: bool, strict: bool) -> JudgeAnswer:
    """Install the change's tool, with what it judges by, and ask it."""
    try:
        python = environment_of(read_text(change.after, REQUIREMENTS))
        _install_tools(python, change.git.root)
    except InputError as error:
        why = f"neuroscale {pin.version} cannot be installed: {str(error)[-220:]}"  # a check shows the end
        return JudgeAnswer(ExitStatus.UNTRUSTED, None, why)
    return asked_judge(python, {}, change, server=server, strict=strict)


def _install_tools(python: Path, folder: Path) -> None:
    """Make the upstream tools that a version pins. Raises InputError."""
    given = {name: os.environ[name] for name in _FOR_SOURCES if name in os.environ}
    command = [str(python), "-P", "-m", "neuroscale", "tools", "install", "--for", "gate"]
    try:
        done = subprocess.run(
            command, cwd=folder, env=kept_variables() | given, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InputError.at(PIN, "", "its upstream tools were not made in time", "Run the gate again.") from error
    if done.returncode != 0:
        why = f"its upstream tools cannot be installed: {done.stderr.decode(errors='replace')[-500:]}"
        raise InputError.at(PIN, "", why, "Run the gate again where they can be made.")

"""Judges a change to the gate's own code by the base's version of the gate, with the change's version beside it.

A change must not bring its own judge: the gate that it would replace refuses a change that turns the gate into
`exit 0`. The change's own version runs too, so that its author sees a broken gate before the merge.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neuroscale.core.errors import ExitStatus, InputError, UntrustedError
from neuroscale.core.files import scratch_folder
from neuroscale.core.money_and_time import duration
from neuroscale.core.validation import known_part
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import Check, Finding, Outcome, Verdict, exit_status
from neuroscale.repo.layout import GATE_CODE, OWN_CODE, PIN
from neuroscale.repo.snapshot import GitSnapshot

_SECONDS = 1800
_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR", "NEUROSCALE_CACHE", "XDG_CACHE_HOME")
# A base of a version up to 0.2.0 has set-up's code, by which it names its schemas, in `scripts/bootstrap`.
_PARTS = ("src", "scripts/bootstrap", "platform/local/tools", "pyproject.toml", "requirements")
# Where workflows look for the tool's own code before they install a pinned one.
_CODE = ("src", "scripts")
# Set in the environment of a judge process, so that it judges by itself and starts no further judges.
JUDGE = "NEUROSCALE_JUDGE"


@dataclass(frozen=True)
class JudgeAnswer:
    """The answer of another process's gate: its exit status, its verdict if it gave one, and its standard error."""

    status: int
    verdict: Verdict | None
    errors: str


def needs_judges(change: Change) -> bool:
    """Whether the change alters the code that judges it (and this process is not one of the judges already).

    Where the base holds no code of the tool, no change of it can alter this program: its workflows install the tool by
    the version and digests that the base names.
    """
    return JUDGE not in os.environ and change.touches(*GATE_CODE) and bool(change.before.entries(OWN_CODE))


def judge_by_base(change: Change, *, server: bool = False, strict: bool = True) -> Verdict:
    """The base's verdict alone, for runs in which the change's code must not run because it could reach secrets.

    `server`: the run asks an API server, too. `strict`: an object of a kind that nothing judges is a finding.

    Raises UntrustedError when the base's gate gives no readable verdict.
    """
    verdict = _judge_of_base(change, server=server, strict=strict)
    note = "The change alters the gate's own code: the base's version decided."
    unseen = "The change's own gate: no code of a change runs here. Run `neuroscale gate --base --head` on its branch."
    return verdict.model_copy(update={"notes": (*verdict.notes, note), "not_checked": (unseen, *verdict.not_checked)})


def judge_by_both(change: Change, *, server: bool = False, strict: bool = True) -> Verdict:
    """The base's verdict, made stricter by what the change's own gate says.

    Raises UntrustedError when the base's gate gives no readable verdict.
    """
    base = _judge_of_base(change, server=server, strict=strict)
    if change.after.entries(PIN) and not change.after.entries(*_CODE):
        note = "The change removes the tool's own code, and pins a tool in its place: the base's version decided alone."
        unseen = f"The tool that the change pins: nothing of it ran. Check that {PIN} names the wheel that you know."
        remarks = {"notes": (*base.notes, note), "not_checked": (unseen, *base.not_checked)}
        return base.model_copy(update=remarks)
    head = _judge(change, change.tree, server=server, strict=strict)
    note = "The change alters the gate's own code: the base's version decided, and the change's own ran beside it."
    check = check_of_judge(head, "gate-of-head", "The gate of the change")
    checks = (*base.checks, check)
    status = max(base.exit_status, exit_status([check]).value)
    findings = with_findings_of(head, base.findings)
    headline = base.headline
    if status != base.exit_status:
        headline = f"The change's own gate disagrees: {head.verdict.headline if head.verdict else 'it does not answer'}"
    return base.model_copy(
        update={
            "checks": checks,
            "findings": findings,
            "exit_status": status,
            "headline": headline,
            "notes": (*base.notes, note),
        }
    )


def with_findings_of(head: JudgeAnswer, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings, and those of another judge that none of them says already."""
    known = {(finding.file, finding.line, finding.rule, finding.message) for finding in findings}
    others = () if head.verdict is None else head.verdict.findings
    new = [finding for finding in others if (finding.file, finding.line, finding.rule, finding.message) not in known]
    return (*findings, *new)


def check_of_judge(head: JudgeAnswer, name: str, title: str) -> Check:
    """Another judge as one check of the verdict: untrusted if it gives no verdict, or another exit status."""
    if head.verdict is None:
        outcome, detail = Outcome.UNTRUSTED, f"it gave no verdict (exit status {head.status}): {head.errors[-300:]}"
    elif head.verdict.exit_status != head.status:
        outcome, detail = Outcome.UNTRUSTED, f"its exit status {head.status} contradicts its verdict"
    else:
        outcomes = (Outcome.PASSED, Outcome.FINDINGS, Outcome.UNUSABLE, Outcome.UNTRUSTED)
        outcome, detail = outcomes[head.status], head.verdict.headline
    return Check(
        name=name,
        title=title,
        outcome=outcome,
        evaluated=1,
        expected=1,
        unit="verdicts",
        detail=detail,
    )


def _judge_of_base(change: Change, *, server: bool, strict: bool) -> Verdict:
    base = _judge(change, change.base, server=server, strict=strict)
    if base.verdict is None or base.status != base.verdict.exit_status:
        raise UntrustedError(f"the base's gate gave no verdict (exit status {base.status}): {base.errors[-800:]}")
    return base.verdict


def _unpack(snapshot: GitSnapshot, folder: Path) -> None:
    """Write a tree's gate code exactly as git stores it: the .gitattributes of a change cannot alter it.

    Raises InputError if the tree has no folder `src`, or if its code holds anything but plain files.
    """
    entries = snapshot.entries(*_PARTS)
    if not any(entry.path.startswith("src/") for entry in entries):
        raise InputError.at("src", "", "is not a folder", "Restore it.")
    for entry in entries:
        content = snapshot.read(entry.path) if entry.kind in ("file", "executable") else None
        if content is None:
            raise InputError.at(entry.path, "", f"is a {entry.kind}", "Replace it with a plain file.")
        target = folder / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _judge(change: Change, treeish: str, *, server: bool, strict: bool) -> JudgeAnswer:
    """Run the gate whose code lies in a tree, on the same change."""
    with scratch_folder("neuroscale-judge-") as scratch:
        folder = scratch
        try:
            _unpack(GitSnapshot(change.git, treeish), folder / "code")
        except InputError as error:
            return JudgeAnswer(ExitStatus.UNTRUSTED, None, f"its code cannot be unpacked: {error}")
        code = {"PYTHONPATH": str(folder / "code" / "src")}
        return asked_judge(Path(sys.executable), code, change, server=server, strict=strict)


def asked_judge(
    python: Path, variables: Mapping[str, str], change: Change, *, server: bool, strict: bool
) -> JudgeAnswer:
    """Run the gate that an interpreter finds, on the same change. It gets no variable that could hold a secret."""
    command = [str(python), "-P", "-m", "neuroscale", "gate", "--base", change.base, "--head", change.head]
    # Strict is the default: the base's gate may be too old to know an option for it.
    options = [*(["--server"] if server else []), *([] if strict else ["--no-strict"])]
    with scratch_folder("neuroscale-judge-") as scratch:
        report = scratch / "verdict.json"
        try:
            done = subprocess.run(
                [*command, *options, "--json", report],
                cwd=change.git.root,
                env={**kept_variables(), JUDGE: "1", **variables},
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return JudgeAnswer(ExitStatus.UNTRUSTED, None, f"it did not end within {duration(_SECONDS)}")
        try:
            verdict = read_verdict(report.read_text())
        except (OSError, ValueError):
            verdict = None
        return JudgeAnswer(done.returncode, verdict, done.stderr.decode(errors="replace"))


def kept_variables() -> dict[str, str]:
    """The variables of this process that another judge gets."""
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}


def read_verdict(text: str) -> Verdict:
    """The verdict of another version of the gate, without the fields that this version does not know.

    Raises ValueError if the text is not a verdict, or lacks a field that this version needs.
    """
    return known_part(Verdict, text, strict=False)

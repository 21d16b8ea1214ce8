"""The rules on a change of the pin: which tool may judge from now on, and whether the change may name it.

The base's pin decides. Its publisher's key vouches for the next version, so that a change can bring another tool and
cannot choose its own judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.gate.evaluation import file_finding, problem_findings
from neuroscale.gate.merged_change import Change
from neuroscale.gate.verdict import CHANGE_CHECK, Finding, Severity
from neuroscale.repo.layout import OWN_CODE, PIN, REQUIREMENTS
from neuroscale.repo.snapshot import FolderSnapshot, Snapshot, read_all
from neuroscale.repo.tool_pin import (
    ToolPin,
    is_running,
    is_signed_by,
    locked_requirements,
    pin_files,
    pin_problems,
    read_pin,
)
from neuroscale.tools.pinned_tool import package_of

GATE = "pin"
CODE_OF_TOOL = ("src", "scripts/setup.py")
"""Where workflows look for the tool's own code before they install the pinned tool."""
_UPGRADE = "`neuroscale repository upgrade` writes both files."


@dataclass(frozen=True)
class PinChange:
    """The rules' answer. `accepted`: the change's pin, where it names another version that the base's publisher signed,
    with the requirements of that version; `failure`: why the rules could not be judged, "" if they could."""

    findings: tuple[Finding, ...] = ()
    accepted: ToolPin | None = None
    failure: str = ""


def touches_pin(change: Change) -> bool:
    """Whether a change touches the pin, or what could take the pinned tool's place, in a repository with a pin."""
    if change.touches(PIN, REQUIREMENTS):
        return bool(change.before.entries(PIN) or change.after.entries(PIN))
    return change.touches(*CODE_OF_TOOL) and bool(change.before.entries(PIN))


def judge_pin_change(change: Change) -> PinChange:
    """Judge what a change does to the pin. Nothing of another version runs; its wheel is fetched where it may be
    accepted, since it holds the requirements of its version."""
    was_there = bool(change.before.entries(PIN))
    findings = [*_not_plain(change), *_code_of_tool(change)] if was_there else []
    if findings or not change.touches(PIN, REQUIREMENTS):
        return PinChange(tuple(findings))
    for problem in pin_problems(change.after):
        rule = "requirements" if problem.where == REQUIREMENTS else "unsigned" if "signature" in problem.field else GATE
        findings += problem_findings(GATE, rule, [problem])
    try:
        after = read_pin(change.after)
    except InputError:
        after = None
    if not was_there or after is None:
        return PinChange(tuple(findings))
    try:
        before = read_pin(change.before)
    except InputError as error:
        return PinChange(tuple(findings), failure=f"the base's pin cannot be read: {error}")
    if before is None:
        return PinChange(tuple(findings), failure=f"the base's {PIN} is not a plain file")
    findings += rules_on(before, after, [path for path in change.paths if path != PIN])
    if change.touches(PIN):
        findings += conflict_markers(change.after, change.paths)
    if any(finding.severity is Severity.ERROR for finding in findings if finding.rule != "conflict-marker"):
        return PinChange(tuple(findings))
    try:
        locked = locked_requirements(FolderSnapshot(_package(after)))
    except (InputError, OSError) as error:
        return PinChange(tuple(findings), failure=f"the package of neuroscale {after.version} cannot be read: {error}")
    findings += _other_requirements(change.after, pin_files(after, locked)[REQUIREMENTS])
    is_good = not any(finding.severity is Severity.ERROR for finding in findings)
    return PinChange(tuple(findings), after if is_good and after.version != before.version else None)


def rules_on(before: ToolPin, after: ToolPin, others: Iterable[str]) -> Iterator[Finding]:
    """The findings on a pin in place of the base's. `others`: the other paths that the change touches."""
    same_tool = (after.version, after.sha256) == (before.version, before.sha256)
    if after.publisher != before.publisher:
        if not same_tool or any(True for _ in others):
            message = "names another publisher, and the change alters more than that"
            fix = "Change publisher and signature alone: the same version and digest, and no other file."
            yield file_finding(GATE, "publisher", PIN, message, fix)
            return
        names = [pin.publisher or "nobody" for pin in (before, after)]
        message = f"the publisher of the tool: `{names[0]}` → `{names[1]}`"
        fix = "Check where the key comes from, and who agreed to it: its owner can release every later judge."
        yield file_finding(CHANGE_CHECK, "changed-publisher", PIN, message, fix, severity=Severity.NOTICE)
    elif same_tool:
        return
    elif after.release < before.release:
        message = f"names {after.version}, which is older than the base's {before.version}"
        yield file_finding(GATE, "older", PIN, message, f"Name {before.version}, or a newer version.")
    elif after.release == before.release:
        message = f"names another wheel of the base's version {before.version}"
        fix = "A version is released once: name a newer one, or the base's digest."
        yield file_finding(GATE, "same-version", PIN, message, fix)
    elif before.publisher is None:
        message = f"names {after.version}, and the base's pin names no publisher, who could have signed it"
        fix = "Set publisher and signature of the base's version first, in a change of its own."
        yield file_finding(GATE, "unsigned", PIN, message, fix)
    elif not is_signed_by(before.publisher, after.version, after.sha256, after.signature):
        message = f"names {after.version} with a digest that the base's publisher did not sign"
        yield file_finding(GATE, "unsigned", PIN, message, f"Take both from the publisher's releases. {_UPGRADE}")


def conflict_markers(snapshot: Snapshot, paths: Iterable[str]) -> list[Finding]:
    """The files among the paths in which a merge has left both sides."""
    entries = [entry for entry in snapshot.entries(*_few(paths)) if entry.kind in ("file", "executable")]
    wanted = set(paths)
    contents = read_all(snapshot, [entry for entry in entries if entry.path in wanted])
    findings = []
    for path, content in sorted(contents.items()):
        if (line := _first_conflict(content)) is not None:
            message = "holds a conflict marker: a merge has left both sides here"
            findings.append(
                file_finding(GATE, "conflict-marker", path, message, "Keep one side, and remove the markers.", line)
            )
    return findings


def _few(paths: Iterable[str]) -> list[str]:
    """The folders at the root that hold the paths: a command line of git takes few."""
    return sorted({path.partition("/")[0] for path in paths})


def _first_conflict(content: bytes) -> int | None:
    """The number of the line that begins the first conflict; None without one."""
    begins, divided = None, False
    for number, line in enumerate(content.splitlines(), 1):
        if line.startswith(b"<<<<<<< "):
            begins, divided = begins if divided else number, False
        elif line == b"=======" and begins:
            divided = True
        elif line.startswith(b">>>>>>> ") and begins and divided:
            return begins
    return None


def _package(pin: ToolPin) -> Path:
    """The delivered files of a pinned version: this one's own where it is the one that runs. Raises InputError."""
    return delivered.FOLDER if is_running(pin) else package_of(pin.version, pin.sha256) / "delivered"


def _not_plain(change: Change) -> Iterator[Finding]:
    kinds = {entry.path: entry.kind for entry in change.after.entries(PIN, REQUIREMENTS)}
    for path in (PIN, REQUIREMENTS):
        if change.touches(path) and kinds.get(path) != "file":
            message = f"is a {kinds[path]}, not a plain file" if path in kinds else "is removed"
            yield file_finding(GATE, "removed", path, message, "Restore it: workflows install the judge from it.")


def _code_of_tool(change: Change) -> Iterator[Finding]:
    for entry in change.after.entries(*CODE_OF_TOOL):
        if entry.path in change.states:
            message = f"lies where workflows look for the tool's own code, beside the tool that {PIN} names"
            fix = f"Move it elsewhere; a fork with the tool in {OWN_CODE} has no pin."
            yield file_finding(GATE, "second-tool", entry.path, message, fix)
            return


def _other_requirements(snapshot: Snapshot, wanted: str) -> Iterator[Finding]:
    lines = (snapshot.read(REQUIREMENTS) or b"").decode(errors="replace").splitlines()
    expected = wanted.splitlines()
    if lines == expected:
        return
    pairs = zip([*lines, ""], [*expected, ""], strict=False)
    number = next((number for number, (left, right) in enumerate(pairs, 1) if left != right), len(expected))
    message = "differs from the packages that the pinned version was released with"
    yield file_finding(GATE, "requirements", REQUIREMENTS, message, f"Do not edit it. {_UPGRADE}", number)

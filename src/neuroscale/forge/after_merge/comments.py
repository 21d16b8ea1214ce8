"""Writes the texts for a merged pull request, for its revert, and for the job's log.

Observations of the tests are text of unknown origin (a model's answer, a pod's message): they become neither Markdown
nor HTML.

Keeps a record for the next run in a hidden line of the comment on a merged pull request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from neuroscale.core.json_text import read_object
from neuroscale.core.printable import counted, terminal
from neuroscale.core.printable import markdown as prose
from neuroscale.core.printable import markdown_cell as cell
from neuroscale.core.printable import markdown_code as code
from neuroscale.forge.after_merge.evidence import Evidence, Outcome, ServiceEvidence
from neuroscale.forge.interface import SOME_APP, Account, Comment, PullRequest
from neuroscale.forge.revert import Merge, Reverted
from neuroscale.smoke.results import Result

MARKER = "<!-- neuroscale-smoke -->"
_LINE = re.compile(r"<!-- neuroscale-smoke-record (\{.*\}) -->")


@dataclass(frozen=True)
class Record:
    """The reported results. `services`: the outcome and the failed checks, by `ENVIRONMENT/SERVICE`. `revert`: the
    number of the revert (0: none)."""

    services: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    revert: int = 0

    @classmethod
    def of(cls, services: Iterable[ServiceEvidence], revert: int) -> Record:
        told = {one.name: (one.outcome, tuple(sorted(check.check for check in one.failed))) for one in services}
        return cls(told, revert)

    def passed(self, name: str) -> bool:
        """Whether the service has passed after this merge: a later failure is not the merge's fault."""
        return self.services.get(name, ("", ()))[0] == "passed"

    def failed(self, name: str) -> bool:
        """Whether the service failed after this merge, and has not passed since."""
        return self.services.get(name, ("", ()))[0] == "failed"

    def line(self) -> str:
        """The hidden line."""
        services = {name: [outcome, *failed] for name, (outcome, failed) in sorted(self.services.items())}
        text = json.dumps({"services": services, "revert": self.revert}, separators=(",", ":"))
        return (
            f"<!-- neuroscale-smoke-record {text.replace('-', chr(92) + 'u002d').replace('>', chr(92) + 'u003e')} -->"
        )


def read_record(comments: Iterable[Comment], account: Account) -> Record | None:
    """The record in the account's own comment; None without one. A comment of another account never counts."""
    for comment in comments:
        own = comment.author == account.login or (account.login == SOME_APP and comment.author.endswith("[bot]"))
        if own and _record_line(comment) is not None:
            return record_of(comment)
    return None


def record_of(comment: Comment) -> Record | None:
    """The record in a comment, whoever wrote it; None without one."""
    line = _record_line(comment)
    return None if line is None else _read(line)


def _record_line(comment: Comment) -> str | None:
    lines = comment.body.replace("\r\n", "\n").split("\n")
    match = _LINE.fullmatch(lines[2]) if lines[0] == MARKER and len(lines) > 2 else None
    return match[1] if match else None


def _read(text: str) -> Record | None:
    try:
        record = read_object(text) or {}
        services = {str(name): (str(row[0]), tuple(map(str, row[1:]))) for name, row in record["services"].items()}
        return Record(services, int(record["revert"]))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None


_LONGEST = 50_000  # characters; forges take 65,536
_ROWS = 60
_COMMANDS = " Commands without an option for a cluster ask that of your own current context."
_SYMBOLS: dict[Outcome, str] = {
    "passed": "✅",
    "failed": "❌",
    "environment": "❌",
    "waiting": "⏳",
    "untrusted": "🛑",
    "uncovered": "⚪",
}
_WORDS: dict[Outcome, str] = {
    "passed": "passed",
    "failed": "failed",
    "environment": "failed for the whole environment",
    "waiting": "not deployed yet",
    "untrusted": "not tested",
    "uncovered": "not run",
}
_CHECKS = {"passed": "✅", "failed": "❌", "error": "🛑", "skipped": "⏭️"}
_OLD = "⚠️"
"""Marks a check that passed against pods of the version before the merge."""
_ORDER = ("failed", "error", "passed", "skipped")
_WORST: tuple[Outcome, ...] = ("failed", "environment", "untrusted", "waiting", "uncovered", "passed")


@dataclass(frozen=True)
class Told:
    """The results of one merge. `others` are services that failed too, and that neither this merge nor another one of
    late broke; `own` are those that another merge broke, with its pull request. `shared` are checks of the whole
    environment that failed or could not decide. `curl`: a command that asks the service. `teams`: its
    team, and whom that wants told. By `ENVIRONMENT/SERVICE`."""

    services: tuple[ServiceEvidence, ...]
    others: tuple[ServiceEvidence, ...]
    shared: tuple[Result, ...]
    run_page: str
    curl: dict[str, str]
    own: Mapping[str, PullRequest] = field(default_factory=dict)
    teams: Mapping[str, str] = field(default_factory=dict)


def _worst(told: Told) -> Outcome:
    """The worst outcome of the services, and of their environments as a whole."""
    outcomes = {one.outcome for one in told.services}
    if any(one.outcome == "failed" for one in told.shared):
        outcomes.add("environment")
    return next((one for one in _WORST if one in outcomes), "untrusted")


def comment(told: Told, reverted: Reverted | None, notes: Sequence[str]) -> str:
    """The comment on the merged pull request."""
    outcome = _worst(told)
    named = ", ".join(code(one.name, 120) for one in told.services)
    parts = [f"## {_SYMBOLS[outcome]} Smoke test {_WORDS[outcome]}: {named}"]
    if reverted is not None:
        parts.append(_revert_line(reverted))
    parts += [f"- {prose(note)}" for note in notes]
    parts += _about(told)
    asks = _COMMANDS if any(one.failed for one in told.services) else ""
    parts.append(f"[The run]({told.run_page}) keeps the reports.{asks}")
    return _bounded(parts)


def title(merge: Merge, failing: Sequence[ServiceEvidence]) -> str:
    """The title of a revert."""
    named = ", ".join(one.name for one in failing)
    return f"Revert {named} of pull request {merge.pull.number}: the smoke test failed"


def evidence(merge: Merge, told: Told, restored: Sequence[str], removed: Sequence[str]) -> str:
    """The description of a revert: what it does, why, and what to do."""
    failing = ", ".join(code(one.name, 120) for one in told.services if one.outcome == "failed")
    merged = f"{_link(merge.pull.title, merge.pull.url)} was merged as `{merge.change.commit[:12]}`"
    parts = [f"After {merged}, the smoke test of {failing} failed."]
    rows = [f"- It restores {code(one)} as it was before that merge, to the byte." for one in restored]
    rows += [
        f"- It **removes** {code(one)}, which that merge added: there is no earlier version to restore, so merging "
        f"this ends the service."
        for one in removed
    ]
    parts += ["### What this does", "\n".join(rows), "### What to do"]
    parts.append(
        "1. Read the failures below. If the service caused them, approve and merge this.\n"
        "2. If something else did (the cluster, the network, the test), close this and repair that. Nothing opens "
        "it again.\n"
        "3. Then request the change again, in a new pull request."
    )
    for name, team in told.teams.items():
        parts.append(f"Tell the team of {code(name, 120)}: {code(team, 400)}.")
    if told.others:
        named = ", ".join(code(one.name, 120) for one in told.others[:10])
        parts.append(
            f"**Look at the cluster first**: {counted(len(told.others), 'service')} that this merge did not touch "
            f"{'fails' if len(told.others) == 1 else 'fail'} as well: {named}."
        )
    if told.own:
        rows = [f"{code(name, 120)} since {_link(pull.title, pull.url)}" for name, pull in list(told.own.items())[:10]]
        parts.append(f"Other merges broke other services: {', '.join(rows)}.")
    parts += _about(told, only_failed=True)
    parts.append(f"[The run]({told.run_page}) that opened this keeps the reports.{_COMMANDS}")
    return _bounded(parts)


def log(found: Evidence) -> list[str]:
    """An environment's result for the job's log: failed checks, observations, and what to do next."""
    counts = ", ".join(
        f"{sum(one.outcome == outcome for one in found.services)} {_WORDS[outcome]}"
        for outcome in _WORST
        if any(one.outcome == outcome for one in found.services)
    )
    lines = [f"{found.environment}: {counts or 'no service was tested'}"]
    lines += [f"  {problem}" for problem in found.problems]
    lines += _log_checks(found.checks)
    for one in found.services:
        if one.outcome != "passed":
            lines.append(f"  {one.name}: {_WORDS[one.outcome]}{f': {one.why}' if one.why else ''}")
            lines += [f"  {line}" for line in _log_checks(one.checks)]
    return [" " * (len(line) - len(line.lstrip())) + terminal(line) for line in lines]


def _log_checks(checks: Iterable[Result]) -> list[str]:
    bad = [check for check in checks if check.outcome in ("failed", "error")]
    return [f"  {check.outcome}: {check.title}: {check.message} Next: {check.next or 'not stated'}" for check in bad]


def _revert_line(reverted: Reverted) -> str:
    pull = reverted.pull
    if pull is None:
        rows = [f"- {code(folder)}: {prose(why)}" for folder, why in reverted.refusals.items()]
        return "\n".join(["**Not reverted:**", "", *rows])
    link = _link(pull.title, pull.url)
    said = {
        "opened": f"**{link}** reverts the failing service. It waits for the gate and for a review.",
        "open": f"**{link}** reverts the failing service. It waits for the gate and for a review.",
        "closed": f"The revert {link} was closed unmerged, so no revert is opened again.",
        "merged": f"The revert {link} is merged already, so no revert is opened again.",
        "refused": "",
    }[reverted.done]
    rows = [f"- Not in it: {code(folder)}: {prose(why)}" for folder, why in reverted.refusals.items()]
    return "\n".join([said, *([""] if rows else []), *rows])


def _about(told: Told, *, only_failed: bool = False) -> list[str]:
    parts = []
    if told.shared:
        parts += ["### The environment as a whole", _table(told.shared)]
    for one in told.services:
        if only_failed and one.outcome != "failed":
            continue
        parts.append(f"### {_SYMBOLS[one.outcome]} {code(one.name, 120)}: {_WORDS[one.outcome]}")
        if one.why:
            parts.append(prose(one.why))
        if old := sum(check.misleads for check in one.checks):
            state = "has failed" if one.outcome == "failed" else "does not serve alone yet"
            parts.append(
                f"**The old version still answers**: {counted(old, 'check')} marked {_OLD} passed, but not against the "
                f"new version alone, which {state}."
            )
        if one.measured and not only_failed:
            parts.append(prose(one.measured))
        if one.url and not only_failed:
            parts.append(f"URL: {code(one.url)}")
        if one.outcome == "passed" and one.name in told.curl:
            parts.append(f"```sh\n{told.curl[one.name]}\n```")
        if one.checks:
            parts.append(_table(one.checks))
    return parts


def _table(checks: Sequence[Result]) -> str:
    ordered = sorted(checks, key=lambda one: _ORDER.index(one.outcome))
    rows = ["| | Check | Seconds | What was seen |", "|---|---|--:|---|"]
    for one in ordered[:_ROWS]:
        told = cell(one.message)
        if one.next and one.outcome in ("failed", "error"):
            told += f" **Next:** {cell(one.next)}"
        symbol = _OLD if one.misleads else _CHECKS[one.outcome]
        rows.append(f"| {symbol} | {cell(one.title, 150)} | {one.seconds:.1f} | {told} |")
    if len(ordered) > _ROWS:
        rows.append(f"\nand {len(ordered) - _ROWS} more checks.")
    return "\n".join(rows)


def _link(text: str, url: str) -> str:
    """A link. The forge made the address, but a person wrote the title."""
    return f"[{prose(text, 200)}]({url})"


def _bounded(parts: Sequence[str]) -> str:
    kept, size = [], 0
    for part in parts:
        if size + len(part) > _LONGEST:
            kept.append("The rest is too long to be shown here; see the run.")
            break
        kept.append(part)
        size += len(part) + 2
    return "\n\n".join(kept) + "\n"

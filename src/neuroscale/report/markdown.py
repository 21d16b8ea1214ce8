"""Writes a verdict as the Markdown comment of a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from neuroscale.core.errors import ExitStatus
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import counted, one_line
from neuroscale.core.printable import lines as lines_of
from neuroscale.core.printable import markdown as prose
from neuroscale.core.printable import markdown_cell as cell
from neuroscale.core.printable import markdown_code as code
from neuroscale.costs.bill import Range, ServiceCost
from neuroscale.gate.verdict import Check, Finding, Outcome, ServiceReport, Verdict
from neuroscale.planning.plan import Plan
from neuroscale.planning.plan_facts import VERDICTS, accelerators
from neuroscale.report import altered_view, change_phrases, phrases, summary

MARKER = "<!-- neuroscale-gate -->"  # a later run finds its comment by this line and replaces it

# GitHub refuses a body of more than 65,536 characters. Each section keeps to its bytes, which are never fewer than its
# characters, so that no section can push another one out. The sum stays below 60,000.
_BYTES = {
    "top": 3_500,
    "alerts": 4_500,
    "problems": 6_000,
    "findings": 10_500,
    "effects": 4_500,
    "cost": 6_500,
    "services": 8_000,
    "altered": 4_000,
    "notices": 3_000,
    "checks": 4_000,
    "not checked": 2_500,
    "notes": 2_000,
}
_RULES_SHOWN = 15

_SYMBOLS = {
    ExitStatus.PASSED: "✅",
    ExitStatus.FINDINGS: "❌",
    ExitStatus.UNUSABLE: "⛔",
    ExitStatus.UNTRUSTED: "🛑",
}
_CHECK_SYMBOLS = {
    Outcome.PASSED: "✅",
    Outcome.FINDINGS: "❌",
    Outcome.UNUSABLE: "⛔",
    Outcome.UNTRUSTED: "🛑",
    Outcome.NOT_RUN: "⏭️",
}


def markdown(verdict: Verdict) -> str:
    """A comment for a pull request; below 60,000 bytes whatever the verdict holds.

    The first line is `MARKER`. Text from the change can become neither Markdown nor HTML, and mentions nobody.
    """
    sections = [
        _top(verdict),
        _alerts(verdict),
        _problems(verdict),
        _findings(verdict),
        *_what_changes(verdict),
        _altered(verdict),
        _notices(verdict),
        _not_checked(verdict),
        _checks(verdict),
        _notes(verdict),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _what_changes(verdict: Verdict) -> list[str]:
    """The sections on services and money. A service that runs and changes comes first: its answers, what the merge does
    to it, its memory, and then what that costs."""
    sections = [_effects(verdict), _cost(verdict), _services(verdict)]
    changed = any(change_phrases.is_change(service) for service in verdict.services)
    return [sections[2], *sections[:2]] if changed else sections


def _top(verdict: Verdict) -> str:
    ended = summary.status(verdict)
    numbers = summary.counts(verdict)
    facts = [f"**{counted(numbers.errors, 'error')}**", counted(numbers.notices, "notice")]
    if numbers.services:
        facts.append(counted(numbers.services, "service"))
    if change := phrases.cost_headline(verdict.cost):
        facts.append(f"**{change}**")
    if effects := phrases.effects_headline(verdict.effects):
        facts.append(f"**{effects}**")
    lines = [MARKER, f"## {_SYMBOLS[ended]} {prose(_title(verdict))}", "", " · ".join(facts)]
    if beside := altered_view.review_line(verdict.altered, lambda text: prose(text, 40)):
        lines += ["", beside]
    if ended is ExitStatus.UNTRUSTED:
        lines += ["", "**This is not a judgement of the change.** Repair the gate and run it again before you merge."]
    return "\n".join(lines)


def _alerts(verdict: Verdict) -> str:
    """What the change loosens, widens or moves: a reviewer sees it before anything else."""
    alerts = summary.alerts_of(verdict)
    heading = "### Look at this first"
    rows = altered_view.alerts(alerts, _path, _message, _BYTES["alerts"] - _size(heading) - 2)
    return "\n".join([heading, "", *rows]) if rows else ""


def _path(text: str) -> str:
    return code(text, 120)


def _message(text: str) -> str:
    return prose(text, 400)


def _altered(verdict: Verdict) -> str:
    """Everything that the change alters, folded; "" without a base."""
    if (altered := verdict.altered) is None or not altered.files:
        return ""
    rows = (f"- {row}" for row in altered_view.rows(altered, _path, lambda text: prose(text, 40)))
    body = _section("", rows, altered_view.count_of_rows(altered), "altered", "row")
    head = f"What the change alters: {altered_view.total(altered)}"
    return f"<details><summary>{head}</summary>\n\n{body}\n\n</details>"


def _title(verdict: Verdict) -> str:
    return one_line(summary.title(verdict), 250)


def _problems(verdict: Verdict) -> str:
    checks = summary.untrusted_or_unusable(verdict)
    if len(checks) == 1 and summary.says(_title(verdict), checks[0]):
        return ""
    if summary.status(verdict) is ExitStatus.UNTRUSTED and not checks:
        return "### Why\n\n- No check passed, so nothing was shown to be right."
    blocks = (
        f"- **{prose(check.title, 100)}** {phrases.outcome(check)}: {'<br>'.join(map(prose, lines_of(check.detail)))}"
        for check in checks
    )
    return _section("### Why", blocks, len(checks), "problems", "check")


def _findings(verdict: Verdict) -> str:
    errors = summary.errors_of(verdict)
    return _listed("### Findings", errors, "findings", "finding")


def _notices(verdict: Verdict) -> str:
    return _listed("### Notices", summary.other_notices_of(verdict), "notices", "notice")


def _listed(heading: str, findings: Sequence[Finding], section: str, noun: str) -> str:
    """Findings grouped by file; if there are too many to show, the count of each rule and the first findings."""
    if not findings:
        return ""
    overview = ""
    if len(findings) > summary.FINDINGS_SHOWN:
        rules = summary.by_rule(findings)
        rows = (f"- {count:,} x {code(name, 120)}" for name, count in rules[:_RULES_SHOWN])
        overview = _fitting(rows, len(rules), _BYTES[section] // 4, "rule")
    heading = "\n\n".join(part for part in (heading, overview) if part)
    return _section(heading, _by_file(findings[: summary.FINDINGS_SHOWN]), len(findings), section, noun)


def _by_file(findings: Sequence[Finding]) -> Iterator[str]:
    for file, group in summary.by_file(findings):
        lead = f"\n**{code(file, 250) if file else 'No file'}**\n"
        for finding in group:
            yield lead + _finding(finding)
            lead = ""


def _finding(finding: Finding) -> str:
    where = f"line {finding.line:,}" if finding.line is not None else "whole file"
    subject = f" · {code(finding.subject, 160)}" if finding.subject else ""
    fix = f"<br>**Fix:** {prose(finding.fix)}" if finding.fix.strip() else ""
    return f"- {where} · {code(summary.rule(finding), 120)}{subject}<br>{prose(finding.message)}{fix}"


def _effects(verdict: Verdict) -> str:
    """The changes of services when they are next rendered; "" if the change does not touch the files that make them."""
    if (effects := verdict.effects) is None:
        return ""
    heading = f"### What services would get\n\n{phrases.effects_lead(effects)}"
    total = len(effects.differences) + effects.left_out
    rows = (f"- {phrases.effect(one, _field)}" for one in effects.differences[: summary.FINDINGS_SHOWN])
    return _section(heading, rows, total, "effects", "difference") if total else heading


def _field(text: str) -> str:
    return code(text, 240)


def _cost(verdict: Verdict) -> str:
    """The change of the monthly cost; "" if the change does not alter it."""
    if (cost := verdict.cost) is None:
        return ""
    room = _BYTES["cost"]
    services = (_row(_cost_title(one), one.past, one.new, one.difference) for one in phrases.by_size(cost.services))
    centers = (_row(cell(one.cost_center, 80), one.past, one.new, one.difference) for one in cost.cost_centers)
    total = _row("**Total**", cost.total.past, cost.total.new, cost.total.difference)
    tokens = [
        f"- {code(phrases.place(one.environment, one.name), 80)}: {phrases.output_tokens(one.output_tokens)}"
        for one in cost.services
        if one.output_tokens
    ]
    estimates = _fitting(tokens, len(tokens), room * 9 // 100, "service")
    unpriced = [f"- {phrases.no_price(item, _item, _reason)}" for item in cost.unpriced]
    notes = [f"- {note}" for note in phrases.cost_notes(cost, lambda text: prose(text, 60))]
    parts = [
        "### Cost\n\nUSD a month of 730 h at the catalog's prices, with the fewest to the most replicas.",
        _table("Service", services, total, len(cost.services), room * 28 // 100, "service"),
        _table("Cost centre", centers, "", len(cost.cost_centers), room * 18 // 100, "cost centre"),
        "\n".join(filter(None, (_fitting(notes, len(notes), room * 18 // 100, "remark"), estimates))),
    ]
    if unpriced:
        parts.append(f"**Without a price**\n\n{_fitting(unpriced, len(unpriced), room * 22 // 100, 'item')}")
    return "\n\n".join(part for part in parts if part)


def _item(text: str) -> str:
    return code(text, 80)


def _reason(text: str) -> str:
    return prose(text, 200)


def _cost_title(service: ServiceCost) -> str:
    title = f"{cell(phrases.place(service.environment, service.name), 80)} {service.change}"
    return f"{title}, partly priced" if service.partly and service.difference else title


def _table(heading: str, rows: Iterable[str], last: str, total: int, room: int, noun: str) -> str:
    """A table of past, new and difference with as many of the rows as there is room for, and always the row `last`."""
    if not total:
        return ""
    head = f"| {heading} | Past | New | Difference |\n|---|--:|--:|--:|"
    room -= _size(head) + _size(last) + _size(_more(total, noun)) + 4
    kept: list[str] = []
    for row in rows:
        room -= _size(row) + 1
        if room < 0:
            break
        kept.append(row)
    table = "\n".join(filter(None, [head, *kept, last]))
    return table if len(kept) == total else f"{table}\n{_more(total - len(kept), noun)}"


def _row(title: str, past: Range | None, new: Range | None, difference: Range | None) -> str:
    amounts = (phrases.span(past), phrases.span(new), phrases.span(difference, signed=True))
    return f"| {' | '.join((title, *amounts))} |"


def _services(verdict: Verdict) -> str:
    shown, unchanged = summary.services_to_show(verdict)
    rows = map(_service if len(shown) <= summary.SERVICES_IN_FULL else _short_service, shown)
    text = _section("### Services", rows, len(shown), "services", "service")
    line = f"{counted(unchanged, 'service')} checked whose plan stays the same." if unchanged else ""
    return "\n\n".join(part for part in (text, line) if part)


def _service(service: ServiceReport) -> str:
    plan = service.plan
    lines = [f"\n#### {_service_title(service)}\n"]
    if plan is None:
        lines.append("Removed." if service.change == "removed" else "It has no plan that can be read.")
        return "\n".join(lines) + "\n"
    if changes := change_phrases.of_change(service):
        lines += ["\n\n".join(changes), ""]
    lines.append(f"{change_phrases.placed(service, plan)}\n")
    if plan.verdict != "refused":
        lines.append(change_phrases.figures(service, plan))
    overrides = (f"- **Override** {phrases.override(override, code, prose)}" for override in plan.overrides)
    lines.append(_fitting(overrides, len(plan.overrides), _BYTES["services"] // 4, "override"))
    lines.append(_reasons(plan, change_phrases.reasons(plan)))
    if plan.alternatives:
        lines += ["**What works instead**\n"]
        alternatives = (f"- {phrases.alternative(alternative, code, prose)}" for alternative in plan.alternatives)
        lines.append(_fitting(alternatives, len(plan.alternatives), _BYTES["services"] // 4, "alternative"))
    return "\n".join(lines)


def _service_title(service: ServiceReport) -> str:
    verdict = ""
    if service.plan:
        verdict = f" · {'❌ ' if service.plan.verdict == 'refused' else ''}{VERDICTS[service.plan.verdict]}"
    return f"{code(f'{service.environment}/{service.name}', 120)} {service.change}{verdict}"


def _reasons(plan: Plan, shown: Sequence[str]) -> str:
    """Confidence and reasons, folded; a reader needs the reasons of a refusal at once, so these stay open."""
    reasons = (f"- {prose(reason)}" for reason in shown)
    rows = _fitting(reasons, len(shown), _BYTES["services"] // 4, "reason")
    if plan.verdict == "refused":
        return f"\n**Why**\n\n{rows}\n" if rows else ""
    head = f"Confidence {plan.confidence}, {counted(len(shown), 'reason')}"
    return f"\n<details><summary>{head}</summary>\n\n{rows}\n\n</details>\n" if rows else f"\n{head}\n"


def _short_service(service: ServiceReport) -> str:
    plan = service.plan
    facts = f": {accelerators(plan, code)}, {phrases.price(plan)}" if plan else ""
    more = [counted(len(plan.overrides), "override")] if plan and plan.overrides else []
    return "; ".join([f"- {_service_title(service)}{facts}", *more])


def _checks(verdict: Verdict) -> str:
    numbers = summary.counts(verdict)
    ran = [check for check in verdict.checks if phrases.account(check, prose)]
    if not ran:
        return ""
    rows = (
        f"- {_CHECK_SYMBOLS[check.outcome]} **{prose(check.title, 80)}** {phrases.outcome(check)}: "
        + ", ".join([*phrases.account(check, lambda unit: prose(unit, 40)), duration(check.seconds)])
        for check in ran
    )
    head = (
        f"What was checked: {counted(len(ran), 'check')}, {phrases.tripwires(numbers.caught, numbers.tripwires)}, "
        f"{duration(numbers.seconds)}"
    )
    body = _section("", rows, len(ran), "checks", "check")
    return f"<details><summary>{head}</summary>\n\n{body}\n\n</details>"


def _not_checked(verdict: Verdict) -> str:
    not_run = [check for check in verdict.checks if check.outcome is Outcome.NOT_RUN]
    checks = (f"- {_check_not_run(check)}" for check in not_run)
    reasons = (f"- {prose(reason, 300)}" for reason in verdict.not_checked)
    total = len(not_run) + len(verdict.not_checked)
    return _section("### Not checked", chain(checks, reasons), total, "not checked", "item")


def _check_not_run(check: Check) -> str:
    return f"**{prose(check.title, 80)}** {phrases.outcome(check)}: {prose(check.detail, 300) or 'no reason given'}"


def _notes(verdict: Verdict) -> str:
    rows = (f"- {prose(note, 300)}" for note in verdict.notes)
    commits = ""
    if verdict.base or verdict.head:
        commits = f" · {code(verdict.base[:12] or 'start', 12)} to {code(verdict.head[:12], 12)}"
    text = _section("", rows, len(verdict.notes), "notes", "note")
    footer = f"neuroscale {code(verdict.tool_version, 40)}{commits}"
    return f"{text}\n\n{footer}" if text else footer


def _section(heading: str, blocks: Iterable[str], total: int, name: str, noun: str) -> str:
    """A heading and as many of the blocks as the section has room for; "" if there are no blocks."""
    if not total:
        return ""
    body = _fitting(blocks, total, _BYTES[name] - _size(heading) - 2, noun)
    return f"{heading}\n\n{body}" if heading else body


def _fitting(blocks: Iterable[str], total: int, room: int, noun: str) -> str:
    """As many of the blocks as fit into `room` bytes, with an exact count of the rest.

    `total` is the number of all blocks; `blocks` may yield only the first of them.
    """
    room -= _size(_more(total, noun))
    kept: list[str] = []
    for block in blocks:
        room -= _size(block) + 1
        if room < 0:
            break
        kept.append(block)
    if len(kept) < total:
        kept.append(_more(total - len(kept), noun))
    return "\n".join(kept).strip("\n")


def _more(count: int, noun: str) -> str:
    return f"\n- and {counted(count, f'more {noun}')}, see the JSON report"


def _size(text: str) -> int:
    return len(text.encode())

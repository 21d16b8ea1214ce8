"""Prints a verdict in the terminal: readable without colours, and through a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from rich.console import Console
from rich.text import Text

from neuroscale.core.errors import ExitStatus
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import counted, lines, terminal
from neuroscale.costs.bill import CostChange, Range
from neuroscale.gate.verdict import Alterations, Check, Effects, Finding, Outcome, ServiceReport, Verdict
from neuroscale.planning.plan_facts import accelerators
from neuroscale.report import altered_view, change_phrases, phrases, summary
from neuroscale.report.plan_view import (
    field,
    line,
    print_alternatives,
    print_overrides,
    print_placement,
    print_reasons,
    verdict_word,
)

# A symbol of its own shape for each outcome, with a stand-in where the terminal has only ASCII.
_SYMBOLS = {
    ExitStatus.PASSED: ("✔", "OK", "green"),
    ExitStatus.FINDINGS: ("✘", "X", "red"),
    ExitStatus.UNUSABLE: ("⊘", "X", "red"),
    ExitStatus.UNTRUSTED: ("‼", "!!", "magenta"),
}
_OUTCOMES = {
    Outcome.PASSED: ExitStatus.PASSED,
    Outcome.FINDINGS: ExitStatus.FINDINGS,
    Outcome.UNUSABLE: ExitStatus.UNUSABLE,
    Outcome.UNTRUSTED: ExitStatus.UNTRUSTED,
}


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Show a verdict to a person: what is wrong first, the title last, where a terminal leaves the eye."""
    _print_checks(verdict.checks, summary.title(verdict), console)
    _print_findings("Findings", summary.errors_of(verdict), "red", console)
    _print_effects(verdict.effects, console)
    _print_cost(verdict.cost, console)
    _print_services(verdict, console)
    _print_altered(verdict.altered, console)
    _print_findings("Notices", summary.other_notices_of(verdict), "cyan", console)
    _print_list("Not checked", verdict.not_checked, console)
    _print_list("Notes", verdict.notes, console)
    _print_alerts(verdict, console)
    _print_title(verdict, console)


def _print_checks(checks: Sequence[Check], title: str, console: Console) -> None:
    titles = max((len(terminal(check.title, 40)) for check in checks), default=0)
    outcomes = max((len(phrases.outcome(check)) for check in checks), default=0)
    for check in checks:
        ended = _OUTCOMES.get(check.outcome)
        mark = _symbol(ended, console) if ended is not None else ("-", "dim")
        facts = phrases.outcome(check)
        if check.outcome is not Outcome.NOT_RUN or check.unjudged:
            account = ", ".join(phrases.account(check, lambda unit: terminal(unit, 40)))
            facts = f"{facts:{outcomes}}  {duration(check.seconds):>7}  {account}"
        name = terminal(check.title, 40).ljust(titles)
        line(console, Text.assemble(mark, " ", (name, "bold"), "  ", facts))
        if check.outcome is not Outcome.PASSED and not summary.says(title, check):
            for row in lines(check.detail):
                line(console, terminal(row), 4)


def _print_findings(heading: str, findings: Sequence[Finding], style: str, console: Console) -> None:
    if not findings:
        return
    _print_heading(heading, console)
    if len(findings) > summary.FINDINGS_SHOWN:
        for name, count in summary.by_rule(findings)[:15]:
            line(console, f"{count:,} x {terminal(name, 120)}", 2)
        console.print()
    for file, group in summary.by_file(findings[: summary.FINDINGS_SHOWN]):
        line(console, Text(terminal(file, 300) or "no file", "bold"), 2)
        for finding in group:
            _print_finding(finding, style, console)
    left = len(findings) - summary.FINDINGS_SHOWN
    if left > 0:
        line(console, f"and {left:,} more, see the JSON report", 2)


def _print_finding(finding: Finding, style: str, console: Console) -> None:
    where = f"line {finding.line:,}" if finding.line is not None else "whole file"
    subject = f"  {terminal(finding.subject, 160)}" if finding.subject else ""
    line(console, Text.assemble(f"{where}  ", (terminal(summary.rule(finding), 120), style), subject), 4)
    line(console, terminal(finding.message), 6)
    if finding.fix.strip():
        line(console, Text.assemble(("Fix: ", "bold"), terminal(finding.fix)), 6)


def _print_altered(altered: Alterations | None, console: Console) -> None:
    """Print what the change alters beside services."""
    if altered is None or not any(kind.review for kind in altered.files):
        return
    _print_heading(f"What the change alters: {altered_view.total(altered)}", console)
    for row in islice(altered_view.rows(altered, _item, _item), summary.FINDINGS_SHOWN):
        line(console, f"- {row}", 2)
    _print_rest(altered_view.count_of_rows(altered), "row", console)


def _print_alerts(verdict: Verdict, console: Console) -> None:
    """Print what a reviewer must see first, right above the title."""
    if not (alerts := summary.alerts_of(verdict)):
        return
    _print_heading("Look at this first", console)
    for one in alerts[: summary.FINDINGS_SHOWN]:
        line(console, f"- {altered_view.alert(one, _item, lambda text: terminal(text, 600))}", 2)
    if left := alerts[summary.FINDINGS_SHOWN :]:
        line(console, altered_view.rest(left, _item), 2)


def _print_effects(effects: Effects | None, console: Console) -> None:
    """Print the changes of services when they are next rendered."""
    if effects is None:
        return
    _print_heading("What services would get", console)
    line(console, phrases.effects_lead(effects), 2)
    for one in effects.differences[: summary.FINDINGS_SHOWN]:
        line(console, f"- {phrases.effect(one, _item)}", 2)
    _print_rest(len(effects.differences) + effects.left_out, "difference", console)


def _print_cost(cost: CostChange | None, console: Console) -> None:
    """Print the change of the monthly cost; nothing if the change does not alter it."""
    if cost is None:
        return
    _print_heading("Cost, in USD a month of 730 h with the fewest to the most replicas", console)
    for one in phrases.by_size(cost.services)[: summary.FINDINGS_SHOWN]:
        partly = ", partly priced" if one.partly and one.difference else ""
        title = f"{terminal(phrases.place(one.environment, one.name), 160)} {one.change}{partly}"
        _print_amounts(title, one.past, one.new, one.difference, console)
    _print_rest(len(cost.services), "service", console)
    for center in cost.cost_centers[: summary.FINDINGS_SHOWN]:
        _print_amounts(terminal(center.cost_center, 80), center.past, center.new, center.difference, console)
    _print_rest(len(cost.cost_centers), "cost centre", console)
    _print_amounts("Total", cost.total.past, cost.total.new, cost.total.difference, console)
    for note in phrases.cost_notes(cost, lambda text: terminal(text, 80)):
        line(console, note, 2)
    fast = [one for one in cost.services if one.output_tokens][: summary.FINDINGS_SHOWN]
    for one in fast:
        if one.output_tokens:
            name = terminal(phrases.place(one.environment, one.name), 160)
            field(console, "Output tokens", f"{name}, {phrases.output_tokens(one.output_tokens)}")
    for item in cost.unpriced[: summary.FINDINGS_SHOWN]:
        field(console, "Without a price", phrases.no_price(item, _item, _item), "yellow")
    _print_rest(len(cost.unpriced), "thing without a price", console)


def _item(text: str) -> str:
    return terminal(text, 240)


def _print_amounts(
    name: str, past: Range | None, new: Range | None, difference: Range | None, console: Console
) -> None:
    sides = f"past {phrases.span(past)}, new {phrases.span(new)}"
    line(console, Text.assemble((name, "bold"), f"  {sides}, difference {phrases.span(difference, signed=True)}"), 2)


def _print_rest(total: int, noun: str, console: Console) -> None:
    if total > summary.FINDINGS_SHOWN:
        line(console, f"and {counted(total - summary.FINDINGS_SHOWN, f'more {noun}')}, see the JSON report", 2)


def _print_services(verdict: Verdict, console: Console) -> None:
    shown, unchanged = summary.services_to_show(verdict)
    if not verdict.services:
        return
    _print_heading("Services", console)
    show = _print_service if len(shown) <= summary.SERVICES_IN_FULL else _print_short_service
    for service in shown[: summary.FINDINGS_SHOWN]:
        show(service, console)
    _print_rest(len(shown), "service", console)
    if unchanged:
        line(console, f"{counted(unchanged, 'service')} checked whose plan stays the same", 2)


def _print_service(service: ServiceReport, console: Console) -> None:
    line(console, _service_title(service), 2)
    if (plan := service.plan) is not None:
        if change_phrases.is_change(service):
            asked = change_phrases.answers(service.answers, terminal)
            field(console, "Asked for", "; ".join(asked) or "the same as before")
            if plan.verdict != "refused":
                field(console, "The merge", change_phrases.rollout_of(service, plan, terminal))
        print_placement(plan, console)
        if changed := phrases.differences(service, terminal):
            field(console, "Changed", "; ".join(changed))
        if plan.verdict != "refused":
            field(console, "Price", phrases.priced(plan, terminal))
            if speed := phrases.speed(plan):
                field(console, "Speed", speed)
        print_overrides(plan, console)
        if plan.verdict == "refused":
            print_reasons(plan, console)
            print_alternatives(plan, console)


def _print_short_service(service: ServiceReport, console: Console) -> None:
    plan = service.plan
    facts = f": {accelerators(plan, terminal)}, {phrases.price(plan)}" if plan else ""
    line(console, Text.assemble(_service_title(service), facts), 2)


def _service_title(service: ServiceReport) -> Text:
    name = f"{terminal(service.environment, 80)}/{terminal(service.name, 80)}"
    word = ("  ", verdict_word(service.plan)) if service.plan else ()
    return Text.assemble((name, "bold"), f"  {service.change}", *word)


def _print_list(heading: str, values: Sequence[str], console: Console) -> None:
    if not values:
        return
    _print_heading(heading, console)
    for value in values[:20]:
        line(console, f"- {terminal(value, 300)}", 2)
    if len(values) > 20:
        line(console, f"and {len(values) - 20:,} more, see the JSON report", 2)


def _print_title(verdict: Verdict, console: Console) -> None:
    numbers = summary.counts(verdict)
    ended = summary.status(verdict)
    mark, style = _symbol(ended, console)
    console.print()
    line(console, Text.assemble((f"{mark} {terminal(summary.title(verdict), 600)}", f"bold {style}")))
    facts = [counted(numbers.errors, "error"), counted(numbers.notices, "notice")]
    if numbers.not_run:
        facts.append(f"{counted(numbers.not_run, 'check')} not run")
    if change := phrases.cost_headline(verdict.cost):
        facts.append(change)
    if effects := phrases.effects_headline(verdict.effects):
        facts.append(effects)
    line(console, f"{', '.join(facts)}, exit status {ended.value}", 2)


def _print_heading(heading: str, console: Console) -> None:
    console.print()
    line(console, Text(heading, "bold underline"))


def _symbol(ended: ExitStatus, console: Console) -> tuple[str, str]:
    symbol, stand_in, style = _SYMBOLS[ended]
    return (stand_in if console.options.ascii_only else symbol), f"bold {style}"

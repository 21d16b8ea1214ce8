"""Writes what a benchmark will do and what it measured, beside what was predicted, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from neuroscale.bench.cells import Estimate, PlannedCell
from neuroscale.bench.largest_load import LargestLoad
from neuroscale.bench.result import Predict, Subject, usd_per_million
from neuroscale.bench.run import Outcome
from neuroscale.core.money_and_time import amount, duration, pace, usd
from neuroscale.core.printable import plainly_counted, terminal
from neuroscale.planning.speed import Estimate as Band
from neuroscale.report.plan_view import field, line

_CACHING = {True: "on", False: "off", None: "the server does not say"}


def title_of(subject: Subject) -> str:
    """`local/tiny-chat: tiny-qwen3-moe on 1 x cpu, vLLM 0.32.0`."""
    where = f" on {subject.count} x {subject.accelerator}" if subject.accelerator else ""
    version = f", vLLM {subject.vllm_version}" if subject.vllm_version else ""
    return f"{subject.service or subject.url}: {subject.model}{where}{version}"


def print_plan(
    subject: Subject, planned: Sequence[PlannedCell], total: Estimate, remarks: Sequence[str], console: Console
) -> None:
    """Print the cells that are about to run, with their time and price. `remarks`: sentences on what is not known."""
    line(console, terminal(title_of(subject)))
    for each in planned:
        if each.skipped:
            line(console, terminal(f"- {each.cell}: not run, since {each.skipped}"), 2)
            continue
        about = "" if each.expected_seconds is None else f"about {duration(each.expected_seconds)}, "
        requests = f"{each.requests} requests after {each.warm_up} to warm up"
        line(console, terminal(f"- {each.cell}: {requests}; {about}{duration(each.seconds)} at most"), 2)
    print_totals(subject, total, console)
    for remark in remarks:
        line(console, terminal(remark), 2)


def print_totals(subject: Subject, total: Estimate, console: Console) -> None:
    """Print the time and the price of a run, and what holds for all of its cells."""
    about = "" if total.expected_seconds is None else f"about {duration(total.expected_seconds)}, "
    field(console, "Time", f"{about}{duration(total.most_seconds)} at most")
    if total.most_usd is None or subject.hourly is None:
        field(console, "Price", "no price is known for the replica")
    else:
        price = "" if total.expected_usd is None else f"about {usd(total.expected_usd)}, "
        source = f" ({usd(subject.hourly)} an hour, {subject.price_source})"
        field(console, "Price", terminal(f"{price}{usd(total.most_usd)} at most{source}"))
    field(console, "Prefix caching", f"{_CACHING[subject.prefix_caching]}; no two prompts begin alike")


def print_outcomes(
    subject: Subject, outcomes: Sequence[Outcome], predict: Predict, console: Console, *, title: bool = True
) -> None:
    """Print what was measured, beside the prediction in brackets, and why cells were not measured."""
    if title:
        line(console, terminal(title_of(subject)))
    measured = [outcome for outcome in outcomes if outcome.figures is not None]
    if measured:
        console.print(_table(subject, measured, predict))
    for outcome in outcomes:
        if outcome.reason:
            line(console, terminal(f"- {outcome.planned.cell}: {outcome.state}. {outcome.reason}"))
        for note in outcome.notes:
            line(console, terminal(f"- {outcome.planned.cell}: {note}"))
    if measured:
        line(console, "In brackets: the prediction. p95: of 95 in 100 requests. USD: a million answer tokens.")


def _table(subject: Subject, outcomes: Sequence[Outcome], predict: Predict) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in ("load", "TTFT", "TTFT p95", "token", "tokens/s", "server: TTFT", "token", "cached", "USD"):
        table.add_column(name, justify="left" if name == "load" else "right", no_wrap=True)
    for outcome in outcomes:
        figures, server = outcome.figures, outcome.server
        if figures is None:
            continue
        speed = predict(outcome.planned.cell)
        price = usd_per_million(subject.hourly, outcome)
        cached = None if server is None else server.prefix_hit_share
        table.add_row(
            str(outcome.planned.cell),
            _with(duration(figures.ttft.mean), speed.ttft_mean if speed else None, duration),
            _with(duration(figures.ttft.p95), speed.ttft_p95 if speed else None, duration),
            _with(duration(figures.inter_token.mean), speed.inter_token_mean if speed else None, duration),
            _with(pace(figures.total_rate), speed.tokens_per_second_total if speed else None, pace),
            "?" if server is None or server.ttft_mean is None else duration(server.ttft_mean),
            "?" if server is None or server.inter_token_mean is None else duration(server.inter_token_mean),
            "?" if cached is None else f"{cached:.0%}",
            "?" if price is None else amount(price),
        )
    return table


def print_largest(promise: float, found: LargestLoad, console: Console) -> None:
    """Print the largest load that a search found, how often each side of the edge was measured, and how sure it is."""
    if found.kept_runs or found.missed_users is not None:
        told = plainly_counted(found.users, "user") if found.users else "not even 1 user"
        field(console, f"First token in {duration(promise)} for 95 of 100", f"{told} ({found.sure})")
    for trial in found.trials:
        late = (
            "over-saturated" if trial.problem else f"p95 {duration(trial.p95)}, {trial.late} of {trial.requests} late"
        )
        line(console, f"- {plainly_counted(trial.users, 'user')}: {late}", 4)
    if found.late_share is not None:
        share = f"with 95 % confidence, at most {found.late_share:.1%} of first tokens are late"
        kept = f"{found.kept_runs} of {plainly_counted(found.kept_runs, 'run')}"
        line(console, f"{plainly_counted(found.users, 'user')} kept it in {kept}: {share}.", 2)
    if found.missed_users is not None:
        runs, missed = found.missed_runs
        of = f"{missed} of {plainly_counted(runs, 'run')}"
        line(console, f"{plainly_counted(found.missed_users, 'user')} missed it in {of}.", 2)
    if found.ended:
        line(console, terminal(found.ended), 2)


def outcome_line(outcome: Outcome) -> str:
    """What came of a cell, as a line of progress."""
    figures = outcome.figures
    if figures is None:
        return f"{outcome.state}: {outcome.reason}"
    earlier = f" (measured on {outcome.date[:10]})" if outcome.earlier else ""
    ttft = f"first token p50 {duration(figures.ttft.p50)}, p95 {duration(figures.ttft.p95)}"
    return f"{outcome.state}{earlier}: {ttft}, {pace(figures.total_rate)} tokens/s of {figures.requests} requests"


def _with(value: str, band: Band | None, shown: Callable[[float], str]) -> str:
    return f"{value} ({shown(band.value)})" if band is not None else value

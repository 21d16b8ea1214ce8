"""Shows how a service serves now: the bound that it hits, the numbers beside the plan's, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import terminal
from neuroscale.explain.explanation import Help, ServingReport
from neuroscale.explain.slow_service import PodLoad, Promise, Serving, seconds_text
from neuroscale.report.change_commands import update_line


def serving_lines(report: ServingReport) -> list[str]:
    """The answer for people, line by line, for a terminal."""
    serving = report.serving
    seconds = max((pod.seconds for pod in serving.pods), default=0.0)
    lines = ["", f"How it serves, by its counters of {duration(seconds)}:"]
    if serving.verdict != "bound":
        lines.append(f"  {serving.sentence}")
    for number, bound in enumerate(serving.bounds):
        lines.append(f"  {'Also: ' if number else ''}{bound.title} ({bound.name}). {bound.sentence}")
        if bound.do:
            lines.append(f"    What helps: {bound.do}")
        for one in report.helps:
            if one.bound == bound.name:
                lines += [f"    {_line(report, one)}", f"      {one.sentence}"]
    if report.no_help:
        lines.append(f"  {report.no_help}")
    lines += [f"  Not read: {why}" for why in serving.unread]
    lines += [f"  {line}" for line in _numbers(serving)]
    return [
        terminal(line, 2000) if line.strip() == line else f"{_indent(line)}{terminal(line, 2000)}" for line in lines
    ]


def _line(report: ServingReport, help_: Help) -> str:
    return update_line(report.service, help_.changes, local=report.local)


def _indent(line: str) -> str:
    return " " * (len(line) - len(line.lstrip()))


def _numbers(serving: Serving) -> list[str]:
    lines = []
    for pod in serving.pods:
        if pod.asked:
            lines += [f"{pod.pod}:", *(f"  {name}: {value}" for name, value in _of_pod(pod, serving.promise))]
    return lines


def _of_pod(pod: PodLoad, promise: Promise | None) -> list[tuple[str, str]]:
    """What a pod's server counted, by its words, with the plan's figures."""
    plan: dict[str, str] = {}
    if promise is not None:
        plan["running"] = f"plan: {promise.replica_users} users a replica"
        first = [f"plan: {duration(promise.ttft_p95)}"] if promise.ttft_p95 is not None else []
        first += [f"asked for: {duration(promise.asked_ttft)}"] if promise.asked_ttft is not None else []
        plan["first"] = ", ".join(first)
        rate = [f"plan: {promise.rate:g}"] if promise.rate is not None else []
        rate += [f"asked for: {promise.asked_rate:g}"] if promise.asked_rate is not None else []
        plan["rate"] = ", ".join(rate)
        plan["prefix"] = "the plan counts on none"

    def beside(name: str) -> str:
        return f" ({plan[name]})" if plan.get(name) else ""

    places = f" of {pod.places} places" if pod.places else ""
    rows = [("requests", f"{pod.running:.3g} run{places}, {pod.waiting:.3g} wait{beside('running')}")]
    if pod.cache is not None:
        size = f" of {pod.cache_tokens:,.0f} tokens" if pod.cache_tokens else ""
        rows.append(
            ("KV cache", f"{pod.cache:.0%}{size} used at most, {pod.preemptions:,.0f} requests lost their place")
        )
    if pod.ttft is not None:
        came = f"{seconds_text(pod.ttft)} on average, {seconds_text(pod.ttft_p95)} at p95{beside('first')}"
        rows.append(("first token", came))
    ended = [
        f"{name} {seconds_text(value)}" for name in ("queue", "prefill", "decode") if (value := getattr(pod, name))
    ]
    if ended:
        rows.append(("requests that ended, on average", ", ".join(ended)))
    if pod.rate is not None:
        gap = f"{seconds_text(pod.itl)} between two tokens, {seconds_text(pod.itl_p95)} at p95"
        rows.append(("an answer", f"{pod.rate:.3g} tokens/s{beside('rate')}: {gap}"))
    if pod.seconds:
        rows.append(
            ("tokens", f"{pod.prompt_tokens / pod.seconds:,.0f}/s in, {pod.answer_tokens / pod.seconds:,.0f}/s out")
        )
    if pod.cached_tokens is not None and pod.prompt_tokens:
        rows.append(("prefix cache", f"{pod.cached_tokens / pod.prompt_tokens:.0%} of the prompts{beside('prefix')}"))
    return rows


def serving_mapping(report: ServingReport) -> Mapping[str, Any]:
    """The answer for programs: times in seconds, the cache as a share from 0 to 1."""
    serving = report.serving
    promise = serving.promise
    told = None if promise is None else {**asdict(promise), "overridden": sorted(promise.overridden)}
    return {
        "verdict": serving.verdict,
        "bound": serving.bounds[0].name if serving.bounds else None,
        "sentence": serving.sentence,
        "bounds": [
            {
                "name": bound.name,
                "title": bound.title,
                "sentence": bound.sentence,
                "do": bound.do,
                "updates": [
                    {"update": _line(report, one), "sentence": one.sentence}
                    for one in report.helps
                    if one.bound == bound.name
                ],
            }
            for bound in serving.bounds
        ],
        "no_help": report.no_help or None,
        "pods": [asdict(pod) for pod in serving.pods],
        "unread": list(serving.unread),
        "plan": told,
    }

"""Shows why a server ended: as a mapping for programs, as text for people, and in short for a comment."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import terminal
from neuroscale.explain import Evidence
from neuroscale.explain.explanation import Explanation
from neuroscale.planning.fit import Fit
from neuroscale.report.change_commands import next_line
from neuroscale.report.slow_view import serving_lines, serving_mapping
from neuroscale.vllm.argument_values import words_of

_LONGEST = 400  # characters of a line of the log in an answer

_MEASURED = (  # the log's figure, its words, and the plan's figure
    ("weights_gib", "weights", "GiB"),
    ("available_kv_cache_gib", "memory for the KV cache", "GiB"),
    ("kv_cache_tokens", "KV cache", "tokens"),
    ("max_concurrency", "requests of the longest context at once", "x"),
    ("graphs_gib", "CUDA graphs", "GiB"),
    ("load_seconds", "loading of the weights", "s"),
    ("start_seconds", "start of the engine", "s"),
)


def cause_mapping(explained: Explanation) -> dict[str, Any]:
    """The answer for programs; its lines are bounded and without secrets."""
    diagnosis, planned = explained.diagnosis, explained.planned
    cause = diagnosis.cause
    return {
        "schema_version": 1,
        "verdict": diagnosis.verdict,
        "known": diagnosis.verdict in ("cause", "healthy"),
        "cause": cause.name if cause else None,
        "title": cause.title if cause else None,
        "sentence": diagnosis.sentence,
        "sure": None if cause is None else not diagnosis.doubt,
        "doubt": diagnosis.doubt or None,
        "against": _evidence(diagnosis.against) if diagnosis.against else None,
        "follows": cause.follows if cause else None,
        "numbers": dict(diagnosis.captured),
        "evidence": [_evidence(one) for one in diagnosis.evidence],
        "next": _next(explained),
        "no_next": explained.no_next or None,
        "also": [
            {"cause": other.name, "title": other.title, "line": line.line, "text": _line(line.text)}
            for other, line in diagnosis.also
        ],
        "server": {
            "version": explained.facts.version or None,
            "model": explained.facts.model or None,
            "accelerator": explained.facts.card or None,
            "arguments": dict(explained.facts.arguments),
        },
        "measured": dict(explained.facts.measured),
        "unready": explained.unready or None,
        "planned": None if planned is None else _planned(planned),
        "serving": None if explained.serving is None else serving_mapping(explained.serving),
    }


def _next(explained: Explanation) -> dict[str, Any] | None:
    found = explained.next
    if found is None:
        return None
    fit = found.fit
    return {
        "sentence": found.sentence,
        "changed": list(words_of(found.changed)),
        "removed": list(words_of(found.removed)),
        "vllm_args": list(found.words),
        "answers": [f"{field}={value}" for field, value in found.overrides.items()],
        "update": next_line(explained) or None,
        "model": fit.model,
        "accelerator": fit.accelerator,
        "count": fit.count,
        "fit": {
            "verdict": fit.verdict,
            "within_error_band": bool(fit.close),
            "kv_cache_tokens": fit.kv_cache_tokens,
            "max_model_len": fit.max_model_len,
            "max_concurrency": round(fit.max_concurrency, 2),
            "memory_gib": fit.memory_gib.model_dump(),
        },
    }


def _planned(fit: Fit) -> dict[str, Any]:
    return {
        "verdict": fit.verdict,
        "weights_gib": fit.memory_gib.weights,
        "available_kv_cache_gib": round(fit.available_gib, 2),
        "kv_cache_tokens": fit.kv_cache_tokens,
        "max_concurrency": round(fit.max_concurrency, 2),
        "reasons": list(fit.reasons),
    }


def cause_lines(explained: Explanation) -> list[str]:
    """The answer for people, line by line, for a terminal."""
    diagnosis = explained.diagnosis
    cause = diagnosis.cause
    started = f"The server started, and its pod is not ready: {explained.unready}."
    heads = {
        "healthy": started if explained.unready else "Healthy: the server started.",
        "unknown": f"Unknown: {diagnosis.sentence}",
        "not_judged": f"Not judged: {diagnosis.sentence}",
    }
    lines = [f"{cause.title} ({cause.name})." if cause else heads[diagnosis.verdict]]
    if cause:
        lines.append(f"  {diagnosis.sentence}")
    lines += [f"  {_place(one)}: {_line(one.text)}" for one in diagnosis.evidence]
    if diagnosis.doubt:
        lines.append(f"  Not sure: {diagnosis.doubt}.")
    if diagnosis.against:
        lines.append(f"  {_place(diagnosis.against)} speaks against it: {_line(diagnosis.against.text)}")
    if cause:
        lines += ["", f"What to do: {cause.follows}"]
    elif diagnosis.verdict == "unknown" and diagnosis.evidence:
        lines += ["", "These are the lines that matter most. docs/causes.md lists the causes that are known."]
    lines += _next_lines(explained)
    lines += _measured_lines(explained)
    if diagnosis.also:
        lines += ["", "Also seen:"]
        lines += [
            f"  {other.title} ({other.name}), line {line.line}: {_line(line.text)}" for other, line in diagnosis.also
        ]
    shown = [terminal(line, 2000) if line.strip() == line else f"  {terminal(line, 2000)}" for line in lines]
    return [*shown, *(serving_lines(explained.serving) if explained.serving is not None else ())]


def _next_lines(explained: Explanation) -> list[str]:
    found = explained.next
    if found is None:
        return ["", explained.no_next] if explained.no_next else []
    fit = found.fit
    told = {"fits": "fits", "tight": "fits, close to the limit"}[fit.verdict]
    lines = ["", f"Next configuration ({told}, by the plan for {fit.model} on {fit.count} x {fit.accelerator}):"]
    lines.append(f"  {found.sentence}")
    lines += [f"  {word}" for word in words_of(found.changed)]
    lines += [f"  without {word}" for word in words_of(found.removed)]
    tokens = f"{fit.kv_cache_tokens:,} tokens of KV cache"
    at_once = f"{fit.max_concurrency:.2f} requests of {fit.max_model_len:,} tokens at once"
    lines.append(f"  It has {tokens}: {at_once}.")
    if found.words:
        lines.append(f"  All arguments: {shlex.join(found.words)}")
    if line := next_line(explained):
        lines.append(f"  As a service: {line}")
    return lines


def _measured_lines(explained: Explanation) -> list[str]:
    measured = explained.facts.measured
    plan: Mapping[str, Any] = {} if explained.planned is None else _planned(explained.planned)
    lines = []
    for name, words, unit in _MEASURED:
        if name in measured:
            plain = f"{measured[name]:,.2f}".rstrip("0").rstrip(".")
            figure = duration(measured[name]) if unit == "s" else f"{plain} {unit}"
            beside = f" (plan: {plan[name]:,} {unit})" if plan.get(name) else ""
            lines.append(f"  {words}: {figure}{beside}")
    return ["", "What the log measured:", *lines] if lines else []


def _evidence(found: Evidence) -> dict[str, Any]:
    return {"line": found.line, "text": _line(found.text)}


def _place(evidence: Evidence) -> str:
    return f"line {evidence.line}" if evidence.line else "its pod"


def _line(text: str) -> str:
    return terminal(text, _LONGEST)

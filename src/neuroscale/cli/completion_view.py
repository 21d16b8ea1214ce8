"""Prints a served model's answer as it comes, with its figures, for people and for programs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import typer

from neuroscale.cluster.endpoint import chat
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.metrics import Sampler, Snapshot
from neuroscale.core.printable import TerminalStream, encodable, terminal

_WATCHED: tuple[tuple[str, str, Callable[[Snapshot], float | None], Callable[[float], str]], ...] = (
    ("running", "requests running", lambda one: one.running, lambda value: f"{value:,.0f}"),
    ("waiting", "requests waiting", lambda one: one.waiting, lambda value: f"{value:,.0f}"),
    ("kv_cache_usage", "KV cache used", lambda one: one.kv_cache_usage, lambda value: f"{value:.2%}"),
)


class AnswerPrinter:
    """Writes an answer as it comes. A model's text may hold anything, but never reaches the terminal as a command."""

    def __init__(self) -> None:
        self._stream = TerminalStream()
        self._thinking = False
        self._wrote = False

    def part(self, part: chat.Part) -> None:
        """Print the next part of an answer."""
        if part.reasoning and not self._wrote:
            self._write("Thinking:\n")
        elif self._thinking and not part.reasoning:
            self._write(self._stream.end() + "\n\nAnswer:\n")
        self._thinking = part.reasoning
        self._write(self._stream.add(part.text))

    def end(self) -> None:
        """End the current line."""
        self._write(self._stream.end())
        if self._wrote:
            typer.echo()

    def whole(self, answer: chat.Completion) -> None:
        """Print an answer that was not streamed."""
        self._wrote = False
        for text, reasoning in ((answer.reasoning, True), (answer.text, False)):
            if text:
                self.part(chat.Part(text, answer.seconds, reasoning=reasoning))
        self.end()

    def _write(self, text: str) -> None:
        if text:
            typer.echo(text, nl=False)
            sys.stdout.flush()
            self._wrote = True


def print_figures(endpoint: Endpoint, answer: chat.Completion, sampler: Sampler) -> None:
    """Print the answer's figures on standard error, so that standard output has only the answer."""
    if answer.tool_calls:
        typer.echo(terminal(f"The model calls tools: {', '.join(answer.tool_calls)}."), err=True)
    elif not (answer.text or answer.reasoning):
        typer.echo("The model gave an empty answer.", err=True)
    speed = answer.tokens_per_second
    rows = [
        ("first token", f"{answer.ttft_seconds:.3f} s" if answer.ttft_seconds is not None else "not measured"),
        ("speed", f"{speed:,.1f} tokens/s" if speed is not None else "not measured"),
        ("tokens", f"{answer.prompt_tokens:,} in, {answer.completion_tokens:,} out, in {answer.seconds:.3f} s"),
        ("finished", _finish(answer.finish_reason)),
    ]
    way = f"pod {endpoint.pod}" if endpoint.pod else endpoint.url
    rows.append(("asked", f"{endpoint.model}, {way}"))
    typer.echo(err=True)
    for name, text in rows:
        typer.echo(f"  {name:<17} {terminal(text)}", err=True)
    if sampler.snapshots:
        typer.echo(f"  {'meanwhile':<17} {'start':>8} {'peak':>8} {'end':>8}", err=True)
        for _, title, value, shown in _WATCHED:
            cells = [("?" if one is None else shown(one)).rjust(8) for one in _course(sampler, value)]
            typer.echo(f"  {title:<17} {' '.join(cells)}", err=True)
    if sampler.problem:
        typer.echo(f"  {'not seen':<17} {terminal(sampler.problem)}", err=True)


def _finish(reason: str) -> str:
    told = {"stop": "the model ended its answer", "length": "the answer reached its longest length"}.get(reason)
    return f"{reason}: {told}" if told else reason or "the server gives no reason"


def _course(
    sampler: Sampler, value: Callable[[Snapshot], float | None]
) -> tuple[float | None, float | None, float | None]:
    """A metric's value at the start, at its highest and at the end; None if it was missing."""
    seen = [found for one in sampler.snapshots if (found := value(one)) is not None]
    return (seen[0], max(seen), seen[-1]) if seen else (None, None, None)


def as_mapping(endpoint: Endpoint, answer: chat.Completion, sampler: Sampler) -> dict[str, Any]:
    """The answer and its figures, for programs."""
    found = dataclasses.asdict(answer)
    texts = {name: encodable(found.pop(name)) for name in ("text", "reasoning", "finish_reason")}
    return {
        "schema_version": 1,
        "service": endpoint.service,
        "namespace": endpoint.namespace,
        "model": endpoint.model,
        "url": endpoint.url,
        "how": endpoint.how,
        "pod": endpoint.pod,
        **texts,
        "tool_calls": [encodable(name) for name in found.pop("tool_calls")],
        **found,
        "meanwhile": {
            name: dict(zip(("start", "peak", "end"), _course(sampler, value), strict=True))
            for name, _, value, _ in _WATCHED
        },
        "looks": len(sampler.snapshots),
        "not_seen": sampler.problem,
    }

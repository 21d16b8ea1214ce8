"""`neuroscale query`: asks a deployed service one question, and prints the answer with its figures."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroscale.actions.chosen_cluster import Where, opened_service
from neuroscale.actions.open_repository import open_repository
from neuroscale.cli.options import (
    TO_STDERR,
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    RepositoryOption,
    ServiceArgument,
    ServiceEnvironmentOption,
    print_json,
)
from neuroscale.cluster.command_lines import CommandLines, command_lines
from neuroscale.cluster.endpoint import chat, key
from neuroscale.cluster.endpoint.access import open_endpoint
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.endpoint.metrics import Sampler, Snapshot
from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import TerminalStream, encodable, terminal
from neuroscale.core.units import MIB
from neuroscale.repo.layout import ServicePath
from neuroscale.request.service_request import Request

_WATCHED: tuple[tuple[str, str, Callable[[Snapshot], float | None], Callable[[float], str]], ...] = (
    ("running", "requests running", lambda snapshot: snapshot.running, lambda value: f"{value:,.0f}"),
    ("waiting", "requests waiting", lambda snapshot: snapshot.waiting, lambda value: f"{value:,.0f}"),
    ("kv_cache_usage", "KV cache used", lambda snapshot: snapshot.kv_cache_usage, lambda value: f"{value:.2%}"),
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


def print_figures(endpoint: Endpoint, answer: chat.Completion, sampler: Sampler, longest: int | None = None) -> None:
    """Print the answer's figures on standard error, so that standard output has only the answer. `longest`: the tokens
    that the form's answer bounded it to (None: the form did not)."""
    if answer.tool_calls:
        typer.echo(terminal(f"The model calls tools: {', '.join(answer.tool_calls)}."), err=True)
    elif not (answer.text or answer.reasoning):
        typer.echo("The model gave an empty answer.", err=True)
    speed = answer.tokens_per_second
    rows = [
        ("first token", duration(answer.ttft_seconds) if answer.ttft_seconds is not None else "not measured"),
        ("speed", f"{speed:,.1f} tokens/s" if speed is not None else "not measured"),
        ("tokens", f"{answer.prompt_tokens:,} in, {answer.completion_tokens:,} out, in {duration(answer.seconds)}"),
        ("finished", _finish(answer.finish_reason, longest)),
    ]
    way = f"pod {endpoint.pod}" if endpoint.pod else endpoint.url
    rows.append(("asked", f"{endpoint.model}, {way}"))
    typer.echo(err=True)
    for name, text in rows:
        typer.echo(f"  {name:<17} {terminal(text)}", err=True)
    if sampler.snapshots:
        typer.echo(f"  {'meanwhile':<17} {'start':>8} {'peak':>8} {'end':>8}", err=True)
        for _, title, value, worded in _WATCHED:
            cells = [("?" if figure is None else worded(figure)).rjust(8) for figure in _course(sampler, value)]
            typer.echo(f"  {title:<17} {' '.join(cells)}", err=True)
    if sampler.problem:
        typer.echo(f"  {'not seen':<17} {terminal(sampler.problem)}", err=True)


def _finish(reason: str, longest: int | None) -> str:
    if reason == "length" and longest is not None:
        return f"length: the answer reached the form's longest answer of {longest:,} tokens; --max-tokens asks for more"
    ending = {"stop": "the model ended its answer", "length": "the answer reached its longest length"}.get(reason)
    return f"{reason}: {ending}" if ending else reason or "the server gives no reason"


def _course(
    sampler: Sampler, value: Callable[[Snapshot], float | None]
) -> tuple[float | None, float | None, float | None]:
    """A metric's value at the start, at its highest and at the end; None if it was missing."""
    seen = [figure for snapshot in sampler.snapshots if (figure := value(snapshot)) is not None]
    return (seen[0], max(seen), seen[-1]) if seen else (None, None, None)


def as_mapping(endpoint: Endpoint, answer: chat.Completion, sampler: Sampler) -> dict[str, Any]:
    """The answer and its figures, for programs."""
    facts = dataclasses.asdict(answer)
    texts = {name: encodable(facts.pop(name)) for name in ("text", "reasoning", "finish_reason")}
    return {
        "schema_version": 1,
        "service": endpoint.service,
        "namespace": endpoint.namespace,
        "model": endpoint.model,
        "url": endpoint.url,
        "how": endpoint.how,
        "pod": endpoint.pod,
        **texts,
        "tool_calls": [encodable(name) for name in facts.pop("tool_calls")],
        **facts,
        "meanwhile": {
            name: dict(zip(("start", "peak", "end"), _course(sampler, value), strict=True))
            for name, _, value, _ in _WATCHED
        },
        "looks": len(sampler.snapshots),
        "not_seen": sampler.problem,
    }


_LARGEST_PROMPT = 16 * MIB  # bytes; a million tokens take a third of it


def query_service(
    service: ServiceArgument,
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    environment: ServiceEnvironmentOption = "",
    system: Annotated[str, typer.Option("--system", help="The system message before the prompt.")] = "",
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", help="The longest answer. Default: the form's, or all that fits.", min=1),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", help="0 always takes the likeliest token. Default: the server's.", min=0),
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Whether to show and time the answer as it comes.")
    ] = True,
    base_url: Annotated[
        str,
        typer.Option(
            "--base-url",
            help="The address for its clients. Default: a port-forward. With $NEUROSCALE_API_KEY or "
            "$NEUROSCALE_API_KEY_FILE (mode 0600), no cluster is asked.",
        ),
    ] = "",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Ask a service, and print the figures of the answer. Exit status: 1 the endpoint failed, 2 it cannot be asked."""

    if temperature is not None and not math.isfinite(temperature):
        raise InputError.at("--temperature", "", f"{temperature} is not a temperature", "Write a number from 0.")
    prompt_text = _prompt(prompt)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt_text})
    where = Where(context, kubeconfig, state)
    with _endpoint(service, environment, base_url, where, repository) as (endpoint, request):
        longest = request.longest_answer_tokens if request is not None and max_tokens is None else None
        options = chat.Options(max_tokens=max_tokens or longest, temperature=temperature)
        printer = AnswerPrinter()
        show = None if as_json else printer.part
        with Sampler(endpoint) as sampler:
            try:
                answer = chat.chat(endpoint, messages, options, stream=stream, on_part=show)
            finally:
                printer.end()
    if as_json:
        print_json(as_mapping(endpoint, answer, sampler))
        return ExitStatus.PASSED
    if not stream:
        printer.whole(answer)
    print_figures(endpoint, answer, sampler, longest)
    return ExitStatus.PASSED


@contextlib.contextmanager
def _endpoint(
    service: str, environment: str, base_url: str, where: Where, repository: Path | None
) -> Iterator[tuple[Endpoint, Request | None]]:
    api_key = key.from_environment()
    if base_url and api_key is not None:
        # Address and key suffice: no cluster is asked.
        with open_endpoint(None, "", service, base_url=base_url, api_key=api_key) as endpoint:
            yield endpoint, None
        return
    opened = open_repository(repository)
    with opened_service(service, environment, where, opened, TO_STDERR) as chosen:
        cluster, target = chosen.cluster, chosen.service
        if not base_url:
            asked_for = next(status for status in chosen.statuses if status.namespace == target.namespace)
            _check_answering(asked_for, command_lines(cluster))
        with open_endpoint(cluster, target.namespace, target.name, base_url=base_url) as endpoint:
            path = ServicePath(target.environment, target.name) if target.environment else None
            yield endpoint, chosen.clone.request(path) if path else None


def _check_answering(status: ServiceStatus, lines: CommandLines) -> None:
    """Raises EndpointError, with the message of `neuroscale status`, if no pod could answer."""
    if any(pod.state == "ready" for pod in status.pods):
        return
    pods = "; ".join(f"pod {pod.name}: {pod.told.rstrip('.')}" for pod in status.pods[:3])
    reason = f"{status.verdict}: {status.reason}".removesuffix(".")
    message = f"No pod of {status.name} is ready ({pods or 'it has none'}). It is {reason}"
    see = f"See: {lines.own(f'status {status.name}')}"
    raise EndpointError(f"{message}. {status.next or see}")


def _prompt(argument: str) -> str:
    """The prompt to send: the argument, or standard input for `-`. Raises InputError if it cannot be sent."""

    prompt = argument
    if argument == "-":
        data = sys.stdin.buffer.read(_LARGEST_PROMPT + 1)
        if len(data) > _LARGEST_PROMPT:
            message = f"is longer than {_LARGEST_PROMPT:,} bytes"
            raise InputError.at("standard input", "", message, "No model takes so much: shorten it.")
        try:
            prompt = data.decode()
        except UnicodeDecodeError as error:
            raise InputError.at(
                "standard input", "", f"is not UTF-8 (byte {error.start})", "Give the prompt as text."
            ) from None
    if not prompt.strip():
        raise InputError.at("the prompt", "", "is empty", "Give a prompt, or - to read it from standard input.")
    return encodable(prompt)

"""`neuroscale query`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from neuroscale.cli.clusters import Where, open_cluster, question
from neuroscale.cli.context import open_repository
from neuroscale.cli.services import one_service
from neuroscale.cluster.endpoint import chat, key
from neuroscale.cluster.endpoint.access import Endpoint, open_endpoint
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.endpoint.metrics import Sampler, Snapshot
from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.cluster.service_status_reader import Reader
from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.printable import TerminalStream, encodable, terminal

_LARGEST_PROMPT = 16 * 1024 * 1024  # bytes; a million tokens take a third of it
_WATCHED: tuple[tuple[str, str, Callable[[Snapshot], float | None], Callable[[float], str]], ...] = (
    ("running", "requests running", lambda one: one.running, lambda value: f"{value:,.0f}"),
    ("waiting", "requests waiting", lambda one: one.waiting, lambda value: f"{value:,.0f}"),
    ("kv_cache_usage", "KV cache used", lambda one: one.kv_cache_usage, lambda value: f"{value:.2%}"),
)


@dataclass(frozen=True)
class Asked:
    """What is asked, and how. `prompt`: `-` stands for standard input."""

    prompt: str
    system: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    stream: bool = True
    base_url: str = ""


def query_service(
    service: str, environment: str, asked: Asked, where: Where, repository: Path | None, *, as_json: bool
) -> int:
    """Ask a service, and print its answer and what it took.

    The answer goes to standard output and the figures to standard error, so that the answer can be kept. Raises
    InputError, EndpointError (exit status 1), KubernetesError.
    """
    prompt = _prompt(asked.prompt)
    messages = [{"role": "system", "content": asked.system}] if asked.system else []
    messages.append({"role": "user", "content": prompt})
    options = chat.Options(max_tokens=asked.max_tokens, temperature=asked.temperature)
    with _endpoint(service, environment, asked.base_url, where, repository) as endpoint:
        printer = _Printer()
        show = None if as_json else printer.part
        with Sampler(endpoint) as sampler:
            try:
                answer = chat.chat(endpoint, messages, options, stream=asked.stream, on_part=show)
            finally:
                printer.end()
    if as_json:
        typer.echo(json.dumps(_json(endpoint, answer, sampler), indent=2))
        return ExitStatus.PASSED
    if not asked.stream:
        printer.whole(answer)
    _print_figures(endpoint, answer, sampler)
    return ExitStatus.PASSED


@contextlib.contextmanager
def _endpoint(
    service: str, environment: str, base_url: str, where: Where, repository: Path | None
) -> Iterator[Endpoint]:
    given = key.from_environment()
    if base_url and given is not None:
        # Address and key are all that it takes: no cluster is asked.
        with open_endpoint(None, "", service, base_url=base_url, api_key=given) as endpoint:
            yield endpoint
        return
    context = open_repository(repository)
    asked = question(service, environment, context)
    clone = Clone(context.root, context.settings.repository.default_branch)
    with contextlib.closing(clone), open_cluster(where) as cluster:
        answer = Reader(cluster, clone).ask(asked)
        found = one_service(answer.services, asked.name)
        if not base_url:
            _check_answering(next(one for one in answer.services if one.namespace == found.namespace))
        with open_endpoint(cluster, found.namespace, found.name, base_url=base_url) as endpoint:
            yield endpoint


def _check_answering(status: ServiceStatus) -> None:
    """Raises EndpointError, in the words of `neuroscale status`, where no pod could answer."""
    if any(pod.state == "ready" for pod in status.pods):
        return
    pods = "; ".join(f"pod {pod.name}: {pod.told}" for pod in status.pods[:3])
    reason = f"{status.verdict}: {status.reason}".removesuffix(".")
    told = f"No pod of {status.name} is ready ({pods or 'it has none'}). It is {reason}"
    raise EndpointError(f"{told}. {status.next or f'See: neuroscale status {status.name}'}")


def _prompt(given: str) -> str:
    prompt = given
    if given == "-":
        data = sys.stdin.buffer.read(_LARGEST_PROMPT + 1)
        if len(data) > _LARGEST_PROMPT:
            told = f"is longer than {_LARGEST_PROMPT:,} bytes"
            raise InputError(Problem("standard input", "", told, "No model takes so much: shorten it."))
        try:
            prompt = data.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                Problem("standard input", "", f"is not UTF-8 (byte {error.start})", "Give the prompt as text.")
            ) from None
    if not prompt.strip():
        raise InputError(Problem("the prompt", "", "is empty", "Write it, or - to read it from standard input."))
    return encodable(prompt)


class _Printer:
    """Writes an answer as it comes. A model's text may hold anything, and nothing of it reaches the terminal as a
    command."""

    def __init__(self) -> None:
        self._stream = TerminalStream()
        self._thinking = False
        self._wrote = False

    def part(self, part: chat.Part) -> None:
        if part.reasoning and not self._wrote:
            self._write("Thinking:\n")
        elif self._thinking and not part.reasoning:
            self._write(self._stream.end() + "\n\nAnswer:\n")
        self._thinking = part.reasoning
        self._write(self._stream.add(part.text))

    def end(self) -> None:
        """End the line that was begun."""
        self._write(self._stream.end())
        if self._wrote:
            typer.echo()

    def whole(self, answer: chat.Answer) -> None:
        """An answer that was not streamed."""
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


# ------------------------------------------------------------ figures


def _print_figures(endpoint: Endpoint, answer: chat.Answer, sampler: Sampler) -> None:
    if not (answer.text or answer.reasoning):
        typer.echo("The model answered nothing.", err=True)
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
    told = {"stop": "the model ended its answer", "length": "the answer is as long as it may be"}.get(reason)
    return f"{reason}: {told}" if told else reason or "the server gives no reason"


def _course(
    sampler: Sampler, value: Callable[[Snapshot], float | None]
) -> tuple[float | None, float | None, float | None]:
    """A metric's value at the start, at its highest and at the end; None where it was not there."""
    seen = [found for one in sampler.snapshots if (found := value(one)) is not None]
    return (seen[0], max(seen), seen[-1]) if seen else (None, None, None)


def _json(endpoint: Endpoint, answer: chat.Answer, sampler: Sampler) -> dict[str, Any]:
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
        **found,
        "meanwhile": {
            name: dict(zip(("start", "peak", "end"), _course(sampler, value), strict=True))
            for name, _, value, _ in _WATCHED
        },
        "looks": len(sampler.snapshots),
        "not_seen": sampler.problem,
    }

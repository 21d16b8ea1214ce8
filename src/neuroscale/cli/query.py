"""`neuroscale query`: asks a deployed service one question."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.chosen_cluster import Where, open_cluster
from neuroscale.cli.json_output import print_json
from neuroscale.cli.options import (
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    RepositoryOption,
    ServiceArgument,
    ServiceEnvironmentOption,
)
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.units import MIB

if TYPE_CHECKING:
    from neuroscale.cluster.command_lines import CommandLines
    from neuroscale.cluster.endpoint.connection import Endpoint
    from neuroscale.cluster.service_status import ServiceStatus

_LARGEST_PROMPT = 16 * MIB  # bytes; a million tokens take a third of it


def query_service(
    service: ServiceArgument,
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    environment: ServiceEnvironmentOption = "",
    system: Annotated[str, typer.Option("--system", help="The system message before the prompt.")] = "",
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="The longest answer. Default: all that fits.", min=1)
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
    from neuroscale.cli.completion_view import AnswerPrinter, as_mapping, print_figures
    from neuroscale.cluster.endpoint import chat
    from neuroscale.cluster.endpoint.metrics import Sampler

    if temperature is not None and not math.isfinite(temperature):
        raise InputError(Problem("--temperature", "", f"{temperature} is not a temperature", "Write a number from 0."))
    asked = _prompt(prompt)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": asked})
    options = chat.Options(max_tokens=max_tokens, temperature=temperature)
    with _endpoint(service, environment, base_url, Where(context, kubeconfig, state), repository) as endpoint:
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
    print_figures(endpoint, answer, sampler)
    return ExitStatus.PASSED


@contextlib.contextmanager
def _endpoint(
    service: str, environment: str, base_url: str, where: Where, repository: Path | None
) -> Iterator[Endpoint]:
    from neuroscale.cli.chosen_service import one_service, services_asked
    from neuroscale.cli.open_repository import open_repository
    from neuroscale.cluster.command_lines import command_lines
    from neuroscale.cluster.endpoint import key
    from neuroscale.cluster.endpoint.access import open_endpoint
    from neuroscale.cluster.service_status_reader import Reader
    from neuroscale.cluster.services_in_git import Clone

    given = key.from_environment()
    if base_url and given is not None:
        # Address and key suffice: no cluster is asked.
        with open_endpoint(None, "", service, base_url=base_url, api_key=given) as endpoint:
            yield endpoint
        return
    opened = open_repository(repository)
    asked = services_asked(service, environment, opened)
    clone = Clone(opened.root, opened.settings.repository.default_branch)
    with contextlib.closing(clone), open_cluster(where) as cluster:
        answer = Reader(cluster, clone).ask(asked)
        found = one_service(answer.services, asked.name)
        if not base_url:
            asked_for = next(one for one in answer.services if one.namespace == found.namespace)
            _check_answering(asked_for, command_lines(cluster))
        with open_endpoint(cluster, found.namespace, found.name, base_url=base_url) as endpoint:
            yield endpoint


def _check_answering(status: ServiceStatus, lines: CommandLines) -> None:
    """Raises EndpointError, with the message of `neuroscale status`, if no pod could answer."""
    from neuroscale.cluster.endpoint.errors import EndpointError

    if any(pod.state == "ready" for pod in status.pods):
        return
    pods = "; ".join(f"pod {pod.name}: {pod.told.rstrip('.')}" for pod in status.pods[:3])
    reason = f"{status.verdict}: {status.reason}".removesuffix(".")
    told = f"No pod of {status.name} is ready ({pods or 'it has none'}). It is {reason}"
    see = f"See: {lines.own(f'status {status.name}')}"
    raise EndpointError(f"{told}. {status.next or see}")


def _prompt(given: str) -> str:
    """The prompt to send: the argument, or standard input for `-`. Raises InputError if it cannot be sent."""
    from neuroscale.core.printable import encodable

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
        raise InputError(Problem("the prompt", "", "is empty", "Give a prompt, or - to read it from standard input."))
    return encodable(prompt)

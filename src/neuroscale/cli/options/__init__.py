"""Defines the options that several commands share, and prints what commands print alike."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuroscale.actions.progress import Progress
from neuroscale.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


def print_json(fields: Mapping[str, Any]) -> None:
    """Print a mapping as JSON, one field on each line."""
    from neuroscale.core.json_text import json_text

    typer.echo(json_text(fields))


@dataclass(frozen=True)
class Reports:
    """The file for a result in each format; None: not written."""

    json: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None


def write_whole(path: Path, text: str) -> None:
    """Write a file so that its name never holds a half-written one. Raises OSError, and then leaves no file.

    What is no plain file (/dev/null, /dev/stdout, a pipe) is written into and stays what it is.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(path)
    except OSError:
        half.unlink(missing_ok=True)
        raise


def say_progress(text: str) -> None:
    """One line on standard error, which says what the command does now."""
    typer.echo(f"{text} ...", err=True)


TO_STDERR = Progress(say_progress, lambda text: typer.echo(text, err=True))
"""Tells the person at the terminal, beside the answer."""


def say_source(note: str) -> None:
    """Say on standard error whose settings or catalog answer, if there is a note about it."""
    if note:
        typer.echo(note, err=True)


RepositoryOption = Annotated[
    Path | None,
    typer.Option("--repository", help="The platform repository. Default: the one around the current folder."),
]
InputsOption = Annotated[
    Path | None,
    typer.Option(
        "--repository",
        help="The platform repository. Default: the one around the current folder; outside every one, the example that "
        "this program brings.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
PictureOption = Annotated[
    Path | None, typer.Option("--picture", help="Draw the memory of one accelerator into this file (.svg or .png).")
]

# ---------------------------------------------------------------------------------------------- the cluster to ask

KubeconfigOption = Annotated[Path | None, typer.Option("--kubeconfig", help="Default: $KUBECONFIG, or ~/.kube/config.")]
ContextOption = Annotated[
    str | None, typer.Option("--context", help="The kubeconfig context of the cluster. Default: the current one.")
]
ClusterStateOption = Annotated[
    Path | None,
    typer.Option("--state", help="The folder of a local platform to ask. Default: .state/local, while that runs."),
]

# ---------------------------------------------------------------------------------------------- the service to ask

ServiceArgument = Annotated[str, typer.Argument(help="A service: its name, or ENVIRONMENT/SERVICE.")]
ServiceEnvironmentOption = Annotated[str, typer.Option("--environment", help="The service's environment.")]

# ----------------------------------------------------------------------------------------------------- the forge

PullRequestOption = Annotated[
    bool, typer.Option("--pull-request", help="Judge the change and open its pull request; write nothing here.")
]
RemoteOption = Annotated[str, typer.Option("--remote", help="The git remote whose forge gets the request.")]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="A file of mode 0600 with the forge's token. Default: $NEUROSCALE_FORGE_TOKEN, or the file that "
        "$NEUROSCALE_FORGE_TOKEN_FILE names.",
    ),
]
LocalForgeOption = Annotated[
    bool,
    typer.Option("--local", help="Use the forge of `neuroscale local up`, as its developer: no remote, no token."),
]

# -------------------------------------------------------------------------------------------------- a form's answers

AnswersOption = Annotated[Path | None, typer.Option("--answers", help="A YAML file with the form's answers.")]
InteractiveOption = Annotated[bool, typer.Option("--interactive", help="Ask for each answer.")]

# ----------------------------------------------------------------------------------------------- the local platform

LocalStateOption = Annotated[
    Path | None, typer.Option("--state", help="The platform's folder. Default: .state/local of the repository.")
]

# ------------------------------------------------------------------------------------- a model on accelerators

ModelOption = Annotated[
    str, typer.Option("--model", help="A model of the catalog, a folder, a config.json, or a model of the Hub.")
]
AcceleratorOption = Annotated[
    str | None, typer.Option("--accelerator", help="An accelerator of the catalog, or any name with --memory-gib.")
]
CountOption = Annotated[
    int | None,
    typer.Option(
        "--count", help="The number of accelerators; also the tensor parallel size unless --vllm-args sets it."
    ),
]
ArgumentsOption = Annotated[str, typer.Option("--vllm-args", help="The arguments of `vllm serve`, as one text.")]
VersionOption = Annotated[
    str, typer.Option("--vllm-version", help="The version of vLLM. Default: the one of the rendered manifests.")
]
MemoryOption = Annotated[
    float | None, typer.Option("--memory-gib", help="Memory of one accelerator, in GiB (2^30 bytes).")
]
BandwidthOption = Annotated[
    float | None, typer.Option("--bandwidth-gbs", help="Bandwidth of its memory, in 10^9 bytes per second.")
]
UsedOption = Annotated[
    float | None,
    typer.Option("--used-gib", help="GiB that other programs hold of each accelerator, such as a desktop."),
]
VariablesOption = Annotated[
    list[str] | None, typer.Option("--env", help="A variable of the server, as NAME=VALUE. May be given again.")
]

# ------------------------------------------------------------------------------------------- costs and metrics

PrometheusOption = Annotated[
    str,
    typer.Option(
        "--prometheus-url",
        help="The address of Prometheus. Default: the Service that the settings name, by a port-forward.",
    ),
]
WindowOption = Annotated[
    str,
    typer.Option(
        "--window",
        help="The time window, in UTC: 24h, 7d, a day (2026-11-01), days (2026-11-01..2026-11-07), a month (2026-11), "
        "today, yesterday, month or lastmonth.",
    ),
]
AskedEnvironmentOption = Annotated[
    str, typer.Option("--environment", help="The environment whose OpenCost is asked, by the settings.")
]
OpenCostOption = Annotated[
    str,
    typer.Option(
        "--opencost-url",
        help="Where OpenCost answers. Default: the one that `neuroscale local up --with cost` runs in .state/local "
        "(`reconcile` asks it only with --dry-run), else the Service that the settings name, by a port-forward.",
    ),
]

# ------------------------------------------------------------------------------------------ a change of a service

ChangedServiceArgument = Annotated[
    str,
    typer.Argument(help="A service of the forge's main branch: its folder, ENVIRONMENT/SERVICE, or its name alone."),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Only show what follows: nothing is judged or pushed. Without a token, by this clone's main branch.",
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why: it stands in the pull request.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="FIELD=VALUE: an answer of the form (longest_prompt_tokens=16384), or an override of the plan "
        "(overrides.max_num_seqs=64, with --reason and --until). Again for more.",
    ),
]
UnsetOption = Annotated[
    list[str] | None,
    typer.Option("--unset", help="A field to leave out: a typical length, or an override (overrides.max_num_seqs)."),
]
UntilOption = Annotated[str, typer.Option("--until", help="The last day of the overrides that --set sets: 2027-01-31.")]


def plain_console(width: int = 0) -> Console:
    """A console that prints text as it is. `width`: rows are never cut off, and may be that wide at least: a line that
    a narrow terminal wraps can still be read."""
    from rich.console import Console

    if not width:
        return Console(highlight=False)
    return Console(highlight=False, soft_wrap=True, width=max(width, shutil.get_terminal_size().columns))


def split_words(vllm_args: str) -> tuple[str, ...]:
    """The words of --vllm-args. Raises InputError for a quotation mark that is not closed."""
    try:
        return tuple(shlex.split(vllm_args))
    except ValueError as error:
        fix = "Close every quotation mark."
        raise InputError.at("--vllm-args", "", f"cannot be split into words: {error}", fix) from error

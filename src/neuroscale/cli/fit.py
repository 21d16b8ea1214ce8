"""`neuroscale fit`: says whether a model fits an accelerator with given arguments of vLLM."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroscale.cli.json_output import print_json
from neuroscale.cli.options import JsonOption, PictureOption, RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError, Problem


def show_fit(
    model: Annotated[
        str, typer.Option("--model", help="A model of the catalog, a folder, a config.json, or a model of the Hub.")
    ],
    accelerator: Annotated[
        str | None, typer.Option("--accelerator", help="An accelerator of the catalog, or any name with --memory-gib.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", help="The number of accelerators; also the tensor parallel size unless --vllm-args sets it."
        ),
    ] = None,
    vllm_args: Annotated[str, typer.Option("--vllm-args", help="The arguments of `vllm serve`, as one text.")] = "",
    vllm_version: Annotated[
        str, typer.Option("--vllm-version", help="The version of vLLM. Default: the one of the rendered manifests.")
    ] = "0.32.0",
    memory_gib: Annotated[
        float | None, typer.Option("--memory-gib", help="Memory of one accelerator, in GiB (2^30 bytes).")
    ] = None,
    bandwidth_gbs: Annotated[
        float | None, typer.Option("--bandwidth-gbs", help="Bandwidth of its memory, in 10^9 bytes per second.")
    ] = None,
    used_gib: Annotated[
        float | None,
        typer.Option("--used-gib", help="GiB that other programs hold of each accelerator, such as a desktop."),
    ] = None,
    environment: Annotated[
        list[str] | None, typer.Option("--env", help="A variable of the server, as NAME=VALUE. May be given again.")
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", help="Tell how many requests of this many tokens fit at once.", min=1)
    ] = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Say whether a model fits an accelerator under vLLM, how much it serves at once, and why. Exit status 1: it does
    not."""
    from neuroscale.cli.fit_answer import Question, answer, as_mapping
    from neuroscale.cli.open_repository import open_repository

    question = Question(
        model,
        accelerator,
        count,
        vllm_args,
        vllm_version,
        memory_gib,
        bandwidth_gbs,
        used_gib,
        tuple(environment or ()),
    )
    result = answer(question, open_repository(repository).catalog)
    if length is not None and length > result.max_model_len:
        raise InputError(
            Problem(
                "the command line",
                "--length",
                f"{length:,} tokens are more than a request may have here, which is {result.max_model_len:,}",
                f"Write at most {result.max_model_len}, or raise --max-model-len in --vllm-args.",
            )
        )
    if picture is not None:
        from neuroscale.report.memory_picture import write_picture

        write_picture(result.memory_gib, f"{result.model} on {result.count} x {result.accelerator}", picture)
    if as_json:
        print_json(as_mapping(result, length))
    else:
        from rich.console import Console

        from neuroscale.report.fit_view import print_fit

        print_fit(result, Console(highlight=False), length)
    return ExitStatus.FINDINGS if result.verdict == "refused" else ExitStatus.PASSED

"""`neuroscale gate`: judges a change or files."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.options import Reports, RepositoryOption, plain_console, write_whole
from neuroscale.core import delivered
from neuroscale.core.errors import ExitStatus, InputError, NeuroscaleError, UntrustedError

if TYPE_CHECKING:
    from neuroscale.gate.verdict import Verdict

__all__ = ["Reports", "gate", "run_gate"]


def gate(
    paths: Annotated[list[Path] | None, typer.Argument(help="Folders or files of manifests.")] = None,
    base: Annotated[
        str, typer.Option("--base", help="Check the change that a merge of --head into this revision brings.")
    ] = "",
    head: Annotated[str, typer.Option("--head", help="The revision to check.")] = "",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the verdict as JSON here ('-': print).")
    ] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the verdict as JUnit XML here.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the verdict as Markdown here.")
    ] = None,
    only_read_head: Annotated[
        bool, typer.Option("--only-read-head", help="Do not run code of the change; for workflows that hold a token.")
    ] = False,
    server: Annotated[
        bool,
        typer.Option(
            "--server", help="Also ask a Kubernetes API server, which is started only for this run (seconds)."
        ),
    ] = False,
    strict: Annotated[
        bool | None,
        typer.Option(
            "--strict/--no-strict",
            help="Refuse objects of kinds that no check judges, and models of the Hub without a commit in folders of "
            "no environment. Default: refuse them in a change, name them for PATHS.",
        ),
    ] = None,
    repository: RepositoryOption = None,
) -> int:
    """Judge manifests. Exit status: 0 passed, 1 findings, 2 unusable input, 3 the gate cannot be trusted."""
    reports = Reports(json_file, junit_file, markdown_file)
    return run_gate(
        paths or [], base, head, repository, reports, only_read_head=only_read_head, server=server, strict=strict
    )


def run_gate(
    paths: list[Path],
    base: str,
    head: str,
    repository: Path | None,
    reports: Reports,
    *,
    only_read_head: bool = False,
    server: bool = False,
    strict: bool | None = None,
) -> int:
    """Judge, write the reports, print the verdict; returns the exit status.

    A report to the file `-` is printed in place of the text.

    `only_read_head`: no code of the change runs, not even beside the base's. `server`: an API server is asked, too.
    `strict`: an object of a kind that no check judges is a finding; by default it is one for a change but not for
    paths.
    """
    for path in (reports.json, reports.junit, reports.markdown):
        if path is not None and path.is_file():
            path.unlink()  # an older run's report must never be taken for this run's
    try:
        verdict = _judge(paths, base, head, repository, only_read_head=only_read_head, server=server, strict=strict)
    except NeuroscaleError as error:
        verdict = _no_verdict(error)
    except Exception as error:
        if os.environ.get("NEUROSCALE_DEBUG"):
            raise
        verdict = _no_verdict(UntrustedError(f"a defect of this program: {type(error).__name__}: {error}"))
    try:
        _write(verdict, reports)
    except InputError as error:
        # Untrusted outranks unusable, and the terminal still shows the findings.
        sys.stderr.write(f"neuroscale: {error}\n")
        status = ExitStatus(max(verdict.exit_status, error.exit_status))
    else:
        status = ExitStatus(verdict.exit_status)
    if reports.json is not None and str(reports.json) == "-":
        return status
    from neuroscale.report.terminal import print_verdict

    print_verdict(verdict, plain_console())
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from neuroscale.report.annotations import to_annotations

        sys.stdout.write(to_annotations(verdict))
    return status


def _judge(
    paths: list[Path],
    base: str,
    head: str,
    repository: Path | None,
    *,
    only_read_head: bool,
    server: bool,
    strict: bool | None,
) -> Verdict:
    from neuroscale.gate.merged_change import find_change
    from neuroscale.gate.runner import gate_change, gate_paths
    from neuroscale.repo.git import Git
    from neuroscale.repo.layout import find_root

    today = datetime.now(UTC).date()
    if bool(paths) == bool(base or head) or bool(base) != bool(head):
        raise InputError.at(
            "the command line", "", "names neither paths nor a change to judge", "Give PATH..., or --base and --head."
        )
    if paths:
        return gate_paths(paths, _root(repository), today, server=server, strict=bool(strict))
    # The revisions belong to the repository around the current folder, never to this program's own.
    git = Git(find_root(repository or Path.cwd()))
    try:
        change = find_change(git, base, head)
        from neuroscale.gate.gate_code_of_base import judge_by_base, judge_by_both, needs_judges

        if not needs_judges(change):
            from neuroscale.actions.open_repository import say_other_tool
            from neuroscale.gate.gate_of_pin import judged_by_both_pins

            say_other_tool(change.before)
            verdict = gate_change(change, today, server=server, strict=strict is not False)
            return judged_by_both_pins(change, verdict, server=server, strict=strict is not False)
        judge = judge_by_base if only_read_head else judge_by_both
        return judge(change, server=server, strict=strict is not False)
    finally:
        git.close()


def _root(repository: Path | None) -> Path | None:
    """The repository whose policies judge: the named one, the one around the current folder, or this program's own.

    None where there is no such repository, because the program comes from a wheel.
    """
    from neuroscale.actions.open_repository import repository_root
    from neuroscale.repo.layout import find_root

    if repository is not None:
        return repository_root(repository)
    try:
        return repository_root(None)
    except InputError:
        return None if delivered.CHECKOUT is None else find_root(delivered.CHECKOUT)


def _no_verdict(error: NeuroscaleError) -> Verdict:
    from neuroscale import __version__
    from neuroscale.gate.verdict import Check, Outcome, Verdict

    outcome = Outcome.UNTRUSTED if error.exit_status is ExitStatus.UNTRUSTED else Outcome.UNUSABLE
    what = "The gate cannot be trusted" if outcome is Outcome.UNTRUSTED else "The input cannot be judged"
    return Verdict(
        tool_version=__version__,
        exit_status=error.exit_status.value,
        headline=f"{what}: {error}",
        checks=(Check(name="input", title="Input", outcome=outcome, detail=str(error)),),
        not_checked=("Everything: no check ran.",),
    )


def _write(verdict: Verdict, reports: Reports) -> None:
    for path, text in ((reports.json, _json), (reports.junit, _junit), (reports.markdown, _markdown)):
        if path is None:
            continue
        if str(path) == "-":
            sys.stdout.write(text(verdict))
            continue
        if path.is_dir():
            raise InputError.at(str(path), "", "is a folder", "Name a file for the report.")
        try:
            write_whole(path, text(verdict))
        except OSError as error:
            raise InputError.at(
                str(path), "", f"cannot be written: {error.strerror}", "Name a file in a folder that exists."
            ) from error


def _json(verdict: Verdict) -> str:
    from neuroscale.report.json_report import to_json

    return to_json(verdict)


def _junit(verdict: Verdict) -> str:
    from neuroscale.report.junit import to_junit

    return to_junit(verdict)


def _markdown(verdict: Verdict) -> str:
    from neuroscale.report.markdown import markdown

    return markdown(verdict)

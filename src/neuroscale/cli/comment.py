"""`neuroscale comment`: writes the gate's report as the one comment of a pull request. The gate's workflow runs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.open_repository import read_file
from neuroscale.actions.workflow_environment import repository_url, run_attempt, run_number, run_page
from neuroscale.core.errors import ExitStatus
from neuroscale.forge.connect import connect
from neuroscale.forge.sticky_comment import Run, write_comment
from neuroscale.forge.token import find_token

_NO_VERDICT = """\
## 🛑 The gate gave no verdict

**This is not a judgement of the change.** The gate was ended before it had one. Run it again before you merge."""


def comment_on(
    markdown: Annotated[Path, typer.Argument(help="The Markdown report that `neuroscale gate --markdown` wrote.")],
    pull_request: Annotated[int, typer.Option("--pull-request", help="The pull request's number.", min=1)],
    head: Annotated[str, typer.Option("--head", help="The commit that was judged.")],
) -> int:
    """Write the gate's report as the one comment of a pull request. Run by the gate's workflow."""
    # The comment of a newer commit or a newer run stays as it is. If the gate was ended before it wrote a report, the
    # comment says so: the report of an older commit must not stand for this one.
    run = f"[The run]({run_page(os.environ)})"
    if markdown.exists():
        text = f"{read_file(markdown).rstrip()}\n\n{run} keeps the whole verdict as JSON and JUnit.\n"
    else:
        text = f"{_NO_VERDICT}\n\n{run} tells why.\n"
    forge = connect(repository_url(os.environ), find_token())
    published = write_comment(forge, pull_request, text, Run(run_number(os.environ), run_attempt(os.environ), head))
    typer.echo(f"Pull request {pull_request}: {published}")
    return ExitStatus.PASSED

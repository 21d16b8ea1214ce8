"""`neuroscale comment`: the gate's report as the one comment of a pull request. Run by the gate's workflow."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from neuroscale.cli.context import read_file
from neuroscale.cli.workflow import repository_url, run_attempt, run_number, run_page
from neuroscale.core.errors import ExitStatus
from neuroscale.forge.connect import connect
from neuroscale.forge.sticky_comment import Run, publish
from neuroscale.forge.token import find_token

_NO_VERDICT = """\
## 🛑 The gate gave no verdict

**This is no judgement of the change.** The gate was ended before it had one. Run it again before you merge."""


def comment_on(markdown: Path, number: int, head: str) -> int:
    """Write the report, or replace an older one. A newer commit's or a newer run's comment stays as it is.

    Where the gate was ended before it wrote a report, that is said: an older commit's must not stand for this one's.
    """
    run = f"[The run]({run_page(os.environ)})"
    if markdown.exists():
        text = f"{read_file(markdown).rstrip()}\n\n{run} keeps the whole verdict as JSON and JUnit.\n"
    else:
        text = f"{_NO_VERDICT}\n\n{run} tells why.\n"
    forge = connect(repository_url(os.environ), find_token())
    published = publish(forge, number, text, Run(run_number(os.environ), run_attempt(os.environ), head))
    typer.echo(f"Pull request {number}: {published.outcome}")
    return ExitStatus.PASSED

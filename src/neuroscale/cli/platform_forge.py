"""`neuroscale platform forge`: checks that the forge protects the branch that clusters deploy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.json_output import print_json
from neuroscale.cli.options import JsonOption, RepositoryOption, TokenFileOption
from neuroscale.core.errors import ExitStatus


def check_forge(
    remote: Annotated[str, typer.Option("--remote", help="The git remote of the platform's repository.")] = "origin",
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Check that the forge protects main: a pull request, the gate's status and an approval. Exit status 1:
    one of them is missing. Who may pass the rules by is not checked."""
    from contextlib import closing

    from neuroscale.catalog.settings import load_settings
    from neuroscale.cli.remote_address import remote_address
    from neuroscale.core.printable import terminal
    from neuroscale.forge.connect import connect
    from neuroscale.forge.main_protection import problems
    from neuroscale.forge.token import find_token
    from neuroscale.repo.git import Git
    from neuroscale.repo.layout import find_root
    from neuroscale.repo.snapshot import FolderSnapshot

    root = find_root(repository or Path.cwd())
    branch = load_settings(FolderSnapshot(root)).repository.default_branch
    with closing(Git(root)) as git:
        forge = connect(remote_address(git, remote), find_token(token_file))
    found = problems(forge, branch)
    if as_json:
        print_json({"schema_version": 1, "repository": forge.repository.slug, "branch": branch, "problems": found})
    else:
        for problem in found:
            typer.echo(terminal(problem))
        if not found:
            typer.echo(terminal(f"{forge.repository.slug}: {branch} needs a pull request, the gate and an approval."))
    return ExitStatus.FINDINGS if found else ExitStatus.PASSED

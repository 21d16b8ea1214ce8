"""`neuroscale bench-merged`: measures the services that the newest merge added, for a few minutes; the smoke workflow
runs it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.bench_subject import Asked, opened_place
from neuroscale.actions.chosen_cluster import Where
from neuroscale.actions.open_repository import Repository, open_repository
from neuroscale.bench.cells import Limits
from neuroscale.bench.result import RESULT
from neuroscale.cli.bench import BenchRun, Loads
from neuroscale.cli.options import TO_STDERR, ClusterStateOption, ContextOption, KubeconfigOption, RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError, NeuroscaleError
from neuroscale.core.files import write_public
from neuroscale.core.json_text import json_text
from neuroscale.core.printable import one_line, terminal
from neuroscale.core.validation import suggest
from neuroscale.planning.fit_question import Question
from neuroscale.repo.git import Git
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE, ServicePath

_LIMITS = Limits(requests=20, cell_seconds=90.0, total_seconds=60.0)
_MOST_SERVICES = 2


def bench_merged(
    environment: Annotated[str, typer.Option("--environment", help="The environment whose new services are measured.")],
    output: Annotated[Path, typer.Option("--output", help="The folder of the results, one folder for each service.")],
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    repository: RepositoryOption = None,
) -> int:
    """Measure each service that the newest merge added, with the load of its form, if the settings ask for that
    (`bench_after_merge: short`). It changes no verdict. Exit status 1: one could not be measured."""
    opened = open_repository(repository)
    if environment not in opened.settings.environments:
        fix = suggest(environment, opened.settings.environments)
        raise InputError.at("the command line", "--environment", f"{environment!r} is not in the settings", fix)
    if opened.settings.environments[environment].bench_after_merge == "off":
        typer.echo(f"{environment}: bench_after_merge is off")
        return ExitStatus.PASSED
    names = added_services(opened.root, environment)
    typer.echo(f"{environment}: {', '.join(names) or 'no service'} is new in the newest merge")
    where, worst = Where(context, kubeconfig, state), ExitStatus.PASSED
    for name in names[:_MOST_SERVICES]:
        folder = output / name
        try:
            status = _measure(name, environment, where, folder, opened)
        except NeuroscaleError as error:
            typer.echo(terminal(f"{environment}/{name}: {error}", 2000), err=True)
            _not_measured(folder, f"{environment}/{name}", str(error))
            status = ExitStatus.FINDINGS
        worst = max(worst, ExitStatus(status))
    return worst


def added_services(root: Path, environment: str) -> list[str]:
    """The services of an environment that the newest commit has and its first parent has not."""
    with contextlib.closing(Git(root)) as git:
        if git.run("rev-parse", "--quiet", "--verify", "HEAD^1", check=False).returncode != 0:
            return []
        folder = f"{MANIFESTS}/{environment}"
        paths = git.records("diff", "-z", "--name-only", "--no-renames", "--diff-filter=A", "HEAD^1", "HEAD", folder)
    found = (ServicePath.of(path) for path in paths if path.endswith(f"/{PLAN_FILE}"))
    return sorted({path.service for path in found if path is not None})


def _measure(name: str, environment: str, where: Where, folder: Path, opened: Repository) -> int:
    given = Question("", None, None, "", "", None, None)
    asked = Asked(f"{environment}/{name}", "", "", where, given, "", "chat", None)
    with opened_place(asked, lambda: opened, TO_STDERR) as place:
        users = place.load.replica_users if place.load else 1
        loads = Loads((users,), None, None, largest=False, promise=None)
        return BenchRun(place, loads, _LIMITS, folder, as_json=False).measure(again=True)


def _not_measured(folder: Path, service: str, why: str) -> None:
    """Leave a result that says why there is none, for the comment."""
    folder.mkdir(parents=True, exist_ok=True)
    cell = {"state": "failed", "reason": one_line(why, 500), "measured": None}
    write_public(folder / RESULT, json_text({"schema_version": 1, "service": service, "cells": [cell]}))

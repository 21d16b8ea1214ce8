"""`scripts/policy_mutation`: counts the mutants of the policies and of their test objects that are caught.

With --live it finds the mutants of test objects that the running local platform admits.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from neuroscale.actions.chosen_cluster import Where, local_state, open_cluster
from neuroscale.cli import app
from neuroscale.cli.options import JsonOption, LocalStateOption, RepositoryOption, print_json
from neuroscale.core import schemas
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.files import write_public
from neuroscale.core.validation import suggest
from neuroscale.local import kserve
from neuroscale.local.process import is_running
from neuroscale.policies.policy_set import PolicySet, load_policy_set
from neuroscale.repo.layout import LOCAL_STATE, find_root
from neuroscale.repo.snapshot import FolderSnapshot, Snapshot
from policy_mutation.judge_live import Live, LiveStrength, measure_live
from policy_mutation.strength import TABLE, Strength, cells, measure, titles, total, with_table

_JUDGED_IN = "default"
_LIVE_TITLES = (
    *("Policy", "Sent", "refused by it", "before it", "equivalent"),
    *("mended", "not proven", "admitted"),
)
_MOST_SHOWN = 40
_WIDTH = 140  # characters, which the table needs


def mutate_policies(
    names: Annotated[
        list[str] | None, typer.Argument(help="Policies. Default: all, and the text that they share.")
    ] = None,
    every: Annotated[
        int, typer.Option("--one-in", min=1, help="Judge one mutant in so many, always the same ones.")
    ] = 1,
    write: Annotated[bool, typer.Option("--write", help="Renew the table of docs/policy-strength.md.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Send the test objects' mutants to the running local platform, as dry runs.")
    ] = False,
    state: LocalStateOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Change every test object and every policy in small ways, and count who catches the changes.

    Exit status 1: a changed object passes the gate, or a policy's tests do not notice a change of the policy, and the
    policy's mutations.yaml does not say why; or an entry there excuses nothing.

    With --live, exit status 1: the cluster admits a changed object, and mutations.yaml does not say why; 3: an answer
    of the cluster cannot be trusted. "Not proven" counts changed objects that are refused as their good objects are.
    """
    if write and (names or every > 1 or live):
        told = "renews the table of all policies, which needs every mutant and no cluster"
        raise InputError(Problem("the command line", "--write", told, "Leave out the names, --one-in and --live."))
    if state and not live:
        raise InputError(Problem("the command line", "--state", "names a platform to ask", "Add --live."))
    snapshot = FolderSnapshot(find_root(repository or Path.cwd()))
    policies = load_policy_set(snapshot)
    known = [policy.name for policy in policies.policies]
    for name in names or ():
        if name not in known:
            fix = suggest(name, known)
            raise InputError(Problem("the command line", "NAMES", f"{name!r} is not a policy of this repository", fix))
    progress = Console(stderr=True, highlight=False, markup=False)
    if live:
        return _mutate_live(
            snapshot,
            policies,
            names or known,
            every,
            state or snapshot.root / LOCAL_STATE,
            told=progress.print,
            as_json=as_json,
        )
    with tempfile.TemporaryDirectory(prefix="neuroscale-mutants-") as scratch:
        found = measure(
            snapshot, policies, names or known, schemas.find(), Path(scratch), told=progress.print, every=every
        )
    if write:
        _renew(snapshot.root, found)
    if as_json:
        print_json(_as_mapping(found))
    else:
        _print(found)
    return ExitStatus.FINDINGS if found.passed or found.unnoticed or found.unused else ExitStatus.PASSED


def _renew(root: Path, found: Strength) -> None:
    path = root / TABLE
    write_public(path, with_table(path.read_text(encoding="utf-8"), found.rows, TABLE))


def _as_mapping(found: Strength) -> dict[str, object]:
    return {
        "policies": [
            asdict(row) | {"not_caught": row.not_caught, "not_noticed": row.not_noticed} for row in found.rows
        ],
        "passed": [{"mutant": one.mutant.id, "why": f"{one.stage}: {one.said}".strip(": ")} for one in found.passed],
        "unnoticed": [one.mutant.id for one in found.unnoticed],
        "not_loaded": [one.mutant.id for one in found.not_loaded],
        "excusing_nothing": list(found.unused),
    }


def _print(found: Strength) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True, width=_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for index, title in enumerate(titles()):
        table.add_column(title, justify="right" if index else "left")
    for row in (*found.rows, total(found.rows)):
        table.add_row(*cells(row))
    console.print(table)
    not_loaded = [one.mutant.id for one in found.not_loaded]
    parts = (
        ("Changed objects that pass the gate", [f"{one.mutant.id}  {one.stage}  {one.said}" for one in found.passed]),
        ("Changes of policies that nobody notices", [one.mutant.id for one in found.unnoticed]),
        ("Changes of policies that Kyverno cannot load, so that they prove nothing", not_loaded),
        ("Entries of mutations.yaml that excuse nothing, or only what an earlier entry excuses", list(found.unused)),
    )
    for title, lines in parts:
        if lines:
            console.print(f"\n{title} ({len(lines)})")
            for line in lines[:_MOST_SHOWN]:
                console.print(f"  {line.rstrip()}")
            if len(lines) > _MOST_SHOWN:
                console.print(f"  and {len(lines) - _MOST_SHOWN} more; --json lists all")


def _mutate_live(
    snapshot: Snapshot,
    policies: PolicySet,
    names: Sequence[str],
    every: int,
    state: Path,
    *,
    told: Callable[[str], None],
    as_json: bool,
) -> int:
    """Print what the running local platform answers. `state`: its folder. Raises InputError if it does not run."""

    where = Where(state=state)
    platform = local_state(where)
    if platform is None or not is_running(platform):
        raise InputError(Problem(str(state), "", "does not run", "Start it: neuroscale local up --cluster"))
    with (
        open_cluster(where) as cluster,
        tempfile.TemporaryDirectory(prefix="neuroscale-mutants-") as scratch,
    ):
        found = measure_live(
            snapshot,
            policies,
            names,
            schemas.find(),
            cluster,
            Path(scratch),
            judged_in=_JUDGED_IN,
            unjudged_in=kserve.NAMESPACE,
            told=told,
            every=every,
            workers=os.cpu_count() or 1,
        )
    if as_json:
        print_json(_live_as_mapping(found))
    else:
        _print_live(found)
    return ExitStatus.FINDINGS if found.of(Live.ADMITTED) else ExitStatus.PASSED


def _live_as_mapping(found: LiveStrength) -> dict[str, object]:
    listed = {"admitted": Live.ADMITTED, "not_proven": Live.UNPROVEN, "mended": Live.MENDED}
    return {
        "policies": [asdict(row) for row in found.rows],
        "not_sent": found.not_sent,
        **{
            name: [{"mutant": one.mutant.id, "said": one.said} for one in found.of(answer)]
            for name, answer in listed.items()
        },
    }


def _print_live(found: LiveStrength) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True, width=_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for index, title in enumerate(_LIVE_TITLES):
        table.add_column(title, justify="right" if index else "left")
    rows = [astuple(row) for row in found.rows]
    for row in (*rows, ("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:]))):
        table.add_row(*map(str, row))
    console.print(table)
    for reason, count in sorted(found.not_sent.items()):
        console.print(f"Not sent, {reason}: {count}")
    admitted = found.of(Live.ADMITTED)
    if admitted:
        console.print(f"\nChanged objects that the cluster admits ({len(admitted)})")
        for one in admitted[:_MOST_SHOWN]:
            console.print(f"  {one.mutant.id}  {one.said}".rstrip())
        if len(admitted) > _MOST_SHOWN:
            console.print(f"  and {len(admitted) - _MOST_SHOWN} more; --json lists all")


def main() -> None:
    """Run the command line, and exit with the command's status."""
    app.run(app.single(mutate_policies), "scripts/policy_mutation")

"""`neuroscale policy mutate --live`: finds the mutants of test objects that the running local platform admits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.cli.chosen_cluster import Where, local_state, open_cluster
from neuroscale.cli.options import print_json
from neuroscale.core.errors import ExitStatus, InputError, Problem

if TYPE_CHECKING:
    from neuroscale.gate.mutation.live_strength import LiveStrength
    from neuroscale.policies.policy_set import PolicySet
    from neuroscale.repo.snapshot import Snapshot

_JUDGED_IN = "default"
_TITLES = (
    *("Policy", "Sent", "refused by it", "before it", "equivalent"),
    *("mended", "not proven", "admitted"),
)
_MOST_SHOWN = 40
_WIDTH = 140  # characters, which the table needs


def mutate_live(
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
    from neuroscale.core import schemas
    from neuroscale.gate.mutation.judge_live import Live
    from neuroscale.gate.mutation.live_strength import measure_live
    from neuroscale.local import kserve
    from neuroscale.local.supervisor import is_running

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
        print_json(_as_mapping(found))
    else:
        _print(found)
    return ExitStatus.FINDINGS if found.of(Live.ADMITTED) else ExitStatus.PASSED


def _as_mapping(found: LiveStrength) -> dict[str, object]:
    from dataclasses import asdict

    from neuroscale.gate.mutation.judge_live import Live

    listed = {"admitted": Live.ADMITTED, "not_proven": Live.UNPROVEN, "mended": Live.MENDED}
    return {
        "policies": [asdict(row) for row in found.rows],
        "not_sent": found.not_sent,
        **{
            name: [{"mutant": one.mutant.id, "said": one.said} for one in found.of(answer)]
            for name, answer in listed.items()
        },
    }


def _print(found: LiveStrength) -> None:
    from dataclasses import astuple

    from rich.console import Console
    from rich.table import Table

    from neuroscale.gate.mutation.judge_live import Live

    console = Console(highlight=False, markup=False, soft_wrap=True, width=_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for index, title in enumerate(_TITLES):
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

"""Writes the table of `policies/README.md`, which gives the strength of each policy as numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from neuroscale.core.errors import InputError, Problem
from neuroscale.gate.mutation.strength import Row

BEGIN, END = "<!-- mutants -->", "<!-- end of mutants -->"
_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_TITLES = (
    *("Policy", "Objects", "refused by it", "by form", "equivalent", "passed"),
    *("Mutants of it", "noticed", "equivalent", "unnoticed", "not loaded"),
)


def cells(row: Row) -> tuple[str, ...]:
    """A row's texts, in the order of the table's titles."""
    counts = (row.objects, row.by_policy, row.by_form, row.equivalents, row.not_caught)
    of_policy = (row.policies, row.noticed, row.policy_equivalents, row.not_noticed, row.not_loaded)
    return (row.policy, *map(str, counts), *map(str, of_policy))


def total(rows: Sequence[Row]) -> Row:
    """The sum of all rows."""
    of_objects = ("objects", "by_policy", "by_form", "equivalents")
    names = (*of_objects, "policies", "noticed", "policy_equivalents", "not_loaded")
    return Row("all", **{name: sum(getattr(row, name) for row in rows) for name in names})


def titles() -> tuple[str, ...]:
    """The titles of the table's columns."""
    return _TITLES


def strength_table(rows: Sequence[Row]) -> str:
    """The table as Markdown, with a last row for all policies."""
    lines = [" | ".join(_TITLES), " | ".join(["---", *["---:"] * (len(_TITLES) - 1)])]
    lines += [" | ".join(cells(row)) for row in (*rows, total(rows))]
    return "\n".join(f"| {line} |" for line in lines)


def written(text: str) -> dict[str, tuple[int, ...]]:
    """The numbers of the table in the README, by the policy's name."""
    found = _BLOCK.search(text)
    rows = [line.strip("| ").split(" | ") for line in found[0].splitlines() if line.startswith("|")] if found else []
    return {row[0]: tuple(map(int, row[1:])) for row in rows[2:]}


def with_table(text: str, rows: Sequence[Row], where: str) -> str:
    """The README with the table renewed. Raises InputError if its place is not marked."""
    if not _BLOCK.search(text):
        raise InputError(Problem(where, "", "does not mark the table's place", f"Write {BEGIN} and {END} in it."))
    return _BLOCK.sub(lambda _: f"{BEGIN}\n{strength_table(rows)}\n{END}", text)

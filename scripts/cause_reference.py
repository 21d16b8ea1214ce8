"""Writes docs/causes.md, the causes that `neuroscale explain` knows, from their files.

Usage: .venv/bin/python scripts/cause_reference.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from neuroscale.explain import load_causes

FILE = Path(__file__).resolve().parent.parent / "docs" / "causes.md"
_START = """# Causes

Why a server of vLLM did not start, or ended, as `neuroscale explain` names it. The identifiers stay as they are, so
that programs can rely on them. `scripts/cause_reference.py` writes this file from `src/neuroscale/explain/causes/`.

Public logs show how often it is right (`tests/ground_truth/logs/README.md`). The last 80 are of recent
versions and of clusters. Before anything was changed for them, it judged 44 rightly, called 26 unknown and named
another cause for ten; of the last 20 of them it judged 14 rightly and named another cause for one.

`explain` says that a cause is **not sure**, and why: an error that the cause does not explain stands before it (the
line that speaks against it is shown), only a note tells it, or its line says where something failed and not what.
What a client sent (requests, prompts, answers, addresses) is no evidence. The search takes at most 3 s of processor
time, and a log that needs more is **not judged**; of a log of more than 2 MiB or 40,000 lines the first and the
last lines are read. Every repeat of a pattern has a bound, which a test checks: write `{1,80}` instead of `+`.

| identifier | what happened | what to do |
| --- | --- | --- |
"""


def reference() -> str:
    """The whole document, in Markdown: a row for each cause, by identifier."""
    rows = [(f"`{cause.name}`", f"{cause.title}. {cause.sentence}", cause.follows) for cause in load_causes()]
    return _START + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> int:
    """Write the file. Returns 0."""
    FILE.write_text(reference(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

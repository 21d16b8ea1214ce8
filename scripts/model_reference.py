"""Writes docs/models.md: what planning makes of each architecture that the pinned vLLM serves.

Usage: .venv/bin/python scripts/model_reference.py
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from neuroscale.models.registry import removed, supported, version

FILE = Path(__file__).resolve().parent.parent / "docs" / "models.md"
_START = """# Models

This page lists how planning treats each of the {total} architectures that vLLM {version} registers.
`scripts/model_reference.py` writes this file.

- **planned** ({planned}): weights, KV cache and states follow from the file by rules that are compared with vLLM's own
  code or Transformers'. A file that says something that the rules do not know is refused by its key.
- **estimated** ({estimated}): an estimate, and the plan says so (low confidence); or refused by a key that the
  estimate cannot account for.
- **refused** ({refused}): no plan, in words.

`neuroscale model PATH` shows what is read from a `config.json`.

| architecture | answer | why |
| --- | --- | --- |
"""
_REMOVED = """
## No longer served

vLLM {version} names these architectures as removed. Where Transformers has code for one of them, vLLM may run that
code, but not if its layers keep a state (Bamba, MiniMax-Text-01). RWKV stands in neither list.

| architecture | last served by vLLM |
| --- | --- |
"""


def reference() -> str:
    """The whole document, in Markdown."""
    known = supported()
    counts = Counter(one.status for one in known.values())
    start = _START.format(
        total=len(known),
        version=version(),
        planned=counts["planned"],
        estimated=counts["estimated"],
        refused=counts["refused"],
    )
    rows = "".join(f"| {name} | {one.status} | {one.why} |\n" for name, one in known.items())
    gone = "".join(f"| {name} | {last} |\n" for name, last in removed().items())
    return start + rows + _REMOVED.format(version=version()) + gone


def main() -> int:
    """Write the file. Returns 0."""
    FILE.write_text(reference(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

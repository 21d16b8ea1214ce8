"""Draws the memory of one accelerator as a bar of text, for code blocks and terminals."""

from __future__ import annotations

import math

from neuroscale.planning.plan import Memory
from neuroscale.report.phrases import gib

# The parts differ in shape, not in colour.
_BLOCKS = "█▓▒░"
_ASCII = "#=+."
_LARGEST = 1e12  # GiB; no memory is larger, and sums stay finite


def memory_bar(memory: Memory, width: int = 64, *, ascii_only: bool = False) -> str:
    """Lines of text: the bar, `width` characters wide, and under it the GiB per accelerator that each part takes.

    If the parts need more than the usable memory, the bar is as long as the need, and a ruler under it ends where the
    usable memory ends.
    """
    symbols = _ASCII if ascii_only else _BLOCKS
    parts = [_bounded(value) for value in memory.parts.values()]
    usable = _bounded(memory.usable)
    fits = memory.free >= 0
    lines = ["".join(symbol * count for symbol, count in zip(symbols, _shares(parts, width), strict=False))]
    if not fits:
        needed = sum(parts)
        end = max(2, round(width * usable / needed)) if usable < needed else width
        lines.append(_ruler(f" {gib(memory.usable)} usable ", end, ascii_only))
    legend = [
        f"{symbol} {name} {gib(value)}" for symbol, (name, value) in zip(symbols, memory.parts.items(), strict=False)
    ]
    total = f"of {gib(memory.usable)} GiB" if fits else f"{gib(-memory.free)} GiB too much"
    lines.append(f"{'  '.join(legend)}  {total}")
    return "\n".join(lines)


def _bounded(value: float) -> float:
    return min(max(value, 0.0), _LARGEST)


def _shares(parts: list[float], width: int) -> list[int]:
    """Whole cells for each part that add up to `width`; a part above zero has at least one."""
    total = sum(parts)
    if total <= 0:
        return [0] * (len(parts) - 1) + [width]
    exact = [part / total * width for part in parts]
    cells = [max(1, math.floor(value)) if value > 0 else 0 for value in exact]
    while (gap := width - sum(cells)) != 0:
        step = 1 if gap > 0 else -1
        candidates = [index for index, value in enumerate(exact) if value > 0 and cells[index] + step >= 1]
        if not candidates:
            break
        # The part that is furthest from its exact share gives or takes one.
        chosen = max(candidates, key=lambda index: step * (exact[index] - cells[index]))
        cells[chosen] += step
    return cells


def _ruler(label: str, width: int, ascii_only: bool) -> str:
    line, end = ("-", "|") if ascii_only else ("─", "┤")
    inner = width - 1
    if len(label) >= inner:
        return f"{line * inner}{end}{label}".rstrip()
    left = (inner - len(label)) // 2
    return f"{line * left}{label}{line * (inner - left - len(label))}{end}"

"""Writes the memory of one accelerator as a Mermaid chart, which GitHub and Gitea draw inside a comment."""

from __future__ import annotations

from neuroscale.planning.plan import Memory
from neuroscale.report.phrases import gib

# Mermaid's Gantt chart lays bars end to end on an axis: a second of its time stands for a GiB.
_HEAD = ("gantt", "    title GiB on each accelerator", "    dateFormat x", "    axisFormat %s")
_LARGEST = 1e6  # GiB; no memory is larger, and the axis ends there
# Seconds that divide a minute, then minutes that divide an hour: other steps would restart at each minute or hour.
_STEPS = ((10, "1second"), (60, "5second"), (150, "10second"), (450, "30second"), (900, "1minute"), (4500, "5minute"))


def memory_chart(memory: Memory) -> str:
    """The chart's source: weights, KV cache, overhead and free memory one after the other, and the limit below them.

    If they need more than the limit, a bar that is marked critical shows how much more.
    """
    rows: list[str] = []
    end = 0
    limit = _point(memory.usable)

    def row(name: str, size: float, start: int, stop: int, mark: str = "") -> None:
        rows.extend((f"    section {name}", f"    {gib(size)} :{mark}{start}, {max(stop, start + 1)}"))

    parts = [("weights", memory.weights), ("KV cache", memory.kv_cache), ("overhead", memory.overhead)]
    for name, size in parts:
        start, end = end, end + _point(size)
        row(name, size, start, end)
    if memory.free >= 0:
        row("free", memory.free, end, limit, "done, ")
    row("limit", memory.usable, 0, limit, "active, ")
    if memory.free < 0:
        row("too much", -memory.free, limit, end, "crit, ")
    span = max(end, limit) / 1000
    step = next((step for most, step in _STEPS if span <= most), "1hour")
    return "\n".join((*_HEAD, f"    tickInterval {step}", *rows))


def _point(size: float) -> int:
    """GiB as milliseconds of the chart's time."""
    return round(min(max(size, 0.0), _LARGEST) * 1000)

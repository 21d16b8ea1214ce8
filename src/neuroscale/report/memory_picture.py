"""Draws the memory of one accelerator: the parts that weights, cache and overhead take, and the limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.core.printable import one_line
from neuroscale.planning.plan import Memory
from neuroscale.report.phrases import gib
from neuroscale.report.picture_file import FAINT, INK, PAPER, RED, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LARGEST = 1e9  # GiB; an axis is still drawn to scale

_FACES = {"weights": "#2f5d9b", "KV cache": "#e8b04a", "overhead": "#5f6b76", "free": "#f3f5f7"}
_ON_FACES = {"weights": PAPER, "KV cache": INK, "overhead": PAPER, "free": INK}


def write_picture(memory: Memory, title: str, path: Path) -> None:
    """Writes the bar as SVG or PNG, by the path's suffix: the same bytes for the same numbers and title.

    Raises InputError for another suffix, or if the file cannot be written; then it writes nothing.
    """
    title = one_line(title, 86)
    write_figure(path, title, (8, 2.5), lambda figure: _draw(figure, memory, title))


def _draw(figure: Figure, memory: Memory, title: str) -> None:
    axes = figure.add_axes((0.04, 0.37, 0.92, 0.23))
    fits = memory.free >= 0
    sizes = memory.parts
    limit = _bounded(memory.usable)
    span = max(sum(map(_bounded, sizes.values())), limit, 1e-6)
    end = 0.0
    for name, size in sizes.items():
        start, end = end, end + _bounded(size)
        axes.barh(0, end - start, left=start, height=1, color=_FACES[name], edgecolor=PAPER, linewidth=0.8)
        if not fits and end > limit:
            _beyond(axes, max(start, limit), end)
        _label(axes, name, size, (start, end), span, limit if not fits else span)
    axes.set(xlim=(0, span), ylim=(-0.5, 0.5), yticks=[])
    axes.tick_params(axis="x", colors=INK, labelsize=9)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.set_xlabel("GiB (2^30 bytes) on each accelerator", color=INK, fontsize=9)
    ink = INK if fits else RED
    axes.plot([limit, limit], [-0.5, 0.72], color=ink, linewidth=2.5, clip_on=False, solid_capstyle="butt")
    if not fits:
        axes.plot([limit, span], [0.6, 0.6], color=RED, linewidth=1.2, clip_on=False)
        axes.plot([span, span], [0.5, 0.7], color=RED, linewidth=1.2, clip_on=False)
    side, gap = ("right", -0.006) if limit > span / 2 else ("left", 0.006)
    axes.text(limit + gap * span, 0.62, f"limit {gib(memory.usable)}", color=ink, ha=side, va="bottom", fontsize=9)
    head = "within the limit" if fits else f"{gib(-memory.free)} GiB beyond the limit"
    figure.text(0.04, 0.9, title, color=INK, weight="bold")
    figure.text(0.04, 0.79, head, color=ink)
    _legend(figure, sizes, fits)


def _beyond(axes: Axes, start: float, end: float) -> None:
    """Draw the part beyond the limit: faded, and struck through."""
    axes.barh(0, end - start, left=start, height=1, color=PAPER, alpha=0.6, linewidth=0)
    axes.barh(0, end - start, left=start, height=1, fill=False, edgecolor=RED, hatch="//", linewidth=0)


def _label(axes: Axes, name: str, size: float, place: tuple[float, float], span: float, limit: float) -> None:
    """Write the size on its part of the bar, within the limit, if there is room for it."""
    start, end = place[0], min(place[1], limit)
    words = gib(size)
    if end - start > 0.013 * len(words) * span:
        color = _ON_FACES[name]
        axes.text((start + end) / 2, 0, words, color=color, ha="center", va="center_baseline", fontsize=9)


def _legend(figure: Figure, sizes: Mapping[str, float], fits: bool) -> None:
    from matplotlib.patches import Patch

    keys = [Patch(facecolor=_FACES[name], edgecolor=FAINT, label=f"{name} {gib(size)}") for name, size in sizes.items()]
    if not fits:
        keys.append(Patch(facecolor=PAPER, edgecolor=RED, hatch="////", label="beyond the limit"))
    figure.legend(
        handles=keys,
        loc="lower left",
        bbox_to_anchor=(0.03, 0.0),
        ncols=len(keys),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )


def _bounded(size: float) -> float:
    return min(max(size, 0.0), _LARGEST)

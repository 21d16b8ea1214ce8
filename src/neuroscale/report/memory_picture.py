"""Draws the memory of one accelerator: the parts that weights, cache and overhead take, and the limit."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.printable import one_line
from neuroscale.planning.plan import Memory
from neuroscale.report.phrases import gib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png")
_LARGEST = 1e9  # GiB; an axis is still drawn to scale

# Dark text on a card of its own, so that a dark page shows it as a light one does. Neighbouring parts differ in
# lightness and not only in colour.
_PAPER, _INK, _FAINT, _RED = "#ffffff", "#1f2328", "#6e7781", "#b3261e"
_FACES = {"weights": "#2f5d9b", "KV cache": "#e8b04a", "overhead": "#5f6b76", "free": "#f3f5f7"}
_ON_FACES = {"weights": _PAPER, "KV cache": _INK, "overhead": _PAPER, "free": _INK}
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "neuroscale",
    # Text stays text, in the reader's font.
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "hatch.linewidth": 1.0,
    # A model's name is not a formula.
    "text.parse_math": False,
}


def write_picture(memory: Memory, title: str, path: Path) -> None:
    """Writes the bar as SVG or PNG, by the path's suffix: the same bytes for the same numbers and title.

    Raises InputError for another suffix, or if the file cannot be written; then it writes nothing.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(Problem(str(path), "", f"ends with {path.suffix or 'no suffix'}", "Name a .svg or .png file."))
    data = _picture(memory, one_line(title, 86), suffix[1:])
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise InputError(
            Problem(str(path), "", f"cannot be written: {error.strerror}", "Name a file in a folder that exists.")
        ) from error


def _picture(memory: Memory, title: str, form: str) -> bytes:
    # The drawing library is slow to import, and only this function needs it.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        warnings.simplefilter("ignore")  # matplotlib warns about letters that the font lacks
        figure = Figure(figsize=(8, 2.5), dpi=160, facecolor=_PAPER)
        _draw(figure, memory, title)
        data = BytesIO()
        # Leave out the time and matplotlib's version: the same numbers give the same bytes.
        of_form = {"svg": {"Date": None, "Creator": None, "Title": title}, "png": {"Software": None}}
        figure.savefig(data, format=form, metadata=of_form[form])
    return data.getvalue()


def _draw(figure: Figure, memory: Memory, title: str) -> None:
    axes = figure.add_axes((0.04, 0.37, 0.92, 0.23))
    fits = memory.free >= 0
    sizes = {"weights": memory.weights, "KV cache": memory.kv_cache, "overhead": memory.overhead}
    if fits:
        sizes["free"] = memory.free
    limit = _bounded(memory.usable)
    span = max(sum(map(_bounded, sizes.values())), limit, 1e-6)
    end = 0.0
    for name, size in sizes.items():
        start, end = end, end + _bounded(size)
        axes.barh(0, end - start, left=start, height=1, color=_FACES[name], edgecolor=_PAPER, linewidth=0.8)
        if not fits and end > limit:
            _beyond(axes, max(start, limit), end)
        _label(axes, name, size, (start, end), span, limit if not fits else span)
    axes.set(xlim=(0, span), ylim=(-0.5, 0.5), yticks=[])
    axes.tick_params(axis="x", colors=_INK, labelsize=9)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.set_xlabel("GiB (2^30 bytes) on each accelerator", color=_INK, fontsize=9)
    ink = _INK if fits else _RED
    axes.plot([limit, limit], [-0.5, 0.72], color=ink, linewidth=2.5, clip_on=False, solid_capstyle="butt")
    if not fits:
        axes.plot([limit, span], [0.6, 0.6], color=_RED, linewidth=1.2, clip_on=False)
        axes.plot([span, span], [0.5, 0.7], color=_RED, linewidth=1.2, clip_on=False)
    side, gap = ("right", -0.006) if limit > span / 2 else ("left", 0.006)
    axes.text(limit + gap * span, 0.62, f"limit {gib(memory.usable)}", color=ink, ha=side, va="bottom", fontsize=9)
    head = "within the limit" if fits else f"{gib(-memory.free)} GiB beyond the limit"
    figure.text(0.04, 0.9, title, color=_INK, weight="bold")
    figure.text(0.04, 0.79, head, color=ink)
    _legend(figure, sizes, fits)


def _beyond(axes: Axes, start: float, end: float) -> None:
    """Draw the part beyond the limit: faded, and struck through."""
    axes.barh(0, end - start, left=start, height=1, color=_PAPER, alpha=0.6, linewidth=0)
    axes.barh(0, end - start, left=start, height=1, fill=False, edgecolor=_RED, hatch="//", linewidth=0)


def _label(axes: Axes, name: str, size: float, place: tuple[float, float], span: float, limit: float) -> None:
    """Write the size on its part of the bar, within the limit, if there is room for it."""
    start, end = place[0], min(place[1], limit)
    words = gib(size)
    if end - start > 0.013 * len(words) * span:
        color = _ON_FACES[name]
        axes.text((start + end) / 2, 0, words, color=color, ha="center", va="center_baseline", fontsize=9)


def _legend(figure: Figure, sizes: Mapping[str, float], fits: bool) -> None:
    from matplotlib.patches import Patch

    keys = [
        Patch(facecolor=_FACES[name], edgecolor=_FAINT, label=f"{name} {gib(size)}") for name, size in sizes.items()
    ]
    if not fits:
        keys.append(Patch(facecolor=_PAPER, edgecolor=_RED, hatch="////", label="beyond the limit"))
    figure.legend(
        handles=keys,
        loc="lower left",
        bbox_to_anchor=(0.03, 0.0),
        ncols=len(keys),
        frameon=False,
        fontsize=9,
        labelcolor=_INK,
    )


def _bounded(size: float) -> float:
    return min(max(size, 0.0), _LARGEST)

"""Writes pictures as files, in the style that all of them share.

Draws what pictures of amounts share: a bar for each name, an axis in US dollars, and columns of amounts.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroscale.core import delivered
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.printable import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FORMATS = (".svg", ".png")

# Dark text on a card of its own, so that a dark page shows it as a light one does. Neighbouring parts differ in
# lightness and not only in colour.
PAPER, INK, FAINT, RED = "#ffffff", "#1f2328", "#6e7781", "#b3261e"
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


def write_figure(path: Path, title: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> None:
    """Writes what `draw` draws as SVG or PNG, by the path's suffix: the same bytes for the same drawing and title.

    `size`: width and height in inches. Raises InputError for another suffix, without matplotlib, and where the file
    cannot be written; then nothing is.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(Problem(str(path), "", f"ends with {path.suffix or 'no suffix'}", "Name a .svg or .png file."))
    data = _bytes(title, size, suffix[1:], draw)
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


def _bytes(title: str, size: tuple[float, float], form: str, draw: Callable[[Figure], None]) -> bytes:
    # The drawing library is slow to import, and only this function needs it.
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        fix = "Install the extra `pictures` of this package."
        if delivered.CHECKOUT is not None:
            fix = "Run `make setup`, which installs it, or install the extra `pictures` of this package."
        raise InputError(Problem("--picture", "", "needs matplotlib, which is not installed here", fix)) from error
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        warnings.simplefilter("ignore")  # matplotlib warns about letters that the font lacks
        figure = Figure(figsize=size, dpi=160, facecolor=PAPER)
        draw(figure)
        data = BytesIO()
        # Leave out the time and matplotlib's version: the same numbers give the same bytes.
        of_form = {"svg": {"Date": None, "Creator": None, "Title": title}, "png": {"Software": None}}
        figure.savefig(data, format=form, metadata=of_form[form])
    return data.getvalue()


COLUMN = 0.985
"""Where the last column of amounts ends, of the picture's width."""

_LONGEST_NAME = 32
_CHARACTER, _GAP = 0.082, 0.12  # inches: a character of an axis label at 9 points, and what lies between labels

METERED, IDLE, SHARED, ESTIMATE = "#2f5d9b", "#e8b04a", "#aab4be", "#d5dbe1"
"""Faces of bars; those that lie side by side differ in lightness and not only in colour."""


def height_of(bars: int) -> float:
    """The height of a picture with so many bars, in inches."""
    return 1.97 + 0.36 * max(1, bars)


def bar_axes(figure: Figure, names: Sequence[str], span: float, *, right: float) -> Axes:
    """Axes for horizontal bars at 0, 1, 2... from the top; `right`: where they end, of the picture's width.

    A long name loses its middle: the names of a model's quantised variants differ at their ends.
    """
    height = float(figure.get_figheight())
    axes = figure.add_axes((0.28, 0.78 / height, right - 0.28, 1 - 1.72 / height))
    axes.set(xlim=(0, span * 1.005), ylim=(max(1, len(names)) - 0.4, -0.6))
    axes.set_yticks(range(len(names)), [_shortened(name) for name in names])
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.xaxis.set_major_formatter(lambda value, _: axis_label(value))
    axes.set_xticks(axis_ticks(span, (right - 0.28) * float(figure.get_figwidth())))
    axes.grid(axis="x", color="#e3e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    return axes


def _shortened(name: str) -> str:
    line = one_line(name)
    if len(line) <= _LONGEST_NAME:
        return line
    kept = _LONGEST_NAME - 3
    return f"{line[: kept - kept // 2]}...{line[-(kept // 2) :]}"


def axis_label(value: float) -> str:
    """`2,500`, `0.0025`: US dollars."""
    return f"{value:,.10g}"


def axis_ticks(span: float, width: float) -> list[float]:
    """The amounts from 0 to `span` at which an axis of `width` inches has labels that do not touch each other."""
    from matplotlib.ticker import MaxNLocator

    for most in range(8, 1, -1):
        ticks = [float(one) for one in MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(0, span) if one <= span]
        longest = max(len(axis_label(one)) for one in ticks)
        if len(ticks) < 2 or (ticks[1] - ticks[0]) / span * width >= longest * _CHARACTER + _GAP:
            return ticks
    return [0.0, span]


def column(axes: Axes, right: float, position: float, text: str, color: str = INK) -> None:
    """A text in a column of the picture that ends at `right`, beside the bar at `position` (-1: the column's title)."""
    from matplotlib.transforms import blended_transform_factory

    place = blended_transform_factory(axes.figure.transFigure, axes.transData)
    axes.text(right, position, text, transform=place, ha="right", va="center", color=color, fontsize=9, clip_on=False)


def title_and_legend(figure: Figure, title: str, subtitle: str, keys: Sequence[Any]) -> None:
    """The head of a picture, and what its faces mean."""
    height = float(figure.get_figheight())
    figure.text(0.02, 1 - 0.28 / height, title, color=INK, weight="bold")
    figure.text(0.02, 1 - 0.5 / height, subtitle, color=INK, fontsize=9)
    figure.legend(
        handles=list(keys),
        loc="lower left",
        bbox_to_anchor=(0.01, 0.0),
        ncols=max(1, len(keys)),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        facecolor=PAPER,
    )

"""Writes pictures as files, in the style that all of them share."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroscale.core.errors import InputError, Problem

if TYPE_CHECKING:
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

    `size`: width and height in inches. Raises InputError for another suffix, and where the file cannot be written; then
    nothing is.
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
    import matplotlib
    from matplotlib.figure import Figure

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

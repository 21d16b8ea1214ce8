"""Reads the numbers of a program's release out of the text of its version."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.version import VERSION_PATTERN, Version

Release = tuple[int, int, int]
"""Major, minor and patch."""

_VERSION = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)


@lru_cache(maxsize=256)
def release(version: str) -> Release:
    """The release that a text begins with: '0.19.2rc1.dev134+g0' is (0, 19, 2), and '0.9-cpu' is (0, 9, 0).

    Raises ValueError for a text that does not begin with a version.
    """
    written = _VERSION.match(version)
    if written is None:
        raise ValueError(version)
    known = Version(written[0])
    return known.major, known.minor, known.micro

"""Reads the serving runtimes that the platform itself gives every cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.serving_runtimes import runtimes_below
from neuroscale.repo.layout import RUNTIMES
from neuroscale.repo.snapshot import Snapshot


def runtimes_of(snapshot: Snapshot) -> Callable[[str], Manifest | None]:
    """A function that gives a runtime by its name, or None if it does not exist. It reads them at its first call."""

    @cache
    def known() -> dict[str, Manifest]:
        return {one.name: one for one in runtimes_below(snapshot, RUNTIMES)}

    return lambda name: known().get(name)

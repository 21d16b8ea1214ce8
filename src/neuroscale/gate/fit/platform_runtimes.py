"""The serving runtimes that the platform itself gives every cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.serving_runtimes import runtimes_below
from neuroscale.rendering.platform.runtimes import FOLDER as RUNTIME_FOLDER
from neuroscale.repo.snapshot import Snapshot


def runtimes_of(snapshot: Snapshot) -> Callable[[str], Manifest | None]:
    """Gives a runtime by its name, or None for one that there is not. They are read at the first question."""

    @cache
    def known() -> dict[str, Manifest]:
        return {one.name: one for one in runtimes_below(snapshot, RUNTIME_FOLDER)}

    return lambda name: known().get(name)

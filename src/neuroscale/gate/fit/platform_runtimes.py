"""The serving runtimes that the platform itself gives every cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from neuroscale.core.errors import InputError
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.rendering.platform.runtimes import FOLDER as RUNTIME_FOLDER
from neuroscale.repo.snapshot import Snapshot


def runtimes_of(snapshot: Snapshot) -> Callable[[str], Manifest | None]:
    """Gives a runtime by its name, or None for one that there is not. They are read at the first question."""

    @cache
    def known() -> dict[str, Manifest]:
        found = {}
        for entry in snapshot.entries(RUNTIME_FOLDER):
            data = snapshot.read(entry.path) if entry.path.endswith(".yaml") else None
            try:
                manifests = read_manifests(data, entry.path) if data is not None else []
            except InputError:
                continue  # the platform's own check says what is wrong with it
            found.update({one.name: one for one in manifests if one.kind == "ClusterServingRuntime"})
        return found

    return lambda name: known().get(name)

"""Renders the serving runtimes: one for each of the catalog's, with its image but no field that a service sets."""

from __future__ import annotations

from neuroscale.catalog import Catalog
from neuroscale.rendering.platform.filling import filled
from neuroscale.rendering.scaffolder.skeleton_values import TEMPORARY_GIB
from neuroscale.repo.layout import CATALOG, RUNTIMES


def render_runtimes(catalog: Catalog) -> dict[str, str]:
    """The runtimes, by their path in the repository."""
    return {
        f"{RUNTIMES}/{runtime.name}.yaml": filled(
            "runtime.yaml",
            entry=f"{CATALOG}/runtimes/{runtime.name}.yaml",
            name=runtime.name,
            title=runtime.title,
            version=runtime.version,
            image=runtime.reference,
            has_read_only_root=runtime.has_read_only_root,
            temporary_size=f"{TEMPORARY_GIB}Gi",
        )
        for runtime in catalog.runtimes.values()
    }

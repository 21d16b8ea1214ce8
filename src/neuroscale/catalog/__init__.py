"""Models, accelerators, prices, runtimes and teams: data in `platform/catalog/`, one file an entry."""

from neuroscale.catalog.entries import (
    Accelerator,
    Figure,
    ModelEntry,
    Price,
    PriceList,
    Quota,
    RuntimeEntry,
    Team,
)
from neuroscale.catalog.loading import Catalog, load_catalog, sha256

__all__ = [
    "Accelerator",
    "Catalog",
    "Figure",
    "ModelEntry",
    "Price",
    "PriceList",
    "Quota",
    "RuntimeEntry",
    "Team",
    "load_catalog",
    "sha256",
]

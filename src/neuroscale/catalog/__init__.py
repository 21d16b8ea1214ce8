"""Reads models, accelerators, prices, runtimes, teams and the settings: data in `platform/`, one file for each entry.

Input: the files of one moment, or the name of a model. Output: checked entries, or every mistake in them.
"""

from neuroscale.catalog.entries import Accelerator, Figure, ModelEntry, Quota, RuntimeEntry, Team
from neuroscale.catalog.loading import Catalog, load_catalog
from neuroscale.catalog.price_list import Price, PriceList

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
]

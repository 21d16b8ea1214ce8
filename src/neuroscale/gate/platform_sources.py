"""Reads the catalog, the settings and the policies of one side of a run, each once, when a check first needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Generic, TypeVar

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.settings import Settings, load_settings
from neuroscale.core.validation import unknown_fields_dropped
from neuroscale.policies.policy_set import PolicySet, load_policy_set
from neuroscale.repo.snapshot import Snapshot

T = TypeVar("T")

UNREADABLE = "the catalog, the settings or the template cannot be read"
"""The reason why a check that needs them does not run."""


class ReadOnce(Generic[T]):
    """A value that the first thread to ask for it reads, while others wait. An error in reading reaches each thread."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._values: list[T] = []

    def __call__(self) -> T:
        """The value. Raises what reading it raises."""
        with self._lock:
            if not self._values:
                self._values.append(self._read())
            return self._values[0]


class PlatformSources:
    """The platform's files in one tree.

    If files cannot be read, `catalog` and `settings` raise InputError, and `policies` raises UntrustedError. `catalog`
    and `settings` may be those of another tree whose files are the same. `is_newer`: whether a newer version of this
    tool wrote the tree, so that fields which this one does not know are left out.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        catalog: Callable[[], Catalog] | None = None,
        settings: Callable[[], Settings] | None = None,
        is_newer: Callable[[], bool] = bool,
    ) -> None:
        self.snapshot = snapshot
        self._is_newer = is_newer
        self.catalog = catalog or ReadOnce(lambda: self.read(load_catalog))
        self.settings = settings or ReadOnce(lambda: self.read(load_settings))
        self.policies: Callable[[], PolicySet] = ReadOnce(lambda: load_policy_set(snapshot))

    def read(self, load: Callable[[Snapshot], T]) -> T:
        """What `load` makes of the tree's files. Raises InputError."""
        with unknown_fields_dropped() if self._is_newer() else nullcontext():
            return load(self.snapshot)

"""Describes the replica and the load of each measurement of the ground truth, as planning sees them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from accuracy.reading import files_of, read_cases, read_file
from accuracy.speed_cases import Column, Measurement, Series, SpeedFile, read_speed_cases
from accuracy.speed_planner import SpeedPlanner, load
from neuroscale.catalog import Catalog
from neuroscale.core.errors import InputError
from neuroscale.planning.speed import Load, ReplicaSpeed

_FULL = 0.8


@dataclass(frozen=True)
class Row:
    """A measurement, with the replica that served it and the load on it; the name of its publisher's file, and the day
    on which that was read."""

    measurement: Measurement
    replica: ReplicaSpeed
    load: Load
    publisher: str
    read: str

    @property
    def is_full(self) -> bool:
        """Whether users may wait for room in the cache, so that its size and not the speed decides."""
        held = self.replica.held
        return held is not None and self.load.users > _FULL * held and self.measurement.users is not None

    @property
    def figures(self) -> Mapping[Column, float]:
        """What was measured and can be judged."""
        return self.measurement.figures

    @property
    def series(self) -> Series:
        """The series of the measurement."""
        return self.measurement.series


def rows(folder: Path, catalog: Catalog) -> tuple[list[Row], list[str]]:
    """The rows of all series that planning can describe, and a line on each series that it cannot."""
    cases = read_cases(folder)
    speeds = read_speed_cases(folder, {*cases.models, *catalog.models}, catalog.accelerators)
    planner = SpeedPlanner(cases, speeds, catalog)
    files = _files(folder)
    found, left_out = [], {}
    for measurement in speeds.measurements:
        series = measurement.series
        if series.id in left_out:
            continue
        try:
            held = planner.held(series, math.ceil(measurement.prompt) + math.ceil(measurement.answer))
            replica = replace(planner.replica(series), held=held)
            found.append(Row(measurement, replica, load(measurement), *files[series.id]))
        except (InputError, ValueError) as error:
            left_out[series.id] = f"{series.id}: {error}"
    return found, list(left_out.values())


def _files(folder: Path) -> dict[str, tuple[str, str]]:
    """The publisher's file of each series, and the day on which it was read."""
    found = {}
    for path in files_of(folder / "speed"):
        read = read_file(SpeedFile, path, [])
        for series in read.series if read else ():
            found[series.id] = (path.stem, read.read if read else "")
    return found

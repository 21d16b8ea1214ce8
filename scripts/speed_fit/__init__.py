"""Fits the efficiencies of `neuroscale.planning.speed` on published measurements: see `scripts/fit-speed`."""

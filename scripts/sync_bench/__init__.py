"""The parts of `scripts/bench-sync`."""

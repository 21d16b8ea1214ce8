"""The gate: checks of one change, each of which proves on every run that it can still fail."""

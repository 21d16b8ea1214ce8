"""Holds the gate's checks, except the fit check: the state of a run comes in, and findings go out."""

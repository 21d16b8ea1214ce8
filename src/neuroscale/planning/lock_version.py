"""Holds the versions that a plan's lock records."""

PLANNER_VERSION = "2.5.0"  # raise it whenever the same request may give another plan
TEMPLATE_VERSION = "1.4.0"

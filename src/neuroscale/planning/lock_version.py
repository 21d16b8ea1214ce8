"""Versions that a plan's lock records. Raise PLANNER_VERSION whenever the same request may give another plan."""

PLANNER_VERSION = "2.3.0"
TEMPLATE_VERSION = "1.4.0"

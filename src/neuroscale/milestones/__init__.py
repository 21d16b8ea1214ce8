"""Lessons that can be run again: each shows a failure with the real tool, and that this repository prevents it.

Comes in: the folders of `milestones/`. Goes out: for each lesson whether its `before` still fails as told and whether
its `after` holds, and the output of both in its pages.
"""

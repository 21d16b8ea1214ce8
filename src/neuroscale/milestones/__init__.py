"""Runs lessons: each shows a failure, with the real tool where it can run here, and that this repository prevents it.

Input: the folders of `milestones/`. Output: for each lesson whether its `before` still fails as it says, whether its
`after` holds, and the output of both in its pages.
"""

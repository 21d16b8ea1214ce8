"""The gate: judges what merging a change would bring, and proves on every run that each check can still fail.

Comes in: two commits, or folders of manifests. Goes out: a verdict.
"""

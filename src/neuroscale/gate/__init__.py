"""The gate: judges what merging a change would bring, and proves on every run that each check can still fail.

Input: two commits, or folders of manifests. Output: a verdict.
"""

"""Reads status, capacity and metrics from a cluster, installs the platform in it, and talks to served models.

Comes in: a kubeconfig. Goes out: verdicts in words, and answers of a served model.
"""

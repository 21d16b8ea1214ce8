"""Reads status, capacity and metrics from a cluster, installs the platform in it, and talks to served models.

Input: a kubeconfig. Output: verdicts in words, and answers of a served model.
"""

"""Smoke tests check that a running service matches its request.

Comes in: an environment and a merged commit. Goes out: one result for each check of each service.
"""

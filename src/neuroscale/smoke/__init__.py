"""Smoke tests check that a running service matches its request.

Input: an environment and a merged commit. Output: one result for each check of each service.
"""

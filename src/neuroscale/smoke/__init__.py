"""Smoke tests of what is deployed: their facts, how they are run, and what becomes of their results."""

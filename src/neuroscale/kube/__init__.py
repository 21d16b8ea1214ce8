"""Speaks to a Kubernetes API server, and runs one.

Comes in: objects and a way to a server. Goes out: what the server answers, as plain dictionaries.
"""

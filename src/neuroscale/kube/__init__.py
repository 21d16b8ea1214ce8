"""Speaks to a Kubernetes API server, and runs one.

Comes in: objects and the address of a server. Goes out: the server's answers, as plain dictionaries.
"""

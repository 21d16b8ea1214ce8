"""Speaks to a Kubernetes API server, and runs one.

Input: objects and the address of a server. Output: the server's answers, as plain dictionaries.
"""

"""Holds what every stage uses: errors, files, values, YAML, printable text, and the places of built tools.

Comes in: files, environment variables. Goes out: typed values, or an error that a user can act on.
"""
